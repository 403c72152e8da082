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
use crate::metrics::Metrics;
use crate::random::{Purpose, Stream};
use crate::runtime::{Part, Runtime, RuntimeError, ScoreRow, StepSettings};
use crate::tokens::TokenStore;
use crate::world::{Rollout, WorldError, run_rollout};

/// Rows of tokens with the places under the loss.
#[derive(Clone, Debug, Default)]
pub struct Lessons {
    tokens: Vec<u32>,
    rows: Vec<(usize, Vec<u32>)>,
}

impl Lessons {
    /// Plays a rollout and takes its rows.
    ///
    /// # Errors
    /// What the rollout meets.
    pub fn play(&mut self, world: &mut World, rollout: Rollout) -> Result<(), WorldError> {
        run_rollout(world, rollout, &mut |_| true)?;
        let store = world.resource::<TokenStore>();
        for row in &store.rows {
            let range = row.range();
            let places: Vec<u32> = store.trained_in(range.clone()).map(|token| (token - range.start) as u32).collect();
            if !places.is_empty() {
                self.rows.push((self.tokens.len(), places));
                self.tokens.extend_from_slice(&store.id[range]);
            }
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
        let (start, places) = &self.rows[index];
        let end = self.rows.get(index + 1).map_or(self.tokens.len(), |next| next.0);
        ScoreRow { tokens: &self.tokens[*start..end], targets: places }
    }
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
        let mut loss = 0.0;
        model.accumulate(Part::Actor, &rows, 1.0, study.micro_tokens, &mut |_, scores, upstream| {
            loss -= scores.logprobs.iter().map(|&logprob| f64::from(logprob)).sum::<f64>();
            upstream.d_logprob.fill(-1.0 / count as f32);
        })?;
        let lr = study.optimizer.lr * rate(step, study);
        let report = model.step(Part::Actor, &StepSettings { lr, ..study.optimizer })?;
        step += 1;
        let mut metrics = Metrics::default();
        metrics.set("warmup/loss", loss / count as f64);
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
