//! The run directory: what a run writes and where.
//!
//! ```text
//! scene.ron            the scene in force, every key written out
//! metrics.jsonl        one line per iteration; depends on the seed alone
//! timings.jsonl        one line per iteration; depends on the machine
//! trajectories/        step_<n>.jsonl and validation_<n>.jsonl, one trajectory per line
//! log/trajectory/      pictures, if asked for
//! checkpoints/         step_<n>/, each a model directory with the state to go on from
//! ```

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::files::{FileError, Named as _, write_whole};
use crate::record::TrajectoryRecord;

/// A run directory that exists and can be written.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    root: PathBuf,
}

/// Log files that grow line by line and are cut back when a run resumes.
const LOGS: [&str; 2] = ["metrics.jsonl", "timings.jsonl"];

impl RunDirectory {
    /// Creates a run directory.
    ///
    /// # Errors
    /// [`FileError`] if it cannot be created or already holds a run.
    pub fn create(root: &Path) -> Result<Self, FileError> {
        let scene = root.join("scene.ron");
        if scene.exists() {
            let source = std::io::Error::new(
                std::io::ErrorKind::AlreadyExists,
                "it already holds a run; choose another --out or continue it with --resume",
            );
            return Err(FileError { action: "use", path: root.to_owned(), source });
        }
        for directory in [root.to_owned(), root.join("trajectories"), root.join("checkpoints")] {
            fs::create_dir_all(&directory).named("create", &directory)?;
        }
        let run = Self { root: root.to_owned() };
        for log in LOGS {
            let path = run.root.join(log);
            fs::File::create(&path).named("create", &path)?;
        }
        Ok(run)
    }

    /// Opens an existing run directory.
    ///
    /// # Errors
    /// [`FileError`] if it holds no run.
    pub fn open(root: &Path) -> Result<Self, FileError> {
        let scene = root.join("scene.ron");
        fs::metadata(&scene).named("open", &scene)?;
        Ok(Self { root: root.to_owned() })
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The scene in force.
    #[must_use]
    pub fn scene(&self) -> PathBuf {
        self.root.join("scene.ron")
    }

    /// Where checkpoints are.
    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// The trajectories of a step's training or validation episodes.
    #[must_use]
    pub fn trajectories(&self, validation: bool, step: u64) -> PathBuf {
        let name = if validation { "validation" } else { "step" };
        self.root.join("trajectories").join(format!("{name}_{step}.jsonl"))
    }

    /// Writes trajectories, one per line, as one whole file.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn write_trajectories<'a>(
        &self,
        validation: bool,
        step: u64,
        records: impl Iterator<Item = &'a TrajectoryRecord>,
    ) -> Result<PathBuf, FileError> {
        let path = self.trajectories(validation, step);
        let mut bytes = Vec::new();
        for record in records {
            serde_json::to_writer(&mut bytes, record).map_err(std::io::Error::from).named("write", &path)?;
            bytes.push(b'\n');
        }
        write_whole(&path, &bytes)?;
        Ok(path)
    }

    /// Appends a line to `metrics.jsonl` and one to `timings.jsonl`.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn append(&self, metrics: &str, timings: &str) -> Result<(), FileError> {
        for (log, line) in LOGS.iter().zip([metrics, timings]) {
            let path = self.root.join(log);
            let mut file = OpenOptions::new().append(true).open(&path).named("open", &path)?;
            file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).named("write", &path)?;
        }
        Ok(())
    }

    /// Lengths of the log files, for a checkpoint.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn log_lengths(&self) -> Result<[u64; 2], FileError> {
        let mut lengths = [0; 2];
        for (length, log) in lengths.iter_mut().zip(LOGS) {
            let path = self.root.join(log);
            *length = fs::metadata(&path).named("read", &path)?.len();
        }
        Ok(lengths)
    }

    /// Cuts the log files back to `lengths` and removes trajectories of later steps, so that the run goes on as if it had never
    /// been further.
    ///
    /// # Errors
    /// [`FileError`]; a log that is shorter than recorded is an error, since lines of it are lost.
    pub fn rewind(&self, step: u64, lengths: [u64; 2]) -> Result<(), FileError> {
        for (length, log) in lengths.into_iter().zip(LOGS) {
            let path = self.root.join(log);
            let file = OpenOptions::new().write(true).open(&path).named("open", &path)?;
            let found = file.metadata().named("read", &path)?.len();
            if found < length {
                let reason = format!("it has {found} bytes, the checkpoint was written at {length}");
                return Err(FileError { action: "continue", path, source: std::io::Error::other(reason) });
            }
            file.set_len(length).and_then(|()| file.sync_all()).named("cut", &path)?;
        }
        let directory = self.root.join("trajectories");
        for entry in fs::read_dir(&directory).named("read", &directory)? {
            let path = entry.named("read", &directory)?.path();
            let later = path
                .file_stem()
                .and_then(|name| name.to_str()?.rsplit_once('_')?.1.parse::<u64>().ok())
                .is_some_and(|found| found > step);
            if later {
                fs::remove_file(&path).named("remove", &path)?;
            }
        }
        Ok(())
    }
}

/// Reads a file of trajectories.
///
/// # Errors
/// [`FileError`] with the line number of the first line that is no trajectory.
pub fn read_trajectories(path: &Path) -> Result<Vec<TrajectoryRecord>, FileError> {
    let text = fs::read_to_string(path).named("read", path)?;
    let mut records = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let record: TrajectoryRecord = serde_json::from_str(line).map_err(|error| FileError {
            action: "read",
            path: path.to_owned(),
            source: std::io::Error::other(format!("line {}: {error}", number + 1)),
        })?;
        if record.schema != crate::record::SCHEMA {
            let reason =
                format!("line {}: schema {}, this build reads {}", number + 1, record.schema, crate::record::SCHEMA);
            return Err(FileError { action: "read", path: path.to_owned(), source: std::io::Error::other(reason) });
        }
        records.push(record);
    }
    Ok(records)
}
