//! `ragen env`: environments by themselves, without a model.

mod check;
mod list;
mod play;
mod trace;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// List environments, play one, or check that one keeps its contract.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen env play SimpleSokoban --seed 7"))]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    List(list::Arguments),
    Play(play::Arguments),
    Check(check::Arguments),
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.what {
        What::List(arguments) => list::run(arguments),
        What::Play(arguments) => play::run(arguments),
        What::Check(arguments) => check::run(arguments),
    }
}
