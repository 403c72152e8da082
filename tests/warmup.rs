//! A supervised start makes the same model every time, learns what its teachers say, and refuses plans that make no sense.

use std::fs;
use std::path::Path;

use ragen::warmup::{WarmupEvent, run_plan};
use ragen_tests::tiny::plain_app;

/// A scene with a critic and short episodes, so that both the answers and their returns are taught.
const SCENE: &str = r#"(
    name: "lake",
    model: (path: "unused"),
    environments: (
        train: (mix: ["CoordFrozenLake"], groups: 8, group_size: 1),
        validation: (mix: ["CoordFrozenLake"], groups: 8, group_size: 1),
    ),
    agent: (context: SingleTurn, history: 1, max_turns: 4, max_actions_per_turn: 1, max_context_tokens: 700),
    sampling: (max_new_tokens: 8),
    reward: (per_turn: true),
    advantage: (estimator: BiLevel(turn_gamma: 0.9)),
)"#;

const PLAN: &str = r#"(
    seed: 3,
    model: (hidden_size: 32, layers: 1, heads: 2, kv_heads: 1, intermediate_size: 64, context: 768, vocabulary: 512),
    lessons: [(scene: "lake.ron", teacher: Expert, episodes: 16, noise: 0.25)],
    steps: 40,
    rising_steps: 5,
    lr: 1e-2,
    mini_batch: 8,
    micro_tokens: 4096,
    value_weight: 0.1,
)"#;

/// Losses and value errors of the steps, and how many scenes were graded.
fn warm_up(directory: &Path, out: &Path) -> (Vec<f64>, Vec<f64>, usize) {
    let (mut losses, mut errors, mut graded) = (Vec::new(), Vec::new(), 0);
    run_plan(&directory.join("plan.ron"), out, &mut plain_app, &mut |event| match event {
        WarmupEvent::Step { metrics, .. } => {
            assert_eq!(metrics.undefined(), [""; 0]);
            losses.extend(metrics.get("warmup/loss"));
            errors.extend(metrics.get("warmup/value_error"));
        }
        WarmupEvent::Graded { summary, .. } => {
            assert_eq!(summary.episodes, 8);
            graded += 1;
        }
    })
    .unwrap_or_else(|error| panic!("{error}"));
    (losses, errors, graded)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn the_same_plan_makes_the_same_model_and_teaches_answers_and_returns() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("lake.ron"), SCENE).unwrap();
    fs::write(directory.path().join("plan.ron"), PLAN).unwrap();
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let (losses, errors, graded) = warm_up(directory.path(), &one);
    assert_eq!((losses.len(), errors.len(), graded), (40, 40, 1));
    assert!(mean(&losses[35..]) < 0.3 * losses[0], "{losses:?}");
    assert!(mean(&errors[35..]) < mean(&errors[..5]), "{errors:?}");
    warm_up(directory.path(), &two);
    for file in ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"] {
        assert!(fs::read(one.join(file)).unwrap() == fs::read(two.join(file)).unwrap(), "{file} differs");
    }
    let bytes = fs::read(one.join("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let head = tensors.tensor("value_head.weight").unwrap();
    assert!(head.data().iter().any(|&byte| byte != 0), "the value head learned nothing");
}

#[test]
fn a_plan_that_makes_no_sense_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("lake.ron"), SCENE).unwrap();
    let plan = directory.path().join("plan.ron");
    for (from, to, expected) in [
        ("steps: 40", "steps: 0", "at least 1"),
        ("lr: 1e-2", "lr: -1.0", "positive"),
        ("value_weight: 0.1", "value_weight: -0.1", "value_weight"),
        ("seed: 3", "sede: 3", "line 2"),
        ("lake.ron", "sea.ron", "sea.ron"),
    ] {
        fs::write(&plan, PLAN.replace(from, to)).unwrap();
        let out = directory.path().join("out");
        let error = run_plan(&plan, &out, &mut plain_app, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{to}: {error}");
        assert!(!out.exists(), "{to}: something was written");
    }
}
