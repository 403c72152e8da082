//! `ragen eval`: plays a scene's validation episodes and says how well.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ragen::evaluation::Summary;
use ragen::files::{Named as _, write_whole};
use ragen::record::TrajectoryRecord;
use ragen::run::pictures::draw_all;
use ragen::run::{Evaluation, EvaluationOptions, RunError, evaluate};
use ragen::scene::{AgentKind, Loaded, Scene};
use ragen::world::WorldError;
use serde::Serialize;

use crate::compute::DeviceArguments;
use crate::failure::{Failure, Kind};
use crate::output::{print, print_json, tell};
use crate::scenes::{Overrides, check_tag, environment_types, new_app, quoted};
use crate::table::{Side, Table, grouped, percent};
use crate::{interrupt, progress};

/// Play a scene's validation episodes and measure success.
///
/// Success is given with its 95 % Wilson interval. An expert or a random agent needs no model and shows what is possible.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen eval scenes/sokoban.ron --model runs/sokoban-1/checkpoints/step_20 --greedy --episodes 512"))]
pub struct Arguments {
    /// The scene file
    scene: PathBuf,
    /// Who plays [default: the scene's `agent.kind`]
    #[arg(long, value_enum)]
    agent: Option<Player>,
    /// Model directory instead of the scene's; a checkpoint is one
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Episodes in all [default: the scene's validation groups times their size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    episodes: Option<u32>,
    /// First instance: the scene's `seed.validation`
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Always takes the most likely token
    #[arg(long)]
    greedy: bool,
    /// Sampling temperature: the scene's `sampling.validation.temperature`
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// Tags to play instead of the scene's, in even shares
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    tags: Vec<String>,
    /// Writes trajectories.jsonl and pictures there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Episodes drawn in --out, the first ones
    #[arg(long, value_name = "N", default_value_t = 8)]
    images: usize,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    overrides: Overrides,
    /// Prints one JSON object on standard output
    #[arg(long)]
    json: bool,
}

/// Who plays.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Player {
    /// The model
    Policy,
    /// Uniformly random legal actions
    Random,
    /// The environment's own solver
    Expert,
}

/// The result as `--json` prints it.
#[derive(Serialize)]
struct Printed<'a> {
    agent: String,
    #[serde(flatten)]
    evaluation: &'a Evaluation,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.device.check()?;
    let loaded = load(arguments)?;
    let scene = &loaded.scene;
    let policy = scene.agent.kind == AgentKind::Policy;
    if !policy && arguments.model.is_some() {
        tell("note: --model is not used, since the agent is no policy");
    }
    if let Some(model) = arguments.model.as_ref().filter(|model| policy && !model.is_dir()) {
        return Err(Failure::input(format!("{}: there is no such model directory", model.display())));
    }
    let options = EvaluationOptions {
        model: arguments.model.clone(),
        keep_pieces: arguments.out.is_some() && arguments.images > 0,
        keep_ids: scene.log.tokens,
    };
    let bar = progress::bar(0, "episodes");
    interrupt::stop_gracefully();
    let result = evaluate(new_app(), &loaded, &options, &mut |progress, total| {
        bar.set_length(total);
        bar.set_position(u64::from(progress.finished));
        bar.set_message(format!("{} solved", progress.succeeded));
        !interrupt::requested()
    });
    bar.finish_and_clear();
    let evaluation = match result {
        Err(RunError::World { source: WorldError::Interrupted, .. }) => {
            return Err(Failure::new(Kind::Interrupted, "interrupted; nothing was measured"));
        }
        Err(RunError::World { source, .. }) => return Err(source.into()),
        other => other?,
    };
    if let Some(directory) = &arguments.out {
        write(&evaluation.records, directory, arguments.images)?;
    }
    if arguments.json {
        let agent = format!("{:?}", scene.agent.kind).to_lowercase();
        return print_json(&Printed { agent, evaluation: &evaluation });
    }
    print(&describe(&evaluation))
}

/// The scene with everything that the arguments change.
fn load(arguments: &Arguments) -> Result<Loaded, Failure> {
    let mut set = arguments.overrides.set.clone();
    set.extend(arguments.agent.map(|player| format!("agent.kind={player:?}")));
    set.extend(arguments.seed.map(|seed| format!("seed.validation={seed}")));
    if let Some(temperature) = arguments.temperature {
        set.push(format!("sampling.validation.temperature={temperature:?}"));
        set.push("sampling.validation.greedy=false".to_owned());
    }
    if arguments.greedy {
        set.push("sampling.validation.greedy=true".to_owned());
    }
    let loaded = Scene::load(&arguments.scene, &set)?;
    let validation = &loaded.scene.environments.validation;
    if arguments.episodes.is_none() && arguments.tags.is_empty() {
        return Ok(loaded);
    }
    for tag in &arguments.tags {
        check_tag(tag, Some(&loaded.scene))?;
    }
    let mut names: Vec<&str> = arguments.tags.iter().map(String::as_str).collect();
    if names.is_empty() {
        names = validation.mix.iter().map(|entry| entry.tag.as_str()).collect();
    }
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    let size = validation.group_size;
    let groups = match arguments.episodes {
        None => validation.groups,
        Some(episodes) if episodes.is_multiple_of(size) => episodes / size,
        Some(episodes) => {
            return Err(Failure::usage(format!(
                "--episodes {episodes} does not fill groups of {size}, the scene's environments.validation.group_size"
            )));
        }
    };
    // Numbers of groups in the mixture would contradict the new total.
    let mix: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    set.push(format!("environments.validation.mix=[{}]", mix.join(",")));
    set.push(format!("environments.validation.groups={groups}"));
    Ok(Scene::load(&arguments.scene, &set)?)
}

fn write(records: &[TrajectoryRecord], directory: &Path, images: usize) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).named("create", directory)?;
    let path = directory.join("trajectories.jsonl");
    let mut bytes = Vec::new();
    for record in records {
        serde_json::to_writer(&mut bytes, record).map_err(std::io::Error::from).named("write", &path)?;
        bytes.push(b'\n');
    }
    write_whole(&path, &bytes)?;
    tell(&format!("{} trajectories: {}", records.len(), path.display()));
    if images > 0 {
        let below = directory.join("images");
        let drawn = draw_all(&environment_types(), records.iter().take(images), &below)?;
        tell(&format!("{} pictures: {}", drawn.len(), below.display()));
    }
    Ok(())
}

fn describe(evaluation: &Evaluation) -> String {
    let columns = [
        ("tag", Side::Left),
        ("episodes", Side::Right),
        ("success", Side::Right),
        ("95 % interval", Side::Right),
        ("return", Side::Right),
        ("turns", Side::Right),
        ("invalid", Side::Right),
        ("cut off", Side::Right),
        ("tokens", Side::Right),
    ];
    let mut table = Table::new(&columns);
    let all = (evaluation.tags.len() > 1).then(|| ("all".to_owned(), &evaluation.all));
    let tags: Vec<(String, &Summary)> =
        evaluation.tags.iter().map(|(tag, summary)| (tag.clone(), summary)).chain(all).collect();
    for (tag, summary) in &tags {
        table.row([
            tag.clone(),
            summary.episodes.to_string(),
            percent(summary.success),
            format!("{} – {}", percent(summary.success_low), percent(summary.success_high)),
            format!("{:.3}", summary.mean_return),
            format!("{:.1}", summary.turns),
            percent(summary.invalid_turns),
            percent(summary.truncated_turns),
            format!("{:.1}", summary.response_length),
        ]);
    }
    let mut text = table.text();
    for (tag, summary) in &tags {
        text += &format!("\n{tag}\n");
        let mut line = |name: &str, parts: Vec<String>| {
            if !parts.is_empty() {
                text += &format!("  {name:<22}{}\n", parts.join(", "));
            }
        };
        line("endings", summary.statuses.iter().map(|(status, count)| format!("{status} {count}")).collect());
        let several = summary.pass_at.len() > 1;
        let pass =
            summary.pass_at.iter().filter(|(k, _)| several && (k.is_power_of_two() || **k == summary.pass_at.len()));
        line("pass@k", pass.map(|(k, share)| format!("@{k} {}", percent(*share))).collect());
        let lengths = summary.success_by_difficulty.iter();
        line("success by length", lengths.map(|(length, share)| format!("{length}: {}", percent(*share))).collect());
    }
    let (seconds, tokens) = (evaluation.seconds, evaluation.all.tokens);
    text += &format!("\n{seconds:.2} s");
    if tokens > 0 {
        text += &format!(", {} sampled tokens, {:.0} tokens/s", grouped(tokens), tokens as f64 / seconds.max(1e-9));
    }
    text + "\n"
}
