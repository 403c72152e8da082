//! A data-oriented engine that trains reasoning agents over many turns.
//!
//! Environments, agents and trajectories are entities of a [`bevy_ecs`] world; systems step the environments, build prompts,
//! generate with a Qwen transformer of our own, and take gradient steps. [`world`] holds the rollout, [`learn`] the learning
//! step, [`run`] the loop around both, [`scene`] the files that describe a run.
//!
//! ```text
//! run ── world ── environment          learn ── algorithm
//!   │      ├── prompt, grammar           ├── tokens
//!   │      ├── conversation, codec       └── runtime ── model ── ragen_kernels
//!   │      └── runtime
//!   ├── scene, metrics, evaluation, record, render
//!   └── warmup
//! ```

pub mod algorithm;
pub mod codec;
pub mod conversation;
pub mod environment;
pub mod evaluation;
pub mod files;
pub mod grammar;
pub mod learn;
pub mod metrics;
pub mod model;
pub mod prompt;
pub mod random;
pub mod record;
pub mod render;
pub mod run;
pub mod runtime;
pub mod scene;
pub mod tokens;
pub mod warmup;
pub mod world;

use bevy_app::{App, Plugin, PluginGroup, PluginGroupBuilder};

use crate::environment::bandit::Bandit;
use crate::environment::countdown::Countdown;
use crate::environment::frozen_lake::FrozenLake;
use crate::environment::sokoban::Sokoban;
use crate::world::AddEnvironment as _;

/// The environments that come with the engine.
#[derive(Debug, Default)]
pub struct EnvironmentsPlugin;

impl Plugin for EnvironmentsPlugin {
    fn build(&self, app: &mut App) {
        app.add_environment::<Bandit>()
            .add_environment::<Countdown>()
            .add_environment::<FrozenLake>()
            .add_environment::<Sokoban>();
    }
}

/// Everything that a run needs: rollouts, learning and the built-in environments.
#[derive(Debug, Default)]
pub struct RagenPlugins;

impl PluginGroup for RagenPlugins {
    fn build(self) -> PluginGroupBuilder {
        PluginGroupBuilder::start::<Self>().add(world::WorldPlugin).add(learn::LearnPlugin).add(EnvironmentsPlugin)
    }
}
