//! Supervised start of a model: it imitates experts before it learns by itself.
//!
//! Lessons are played in the world by experts or random agents, with the very prompts that the model will be given, and the
//! model is trained on their answers by cross entropy.

mod create;
mod plan;
pub mod tokenizer;

use bevy_ecs::prelude::*;

pub use self::create::{CreateError, ModelShape, create_model};
pub use self::plan::{LessonPlan, Teacher, WarmupError, WarmupEvent, WarmupPlan, run_plan};
use crate::learn::{VALUE_GAIN, ValueUnits};
use crate::metrics::Metrics;
use crate::random::{Purpose, Stream};
use crate::runtime::{Part, Runtime, RuntimeError, ScoreRow, StepSettings};
use crate::tokens::TokenStore;
use crate::world::{Rollout, Trajectories, Trajectory, WorldError, run_rollout};

/// Rows of tokens with the places under the loss.
#[derive(Clone, Debug, Default)]
pub struct Lessons {
    tokens: Vec<u32>,
    rows: Vec<LessonRow>,
}

#[derive(Clone, Debug)]
struct LessonRow {
    start: usize,
    places: Vec<u32>,
    /// What a value head is to say before each place; empty if it is not taught.
    outputs: Vec<f32>,
}

/// How a teacher's rewards become lessons of a value head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueLesson {
    /// Discount from turn to turn.
    pub turn_gamma: f64,
    /// Units of the head's output, fixed by the first rollout. Training fixes them in the same way, by the first batch of a
    /// policy that imitates the teacher, so that what the head has learned stays true.
    pub units: Option<ValueUnits>,
}

impl Lessons {
    /// Plays a rollout and takes its rows; with `value`, also the teacher's return from each turn on.
    ///
    /// # Errors
    /// What the rollout meets.
    pub fn play(
        &mut self,
        world: &mut World,
        rollout: Rollout,
        mut value: Option<&mut ValueLesson>,
    ) -> Result<(), WorldError> {
        run_rollout(world, rollout, &mut |_| true)?;
        let store = world.resource::<TokenStore>();
        let returns: Option<Vec<Vec<f64>>> = value.as_mut().map(|lesson| {
            let all = &world.resource::<Trajectories>().all;
            let returns: Vec<Vec<f64>> = all.iter().map(|one| returns(one, lesson.turn_gamma)).collect();
            lesson.units.get_or_insert_with(|| ValueUnits::of(&returns.concat()));
            returns
        });
        let units = value.and_then(|lesson| lesson.units).unwrap_or(ValueUnits { mean: 0.0, scale: 1.0 });
        for row in &store.rows {
            let range = row.range();
            let trained: Vec<usize> = store.trained_in(range.clone()).collect();
            if trained.is_empty() {
                continue;
            }
            let of_trajectory = returns.as_ref().map(|returns| &returns[row.trajectory as usize]);
            let output =
                |token: &usize| of_trajectory.map(|turns| units.output(turns[usize::from(store.turn[*token])]) as f32);
            self.rows.push(LessonRow {
                start: self.tokens.len(),
                places: trained.iter().map(|token| (token - range.start) as u32).collect(),
                outputs: trained.iter().filter_map(output).collect(),
            });
            self.tokens.extend_from_slice(&store.id[range]);
        }
        Ok(())
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is nothing to learn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn row(&self, index: usize) -> ScoreRow<'_> {
        let LessonRow { start, places, .. } = &self.rows[index];
        let end = self.rows.get(index + 1).map_or(self.tokens.len(), |next| next.start);
        ScoreRow { tokens: &self.tokens[*start..end], targets: places }
    }
}

/// Discounted sum of rewards and penalties from each turn on.
fn returns(trajectory: &Trajectory, turn_gamma: f64) -> Vec<f64> {
    let rewards = trajectory.turn_rewards.iter().zip(&trajectory.turn_penalties);
    let mut returns: Vec<f64> = rewards.map(|(&reward, &penalty)| f64::from(reward) + f64::from(penalty)).collect();
    for turn in (1..returns.len()).rev() {
        returns[turn - 1] += turn_gamma * returns[turn];
    }
    returns
}

/// How lessons are studied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Study {
    /// Seed of the order of rows.
    pub seed: u64,
    /// Rows per optimiser step.
    pub mini_batch: usize,
    /// Tokens per pass.
    pub micro_tokens: usize,
    /// Weight of the value head's squared error, in deviations of the returns, beside the cross entropy.
    pub value_weight: f64,
    /// Optimiser constants; the rate is the peak.
    pub optimizer: StepSettings,
    /// Optimiser steps over which the rate rises from 0; afterwards it falls linearly to a tenth.
    pub warmup_steps: u64,
    /// Optimiser steps in all.
    pub steps: u64,
}

/// Studies lessons once, in random order, as optimiser steps `first_step..` of `study.steps`. Returns the step after the last.
///
/// # Errors
/// What the model meets.
pub fn study(
    model: &mut dyn Runtime,
    lessons: &Lessons,
    study: &Study,
    first_step: u64,
    each_step: &mut dyn FnMut(u64, &Metrics),
) -> Result<u64, RuntimeError> {
    let mut order: Vec<usize> = (0..lessons.len()).collect();
    Stream::new(study.seed, Purpose::Shuffle, &[first_step]).shuffle(&mut order);
    let mut step = first_step;
    for chosen in order.chunks(study.mini_batch.max(1)) {
        if step >= study.steps {
            break;
        }
        let rows: Vec<ScoreRow<'_>> = chosen.iter().map(|&index| lessons.row(index)).collect();
        let count: usize = rows.iter().map(|row| row.targets.len()).sum();
        // One entry per place, so that scores find their targets; places that teach no value hold NaN.
        let outputs: Vec<f32> = chosen
            .iter()
            .flat_map(|&index| {
                let LessonRow { places, outputs, .. } = &lessons.rows[index];
                (0..places.len()).map(|at| outputs.get(at).copied().unwrap_or(f32::NAN))
            })
            .collect();
        let value_slope = (study.value_weight * VALUE_GAIN * VALUE_GAIN / count as f64) as f32;
        let (mut loss, mut value_loss) = (0.0, 0.0);
        model.accumulate(Part::Actor, &rows, 1.0, study.micro_tokens, &mut |first, scores, upstream| {
            loss -= scores.logprobs.iter().map(|&logprob| f64::from(logprob)).sum::<f64>();
            upstream.d_logprob.fill(-1.0 / count as f32);
            for ((slope, value), output) in upstream.d_value.iter_mut().zip(&scores.values).zip(&outputs[first..]) {
                if !output.is_nan() {
                    let error = value - output;
                    *slope = value_slope * error;
                    value_loss += f64::from(error * error);
                }
            }
        })?;
        let lr = study.optimizer.lr * rate(step, study);
        let report = model.step(Part::Actor, &StepSettings { lr, ..study.optimizer })?;
        step += 1;
        let mut metrics = Metrics::default();
        metrics.set("warmup/loss", loss / count as f64);
        let taught = outputs.iter().filter(|output| !output.is_nan()).count();
        if study.value_weight > 0.0 && taught > 0 {
            metrics.set("warmup/value_error", VALUE_GAIN * VALUE_GAIN * value_loss / taught as f64);
        }
        metrics.set("warmup/lr", f64::from(lr));
        metrics.set("warmup/grad_norm", report.gradient_norm);
        each_step(step, &metrics);
    }
    Ok(step)
}

fn rate(step: u64, study: &Study) -> f32 {
    let rising = (step + 1) as f32 / study.warmup_steps.max(1) as f32;
    let left = study.steps.saturating_sub(step) as f32 / study.steps.saturating_sub(study.warmup_steps).max(1) as f32;
    rising.min(1.0).min(0.1 + 0.9 * left)
}
