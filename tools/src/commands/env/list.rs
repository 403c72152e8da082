//! `ragen env list`.

use clap::Args;
use ragen::environment::tags::TAGS;
use serde_json::json;

use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::scenes::environment_types;
use crate::table::{Side, Table};

/// List the tags and the types of environments with their default configurations.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen env list"))]
pub struct Arguments {
    /// Prints one JSON object on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let defaults = environment_types().defaults();
    if arguments.json {
        let tags: Vec<_> = TAGS
            .iter()
            .map(|tag| {
                json!({
                    "tag": tag.name,
                    "environment": tag.environment,
                    "max_actions": tag.max_actions,
                    "max_tokens": tag.max_tokens,
                    "config": tag.config,
                })
            })
            .collect();
        let types: serde_json::Map<_, _> =
            defaults.into_iter().map(|(name, config)| (name.to_owned(), config.into())).collect();
        return print_json(&json!({ "tags": tags, "types": types }));
    }
    let mut table = Table::new(&[
        ("tag", Side::Left),
        ("type", Side::Left),
        ("actions", Side::Right),
        ("differs from the type's default", Side::Left),
    ]);
    for tag in &TAGS {
        table.row([tag.name, tag.environment, &tag.max_actions.to_string(), tag.config].map(str::to_owned));
    }
    let mut text = table.text();
    text += "\nA scene defines tags of its own in environments.tags; these are the types and their default configurations.\n";
    for (name, config) in defaults {
        text += &format!("\n{name}: {config}\n");
    }
    print(&text)
}
