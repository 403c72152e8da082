//! A run: its directory, checkpoints and loop.

pub mod checkpoint;
pub mod directory;
mod driver;
mod evaluate;
pub mod instances;
pub mod pictures;
mod setup;
pub mod stop;

pub use self::driver::{Control, Event, Outcome, Phase, Run, RunError};
pub use self::evaluate::{Evaluation, EvaluationOptions, evaluate};
pub use self::setup::{Agents, Plan, SetupError, SetupOptions, agent_settings, prepare};
