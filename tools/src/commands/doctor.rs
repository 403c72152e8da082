//! `ragen doctor`: what this machine offers.

use std::io::IsTerminal as _;
use std::path::Path;

use clap::Args;
use ragen_kernels::cpu::features;
use ragen_kernels::cuda;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::table::{Side, Table};

/// Bytes that training keeps of each parameter: weight, gradient and two moments in single precision.
const BYTES_PER_PARAMETER: f64 = 16.0;

/// Say what this machine offers and what follows from it.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen doctor"))]
pub struct Arguments {
    /// Prints one JSON list on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Finding {
    what: &'static str,
    found: String,
    consequence: String,
}

fn finding(what: &'static str, found: impl Into<String>, consequence: impl Into<String>) -> Finding {
    Finding { what, found: found.into(), consequence: consequence.into() }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let findings = [version(), processor(), threads(), memory(), gpu(), fonts(), disk(), terminal()];
    if arguments.json {
        return print_json(&findings);
    }
    let mut table = Table::new(&[("what", Side::Left), ("found", Side::Left), ("consequence", Side::Left)]);
    for Finding { what, found, consequence } in findings {
        table.row([what.to_owned(), found, consequence]);
    }
    print(&table.text())
}

fn version() -> Finding {
    let found = format!("ragen {}, {} on {}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    let consequence = if cfg!(debug_assertions) {
        "a build with checks; a release build is faster"
    } else {
        "a release build, as fast as it gets"
    };
    finding("version", found, consequence)
}

fn processor() -> Finding {
    let found = features();
    let consequence =
        format!("matrix kernels use {}; results are the same on every machine of its kind", found.instruction_set);
    finding("CPU", format!("{} cores, {}", found.cores, found.instruction_set), consequence)
}

fn threads() -> Finding {
    let (offered, used) = (features().threads, rayon::current_num_threads());
    let consequence = if used < offered { "fewer than offered; --threads sets it" } else { "--threads sets fewer" };
    finding("threads", format!("{used} of {offered}"), format!("{consequence}; results do not depend on it"))
}

fn memory() -> Finding {
    match available_memory() {
        Some(bytes) => {
            let millions = bytes / BYTES_PER_PARAMETER / 1e6 / 2.0;
            let consequence =
                format!("trains models of up to about {millions:.0} million parameters, half of it for the rest");
            finding("memory", format!("{:.1} GB free", bytes / 1e9), consequence)
        }
        None => finding("memory", "unknown", "the system does not say; large models may not fit"),
    }
}

fn available_memory() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()? * 1024.0)
}

fn gpu() -> Finding {
    match cuda::probe() {
        Err(reason) => finding("GPU", reason, "everything is computed on the CPU"),
        Ok(devices) => {
            let list: Vec<String> = devices
                .iter()
                .map(|device| {
                    let (major, minor) = device.capability;
                    let compiler = if device.compiler { "with NVRTC" } else { "without NVRTC" };
                    format!(
                        "{}, {:.0} GB, compute {major}.{minor}, {compiler}",
                        device.name,
                        device.memory as f64 / 1e9
                    )
                })
                .collect();
            finding("GPU", list.join("; "), "not used: this build computes on the CPU")
        }
    }
}

fn fonts() -> Finding {
    finding("fonts", "built in", "pictures need no fonts of the system")
}

fn disk() -> Finding {
    let directory = Path::new(".");
    let probe = directory.join(format!(".ragen-doctor-{}", std::process::id()));
    let written = std::fs::write(&probe, b"ragen").and_then(|()| std::fs::remove_file(&probe));
    match written {
        Ok(()) => {
            finding("disk", "the current directory can be written", "runs go to runs/ unless --out says otherwise")
        }
        Err(error) => {
            finding("disk", format!("the current directory: {error}"), "`ragen run` needs an --out elsewhere")
        }
    }
}

fn terminal() -> Finding {
    if std::io::stderr().is_terminal() {
        finding("terminal", "yes", "progress is shown live")
    } else {
        finding("terminal", "no", "progress is one line per iteration on standard error")
    }
}
