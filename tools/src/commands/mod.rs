//! One module per command.

pub mod data;
pub mod doctor;
pub mod env;
pub mod eval;
pub mod explain;
pub mod generate;
pub mod metrics;
pub mod render;
pub mod run;
pub mod score;
pub mod verify;
pub mod warmup;
