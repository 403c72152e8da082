//! Checkpoints that are whole or refused.
//!
//! A checkpoint is a directory `step_<n>`: a model directory that other tools load, the training state, and a manifest with the
//! size and SHA-256 of every file, written last. The directory gets its name when all of it is on disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{FileError, Named as _, digest, sync_directory, write_whole};

const MANIFEST: &str = "manifest.json";

/// A checkpoint that cannot be written or used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// `RG0511`: a file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// `RG0512`: the files are not those that were saved.
    #[error("checkpoint {}: {reason}", path.display())]
    Damaged {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong with which file.
        reason: String,
    },
    /// `RG0513`: no checkpoint of the run can be used.
    #[error("no usable checkpoint in {}{}", path.display(), list(refused))]
    None {
        /// Directory of checkpoints.
        path: PathBuf,
        /// Why each one found was refused.
        refused: Vec<String>,
    },
    /// `RG0514`: the writer of a part failed.
    #[error("{0}")]
    Part(String),
}

fn list(refused: &[String]) -> String {
    refused.iter().map(|reason| format!("\n  {reason}")).collect()
}

#[derive(Debug, Deserialize, Serialize)]
struct Manifest {
    format: u32,
    step: u64,
    files: BTreeMap<String, Entry>,
}

#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Entry {
    size: u64,
    sha256: String,
}

/// The directory of a step's checkpoint.
#[must_use]
pub fn step_directory(root: &Path, step: u64) -> PathBuf {
    root.join(format!("step_{step}"))
}

/// Writes a checkpoint. `write` fills an empty directory; afterwards only the newest `keep` checkpoints remain.
///
/// # Errors
/// [`CheckpointError`]; an incomplete directory is removed, and earlier checkpoints are as before.
pub fn save(
    root: &Path,
    step: u64,
    keep: usize,
    write: impl FnOnce(&Path) -> Result<(), CheckpointError>,
) -> Result<PathBuf, CheckpointError> {
    let (target, temporary) = (step_directory(root, step), root.join(format!(".step_{step}.tmp")));
    let result = (|| {
        remove(&temporary)?;
        fs::create_dir_all(&temporary).named("create", &temporary)?;
        write(&temporary)?;
        let mut files = BTreeMap::new();
        for name in files_below(&temporary)? {
            let path = temporary.join(&name);
            fs::File::open(&path).and_then(|file| file.sync_all()).named("sync", &path)?;
            let (sha256, size) = digest(&path)?;
            files.insert(name, Entry { size, sha256 });
        }
        let manifest = Manifest { format: 1, step, files };
        let text = serde_json::to_vec_pretty(&manifest).map_err(|error| CheckpointError::Part(error.to_string()))?;
        write_whole(&temporary.join(MANIFEST), &text)?;
        remove(&target)?;
        fs::rename(&temporary, &target).named("rename to", &target)?;
        sync_directory(root)?;
        Ok(())
    })();
    if let Err(error) = result {
        let _ = fs::remove_dir_all(&temporary);
        return Err(error);
    }
    for step in steps(root)?.into_iter().rev().skip(keep.max(1)) {
        remove(&step_directory(root, step))?;
    }
    Ok(target)
}

/// Steps that have a checkpoint directory, ascending, whole or not.
///
/// # Errors
/// [`CheckpointError::File`] if the directory cannot be read; a missing one has no steps.
pub fn steps(root: &Path) -> Result<Vec<u64>, CheckpointError> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.named("read", root)?,
    };
    let mut steps = Vec::new();
    for entry in entries {
        let name = entry.named("read", root)?.file_name();
        steps.extend(name.to_str().and_then(|name| name.strip_prefix("step_")?.parse::<u64>().ok()));
    }
    steps.sort_unstable();
    Ok(steps)
}

/// Checks every file of a checkpoint against its manifest and returns its step.
///
/// # Errors
/// [`CheckpointError::Damaged`] naming the first file that is missing, added, cut or altered.
pub fn verify(directory: &Path) -> Result<u64, CheckpointError> {
    let damaged = |reason: String| CheckpointError::Damaged { path: directory.to_owned(), reason };
    let path = directory.join(MANIFEST);
    let text = fs::read(&path).map_err(|error| damaged(format!("{MANIFEST} cannot be read: {error}")))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| damaged(format!("{MANIFEST} is not a manifest: {error}")))?;
    if manifest.format != 1 {
        return Err(damaged(format!("{MANIFEST} has format {}, this build reads format 1", manifest.format)));
    }
    for (name, entry) in &manifest.files {
        if Path::new(name).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err(damaged(format!("{MANIFEST} names `{name}`, which is not inside the checkpoint")));
        }
        let path = directory.join(name);
        let size = fs::metadata(&path).map_err(|error| damaged(format!("{name} cannot be read: {error}")))?.len();
        if size != entry.size {
            return Err(damaged(format!("{name} has {size} bytes, {} were saved", entry.size)));
        }
        if digest(&path)?.0 != entry.sha256 {
            return Err(damaged(format!("{name} was altered: its SHA-256 is not the saved one")));
        }
    }
    Ok(manifest.step)
}

/// The newest checkpoint that verifies, with the reasons why newer ones were refused.
///
/// # Errors
/// [`CheckpointError::None`] if there is none.
pub fn newest(root: &Path) -> Result<(PathBuf, Vec<String>), CheckpointError> {
    let mut refused = Vec::new();
    for step in steps(root)?.into_iter().rev() {
        let directory = step_directory(root, step);
        match verify(&directory) {
            Ok(_) => return Ok((directory, refused)),
            Err(error) => refused.push(error.to_string()),
        }
    }
    Err(CheckpointError::None { path: root.to_owned(), refused })
}

fn remove(directory: &Path) -> Result<(), CheckpointError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(FileError { action: "remove", path: directory.to_owned(), source: error }.into())
        }
        _ => Ok(()),
    }
}

/// Names of all files below a directory, relative, sorted, with `/` between parts.
fn files_below(directory: &Path) -> Result<Vec<String>, CheckpointError> {
    let mut names = Vec::new();
    let mut open = vec![(directory.to_owned(), String::new())];
    while let Some((path, prefix)) = open.pop() {
        for entry in fs::read_dir(&path).named("read", &path)? {
            let entry = entry.named("read", &path)?;
            let Some(name) = entry.file_name().to_str().map(|name| format!("{prefix}{name}")) else {
                return Err(CheckpointError::Part(format!("{} has a file whose name is not UTF-8", path.display())));
            };
            if entry.file_type().named("read", &path)?.is_dir() {
                open.push((entry.path(), format!("{name}/")));
            } else {
                names.push(name);
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, step: u64) -> PathBuf {
        save(root, step, 2, |directory| {
            fs::create_dir(directory.join("inner")).named("create", directory)?;
            write_whole(&directory.join("inner/weights"), &vec![step as u8; 1000])?;
            write_whole(&directory.join("state.json"), b"{}")?;
            Ok(())
        })
        .unwrap()
    }

    #[test]
    fn only_the_newest_are_kept() {
        let root = tempfile::tempdir().unwrap();
        (1..=4).for_each(|step| drop(write(root.path(), step)));
        assert_eq!(steps(root.path()).unwrap(), [3, 4]);
        assert_eq!(newest(root.path()).unwrap(), (step_directory(root.path(), 4), Vec::new()));
    }

    #[test]
    fn a_damaged_checkpoint_is_named_and_the_one_before_is_chosen() {
        type Damage = (&'static str, fn(&Path));
        let damage: [Damage; 5] = [
            ("weights has 10 bytes", |path| fs::write(path.join("inner/weights"), [4; 10]).unwrap()),
            ("weights was altered", |path| fs::write(path.join("inner/weights"), [7; 1000]).unwrap()),
            ("state.json cannot be read", |path| fs::remove_file(path.join("state.json")).unwrap()),
            ("manifest.json cannot be read", |path| fs::remove_file(path.join(MANIFEST)).unwrap()),
            ("is not a manifest", |path| fs::write(path.join(MANIFEST), "{").unwrap()),
        ];
        for (reason, damage) in damage {
            let root = tempfile::tempdir().unwrap();
            let before = write(root.path(), 1);
            damage(&write(root.path(), 2));
            let (chosen, refused) = newest(root.path()).unwrap();
            assert_eq!(chosen, before);
            assert!(refused[0].contains("step_2") && refused[0].contains(reason), "{refused:?}");
        }
    }

    /// Fails after each of many places: a valid earlier checkpoint is always what remains.
    #[test]
    fn a_writer_that_fails_leaves_the_earlier_checkpoint() {
        let root = tempfile::tempdir().unwrap();
        let before = write(root.path(), 1);
        for place in 0..200 {
            let failed = save(root.path(), 2, 2, |directory| {
                write_whole(&directory.join("weights"), &vec![1; place])?;
                Err(CheckpointError::Part("no space left".into()))
            });
            assert!(failed.is_err());
            assert_eq!(newest(root.path()).unwrap().0, before);
        }
        assert_eq!(steps(root.path()).unwrap(), [1]);
    }

    #[test]
    fn a_manifest_cannot_point_outside() {
        let root = tempfile::tempdir().unwrap();
        let path = write(root.path(), 1);
        let text = fs::read_to_string(path.join(MANIFEST)).unwrap().replace("state.json", "../../secret");
        fs::write(path.join(MANIFEST), text).unwrap();
        assert!(verify(&path).unwrap_err().to_string().contains("not inside"));
    }
}
