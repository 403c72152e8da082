//! Standard output and standard error.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::failure::{Failure, Kind};

/// Writes to standard output at once.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(Kind::Unread, ""),
        _ => Failure::new(Kind::Failed, format!("cannot write to standard output: {error}")),
    })
}

/// Writes a line to standard output.
pub fn print_line(text: &str) -> Result<(), Failure> {
    print(&format!("{text}\n"))
}

/// Writes one JSON value on a line of its own.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::new(Kind::Failed, format!("the result has no JSON form: {error}")))?;
    print_line(&text)
}

/// Writes a line to standard error. If nobody reads it, the work goes on.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Whether a person watches standard error.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}
