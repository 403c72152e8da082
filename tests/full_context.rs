//! Every way of showing the past trains on the log-probabilities that were sampled.

use ragen::tokens::TokenStore;
use ragen::world::Trajectories;
use ragen_tests::tiny::{Bench, finish};

/// Name, keys, and rows per episode of `turns` turns.
type Mode = (&'static str, &'static [&'static str], fn(usize) -> usize);

const MODES: [Mode; 5] = [
    ("all turns", &["agent.context=Full", "agent.history=None", "agent.max_context_tokens=1000"], |_| 1),
    // The system message and the first turn leave no room for a third one beside them.
    ("overflowing", &["agent.context=Full", "agent.history=None", "agent.max_context_tokens=420"], |_| 0),
    ("last two turns", &["agent.context=LimitedMultiTurn", "agent.history=2"], |turns| turns),
    ("retold", &["agent.context=SingleTurn", "agent.history=3"], |turns| turns),
    ("present turn", &["agent.context=SingleTurn", "agent.history=1"], |turns| turns),
];

#[test]
fn every_context_recomputes_what_it_sampled() {
    let bench = Bench::new();
    for (name, set, rows) in MODES {
        let own = ["agent.max_turns=3", "advantage.estimator=Gae", "update.mini_batch=4"];
        let mut run = bench.start(name, &[&own, set].concat());
        let finished = finish(&mut run);
        assert_eq!(finished.metrics[0].get("rollout/logp_diff_max"), Some(0.0), "{name}");
        let world = run.world_mut();
        let (store, trajectories) = (world.resource::<TokenStore>(), world.resource::<Trajectories>());
        let trained: Vec<usize> = (0..store.len()).filter(|&token| store.trained(token)).collect();
        for &token in &trained {
            assert_eq!(store.logprob[token].to_bits(), store.behaviour_logprob[token].to_bits(), "{name}: {token}");
            assert!(store.logprob[token] < 0.0, "{name}: {token}");
        }
        let mut sampled = 0;
        for trajectory in &trajectories.all {
            let turns = &trajectory.record.turns;
            sampled += turns.iter().map(|turn| turn.sampled_token_ids.len()).sum::<usize>();
            assert!(!turns.is_empty(), "{name}");
            match rows(turns.len()) {
                0 => assert!(trajectory.rows.len() <= turns.len(), "{name}"),
                rows => assert_eq!(trajectory.rows.len(), rows, "{name}"),
            }
        }
        assert_eq!(trained.len(), sampled, "{name}: every sampled token is trained in exactly one row");
        if name == "overflowing" {
            assert!(store.rows.len() > trajectories.all.len(), "no context overflowed");
        }
    }
}
