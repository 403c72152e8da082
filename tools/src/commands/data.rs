//! `ragen data`: writes a file of instances.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ragen::environment::Split;
use ragen::files::{Named as _, write_whole};
use ragen::run::instances::curate;

use crate::failure::{Failure, Kind};
use crate::output::tell;
use crate::progress;
use crate::scenes::tag_world;

/// Instances made between two steps of the bar.
const CHUNK: u64 = 512;

/// Write a file of instances: seeds, first messages and hashes, one JSON object per line.
///
/// The file can be filtered and then trained on: `environments.train.instance_file` of a scene names it.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen data SimpleSokoban --seed 10000 --count 1000 --out sokoban.jsonl"))]
pub struct Arguments {
    /// The tag; `ragen env list` shows all
    tag: String,
    /// Seed of the first instance; every further one takes the next
    #[arg(long, value_name = "S")]
    seed: u64,
    /// Number of instances
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Part of a fixed set of problems to draw from
    #[arg(long, value_enum, default_value = "train")]
    split: SplitName,
    /// Scene whose agent is asked, whose tags are known and whose validation instances are avoided
    #[arg(long, value_name = "SCENE")]
    scene: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SplitName {
    /// Instances that gradients see
    Train,
    /// Instances that only measurements see
    Validation,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let world = tag_world(&arguments.tag, arguments.scene.as_ref())?;
    if arguments.seed.checked_add(arguments.count).is_none() {
        return Err(Failure::usage("--seed and --count together go beyond the largest seed"));
    }
    let split = match arguments.split {
        SplitName::Train => Split::Train,
        SplitName::Validation => Split::Validation,
    };
    let bar = progress::bar(arguments.count, "instances");
    let mut bytes = Vec::new();
    for first in (0..arguments.count).step_by(CHUNK as usize) {
        let count = CHUNK.min(arguments.count - first);
        let seed = arguments.seed + first;
        for mut record in curate(world.app.world(), &world.tag, &world.agent, split, seed, count)? {
            record.index += first;
            serde_json::to_writer(&mut bytes, &record)
                .map_err(|error| Failure::new(Kind::Failed, format!("an instance has no JSON form: {error}")))?;
            bytes.push(b'\n');
        }
        bar.inc(count);
    }
    bar.finish_and_clear();
    if let Some(parent) = arguments.out.parent() {
        std::fs::create_dir_all(parent).named("create", parent)?;
    }
    write_whole(&arguments.out, &bytes)?;
    tell(&format!("{} instances of {}: {}", arguments.count, arguments.tag, arguments.out.display()));
    Ok(())
}
