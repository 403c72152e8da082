//! `ragen warmup`: makes a model that imitates experts.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use ragen::warmup::{WarmupEvent, run_plan};

use crate::failure::Failure;
use crate::output::{is_watched, print_line, tell};
use crate::progress;
use crate::scenes::new_app;
use crate::table::percent;
use crate::time::words;

/// Lines of progress where nobody watches.
const LINES: u64 = 20;

/// Make a model that imitates experts, so that learning has something to start from.
///
/// A plan names the model's shape, the scenes whose experts are imitated, and the optimiser.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen warmup configs/models/tiny.ron --out models/mine"))]
pub struct Arguments {
    /// The plan
    plan: PathBuf,
    /// The model directory to write [default: the plan's name without its ending, beside it]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let beside = || arguments.plan.extension().map(|_| arguments.plan.with_extension(""));
    let Some(out) = arguments.out.clone().or_else(beside) else {
        return Err(Failure::usage("--out is needed, since the plan's name has no ending to leave out"));
    };
    let started = Instant::now();
    let bar = progress::bar(0, "steps");
    run_plan(&arguments.plan, &out, &mut new_app, &mut |event| match event {
        WarmupEvent::Step { done, total, metrics } => {
            let value = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
            let line = format!("loss {:.4}, learning rate {:.2e}", value("warmup/loss"), value("warmup/lr"));
            bar.set_length(*total);
            bar.set_position(*done);
            let every = (total / LINES).max(1);
            if !is_watched() && (done % every == 0 || done == total) {
                tell(&format!("step {done}/{total}: {line}"));
            }
            bar.set_message(line);
        }
        WarmupEvent::Graded { scene, summary } => bar.suspend(|| {
            let interval = format!("{} to {}", percent(summary.success_low), percent(summary.success_high));
            tell(&format!(
                "{scene}: success {} ({interval}) in {} episodes",
                percent(summary.success),
                summary.episodes
            ));
        }),
    })?;
    bar.finish_and_clear();
    tell(&format!("done in {}", words(Duration::from_secs_f64(started.elapsed().as_secs_f64()))));
    print_line(&out.display().to_string())
}
