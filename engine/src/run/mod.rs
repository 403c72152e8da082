//! A run: its directory, checkpoints and loop.

pub mod checkpoint;
pub mod directory;
