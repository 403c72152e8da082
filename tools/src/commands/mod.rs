//! One module per command.

pub mod eval;
pub mod run;
