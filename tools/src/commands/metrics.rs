//! `ragen metrics`: what a run measures.

use clap::Args;
use ragen::metrics::REGISTRY;
use serde_json::json;

use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::table::{Side, Table};

/// List what a run measures: name, unit and meaning.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen metrics actor/"))]
pub struct Arguments {
    /// Only metrics whose names hold this text
    filter: Option<String>,
    /// Prints one JSON list on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let wanted = arguments.filter.as_deref().unwrap_or("");
    let found = REGISTRY.iter().filter(|metric| metric.name.contains(wanted));
    if arguments.json {
        let list: Vec<_> = found
            .map(|metric| json!({ "name": metric.name, "unit": metric.unit, "meaning": metric.meaning }))
            .collect();
        return print_json(&list);
    }
    let mut table = Table::new(&[("name", Side::Left), ("unit", Side::Left), ("meaning", Side::Left)]);
    for metric in found {
        table.row([metric.name, metric.unit, metric.meaning].map(str::to_owned));
    }
    print(&table.text())
}
