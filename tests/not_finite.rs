//! A number that is not finite stops the run, says where it came from, and harms nothing that was saved.

use std::fs;

use bevy_app::App;
use bevy_ecs::prelude::*;
use ragen::run::checkpoint::verify;
use ragen::run::{Control, Run};
use ragen::world::{EnvironmentId, Phase, Rollout, Turn, TurnResult, TurnSystems};
use ragen_tests::tiny::{Bench, plain_app, weights};

/// In the second iteration the environment with number 5 pays a reward that is no number.
fn poison(rollout: Res<Rollout>, mut environments: Query<(&EnvironmentId, &Phase, &mut TurnResult)>) {
    for (id, phase, mut result) in &mut environments {
        if rollout.iteration == 2 && id.number == 5 && *phase == Phase::Book {
            result.reward = f32::NAN;
        }
    }
}

#[test]
fn a_reward_that_is_no_number_names_its_episode() {
    let bench = Bench::new();
    let mut app: App = plain_app();
    app.add_systems(Turn, poison.in_set(TurnSystems::Shape));
    let set = ["run.iterations=3", "advantage.estimator=Gae"];
    let mut run = Run::create(app, &bench.scene(&set), &bench.at("run")).unwrap();
    let error = run.execute(&mut |_| Control::Continue).unwrap_err().to_string();
    for text in ["iteration 2", "traj_5", "FrozenLake"] {
        assert!(error.contains(text), "{text} is not in: {error}");
    }
    let checkpoint = bench.at("run/checkpoints/step_1");
    assert_eq!(verify(&checkpoint).unwrap(), 1);
    let metrics = fs::read_to_string(bench.at("run/metrics.jsonl")).unwrap();
    assert_eq!(metrics.lines().count(), 1, "the failed iteration is not booked");
    assert!(weights(&checkpoint).values().flatten().all(|number| number.is_finite()));
    // The run goes on from there once the cause is gone.
    let (rest, refused) = bench.resume("run", &set);
    assert_eq!((rest.metrics.len(), refused.len()), (2, 0));
}

/// Weights so large that a product overflows are noticed in the pass that computes it.
#[test]
fn an_overflow_in_the_model_is_an_error_and_no_sample() {
    let bench = Bench::new();
    let path = bench.model().join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for four in bytes[data..].chunks_exact_mut(4) {
        four.copy_from_slice(&1e30_f32.to_le_bytes());
    }
    fs::write(&path, bytes).unwrap();
    let mut run = bench.start("run", &["advantage.estimator=Rloo"]);
    let error = run.execute(&mut |_| Control::Continue).unwrap_err().to_string();
    assert!(error.contains("iteration 1") && error.contains("not a finite number"), "{error}");
    assert!(!bench.at("run/checkpoints/step_1").exists());
}
