//! Files that are whole or not there.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}: {source}", path.display())]
pub struct FileError {
    /// What was tried, e.g. `write`.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The system's reason.
    pub source: io::Error,
}

/// Adds action and path to an I/O result.
pub trait Named<T> {
    /// Names what was tried on which path.
    ///
    /// # Errors
    /// The same, named.
    fn named(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> Named<T> for io::Result<T> {
    fn named(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { action, path: path.to_owned(), source })
    }
}

/// Writes a file under a temporary name, syncs it and renames it: readers see the old content or the new, never a part.
///
/// # Errors
/// [`FileError`]; the temporary file is removed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let written = (|| {
        let mut file = File::create(&temporary).named("create", &temporary)?;
        file.write_all(bytes).named("write", &temporary)?;
        file.sync_all().named("sync", &temporary)?;
        fs::rename(&temporary, path).named("rename to", path)
    })();
    if written.is_err() {
        // The error that is reported is the first one; a left-over temporary file never looks whole.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Makes renames in a directory durable.
///
/// # Errors
/// [`FileError`].
pub fn sync_directory(path: &Path) -> Result<(), FileError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    if cfg!(unix) { File::open(path).and_then(|directory| directory.sync_all()).named("sync", path) } else { Ok(()) }
}

/// SHA-256 of a file in hexadecimal, and its size.
///
/// # Errors
/// [`FileError`].
pub fn digest(path: &Path) -> Result<(String, u64), FileError> {
    let mut file = File::open(path).named("open", path)?;
    let (mut hasher, mut size, mut chunk) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        match file.read(&mut chunk).named("read", path)? {
            0 => break,
            count => {
                hasher.update(&chunk[..count]);
                size += count as u64;
            }
        }
    }
    let text = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((text, size))
}
