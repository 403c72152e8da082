//! Validation instances are held out, and seeds count as documented.

use std::collections::BTreeSet;

use bevy_app::App;
use ragen::environment::Split;
use ragen::run::directory::read_trajectories;
use ragen::run::{Agents, Plan, SetupOptions, prepare};
use ragen::scene::Scene;
use ragen::world::{Held, Rollout, Tags, WorldError, make_instance, run_rollout};
use ragen_tests::tiny::{Bench, plain_app};

fn prepared(tag: &str, train: u32, validation: u32, set: &[&str]) -> (App, Plan, Agents, Scene) {
    let text = format!(
        r#"(agent: (kind: Random), environments: (
            train: (mix: ["{tag}"], groups: {train}, group_size: 1),
            validation: (mix: ["{tag}"], groups: {validation}),
        ))"#
    );
    let set: Vec<String> = set.iter().map(|&text| text.to_owned()).collect();
    let loaded = Scene::parse("leakage.ron", &text, &set).unwrap();
    let mut app = plain_app();
    let (plan, agents) = prepare(&mut app, &loaded, &SetupOptions::default()).unwrap();
    (app, plan, agents, loaded.scene)
}

/// Training starts at the very seeds of validation, so that without the rule every instance would be played twice.
#[test]
fn two_thousand_training_instances_hold_none_of_validation() {
    for tag in ["SimpleSokoban", "FrozenLake"] {
        let (app, plan, _, scene) = prepared(tag, 2000, 256, &["seed.train=123"]);
        let (tags, held) = (app.world().resource::<Tags>(), app.world().resource::<Held>());
        let hash = |&group, split| make_instance(&tags.0[0], group, split, &held.0).unwrap().1.hash;
        let validation: BTreeSet<u64> = plan.validation.iter().map(|group| hash(group, Split::Validation)).collect();
        assert_eq!(validation, held.0, "{tag}");
        let train: BTreeSet<u64> =
            plan.train_groups(0, scene.seed.train).iter().map(|group| hash(group, Split::Train)).collect();
        assert!(train.len() > 1000, "{tag}: {} different instances", train.len());
        assert!(train.is_disjoint(&validation), "{tag}");
    }
}

/// Twelve pairs in two orders are 24 instances: 256 validation groups hold all of them.
#[test]
fn a_finite_tag_that_is_used_up_says_so() {
    let rollout = |app: &mut App, plan: &Plan, agents: Agents| {
        let rollout = Rollout {
            run_seed: 1,
            split: Split::Train,
            iteration: 1,
            groups: plan.train_groups(0, 10_000),
            group_size: 1,
            shared_noise: false,
            agent: agents.train,
            asks_model: false,
            keep_pieces: false,
            keep_ids: false,
        };
        run_rollout(app.world_mut(), rollout, &mut |_| true)
    };
    let (mut app, plan, agents, _) = prepared("Bandit", 8, 256, &[]);
    let error = rollout(&mut app, &plan, agents).unwrap_err();
    assert!(matches!(&error, WorldError::Exhausted { tag, .. } if tag == "Bandit"), "{error}");
    assert!(error.to_string().contains("reject_validation_instances: false"), "{error}");
    let (mut app, plan, agents, _) = prepared("Bandit", 8, 256, &["environments.reject_validation_instances=false"]);
    rollout(&mut app, &plan, agents).unwrap();
}

#[test]
fn seeds_count_on_from_iteration_to_iteration() {
    let bench = Bench::new();
    let mix = "environments.train=(mix: [\"SimpleSokoban\"], groups: 4, group_size: 2)";
    let run =
        bench.run("seeds", &[mix, "seed.train=7", "seed.validation=50", "run=(iterations: 2, validate_every: 1)"]);
    let seeds = |file: &str| {
        let records = read_trajectories(&run.outcome.directory.join("trajectories").join(file)).unwrap();
        records.iter().map(|record| record.metadata.seed).collect::<Vec<_>>()
    };
    assert_eq!(seeds("step_1.jsonl"), [7, 7, 8, 8, 9, 9, 10, 10]);
    assert_eq!(seeds("step_2.jsonl"), [11, 11, 12, 12, 13, 13, 14, 14]);
    for file in ["validation_0.jsonl", "validation_1.jsonl", "validation_2.jsonl"] {
        assert_eq!(seeds(file), [50, 51, 52, 53], "{file}");
    }
}
