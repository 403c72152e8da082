//! A run depends on its scene and seed alone.

use ragen::environment::{InstanceSeed, Split, tags};
use ragen::random::hash_bytes;
use ragen::world::EnvironmentTypes;
use ragen_tests::tiny::{Bench, assert_same_files, plain_app};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

/// Two iterations, each with a validation before and after, a critic and two epochs of shuffled mini-batches.
const SET: [&str; 5] = [
    "run=(iterations: 2, validate_first: true, validate_every: 1, save_every: 1)",
    "advantage.estimator=Gae",
    "update.epochs=2",
    "kl.in_loss=(weight: 0.01)",
    "agent.context=LimitedMultiTurn",
];

#[test]
fn equal_seeds_give_equal_bytes_whatever_the_threads() {
    let bench = Bench::new();
    let files = |threads: usize| {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| bench.run(&format!("{threads} threads"), &SET).files())
    };
    let once = bench.run("once", &SET).files();
    assert!(once.contains_key("metrics.jsonl") && once.contains_key("step_2.jsonl"), "{:?}", once.keys());
    assert!(once.contains_key("validation_0.jsonl") && once.contains_key("model.safetensors"), "{:?}", once.keys());
    assert_same_files(&once, &bench.run("twice", &SET).files());
    assert_same_files(&once, &files(1));
    assert_same_files(&once, &files(2));
}

/// Which sequences are generated together, and how many tokens go through a pass, is a matter of speed.
#[test]
fn a_token_does_not_depend_on_its_batch() {
    let bench = Bench::new();
    let files = |sequences: u32| {
        let wide = format!("sampling.max_sequences={sequences}");
        let set = [&SET[..], &[wide.as_str()]].concat();
        bench.run(&format!("{sequences} sequences"), &set).files()
    };
    let few = files(3);
    assert_same_files(&few, &files(64));
    assert_same_files(&few, &files(1));
}

#[test]
fn another_seed_is_another_run() {
    let bench = Bench::new();
    let [one, two] = ["seed.run=1", "seed.run=2"].map(|seed| bench.run(seed, &[&SET[..], &[seed]].concat()).files());
    for name in ["metrics.jsonl", "step_1.jsonl", "model.safetensors"] {
        assert_ne!(one[name], two[name], "{name}");
    }
}

/// Another sampling seed draws other answers to the same questions.
#[test]
fn instances_have_a_seed_of_their_own() {
    let bench = Bench::new();
    let first_states = |name: &str, seed: &str| {
        let run = bench.run(name, &["log.tokens=false", seed]);
        let path = run.outcome.directory.join("trajectories/step_1.jsonl");
        let records = ragen::run::directory::read_trajectories(&path).unwrap();
        records.into_iter().map(|record| record.messages[0].content.clone()).collect::<Vec<_>>()
    };
    let base = first_states("base", "seed.run=1");
    assert_eq!(base, first_states("run", "seed.run=2"));
    assert_ne!(base, first_states("train", "seed.train=20000"));
}

/// Seeds name the same worlds on every machine, in every build and with any number of threads: these numbers may never change.
const FIRST_STATES: [(&str, u64); 5] = [
    ("SimpleSokoban", 4711509334250160333),
    ("LargerSokoban", 6516690657556787212),
    ("FrozenLake", 10975130140394973506),
    ("Bandit", 16359747384588229787),
    ("Countdown", 11082786742427491505),
];

#[test]
fn a_thousand_first_states_are_those_of_every_other_machine() {
    let types = plain_app().world().resource::<EnvironmentTypes>().clone();
    for threads in [1, 2] {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let found = FIRST_STATES.map(|(name, _)| {
            let tag = tags::find(name).unwrap();
            let configured = types.configure_ron(tag.environment, tag.config).unwrap();
            let first = |seed| {
                let seed = InstanceSeed { seed, split: Split::Train, attempt: 0 };
                configured.instance(seed, 0).unwrap().observation
            };
            let states: Vec<String> = pool.install(|| (0..1000_u64).into_par_iter().map(first).collect());
            (name, hash_bytes(states.join("\n").as_bytes()))
        });
        assert_eq!(found, FIRST_STATES, "{threads} threads");
    }
}
