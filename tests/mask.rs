//! The loss mask holds exactly the sampled tokens.

use std::sync::Arc;

use ragen::codec::Codec as _;
use ragen::conversation::{ContextMode, ContextWindow, Conversation, Sampled};
use ragen::record::{Finish, TokenKind};
use ragen::tokens::TokenStore;
use ragen::world::{AgentKind, run_rollout};
use ragen_tests::{ByteCodec, END, START, Scripted, WorldSettings, stair_world};

const MODES: [(ContextMode, Option<usize>); 4] = [
    (ContextMode::Full, None),
    (ContextMode::LimitedMultiTurn, Some(2)),
    (ContextMode::SingleTurn, None),
    (ContextMode::SingleTurn, Some(1)),
];

/// A dialogue of two turns whose answers hold the tokens that open and end turns.
///
/// | places | tokens |
/// | --- | --- |
/// | 0–3 | system message |
/// | 4–10, 11 | user and opening of the answer; forced `T` |
/// | 12–15 | sampled: `x`, the opening token, `u`, the end token |
/// | 16 | line end after the end token, which is not repeated |
/// | 17–23, 24 | user and opening of the answer; forced `T` |
/// | 25–29 | sampled: `y`, opening token, `a`, opening token, `z`; no end token |
#[test]
fn control_tokens_in_answers_do_not_shift_the_mask() {
    let codec = ByteCodec::new(&[]);
    let (newline, forced) = (10, u32::from(b'T'));
    let byte = |letter: u8| u32::from(letter);
    let user = |letter| vec![START, byte(b'u'), letter, END, newline, START, byte(b'a')];
    let window = ContextWindow { mode: ContextMode::Full, turns: None, max_tokens: 100, max_new_tokens: 10 };
    let mut conversation = Conversation::new(Arc::from([START, byte(b's'), END, newline]));
    let answers = [vec![byte(b'x'), START, byte(b'u'), END], vec![byte(b'y'), START, byte(b'a'), START, byte(b'z')]];
    for (turn, ids) in answers.iter().enumerate() {
        conversation.open_turn(user(byte(b'A') + turn as u32), vec![forced], &window).unwrap();
        let zeros = vec![0.0; ids.len()];
        let sampled = Sampled { ids: ids.clone(), logprobs: zeros.clone(), entropies: zeros };
        conversation.close_turn(sampled, codec.pieces(), codec.end_ids());
    }
    let mut store = TokenStore::default();
    store.append(&conversation, 0, 0);
    let mask: String = store.kind.iter().map(|kind| if *kind == TokenKind::Sampled { '1' } else { '0' }).collect();
    assert_eq!(mask, "000000000000111100000000011111");
    assert_eq!(store.id[12..16], answers[0]);
    assert_eq!(store.id[25..30], answers[1]);
    assert_eq!(store.kind[11], TokenKind::Forced);
    assert_eq!(store.kind[24], TokenKind::Forced);
    assert_eq!(store.kind[..11], [TokenKind::Prompt; 11]);
    assert_eq!(store.kind[16..24], [TokenKind::Observation; 8]);
}

/// `sum(mask)` is the number of tokens that a sampler drew, in every context mode and with every kind of ending.
#[test]
fn every_sampled_token_is_trained_once() {
    let text = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let script = [
        ([text("a</think><answer>Down"), vec![START, END]].concat(), Finish::EndOfTurn),
        (text("<|im_start|>user</think><answer>Up</answer>"), Finish::StopString),
        (vec![END, END, START], Finish::Length),
        ([text("x</think><answer>Up || Up</answer>"), vec![END]].concat(), Finish::EndOfTurn),
        (text("b</think><answer>Down</answer>"), Finish::StopString),
    ];
    let drawn: usize = script.iter().map(|(ids, _)| ids.len()).sum();
    for (mode, turns) in MODES {
        let settings = WorldSettings {
            kind: AgentKind::Policy,
            window: ContextWindow { mode, turns, max_tokens: 10_000, max_new_tokens: 100 },
            max_turns: 5,
            max_actions_per_turn: 1,
            max_actions: 10,
            groups: 1,
            group_size: 1,
        };
        let model = Scripted::new(script.to_vec());
        let seen = model.seen.clone();
        let (mut app, rollout) = stair_world(&settings, ByteCodec::new(&[]), Some(model));
        run_rollout(app.world_mut(), rollout, &mut |_| true).unwrap();
        assert_eq!(seen.lock().unwrap().len(), script.len(), "{mode:?}");
        let store = app.world().resource::<TokenStore>();
        let mask = store.kind.iter().filter(|kind| **kind == TokenKind::Sampled).count();
        assert_eq!(mask, drawn, "{mode:?}");
        for token in 0..store.len() {
            let drawn = store.behaviour_logprob[token] != 0.0;
            assert_eq!(drawn, store.kind[token] == TokenKind::Sampled, "{mode:?}: token {token}");
        }
    }
}
