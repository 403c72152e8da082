//! `ragen explain`: what the keys of a scene mean.

use clap::Args;
use ragen::scene::{explain, reference_markdown};

use crate::failure::Failure;
use crate::output::print;
use crate::scenes::environment_types;

/// Say what a key of a scene means; without a key, print the reference of all.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen explain advantage.estimator"))]
pub struct Arguments {
    /// A key, or a group of keys, as in `--set`
    key: Option<String>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.key {
        Some(key) => print(&explain(key).map_err(|error| Failure::usage(error.to_string()))?),
        None => print(&reference_markdown(&environment_types().defaults())),
    }
}
