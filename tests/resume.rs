//! A run that was stopped or killed goes on as if nothing had happened.

use std::fs;
use std::path::Path;

use ragen::run::{Control, Event, Phase};
use ragen_tests::tiny::{Bench, Finished, assert_same_files};

const SET: [&str; 5] = [
    "run=(iterations: 4, validate_first: true, validate_every: 2, save_every: 1, keep: 2)",
    "advantage.estimator=Gae",
    "critic.kind=Separate",
    "kl.in_reward=(weight: 0.01, controller: Adaptive(target: 0.1, horizon: 100.0))",
    "sampling.max_new_tokens=6",
];

fn uninterrupted(bench: &Bench) -> Finished {
    bench.run("whole", &SET)
}

#[test]
fn a_stopped_run_goes_on_bit_for_bit() {
    let bench = Bench::new();
    let whole = uninterrupted(&bench);
    let mut run = bench.start("stopped", &SET);
    let outcome = run
        .execute(&mut |event| match event {
            Event::Phase { phase: Phase::Rollout, iteration: 3, .. } => Control::Stop,
            _ => Control::Continue,
        })
        .unwrap();
    assert!(outcome.interrupted);
    assert_eq!(outcome.iterations, 2);
    drop(run);
    let (rest, refused) = bench.resume("stopped", &SET);
    assert_eq!(refused, [""; 0]);
    assert_eq!(rest.outcome.validations, whole.outcome.validations);
    assert_same_files(&whole.files(), &rest.files());
}

/// What is on disk when a process is killed is what a copy of the directory holds at that moment.
#[test]
fn a_killed_run_goes_on_bit_for_bit() {
    let bench = Bench::new();
    let whole = uninterrupted(&bench);
    let moments = [(Phase::Rollout, 1), (Phase::Learn, 3), (Phase::Save, 3), (Phase::Validate, 4)];
    let mut run = bench.start("killed", &SET);
    let mut copied = Vec::new();
    run.execute(&mut |event| {
        if let Event::Phase { phase, iteration, .. } = event
            && let Some(moment) = moments.iter().position(|moment| *moment == (*phase, *iteration))
            && !copied.contains(&moment)
        {
            copied.push(moment);
            copy(&bench.at("killed"), &bench.at(&format!("moment {moment}")));
        }
        Control::Continue
    })
    .unwrap();
    assert_eq!(copied.len(), moments.len());
    for moment in copied {
        let (rest, _) = bench.resume(&format!("moment {moment}"), &SET);
        assert_same_files(&whole.files(), &rest.files());
    }
}

#[test]
fn a_cut_checkpoint_is_named_and_the_one_before_is_used() {
    let bench = Bench::new();
    let whole = uninterrupted(&bench);
    for file in ["model.safetensors", "state.json", "manifest.json"] {
        let damaged = format!("damaged {file}");
        copy(&bench.at("whole"), &bench.at(&damaged));
        let path = bench.at(&damaged).join("checkpoints/step_4").join(file);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let (rest, refused) = bench.resume(&damaged, &SET);
        assert_eq!(refused.len(), 1);
        assert!(refused[0].contains("step_4") && refused[0].contains(file), "{refused:?}");
        assert_eq!(rest.metrics.len(), 1, "only the fourth iteration is run again");
        assert_same_files(&whole.files(), &rest.files());
    }
}

#[test]
fn a_run_without_a_usable_checkpoint_is_refused_by_name() {
    let bench = Bench::new();
    drop(bench.run("short", &["run.keep=1"]));
    let path = bench.at("short").join("checkpoints/step_1/state.json");
    fs::write(&path, "{}").unwrap();
    let before = fs::read(bench.at("short").join("metrics.jsonl")).unwrap();
    let error = ragen::run::Run::resume(ragen_tests::tiny::plain_app(), &bench.scene(&[]), &bench.at("short"))
        .err()
        .expect("there is no checkpoint to go on from")
        .to_string();
    assert!(error.contains("step_1") && error.contains("state.json has 2 bytes"), "{error}");
    assert_eq!(before, fs::read(bench.at("short").join("metrics.jsonl")).unwrap(), "a refusal changes nothing");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
