use image::Rgb;
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;
use crate::{
    environment::{CardLine, Picture, Split, Tone},
    record::{EpisodeStatus, Finish, Metadata, Piece, SCHEMA, TokenKind, TrajectoryRecord, TurnRecord, Verdict},
};

fn turn(number: u32) -> TurnRecord {
    TurnRecord {
        turn: number,
        state: "######\n#___O#\n#__XP#\n#____#\n#____#\n######".to_owned(),
        prompt_messages: Vec::new(),
        raw_response: "<think>Push the box.</think><answer>Left || Up</answer>".to_owned(),
        thought: "The box stands left of me and the target is above it, so I walk around it first.".to_owned(),
        answer: "Left || Up".to_owned(),
        verdict: Verdict::Actions,
        finish: Finish::EndOfTurn,
        parsed_actions: vec!["Left".to_owned(), "Up".to_owned()],
        executed_actions: vec!["Left".to_owned(), "Up".to_owned()],
        reward: -0.2,
        penalty: 0.0,
        info: Map::new(),
        token_count: 41,
        sampled_token_ids: Vec::new(),
        sampled_logprobs: Vec::new(),
        pieces: Vec::new(),
    }
}

fn record(turns: Vec<TurnRecord>) -> TrajectoryRecord {
    TrajectoryRecord {
        schema: SCHEMA,
        custom_id: "traj_0".to_owned(),
        messages: Vec::new(),
        metadata: Metadata {
            env_id: 5,
            group_id: 1,
            member: 2,
            iteration: 120,
            split: Split::Validation,
            tag: "SimpleSokoban".to_owned(),
            environment: "sokoban".to_owned(),
            seed: 10_003,
            attempt: 0,
            instance_hash: "9f".to_owned(),
            num_turns: turns.len() as u32,
            total_reward: 10.5,
            episode_return: 10.6,
            penalty: -0.1,
            success: true,
            status: EpisodeStatus::Success,
            token_count: 1234,
            entropy: Some(0.82),
            difficulty: Some(7),
            gold: None,
            config: Value::Null,
            metrics: Map::new(),
        },
        turns,
        final_state: "######\n#___√#\n#___P#\n######".to_owned(),
    }
}

fn pieces() -> Vec<Piece> {
    let piece = |kind, text: &str| Piece { kind, text: text.to_owned() };
    vec![
        piece(TokenKind::Prompt, "<|im_start|>user\nState: …\n"),
        piece(TokenKind::Forced, "<think>"),
        piece(TokenKind::Sampled, "你好 push 🧊 up</think><answer>Up</answer>"),
    ]
}

fn count(image: &RgbImage, colour: Rgb<u8>) -> usize {
    image.pixels().filter(|&&pixel| pixel == colour).count()
}

fn bluish(image: &RgbImage) -> usize {
    let is_blue = |&&Rgb([red, _, blue]): &&Rgb<u8>| blue > red.saturating_add(60);
    image.pixels().filter(is_blue).count()
}

fn reddish(image: &RgbImage) -> usize {
    let is_red = |&&Rgb([red, green, blue]): &&Rgb<u8>| red > green.max(blue).saturating_add(60);
    image.pixels().filter(is_red).count()
}

#[test]
fn the_colours_say_who_wrote_the_text() {
    let plain = draw_trajectory(&record(vec![turn(1)]), &[]);
    assert!(bluish(&plain) > 500, "{}", bluish(&plain));
    assert!(reddish(&plain) > 500, "{}", reddish(&plain));
    assert_eq!(count(&plain, palette::LOSS_LINE), 0);

    let mut exact = turn(1);
    exact.pieces = pieces();
    let exact = draw_trajectory(&record(vec![exact]), &[]);
    // 43 cells of sampled text and 21 of the legend, 8 pixels wide, 2 pixels of line each, minus what descenders cover.
    let marked = count(&exact, palette::LOSS_LINE);
    assert!((800..=64 * 8 * 2).contains(&marked), "{marked}");
    assert!(count(&exact, palette::LOSS_TINT) > 4000);
}

#[test]
fn only_sampled_tokens_carry_the_mark() {
    let mut forced = turn(1);
    forced.pieces = pieces();
    forced.pieces.pop();
    let legend_only = draw_trajectory(&record(vec![forced]), &[]);
    assert!(count(&legend_only, palette::LOSS_LINE) <= 21 * 8 * 2);
}

#[test]
fn the_same_record_gives_the_same_picture() {
    let mut turn = turn(1);
    turn.pieces = pieces();
    let record = record(vec![turn]);
    let draw = || encode_png(&draw_trajectory(&record, &[])).unwrap();
    assert_eq!(draw(), draw());
}

#[test]
fn sizes_are_bounded_whatever_the_length() {
    let empty = draw_trajectory(&record(Vec::new()), &[]);
    assert!(empty.width() > 400 && empty.height() > 100);

    let mut long = turn(1);
    long.state = "#".repeat(1_000_000);
    long.thought = "why ".repeat(250_000);
    long.answer = "\n".repeat(1_000_000);
    long.parsed_actions = vec!["Up".repeat(1000); 1000];
    long.executed_actions = long.parsed_actions.clone();
    let mut pieced = turn(2);
    pieced.pieces = pieces().into_iter().cycle().take(3000).collect();
    for piece in &mut pieced.pieces {
        piece.text = piece.text.repeat(50);
    }
    let turns = [long, pieced].into_iter().cycle().take(60).collect();
    let mut record = record(turns);
    record.metadata.tag = "Tag".repeat(1000);
    record.metadata.gold = Some("漢".repeat(100_000));
    let tall = Picture::Image(RgbImage::new(300, 9000));
    let image = draw_trajectory(&record, &vec![tall; 61]);
    assert!(image.width() <= 8000 && image.height() <= 8000);
}

#[test]
fn cards_and_pictures_stand_in_for_the_state() {
    let lines = [Tone::Plain, Tone::Chosen, Tone::Good, Tone::Bad]
        .map(|tone| CardLine { text: "Phoenix arm".to_owned(), tone });
    let card = Picture::Card { title: "Bandit".to_owned(), lines: lines.to_vec() };
    let board = Picture::Image(RgbImage::from_pixel(6, 6, Rgb([1, 2, 3])));
    let image = draw_trajectory(&record(vec![turn(1)]), &[card, board]);
    assert_eq!(count(&image, Rgb([1, 2, 3])), 240 * 240);
    assert!(count(&image, palette::GOOD_TINT) > 1000);
    assert!(count(&image, palette::CHOSEN_TINT) > 1000);
}

#[test]
fn files_appear_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let image = draw_trajectory(&record(vec![turn(1)]), &[]);
    let path = folder.path().join("strip.png");
    save_png(&image, &path).unwrap();
    assert_eq!(image::open(&path).unwrap().into_rgb8(), image);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    let missing = folder.path().join("none/strip.png");
    let error = save_png(&image, &missing).unwrap_err();
    assert!(matches!(error, RenderError::Write { path, .. } if path == missing));
}

#[test]
fn pages_hold_every_step_and_no_foreign_markup() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = turn(1);
    first.raw_response = "<script>alert(1)</script>".to_owned();
    let mut second = turn(2);
    second.pieces = pieces();
    let board = Picture::Image(RgbImage::from_pixel(6, 6, Rgb([1, 2, 3])));
    let records = [record(vec![first, second]), record(Vec::new())];
    let paths = write_html(&records, &[vec![board]], folder.path()).unwrap();
    assert_eq!(paths[1], folder.path().join("trajectory_data_1.html"));
    let page = fs::read_to_string(&paths[0]).unwrap();
    assert!(page.contains("data:image/png;base64,iVBORw0KGgo"));
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
    assert!(page.contains("<span class=\"model loss\">你好 push"));
    assert_eq!(page.matches("<section>").count(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_text_stops_the_drawing(
        texts in proptest::collection::vec(proptest::collection::vec(any::<char>(), 0..120), 6),
        numbers in proptest::array::uniform4(any::<f32>()),
    ) {
        let texts: Vec<String> = texts.iter().map(|text| text.iter().collect()).collect();
        let mut odd = turn(1);
        odd.state.clone_from(&texts[0]);
        odd.thought.clone_from(&texts[1]);
        odd.answer.clone_from(&texts[2]);
        odd.parsed_actions = vec![texts[3].clone()];
        (odd.reward, odd.penalty) = (numbers[0], numbers[1]);
        let mut exact = odd.clone();
        exact.pieces = pieces();
        exact.pieces[2].text.clone_from(&texts[4]);
        let mut record = record(vec![odd, exact]);
        record.metadata.tag.clone_from(&texts[5]);
        (record.metadata.total_reward, record.metadata.episode_return) = (numbers[2], numbers[3]);
        let card = Picture::Card {
            title: texts[0].clone(),
            lines: texts.iter().map(|text| CardLine { text: text.clone(), tone: Tone::Good }).collect(),
        };
        let image = draw_trajectory(&record, &[card]);
        prop_assert!(image.width() <= 8000 && image.height() <= 8000);
    }
}
