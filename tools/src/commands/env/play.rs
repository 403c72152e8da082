//! `ragen env play`.

use std::io::{self, BufRead as _};
use std::path::PathBuf;

use clap::Args;
use ragen::environment::{ActionSpace, InstanceSeed, Split};
use ragen::world::{WorldError, system_text};

use crate::failure::Failure;
use crate::output::{print, print_line};
use crate::scenes::tag_world;

/// Play an environment in the terminal.
///
/// Each line is one action. `?` shows the expert's plan, `q` or the end of the input ends the game.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen env play FrozenLake --seed 3"))]
pub struct Arguments {
    /// The tag; `ragen env list` shows all
    tag: String,
    /// Seed of the instance
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Scene that defines the tag
    #[arg(long, value_name = "SCENE")]
    scene: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let world = tag_world(&arguments.tag, arguments.scene.as_ref())?;
    let seed = InstanceSeed { seed: arguments.seed, split: Split::Train, attempt: 0 };
    let mut game = world.tag.configured.instance(seed, 0).map_err(WorldError::from)?.replay;
    print_line(&system_text(&world.tag, &world.agent))?;
    let (mut total, mut used) = (0.0, 0);
    let mut input = io::stdin().lock();
    while used < world.tag.max_actions {
        let choices = match game.actions() {
            ActionSpace::Names(names) => names.join(", "),
            ActionSpace::Text => "any text".to_owned(),
        };
        let left = world.tag.max_actions - used;
        let state = game.observe();
        print(&format!("\n{state}\n{left} actions left; {choices} (? plan, q quit)\n> "))?;
        let mut line = Vec::new();
        let read = input.read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::input(format!("standard input: {error}")))? == 0 {
            return print_line(&format!("\nended: return {total:.2}"));
        }
        let line = String::from_utf8_lossy(&line);
        match line.trim() {
            "" => continue,
            "q" => return print_line(&format!("ended: return {total:.2}")),
            "?" => {
                let plan = game.expert().map_or_else(|| "there is no expert".to_owned(), |plan| plan.join(", "));
                print_line(&plan)?;
            }
            action => match game.act(action) {
                None => print_line("that is no action here; nothing changed")?,
                Some(outcome) => {
                    used += 1;
                    total += outcome.reward;
                    let effect = if outcome.effective { "" } else { ", nothing changed" };
                    print_line(&format!("reward {:+.2}{effect}", outcome.reward))?;
                    if outcome.done {
                        let end = if outcome.success { "solved" } else { "over, not solved" };
                        return print_line(&format!("\n{}\n{end}: return {total:.2}", game.observe()));
                    }
                }
            },
        }
    }
    print_line(&format!("\n{}\nno action is left: return {total:.2}", game.observe()))
}
