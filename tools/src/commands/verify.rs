//! `ragen verify`: recomputes published cases.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ragen::algorithm::verify::verify_training;
use ragen::model::verify_model;
use serde::Serialize;

use crate::failure::{Failure, Kind};
use crate::output::{print, print_json};

/// Recompute published cases and show the largest errors.
///
/// Fails if any case is outside its tolerance.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen verify training --golden tests/golden/training"))]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The transformer: logits, log-probabilities, gradients, optimiser steps, sampling
    #[command(after_help = help!("ragen verify model --golden tests/golden/model"))]
    Model(Golden),
    /// The training arithmetic: advantages, losses, filters, schedules
    #[command(after_help = help!("ragen verify training --golden tests/golden/training"))]
    Training(Golden),
}

#[derive(Args, Debug)]
struct Golden {
    /// Directory of cases
    #[arg(long, value_name = "DIR")]
    golden: PathBuf,
    /// Prints one JSON object with `cases`, `failed` and `worst`
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.what {
        What::Model(golden) => {
            let report = verify_model(directory(golden)?).map_err(|error| Failure::input(error.to_string()))?;
            show(golden, &report, &format!("{report}\n"), report.failed)
        }
        What::Training(golden) => {
            let report = verify_training(directory(golden)?).map_err(|error| Failure::input(error.to_string()))?;
            show(golden, &report, &report.table(), report.failed)
        }
    }
}

fn directory(golden: &Golden) -> Result<&Path, Failure> {
    let path = golden.golden.as_path();
    if path.is_dir() { Ok(path) } else { Err(Failure::input(format!("{}: no such directory", path.display()))) }
}

fn show(golden: &Golden, report: &impl Serialize, table: &str, failed: usize) -> Result<(), Failure> {
    if golden.json {
        print_json(report)?
    } else {
        print(table)?
    }
    match failed {
        0 => Ok(()),
        1 => Err(Failure::new(Kind::Failed, "1 case failed")),
        _ => Err(Failure::new(Kind::Failed, format!("{failed} cases failed"))),
    }
}
