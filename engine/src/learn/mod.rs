//! From trajectories to a better policy.
//!
//! [`learn`] runs the schedule [`Learn`] once per iteration, after the rollout, and then [`UpdateStep`] once per optimiser step.
//! Systems are ordered by [`LearnSystems`] and work on flat arrays: the [`TokenStore`](crate::tokens::TokenStore), the
//! [`Trajectories`](crate::world::Trajectories) and the [`Batch`]. To use an estimator of your own, add a system to
//! [`LearnSystems::Advantage`] after [`estimate_advantages`] and overwrite `TokenStore::advantage`.

mod advantage;
mod filter;
mod optimise;
mod recompute;
mod score;
mod settings;

use bevy_app::{App, Plugin};
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{ScheduleLabel, SystemSet};
use serde::{Deserialize, Serialize};

pub use self::advantage::estimate_advantages;
pub use self::filter::filter_groups;
pub use self::optimise::{Update, optimise, plan_update};
pub use self::recompute::recompute;
pub use self::score::score_trajectories;
use crate::metrics::Metrics;
use crate::world::{Faults, WorldError};

/// What precedes the optimiser steps on a rollout.
#[derive(Clone, Debug, Eq, Hash, PartialEq, ScheduleLabel)]
pub struct Learn;

/// One optimiser step; the [`Update`] knows how many are left.
#[derive(Clone, Debug, Eq, Hash, PartialEq, ScheduleLabel)]
pub struct UpdateStep;

/// What happens in a learning step, in this order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, SystemSet)]
pub enum LearnSystems {
    /// Episodes get their scores, tokens their rewards.
    Score,
    /// Groups without signal are dropped.
    Filter,
    /// Log-probabilities and values are computed under the policy before the update.
    Recompute,
    /// Advantages and the critic's targets.
    Advantage,
    /// Rows are cut into mini-batches.
    Plan,
    /// The optimiser step; alone in [`UpdateStep`].
    Optimise,
}

/// What takes part in the present learning step.
#[derive(Clone, Debug, Default, Resource)]
pub struct Batch {
    /// Score of each trajectory: rewards and penalties, before normalisation.
    pub scores: Vec<f64>,
    /// Score of each trajectory after normalisation.
    pub normalized: Vec<f64>,
    /// Trajectories that are kept, ascending.
    pub kept: Vec<usize>,
    /// Rows of the kept trajectories that hold a token to train on, ascending.
    pub rows: Vec<usize>,
    /// Share of groups that are kept.
    pub kept_share: f64,
}

/// How much a critic's output is amplified. The output is linear in weights that start at 0 and move by the learning rate of a
/// transformer; amplified, they reach returns within one iteration instead of dozens.
pub const VALUE_GAIN: f64 = 10.0;

/// A critic's output `v` stands for the value `mean + scale · VALUE_GAIN · v`.
///
/// Returns of different environments differ by orders of magnitude. In these units a fresh critic, whose output is 0, predicts
/// the mean return, and its loss, measured in deviations, weighs about as much as the policy's.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct ValueUnits {
    /// Mean return of the first batch.
    pub mean: f64,
    /// Deviation of the returns of the first batch, at least 1e-3.
    pub scale: f64,
}

impl ValueUnits {
    /// Units from the returns of a batch.
    #[must_use]
    pub fn of(returns: &[f64]) -> Self {
        let sample = crate::algorithm::statistics::Sample::of(returns);
        Self { mean: sample.mean, scale: sample.deviation().max(1e-3) }
    }

    /// The value that a critic's output stands for.
    #[must_use]
    pub fn value(self, output: f64) -> f64 {
        self.mean + self.scale * VALUE_GAIN * output
    }

    /// The output that stands for a value.
    #[must_use]
    pub fn output(self, value: f64) -> f64 {
        (value - self.mean) / (self.scale * VALUE_GAIN)
    }
}

/// What learning carries from one iteration to the next. Everything in it is part of a checkpoint.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Resource, Serialize)]
pub struct LearnState {
    /// Iterations completed.
    pub iteration: u64,
    /// Units in which the critic predicts: fixed by the first batch.
    pub value_units: Option<ValueUnits>,
    /// Weight of the KL penalty in the reward, where a controller moves it.
    pub kl_weight: Option<f64>,
    /// Iterations in a row whose filter kept nothing.
    pub empty_in_a_row: u64,
}

/// Learns from the last rollout: [`Learn`], then [`UpdateStep`] until no step is left. `each_step` is told steps done and steps in
/// all, before the first and after each.
///
/// # Errors
/// What the systems report.
pub fn learn(world: &mut World, each_step: &mut dyn FnMut(usize, usize)) -> Result<(), WorldError> {
    world.run_schedule(Learn);
    loop {
        if let Some(fault) = world.resource_mut::<Faults>().take() {
            return Err(fault);
        }
        let update = world.resource::<Update>();
        let (done, total) = update.progress();
        each_step(done, total);
        if update.is_over() {
            return Ok(());
        }
        world.run_schedule(UpdateStep);
    }
}

/// Adds the systems of a learning step.
#[derive(Debug, Default)]
pub struct LearnPlugin;

impl Plugin for LearnPlugin {
    fn build(&self, app: &mut App) {
        use LearnSystems::{Advantage, Filter, Optimise, Plan, Recompute, Score};
        app.add_schedule(Schedule::new(Learn))
            .add_schedule(Schedule::new(UpdateStep))
            .init_resource::<Batch>()
            .init_resource::<LearnState>()
            .init_resource::<Update>()
            .init_resource::<Metrics>()
            .configure_sets(Learn, (Score, Filter, Recompute, Advantage, Plan).chain())
            .add_systems(Learn, score_trajectories.in_set(Score))
            .add_systems(Learn, filter_groups.in_set(Filter))
            .add_systems(Learn, recompute.in_set(Recompute))
            .add_systems(Learn, estimate_advantages.in_set(Advantage))
            .add_systems(Learn, plan_update.in_set(Plan))
            .add_systems(UpdateStep, optimise.in_set(Optimise));
    }
}
