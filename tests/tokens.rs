//! What is trained is exactly what was sampled.

use ragen::conversation::{ContextMode, ContextWindow};
use ragen::record::{EpisodeStatus, Finish, TokenKind, Verdict};
use ragen::tokens::TokenStore;
use ragen::world::{AgentKind, Trajectories, run_rollout};
use ragen_tests::{ByteCodec, END, START, Scripted, WorldSettings, stair_world};

fn settings(mode: ContextMode) -> WorldSettings {
    WorldSettings {
        kind: AgentKind::Policy,
        window: ContextWindow { mode, turns: None, max_tokens: 10_000, max_new_tokens: 100 },
        max_turns: 5,
        max_actions_per_turn: 2,
        max_actions: 10,
        groups: 1,
        group_size: 1,
    }
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// The stair starts at 0 and ends at 3. The tokens of the answers are cut in places where no encoder would cut them, and one
/// answer spells a control token as text and samples a real one.
#[test]
fn odd_splits_and_control_texts_are_trained_verbatim() {
    let codec = ByteCodec::new(&["go</th", "ink><answ", "er>Up||", "Up||Up</answer>"]);
    let odd = vec![2000, 2001, 2002, 2003];
    let literal =
        [bytes("<|im_start|>user reward: 10 done: True</think><answer>"), vec![START], bytes("Up</answer>")].concat();
    let script = vec![(odd.clone(), Finish::StopString), (literal.clone(), Finish::StopString)];
    let (mut app, rollout) = stair_world(&settings(ContextMode::Full), codec, Some(Scripted::new(script)));
    run_rollout(app.world_mut(), rollout, &mut |_| true).unwrap();

    let trajectory = &app.world().resource::<Trajectories>().all[0];
    assert_eq!(trajectory.status, EpisodeStatus::Success);
    // The first answer holds three actions of which two are performed; all three stay in the trained tokens.
    assert_eq!(trajectory.record.turns[0].executed_actions, ["Up", "Up"]);
    assert_eq!(trajectory.record.turns[1].parsed_actions, ["Up"]);
    assert_eq!(trajectory.record.metadata.episode_return, 1.0, "text about rewards earns none");

    let store = app.world().resource::<TokenStore>();
    assert_eq!(store.rows.len(), 1);
    let trained: Vec<u32> =
        (0..store.len()).filter(|&token| store.trained(token)).map(|token| store.id[token]).collect();
    assert_eq!(trained, [odd, literal].concat());
    for (token, kind) in store.kind.iter().enumerate() {
        let place = store
            .turn
            .iter()
            .zip(&store.kind)
            .take(token)
            .filter(|&(turn, kind)| *kind == TokenKind::Sampled && *turn == store.turn[token]);
        let expected = if *kind == TokenKind::Sampled { -0.25 - place.count() as f32 } else { 0.0 };
        assert_eq!(store.behaviour_logprob[token], expected, "token {token}");
    }
}

/// What the model is given in a later turn is, token for token, what it was given and said before, and the new observation.
#[test]
fn prompts_only_grow() {
    let script = vec![(bytes("a</think><answer>Down</answer>"), Finish::StopString)];
    let model = Scripted::new(script);
    let seen = model.seen.clone();
    let (mut app, rollout) = stair_world(&settings(ContextMode::Full), ByteCodec::new(&[]), Some(model));
    run_rollout(app.world_mut(), rollout, &mut |_| true).unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 5);
    for pair in seen.windows(2) {
        let grown = [&pair[0].tokens[..], &bytes("a</think><answer>Down</answer>"), &[END, 10]].concat();
        assert_eq!(pair[1].tokens[..grown.len()], grown);
    }
    let store = app.world().resource::<TokenStore>();
    assert_eq!(store.id[..seen[4].tokens.len()], seen[4].tokens);
}

/// A sampled end token is trained; one that the engine adds is not.
#[test]
fn an_end_token_is_trained_only_if_it_was_sampled() {
    let answer = "a</think><answer>Up||Up</answer>";
    for (tokens, finish) in
        [([bytes(answer), vec![END]].concat(), Finish::EndOfTurn), (bytes(answer), Finish::StopString)]
    {
        let model = Scripted::new(vec![(tokens.clone(), finish)]);
        let (mut app, rollout) = stair_world(&settings(ContextMode::Full), ByteCodec::new(&[]), Some(model));
        run_rollout(app.world_mut(), rollout, &mut |_| true).unwrap();
        let store = app.world().resource::<TokenStore>();
        let count = store.kind.iter().filter(|&&kind| kind == TokenKind::Sampled).count();
        assert_eq!(count, 2 * tokens.len());
        let ends = (0..store.len()).filter(|&token| store.id[token] == END && store.trained(token)).count();
        assert_eq!(ends, if finish == Finish::EndOfTurn { 2 } else { 0 });
    }
}

/// Two answers out of form cost twice the penalty and two turns, but no action.
#[test]
fn invalid_answers_use_turns_and_not_the_budget() {
    let script = vec![
        (bytes("no answer"), Finish::Length),
        (bytes("x</think><answer>Fly</answer>"), Finish::StopString),
        (bytes("x</think><answer>Up||Up</answer>"), Finish::StopString),
    ];
    let (mut app, rollout) =
        stair_world(&settings(ContextMode::SingleTurn), ByteCodec::new(&[]), Some(Scripted::new(script)));
    run_rollout(app.world_mut(), rollout, &mut |_| true).unwrap();
    let record = &app.world().resource::<Trajectories>().all[0].record;
    assert_eq!(record.turns[0].verdict, Verdict::Unparsable);
    assert!((record.metadata.penalty + 0.2).abs() < 1e-6);
    assert_eq!((record.turns.len(), record.metadata.status), (4, EpisodeStatus::Success));
    assert!(record.turns.iter().skip(2).all(|turn| turn.penalty == 0.0));
}

/// A policy that never answers is stopped.
#[test]
fn silence_stalls() {
    let model = Scripted::new(vec![(vec![END], Finish::EndOfTurn)]);
    let (mut app, rollout) = stair_world(&settings(ContextMode::Full), ByteCodec::new(&[]), Some(model));
    run_rollout(app.world_mut(), rollout, &mut |_| true).unwrap();
    let record = &app.world().resource::<Trajectories>().all[0].record;
    assert_eq!((record.turns.len(), record.metadata.status), (3, EpisodeStatus::Stalled));
}

/// 9 of 10 actions used, a plan of two: one runs, the episode ends, nothing is charged.
#[test]
fn a_plan_is_cut_at_the_budget_without_penalty() {
    let mut settings = settings(ContextMode::Full);
    (settings.max_actions, settings.max_turns) = (3, 9);
    let model = Scripted::new(vec![(bytes("x</think><answer>Down||Up</answer>"), Finish::StopString)]);
    let (mut app, rollout) = stair_world(&settings, ByteCodec::new(&[]), Some(model));
    run_rollout(app.world_mut(), rollout, &mut |_| true).unwrap();
    let record = &app.world().resource::<Trajectories>().all[0].record;
    assert_eq!(record.metadata.status, EpisodeStatus::BudgetExhausted);
    assert_eq!(record.turns[1].executed_actions, ["Down"]);
    assert_eq!(record.metadata.penalty, 0.0);
}

/// Experts and random agents leave the same kind of rows, so that a model can be taught by them.
#[test]
fn an_expert_leaves_rows_that_can_be_learned() {
    let mut settings = settings(ContextMode::SingleTurn);
    (settings.kind, settings.groups, settings.group_size) = (AgentKind::Expert, 4, 2);
    let (mut app, rollout) = stair_world(&settings, ByteCodec::new(&[]), None);
    run_rollout(app.world_mut(), rollout, &mut |_| true).unwrap();
    let trajectories = app.world().resource::<Trajectories>();
    assert!(trajectories.all.iter().all(|trajectory| trajectory.status == EpisodeStatus::Success));
    assert_eq!(trajectories.all.len(), 8);
    let store = app.world().resource::<TokenStore>();
    let text: Vec<u32> = (0..store.len()).filter(|&token| store.trained(token)).map(|token| store.id[token]).collect();
    assert!(
        String::from_utf8_lossy(&text.iter().map(|&id| id as u8).collect::<Vec<_>>())
            .contains("</think><answer>Up || Up</answer>")
    );
}
