//! `ragen render`: pictures and pages of trajectories.

use std::path::{Path, PathBuf};

use clap::Args;
use ragen::files::Named as _;
use ragen::render::write_html;
use ragen::run::directory::read_trajectories;
use ragen::run::pictures::{draw_all, replay};

use crate::failure::Failure;
use crate::output::tell;
use crate::progress;
use crate::scenes::environment_types;

/// Draw trajectories: one PNG per episode, and pages on request.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen render runs/sokoban-20250101-120000 --limit 4 --html"))]
pub struct Arguments {
    /// A run directory, a directory with trajectories.jsonl, or a file of trajectories
    #[arg(value_name = "RUN|FILE")]
    source: PathBuf,
    /// Where to write [default: images/ in the run, or beside the file a folder of its name]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Episodes of each file, the first ones [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Writes an HTML page per episode as well
    #[arg(long)]
    html: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let files = sources(&arguments.source)?;
    let types = environment_types();
    let bar = progress::bar(files.len() as u64, "files");
    for (file, default) in files {
        let directory = match &arguments.out {
            // Several files share names of trajectories, so each has its own folder.
            Some(out) if arguments.source.is_dir() => out.join(default.file_name().unwrap_or_default()),
            Some(out) => out.clone(),
            None => default,
        };
        let mut records = read_trajectories(&file)?;
        records.truncate(arguments.limit.unwrap_or(usize::MAX));
        let drawn = draw_all(&types, records.iter(), &directory)?;
        let mut made = format!("{} pictures", drawn.len());
        if arguments.html {
            let pictures: Vec<_> = records.iter().map(|record| replay(&types, record)).collect();
            made += &format!(", {} pages", write_html(&records, &pictures, &directory)?.len());
        }
        bar.suspend(|| tell(&format!("{made}: {}", directory.display())));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// The files to read, each with the folder that its pictures go to by default.
fn sources(source: &Path) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    let missing = |reason: &str| Failure::input(format!("{}: {reason}", source.display()));
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_owned();
    if !source.is_dir() {
        if !source.exists() {
            return Err(missing("no such file or directory"));
        }
        let beside = source.with_extension("");
        let folder = if beside == source { source.with_extension("images") } else { beside };
        return Ok(vec![(source.to_owned(), folder)]);
    }
    let single = source.join("trajectories.jsonl");
    if single.is_file() {
        return Ok(vec![(single, source.join("images"))]);
    }
    let below = source.join("trajectories");
    if !below.is_dir() {
        return Err(missing("holds no trajectories: neither trajectories/ nor trajectories.jsonl"));
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&below).named("read", &below)? {
        let path = entry.named("read", &below)?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let folder = source.join("images").join(stem(&path));
            files.push((path, folder));
        }
    }
    files.sort();
    if files.is_empty() { Err(missing("trajectories/ holds no .jsonl file")) } else { Ok(files) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_gives_its_files_in_order_with_a_folder_each() {
        let run = tempfile::tempdir().unwrap();
        let below = run.path().join("trajectories");
        std::fs::create_dir(&below).unwrap();
        for name in ["validation_0.jsonl", "step_1.jsonl", "notes.txt"] {
            std::fs::write(below.join(name), "").unwrap();
        }
        let found = sources(run.path()).unwrap();
        let folders: Vec<&Path> = found.iter().map(|(_, folder)| folder.strip_prefix(run.path()).unwrap()).collect();
        assert_eq!(folders, [Path::new("images/step_1"), Path::new("images/validation_0")]);
        assert!(sources(&run.path().join("nothing")).is_err());
    }
}
