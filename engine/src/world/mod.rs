//! The simulated world: who plays what, and how a rollout runs.
//!
//! A rollout is three schedules. [`BeginRollout`] spawns groups, environments and trajectories. [`Turn`] runs again and again,
//! its systems ordered by [`TurnSystems`], until every episode is over. [`EndRollout`] turns trajectories into plain data. To
//! change what happens in a turn, add a system to one of the sets:
//!
//! ```
//! use bevy_app::{App, Plugin};
//! use bevy_ecs::prelude::*;
//! use ragen::world::{Turn, TurnResult, TurnSystems};
//!
//! /// Charges every executed action a little more.
//! struct Hurry;
//!
//! impl Plugin for Hurry {
//!     fn build(&self, app: &mut App) {
//!         app.add_systems(Turn, charge.in_set(TurnSystems::Shape));
//!     }
//! }
//!
//! fn charge(mut results: Query<&mut TurnResult, Changed<TurnResult>>) {
//!     for mut result in &mut results {
//!         result.bypass_change_detection().reward -= 0.01;
//!     }
//! }
//! ```

mod components;
mod finish;
mod registry;
mod spawn;
mod turn;

use std::sync::Arc;

use bevy_app::{App, Plugin};
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{ScheduleLabel, SystemSet};

pub use self::components::*;
pub use self::finish::{Trajectories, Trajectory};
pub use self::registry::{Configured, EnvironmentTypes, Instance, Replay, Tag, Tags, dynamics};
pub use self::spawn::{Held, PlannedGroup, make_instance, system_text};
pub use self::turn::{act, ask_expert, ask_random, book_turns, generate, observe, open_turns, parse_answers};
use crate::codec::Codec;
use crate::environment::{Environment, ResetError, Split};
use crate::runtime::RuntimeError;
use crate::tokens::TokenStore;

/// Spawns a rollout.
#[derive(Clone, Debug, Eq, Hash, PartialEq, ScheduleLabel)]
pub struct BeginRollout;

/// One tick of a rollout.
#[derive(Clone, Debug, Eq, Hash, PartialEq, ScheduleLabel)]
pub struct Turn;

/// Collects the trajectories of a rollout.
#[derive(Clone, Debug, Eq, Hash, PartialEq, ScheduleLabel)]
pub struct EndRollout;

/// What happens in a tick, in this order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, SystemSet)]
pub enum TurnSystems {
    /// States are put into words.
    Observe,
    /// Prompts are built and submitted.
    Prompt,
    /// Models, experts and random agents answer.
    Generate,
    /// Answers are read.
    Parse,
    /// Actions are performed.
    Act,
    /// Rewards of the turn may be changed: nothing of the engine's own is here.
    Shape,
    /// The turn is booked.
    Book,
}

/// What is to be rolled out.
#[derive(Clone, Debug, Resource)]
pub struct Rollout {
    /// Seed of sampling and random agents.
    pub run_seed: u64,
    /// Training or validation.
    pub split: Split,
    /// Iteration, part of the names of random streams.
    pub iteration: u64,
    /// The groups in order.
    pub groups: Vec<PlannedGroup>,
    /// Members per group.
    pub group_size: u32,
    /// All members of a group meet the same chance events.
    pub shared_noise: bool,
    /// The agent that plays.
    pub agent: Entity,
    /// The agent is a model.
    pub asks_model: bool,
    /// Keep coloured text pieces in records.
    pub keep_pieces: bool,
    /// Keep token ids and log-probabilities in records.
    pub keep_ids: bool,
}

/// How far a rollout is.
#[derive(Clone, Copy, Debug, Default, Resource)]
pub struct RolloutProgress {
    /// Episodes that are over.
    pub finished: u32,
    /// Of those, solved.
    pub succeeded: u32,
    /// Turns booked.
    pub turns: u64,
    /// Tokens sampled.
    pub tokens: u64,
}

/// The tokenizer and chat template of the world's model.
#[derive(Clone, Resource)]
pub struct Text(pub Arc<dyn Codec>);

/// Problems that systems met; the first one ends the rollout.
#[derive(Debug, Default, Resource)]
pub struct Faults {
    first: Option<WorldError>,
}

impl Faults {
    /// Notes a problem; later ones are consequences and are dropped.
    pub fn report(&mut self, error: WorldError) {
        self.first.get_or_insert(error);
    }

    /// Takes the problem out.
    pub fn take(&mut self) -> Option<WorldError> {
        self.first.take()
    }
}

/// A rollout that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// `RG0201`: an instance could not be made.
    #[error(transparent)]
    Reset(#[from] ResetError),
    /// `RG0202`: every draw for a training seed is also a validation instance.
    #[error(
        "{tag}: {attempts} draws for seed {seed} all gave instances that validation holds; use another tag for one of the two, fewer validation groups, or `reject_validation_instances: false`"
    )]
    Exhausted {
        /// The tag.
        tag: String,
        /// The environment seed.
        seed: u64,
        /// Draws made.
        attempts: u32,
    },
    /// `RG0203`: the rollout names no agent.
    #[error("the rollout's agent does not exist")]
    NoAgent,
    /// `RG0204`: an agent of kind policy plays in a world without a model.
    #[error("the agent is a policy, but no model is loaded")]
    NoModel,
    /// `RG0205`: the model failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// `RG0207`: the training arithmetic refused its input.
    #[error(transparent)]
    Algorithm(#[from] crate::algorithm::error::AlgorithmError),
    /// `RG0206`: stopped from outside.
    #[error("interrupted")]
    Interrupted,
}

/// Adds the schedules and systems of rollouts.
#[derive(Debug, Default)]
pub struct WorldPlugin;

impl Plugin for WorldPlugin {
    fn build(&self, app: &mut App) {
        for schedule in [Schedule::new(BeginRollout), Schedule::new(Turn), Schedule::new(EndRollout)] {
            app.add_schedule(schedule);
        }
        app.init_resource::<EnvironmentTypes>()
            .init_resource::<Tags>()
            .init_resource::<Held>()
            .init_resource::<Faults>()
            .init_resource::<RolloutProgress>()
            .init_resource::<TokenStore>()
            .init_resource::<Trajectories>();
        use TurnSystems::{Act, Book, Generate, Observe, Parse, Prompt, Shape};
        app.configure_sets(Turn, (Observe, Prompt, Generate, Parse, Act, Shape, Book).chain());
        app.add_systems(BeginRollout, spawn::spawn_rollout);
        app.add_systems(Turn, open_turns.in_set(Prompt));
        app.add_systems(Turn, generate.in_set(Generate));
        app.add_systems(Turn, parse_answers.in_set(Parse));
        app.add_systems(Turn, book_turns.in_set(Book));
        app.add_systems(EndRollout, finish::collect_trajectories);
    }
}

/// Adds environment types to an app.
pub trait AddEnvironment {
    /// Registers an environment type: its name in scenes and the systems that play it.
    fn add_environment<E: Environment + Sync>(&mut self) -> &mut Self;
}

impl AddEnvironment for App {
    fn add_environment<E: Environment + Sync>(&mut self) -> &mut Self {
        self.world_mut().get_resource_or_init::<EnvironmentTypes>().add::<E>();
        self.add_systems(Turn, observe::<E>.in_set(TurnSystems::Observe));
        self.add_systems(Turn, (ask_expert::<E>, ask_random::<E>).in_set(TurnSystems::Generate));
        self.add_systems(Turn, act::<E>.in_set(TurnSystems::Act))
    }
}

/// Plays one rollout to its end. `each_tick` sees the progress and may stop it by returning `false`.
///
/// # Errors
/// The first problem that a system met. The world holds no entity of the rollout afterwards.
pub fn run_rollout(
    world: &mut World,
    rollout: Rollout,
    each_tick: &mut dyn FnMut(RolloutProgress) -> bool,
) -> Result<(), WorldError> {
    world.insert_resource(rollout);
    world.insert_resource(RolloutProgress::default());
    world.run_schedule(BeginRollout);
    loop {
        if let Some(fault) = world.resource_mut::<Faults>().take() {
            return abandon(world, fault);
        }
        let mut phases = world.query::<&Phase>();
        if phases.iter(world).all(|phase| *phase == Phase::Over) {
            break;
        }
        if !each_tick(*world.resource::<RolloutProgress>()) {
            return abandon(world, WorldError::Interrupted);
        }
        world.run_schedule(Turn);
    }
    world.run_schedule(EndRollout);
    world.resource_mut::<Faults>().take().map_or(Ok(()), Err)
}

/// Clears the world after a problem.
fn abandon(world: &mut World, error: WorldError) -> Result<(), WorldError> {
    let groups: Vec<Entity> = world.query_filtered::<Entity, With<Group>>().iter(world).collect();
    for group in groups {
        world.despawn(group);
    }
    if let Some(mut model) = world.get_resource_mut::<crate::runtime::Model>() {
        model.0.cancel();
    }
    Err(error)
}
