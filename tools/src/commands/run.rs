//! `ragen run`: trains an agent as a scene says.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use ragen::run::checkpoint::steps;
use ragen::run::{Control, Outcome, Run};
use ragen::scene::{Loaded, Scene};
use serde::Serialize;

use crate::compute::DeviceArguments;
use crate::failure::{Failure, Kind};
use crate::interrupt;
use crate::output::{print, print_json, tell};
use crate::progress::RunProgress;
use crate::scenes::{Overrides, new_app};
use crate::table::percent;
use crate::time::{stamp, words};

/// Train an agent as a scene says.
///
/// Progress and logs go to standard error. Ctrl-C ends the run after a checkpoint; --resume continues it with the same result
/// as if it had never stopped.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen run scenes/sokoban.ron --iterations 50 --set sampling.train.temperature=0.9"))]
pub struct Arguments {
    /// The scene file; with --resume the scene of the run is used
    #[arg(required_unless_present = "resume")]
    scene: Option<PathBuf>,
    /// Continues a run from its newest usable checkpoint
    #[arg(long, value_name = "RUN", conflicts_with_all = ["out", "seed", "set"])]
    resume: Option<PathBuf>,
    /// The run directory [default: `<run.directory>/<name>-<UTC time>`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of sampling and shuffling: the scene's `seed.run`
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Iterations in all: the scene's `run.iterations`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    overrides: Overrides,
    /// Prints the outcome as one JSON object on standard output
    #[arg(long)]
    json: bool,
}

/// The outcome as `--json` prints it.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    seconds: f64,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.device.check()?;
    let started = Instant::now();
    let (mut run, loaded) = match &arguments.resume {
        Some(directory) => resume(directory, arguments)?,
        None => create(arguments)?,
    };
    let scene = &loaded.scene;
    tell(&format!("run directory: {}", run.directory().display()));
    let mut progress = RunProgress::new(u64::from(scene.run.iterations));
    interrupt::stop_gracefully();
    let result = run.execute(&mut |event| {
        progress.show(event);
        if interrupt::requested() { Control::Stop } else { Control::Continue }
    });
    progress.finish();
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(error) => {
            let directory = run.directory();
            let saved = steps(&directory.join("checkpoints")).is_ok_and(|steps| !steps.is_empty());
            let failure = Failure::from(error);
            let help = format!("the last checkpoint is whole: ragen run --resume {}", directory.display());
            return Err(if saved { failure.with_help(&help) } else { failure });
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    if arguments.json {
        print_json(&Printed { outcome: &outcome, seconds })?;
    } else {
        print(&summary(&outcome, scene, seconds))?;
    }
    if outcome.interrupted {
        let place = outcome.directory.display();
        let message =
            format!("interrupted after iteration {}; continue with: ragen run --resume {place}", outcome.iterations);
        tell(&message);
        return Err(Failure::new(Kind::Interrupted, ""));
    }
    Ok(())
}

fn create(arguments: &Arguments) -> Result<(Run, Loaded), Failure> {
    let Some(path) = &arguments.scene else { return Err(Failure::usage("no scene file is named")) };
    let mut set = arguments.overrides.set.clone();
    set.extend(arguments.seed.map(|seed| format!("seed.run={seed}")));
    set.extend(arguments.iterations.map(|iterations| format!("run.iterations={iterations}")));
    let loaded = Scene::load(path, &set)?;
    let directory = arguments.out.clone().unwrap_or_else(|| default_directory(&loaded.scene));
    let run = Run::create(new_app(), &loaded, &directory)?;
    Ok((run, loaded))
}

fn resume(directory: &Path, arguments: &Arguments) -> Result<(Run, Loaded), Failure> {
    let scene = directory.join("scene.ron");
    if !scene.is_file() {
        return Err(Failure::input(format!("{}: holds no run (there is no scene.ron in it)", directory.display())));
    }
    if arguments.scene.is_some() {
        tell("note: a resumed run uses its own scene.ron; the scene file that was named is not read");
    }
    let set: Vec<String> =
        arguments.iterations.map(|iterations| format!("run.iterations={iterations}")).into_iter().collect();
    let loaded = Scene::load(&scene, &set)?;
    let (run, refused) = Run::resume(new_app(), &loaded, directory)?;
    for reason in refused {
        tell(&format!("note: a newer checkpoint was refused: {reason}"));
    }
    Ok((run, loaded))
}

/// A directory that does not exist yet, named after the scene and the time.
fn default_directory(scene: &Scene) -> PathBuf {
    let name = format!("{}-{}", scene.name, stamp());
    let first = scene.run.directory.join(&name);
    let others = (2..).map(|number| scene.run.directory.join(format!("{name}-{number}")));
    std::iter::once(first.clone()).chain(others).find(|path| !path.exists()).unwrap_or(first)
}

fn summary(outcome: &Outcome, scene: &Scene, seconds: f64) -> String {
    let mut lines = Vec::new();
    let time = words(Duration::from_secs_f64(seconds));
    lines.push(match &outcome.stopped {
        Some(reason) => format!("stopped early after {} iterations in {time}: {reason}", outcome.iterations),
        None if outcome.interrupted => format!("interrupted after {} iterations in {time}", outcome.iterations),
        None => format!("{} iterations in {time}", outcome.iterations),
    });
    match outcome.validations.as_slice() {
        [] => {}
        [(_, only)] => lines.push(format!("validation success: {}", percent(*only))),
        [(_, first), .., (last_iteration, last)] => lines.push(format!(
            "validation success: {} at first, {} after iteration {last_iteration} ({:+.1} points)",
            percent(*first),
            percent(*last),
            100.0 * (last - first)
        )),
    }
    lines.push(format!("run directory:  {}", outcome.directory.display()));
    if let Some(checkpoint) = &outcome.checkpoint {
        lines.push(format!("checkpoint:     {}", checkpoint.display()));
    }
    lines.push(format!("metrics:        {}", outcome.directory.join("metrics.jsonl").display()));
    if scene.log.trajectories {
        lines.push(format!("trajectories:   {}", outcome.directory.join("trajectories").display()));
    }
    if scene.log.log_images {
        lines.push(format!("pictures:       {}", outcome.directory.join(&scene.log.image_dir).display()));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_was_gained() {
        let outcome = Outcome {
            directory: "runs/a".into(),
            iterations: 10,
            validations: vec![(0, 0.125), (5, 0.25), (10, 0.5)],
            checkpoint: Some("runs/a/checkpoints/step_10".into()),
            stopped: None,
            interrupted: false,
        };
        let text = summary(&outcome, &Scene::default(), 61.0);
        assert!(text.starts_with("10 iterations in 1 min 01 s\n"), "{text}");
        assert!(text.contains("12.5 % at first, 50.0 % after iteration 10 (+37.5 points)"), "{text}");
    }

    #[test]
    fn a_run_directory_is_named_after_scene_and_time() {
        let path = default_directory(&Scene { name: "maze".into(), ..Scene::default() });
        let name = path.strip_prefix("runs").unwrap().to_str().unwrap();
        assert!(name.starts_with("maze-") && name.len() == "maze-20250101-120000".len(), "{name}");
    }
}
