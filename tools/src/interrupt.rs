//! Ctrl-C and the signals that ask a process to end.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, Kind};
use crate::output::tell;

/// The command in hand looks at [`requested`] and stops by itself.
static GRACEFUL: AtomicBool = AtomicBool::new(false);
/// A stop was asked for.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Begins to listen. Until [`stop_gracefully`] is called, the first request ends the process.
pub fn listen() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        if !GRACEFUL.load(Ordering::SeqCst) || REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        tell("stopping; again to stop at once");
    })
    .map_err(|error| Failure::new(Kind::Failed, format!("cannot listen for Ctrl-C: {error}")))
}

/// From now on the first request only sets a flag; the second ends the process.
pub fn stop_gracefully() {
    GRACEFUL.store(true, Ordering::SeqCst);
}

/// Whether a stop was asked for.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}
