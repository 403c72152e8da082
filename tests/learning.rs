//! One whole iteration under every estimator, and what must hold for each of them.

use ragen_tests::tiny::{Bench, Finished, weights};

/// Settings of one iteration: a name, keys, and a metric that only they have.
const VARIANTS: [(&str, &[&str], &str); 11] = [
    ("ppo, shared critic", &["advantage.estimator=Gae"], "critic/vf_loss"),
    (
        "ppo, separate critic",
        &["advantage.estimator=Gae", "critic.kind=Separate", "critic.optimizer.lr=1e-3"],
        "critic/grad_norm",
    ),
    ("ppo, clipped values", &["advantage.estimator=Gae", "critic.value_clip=0.5"], "critic/vf_clipfrac"),
    (
        "turns as steps",
        &["advantage.estimator=BiLevel(turn_gamma: 0.95)", "reward.per_turn=true"],
        "critic/vf_explained_var",
    ),
    (
        "grpo",
        &["advantage.estimator=Group(divide_by_deviation: true)", "policy.aggregation=SeqMeanTokenMean"],
        "critic/advantages/max",
    ),
    (
        "dr. grpo",
        &["advantage.estimator=Group(divide_by_deviation: false)", "policy.aggregation=SeqMeanTokenSum"],
        "critic/advantages/max",
    ),
    ("rloo", &["advantage.estimator=Rloo", "policy.aggregation=SeqMeanTokenSumNorm"], "critic/advantages/max"),
    ("reinforce++", &["advantage.estimator=ReinforcePlusPlus"], "critic/advantages/max"),
    (
        "divergence in the loss",
        &["advantage.estimator=Rloo", "kl.in_loss=(weight: 0.1, estimator: K3)", "update.epochs=2"],
        "actor/kl_loss",
    ),
    (
        "divergence in the reward",
        &["advantage.estimator=Gae", "kl.in_reward=(weight: 0.1, controller: Adaptive(target: 0.1))"],
        "actor/reward_kl_penalty",
    ),
    (
        "filtered",
        &[
            "advantage.estimator=Rloo",
            "filter=(strategy: TopP(value: 0.5), include_zero: false)",
            "update.mini_batch=4",
        ],
        "rollout/filter_kept_count",
    ),
];

#[test]
fn every_estimator_learns_from_exactly_what_was_sampled() {
    let bench = Bench::new();
    let before = weights(&bench.model());
    for (name, set, own) in VARIANTS {
        let run = bench.run(name, set);
        let metrics = &run.metrics[0];
        assert_eq!(metrics.undefined(), [""; 0], "{name}: metrics without a definition");
        for (metric, value) in metrics.values() {
            assert!(value.is_finite(), "{name}: {metric} is {value}");
        }
        let get = |metric: &str| metrics.get(metric).unwrap_or_else(|| panic!("{name}: no {metric}"));
        assert_eq!(get("rollout/logp_diff_max"), 0.0, "{name}");
        assert_eq!(get("actor/first_ratio_deviation"), 0.0, "{name}");
        assert_eq!(get("train/skipped_update"), 0.0, "{name}");
        assert!(get("actor/grad_norm") > 0.0, "{name}");
        get(own);
        let after = run.weights();
        for (tensor, numbers) in &after {
            assert!(numbers.iter().all(|number| number.is_finite()), "{name}: {tensor}");
        }
        assert_ne!(before, after, "{name}: the weights did not move");
    }
}

/// Moves by the gradient itself: with `eps` this large AdamW is plain descent.
const PLAIN_DESCENT: &[&str] = &[
    "actor.optimizer=(lr: 1.0, eps: 1.0, betas: (0.0, 0.0), weight_decay: 0.0)",
    "update.mini_batch=32",
    "policy.entropy_weight=0.01",
];

/// Largest distance between the weights of two runs over the largest distance that the first one moved.
fn relative_distance(bench: &Bench, left: &Finished, right: &Finished) -> f64 {
    let (before, left, right) = (weights(&bench.model()), left.weights(), right.weights());
    let norm = |pair: &dyn Fn(&str, usize) -> f64| {
        let squares = before.iter().flat_map(|(name, numbers)| (0..numbers.len()).map(move |at| (name, at)));
        squares.map(|(name, at)| pair(name, at).powi(2)).sum::<f64>().sqrt()
    };
    let moved = norm(&|name, at| f64::from(left[name][at]) - f64::from(before[name][at]));
    let apart = norm(&|name, at| f64::from(left[name][at]) - f64::from(right[name][at]));
    assert!(moved > 1e-4, "moved by {moved}");
    apart / moved
}

/// Means of means would weigh tokens of short micro-batches more; the normaliser counts the whole optimiser step instead.
#[test]
fn cutting_a_mini_batch_does_not_change_its_gradient() {
    let bench = Bench::new();
    for aggregation in ["TokenMean", "SeqMeanTokenSum", "SeqMeanTokenMean", "SeqMeanTokenSumNorm"] {
        let aggregation = format!("policy.aggregation={aggregation}");
        for estimator in ["advantage.estimator=Gae", "advantage.estimator=Rloo"] {
            let run = |micro_tokens: u32| {
                let cut = format!("update.micro_tokens={micro_tokens}");
                let set = [&[estimator, aggregation.as_str(), cut.as_str()], PLAIN_DESCENT].concat();
                bench.run(&format!("{estimator} {aggregation} {micro_tokens}"), &set)
            };
            let (fine, coarse) = (run(200), run(100_000));
            let distance = relative_distance(&bench, &coarse, &fine);
            assert!(distance < 1e-6, "{estimator} {aggregation}: {distance:e}");
        }
    }
}

#[test]
fn without_a_task_and_a_regulariser_nothing_is_learned() {
    let bench = Bench::new();
    let set = [
        "advantage.estimator=Rloo",
        "advantage.zero_task=true",
        "policy.entropy_weight=0.0",
        "actor.optimizer.weight_decay=0.0",
    ];
    assert_eq!(weights(&bench.model()), bench.run("still", &set).weights());
}

/// A filter that keeps no group skips the update, says so, and leaves the weights as they were.
#[test]
fn an_empty_batch_is_skipped_and_counted() {
    let bench = Bench::new();
    let set = ["advantage.estimator=Rloo", "filter=(strategy: TopP(value: 0.5, slack: 1000.0), include_zero: false)"];
    let run = bench.run("empty", &set);
    let metrics = &run.metrics[0];
    assert_eq!(metrics.get("train/skipped_update"), Some(1.0));
    assert_eq!(metrics.get("rollout/empty_after_filter"), Some(1.0));
    assert_eq!(metrics.undefined(), [""; 0]);
    assert_eq!(weights(&bench.model()), run.weights());
}

/// The learning rate of the first iteration with a warm-up of four is a quarter of the full one, and never 0.
#[test]
fn a_warm_up_starts_above_zero() {
    let bench = Bench::new();
    let set = ["actor.optimizer=(lr: 4e-3, schedule: (warmup_steps: 4))", "run.iterations=5"];
    let rates: Vec<f64> =
        bench.run("rates", &set).metrics.iter().filter_map(|metrics| metrics.get("actor/lr")).collect();
    for (rate, expected) in rates.iter().zip([1e-3, 2e-3, 3e-3, 4e-3, 4e-3]) {
        assert!((rate - expected).abs() < 1e-8, "{rates:?}");
    }
    assert_eq!(rates.len(), 5);
}

/// A prompt that leaves no room for an answer gives no token to train on.
#[test]
fn a_context_that_is_full_from_the_start_is_counted() {
    let bench = Bench::new();
    let run = bench.run("full", &["agent.max_context_tokens=60", "advantage.estimator=Gae"]);
    assert_eq!(run.metrics[0].get("train/skipped_update"), Some(1.0));
    let path = run.outcome.directory.join("trajectories/step_1.jsonl");
    for record in ragen::run::directory::read_trajectories(&path).unwrap() {
        assert_eq!(record.metadata.status, ragen::record::EpisodeStatus::ContextFull);
        assert!(record.turns.is_empty());
    }
}

/// Control tokens other than the end of a turn cannot be sampled, however likely a model makes them.
#[test]
fn a_policy_cannot_open_a_turn_of_the_environment() {
    let bench = Bench::new();
    let run = bench.run("banned", &["sampling.train.temperature=100.0", "sampling.max_new_tokens=64"]);
    let path = run.outcome.directory.join("trajectories/step_1.jsonl");
    let records = ragen::run::directory::read_trajectories(&path).unwrap();
    let ids: Vec<u32> =
        records.iter().flat_map(|record| &record.turns).flat_map(|turn| turn.sampled_token_ids.clone()).collect();
    // The control tokens follow the ordinary ones: end of text, opening of a turn, end of a turn.
    let text = std::fs::read_to_string(bench.model().join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    let last = config["eos_token_id"].as_u64().unwrap() as u32;
    assert!(ids.len() > 1000 && ids.contains(&last), "{} tokens", ids.len());
    assert!(!ids.contains(&(last - 1)), "the opening of a turn was sampled");
}
