//! Metrics mean what the registry says.

use std::collections::BTreeSet;

use ragen::evaluation::{pass_at, wilson};
use ragen::metrics::{REGISTRY, define};
use ragen::run::directory::read_trajectories;
use ragen_tests::tiny::Bench;

#[test]
fn every_metric_has_one_name_a_unit_and_a_definition() {
    let names: BTreeSet<&str> = REGISTRY.iter().map(|definition| definition.name).collect();
    assert_eq!(names.len(), REGISTRY.len(), "a name is defined twice");
    for definition in REGISTRY {
        assert!(!definition.unit.is_empty() && definition.meaning.ends_with('.'), "{}", definition.name);
        let example = definition.name.replace("<Tag>", "FrozenLake").replace("<k>", "4").replace("<key>", "thing");
        assert!(define(&example).is_some(), "{example}");
    }
}

/// The numbers of a rollout, computed again from the trajectories that it wrote.
#[test]
fn a_rollout_is_summed_up_as_defined() {
    let bench = Bench::new();
    let run = bench.run("run", &[]);
    let metrics = &run.metrics[0];
    let records = read_trajectories(&run.outcome.directory.join("trajectories/step_1.jsonl")).unwrap();
    assert_eq!(records.len(), 16);
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    let near = |name: &str, expected: f64| {
        let found = metrics.get(name).unwrap_or_else(|| panic!("no {name}"));
        assert!((found - expected).abs() < 1e-6, "{name} is {found}, not {expected}");
    };
    for tag in ["SimpleSokoban", "FrozenLake", "Bandit", "Countdown"] {
        let own: Vec<_> = records.iter().map(|record| &record.metadata).filter(|facts| facts.tag == tag).collect();
        assert_eq!(own.len(), 4);
        near(&format!("train/{tag}/success"), mean(own.iter().map(|facts| f64::from(facts.success)).collect()));
        near(&format!("train/{tag}/return"), mean(own.iter().map(|facts| f64::from(facts.episode_return)).collect()));
        near(&format!("train/{tag}/score"), mean(own.iter().map(|facts| f64::from(facts.total_reward)).collect()));
        for facts in own {
            assert!((facts.total_reward - facts.episode_return - facts.penalty).abs() < 1e-6);
        }
    }
    let turns: f64 = mean(records.iter().map(|record| record.turns.len() as f64).collect());
    let tokens: Vec<f64> = records.iter().map(|record| f64::from(record.metadata.token_count)).collect();
    near("train/turns", turns);
    near("train/trained_tokens", tokens.iter().sum());
    near("train/response_length", mean(tokens));
    // A row per turn, in mini-batches of eight.
    let rows: usize = records.iter().map(|record| record.turns.len()).sum();
    near("train/batch_size", rows as f64);
    near("train/num_mini_batches", rows.div_ceil(8) as f64);
}

/// 7 of 10 at z = 1.96: center (0.7 + 0.19208) / 1.38416 = 0.6445, half width 1.96 · sqrt(0.021 + 0.009604) / 1.38416 = 0.2477.
#[test]
fn seven_of_ten_have_the_interval_of_wilson() {
    let (low, high) = wilson(7, 10);
    assert!((low - 0.3968).abs() < 1e-3 && (high - 0.8922).abs() < 1e-3, "{low} {high}");
    let (low, high) = wilson(0, 10);
    assert!(low == 0.0 && high > 0.2, "{low} {high}");
}

/// 4 attempts of which 1 is right, 2 drawn: 1 - C(3,2)/C(4,2) = 1/2.
#[test]
fn pass_at_k_counts_draws_without_replacement() {
    assert!((pass_at(4, 1, 2) - 0.5).abs() < 1e-12);
    assert_eq!(pass_at(4, 0, 4), 0.0);
    assert_eq!(pass_at(4, 3, 2), 1.0);
}
