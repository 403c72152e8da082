//! The `ragen` command: runs scenes, evaluates and inspects agents, and checks what the engine computes.

/// Text below a command's options: an example and the exit codes.
macro_rules! help {
    ($example:literal) => {
        concat!(
            "Example:\n  ",
            $example,
            "\n\nExit codes:\n  0 done, 1 failed, 2 usage, 3 configuration, 4 input data, 130 interrupted"
        )
    };
}

mod commands;
mod compute;
mod failure;
mod interrupt;
mod model_directory;
mod output;
mod progress;
mod scenes;
mod table;
mod time;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{data, doctor, env, eval, explain, generate, metrics, render, run, score, verify, warmup};
use crate::compute::Threads;

/// Trains and diagnoses language-model agents that act over many turns.
///
/// A scene file says what is played and how the agent learns; `ragen run` does it. Every command has a --help of its own with
/// an example.
#[derive(Debug, Parser)]
#[command(
    name = "ragen",
    version,
    after_help = help!("ragen run scenes/sokoban.ron"),
    arg_required_else_help = true,
    max_term_width = 110
)]
struct Arguments {
    #[command(flatten)]
    threads: Threads,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Eval(eval::Arguments),
    Data(data::Arguments),
    Score(score::Arguments),
    Generate(generate::Arguments),
    Render(render::Arguments),
    Warmup(warmup::Arguments),
    Verify(verify::Arguments),
    Env(env::Arguments),
    Explain(explain::Arguments),
    Metrics(metrics::Arguments),
    Doctor(doctor::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = interrupt::listen().and_then(|()| arguments.threads.apply()).and_then(|()| match &arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Eval(arguments) => eval::run(arguments),
        Command::Data(arguments) => data::run(arguments),
        Command::Score(arguments) => score::run(arguments),
        Command::Generate(arguments) => generate::run(arguments),
        Command::Render(arguments) => render::run(arguments),
        Command::Warmup(arguments) => warmup::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Env(arguments) => env::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Metrics(arguments) => metrics::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_table_of_commands_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example_and_the_exit_codes() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example:") && help.contains("130 interrupted"), "{}", command.get_name());
            command.get_subcommands().filter(|inner| inner.get_name() != "help").for_each(check);
        }
        check(&Arguments::command());
    }
}
