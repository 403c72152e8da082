//! Optimiser steps on the kept rows.

use bevy_ecs::prelude::*;

use super::recompute::{score_rows, targets_of};
use super::{Batch, LearnState, ValueUnits, settings};
use crate::algorithm::advantage::AdvantageSettings;
use crate::algorithm::batch_fit::{divisor, mini_batches};
use crate::algorithm::error::AlgorithmError;
use crate::algorithm::loss::{PolicyLoss, PolicySums, PolicyTokens};
use crate::algorithm::rows::Rows;
use crate::algorithm::value_loss::{ValueLoss, ValueSums, ValueTokens};
use crate::metrics::Metrics;
use crate::random::{Purpose, Stream};
use crate::runtime::{Model, Part, Scores, Upstream};
use crate::scene::{ActiveScene, CriticKind, Scene};
use crate::tokens::TokenStore;
use crate::world::{Faults, Trajectories, WorldError};

/// Performs the optimiser steps of an iteration.
///
/// Rows are shuffled, cut into mini-batches, and each mini-batch is one step. Every token's weight in the loss is known before
/// the first backward pass of its step, so that cutting a mini-batch into micro-batches changes nothing but rounding.
#[expect(clippy::too_many_arguments, reason = "a system's arguments are its data")]
pub fn optimise(
    trajectories: Res<Trajectories>,
    batch: Res<Batch>,
    scene: Res<ActiveScene>,
    store: Res<TokenStore>,
    state: Res<LearnState>,
    mut model: ResMut<Model>,
    mut metrics: ResMut<Metrics>,
    mut faults: ResMut<Faults>,
) {
    metrics.set("train/skipped_update", f64::from(u8::from(batch.rows.is_empty())));
    if batch.rows.is_empty() {
        return;
    }
    let mut update = Update::new(&scene.0, &store, &mut model, &state);
    let result = update.run(&batch.rows, trajectories.groups, &mut metrics);
    match result {
        Ok(()) => update.report(&mut metrics),
        Err(error) => faults.report(error),
    }
}

/// Everything an update carries from step to step.
struct Update<'a> {
    scene: &'a Scene,
    store: &'a TokenStore,
    model: &'a mut Model,
    iteration: u64,
    units: ValueUnits,
    policy: PolicyLoss,
    value: ValueLoss,
    advantage: AdvantageSettings,
    policy_sums: PolicySums,
    value_sums: ValueSums,
    steps: u64,
    norms: Norms,
    first_ratio_deviation: Option<f64>,
}

#[derive(Default)]
struct Norms {
    actor: f64,
    scale: f64,
    critic: f64,
}

/// Numbers of a mini-batch's targets, in their order.
struct Gathered {
    old_logprob: Vec<f32>,
    reference: Vec<f32>,
    advantage: Vec<f32>,
    old_value: Vec<f32>,
    target: Vec<f32>,
    weight: Vec<f64>,
    mask: Vec<bool>,
}

impl Gathered {
    fn new(
        store: &TokenStore,
        rows: &[usize],
        targets: &[Vec<u32>],
        policy: &PolicyLoss,
        units: ValueUnits,
    ) -> Result<Self, AlgorithmError> {
        let mut bounds = vec![0];
        let mut tokens = Vec::new();
        for (&row, targets) in rows.iter().zip(targets) {
            let start = store.rows[row].start as usize;
            tokens.extend(targets.iter().map(|&target| start + target as usize));
            bounds.push(tokens.len());
        }
        let of = |numbers: &[f32]| tokens.iter().map(|&token| numbers[token]).collect();
        let in_units =
            |numbers: &[f32]| tokens.iter().map(|&token| units.output(f64::from(numbers[token])) as f32).collect();
        let mask = vec![true; tokens.len()];
        let weight = policy.aggregation.weights(Rows::new(&bounds)?, &mask)?;
        Ok(Self {
            old_logprob: of(&store.logprob),
            reference: of(&store.reference_logprob),
            advantage: of(&store.advantage),
            old_value: in_units(&store.value),
            target: in_units(&store.return_),
            weight,
            mask,
        })
    }
}

impl<'a> Update<'a> {
    fn new(scene: &'a Scene, store: &'a TokenStore, model: &'a mut Model, state: &LearnState) -> Self {
        let units = state.value_units.unwrap_or(ValueUnits { mean: 0.0, scale: 1.0 });
        let mut value = settings::value_loss(scene);
        value.value_clip = value.value_clip.map(|clip| clip / units.scale);
        Self {
            scene,
            store,
            model,
            iteration: state.iteration,
            units,
            policy: settings::policy_loss(scene),
            value,
            advantage: settings::advantage(scene),
            policy_sums: PolicySums::default(),
            value_sums: ValueSums::default(),
            steps: 0,
            norms: Norms::default(),
            first_ratio_deviation: None,
        }
    }

    fn run(&mut self, rows: &[usize], groups: usize, metrics: &mut Metrics) -> Result<(), WorldError> {
        let update = &self.scene.update;
        let mini_batch = update.mini_batch as usize;
        let (seed, iteration) = (self.scene.seed.run, self.iteration);
        let stream = |purpose, epoch| Stream::new(seed, purpose, &[iteration, epoch]);
        let multiple = divisor(groups, mini_batch, 1)?;
        let fitted =
            settings::fit(self.scene).rows(rows.len(), multiple, mini_batch, &mut stream(Purpose::BatchFit, 0))?;
        let cuts = mini_batches(fitted.len(), mini_batch)?;
        metrics.set("train/num_mini_batches", cuts.len() as f64);
        for epoch in 0..u64::from(update.epochs) {
            let mut order = fitted.rows.clone();
            if update.shuffle {
                stream(Purpose::Shuffle, epoch).shuffle(&mut order);
            }
            for cut in &cuts {
                // Places beyond the rows are padding that weighs nothing.
                let end = cut.end.min(order.len());
                let chosen: Vec<usize> = order[cut.start.min(end)..end].iter().map(|&place| rows[place]).collect();
                if !chosen.is_empty() {
                    self.mini_batch(&chosen)?;
                }
            }
        }
        Ok(())
    }

    fn mini_batch(&mut self, rows: &[usize]) -> Result<(), WorldError> {
        let scene = self.scene;
        let targets = targets_of(self.store, rows);
        let gathered = Gathered::new(self.store, rows, &targets, &self.policy, self.units)?;
        let rows = score_rows(self.store, rows, &targets);
        let temperature = scene.sampling.train.temperature as f32;
        let micro_tokens = scene.update.micro_tokens as usize;
        let critic = self.advantage.estimator.needs_values();
        if critic && scene.critic.kind == CriticKind::Separate {
            let mut sums = ValueSums::default();
            let mut failed = None;
            let value = self.value;
            self.model.0.accumulate(
                Part::Critic,
                &rows,
                temperature,
                micro_tokens,
                &mut |first, scores, upstream| {
                    let result = value_gradient(&value, &gathered, first, scores, 1.0, upstream);
                    note(result, &mut sums, ValueSums::merge, &mut failed);
                },
            )?;
            failed.map_or(Ok(()), Err)?;
            self.value_sums.merge(&sums);
            let step = settings::critic_step(scene, self.iteration);
            self.norms.critic += self.model.0.step(Part::Critic, &step)?.gradient_norm;
        }
        let policy_waits = self.iteration < u64::from(scene.critic.warmup_steps);
        let shared = critic && scene.critic.kind == CriticKind::Shared;
        if policy_waits && !shared {
            self.steps += 1;
            return Ok(());
        }
        let (mut policy_sums, mut value_sums, mut failed) = (PolicySums::default(), ValueSums::default(), None);
        let (policy, value) = (self.policy, self.value);
        self.model.0.accumulate(Part::Actor, &rows, temperature, micro_tokens, &mut |first, scores, upstream| {
            if !policy_waits {
                let result = policy_gradient(&policy, &gathered, first, scores, upstream);
                note(result, &mut policy_sums, PolicySums::merge, &mut failed);
            }
            if shared {
                let result = value_gradient(&value, &gathered, first, scores, scene.critic.value_weight, upstream);
                note(result, &mut value_sums, ValueSums::merge, &mut failed);
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        if !policy_waits {
            self.first_ratio_deviation.get_or_insert_with(|| {
                (policy_sums.ratio_maximum - 1.0).abs().max((policy_sums.ratio_minimum - 1.0).abs())
            });
        }
        self.policy_sums.merge(&policy_sums);
        self.value_sums.merge(&value_sums);
        let report = self.model.0.step(Part::Actor, &settings::actor_step(scene, self.iteration))?;
        self.norms.actor += report.gradient_norm;
        self.norms.scale += f64::from(report.scale);
        self.steps += 1;
        Ok(())
    }

    fn report(&self, metrics: &mut Metrics) {
        let steps = self.steps.max(1) as f64;
        let policy = &self.policy_sums;
        metrics.set("actor/pg_loss", policy.policy / steps);
        metrics.set("actor/entropy_loss", policy.entropy / steps);
        if self.policy.kl.is_some() {
            metrics.set("actor/kl_loss", policy.kl / steps);
        }
        metrics.set("actor/pg_clipfrac", policy.clip_fraction());
        metrics.set("actor/pg_clipfrac_lower", policy.lower_clip_fraction());
        metrics.set("actor/ppo_kl", policy.mean_divergence());
        metrics.set("actor/ratio_max", policy.ratio_maximum);
        metrics.set("actor/ratio_min", policy.ratio_minimum);
        metrics.set("actor/bounded_share", policy.bounded_fraction());
        metrics.set("actor/grad_norm", self.norms.actor / steps);
        metrics.set("actor/grad_clip_coef", self.norms.scale / steps);
        metrics.set("actor/lr", f64::from(settings::actor_step(self.scene, self.iteration).lr));
        if let Some(deviation) = self.first_ratio_deviation {
            metrics.set("actor/first_ratio_deviation", deviation);
        }
        if self.advantage.estimator.needs_values() {
            metrics.set("critic/vf_loss", self.value_sums.loss / steps);
            metrics.set("critic/vf_clipfrac", self.value_sums.clip_fraction());
            metrics.set("critic/vpred_mean", self.units.value(self.value_sums.mean_value()));
            if self.scene.critic.kind == CriticKind::Separate {
                metrics.set("critic/grad_norm", self.norms.critic / steps);
                metrics.set("critic/lr", f64::from(settings::critic_step(self.scene, self.iteration).lr));
            }
        }
        metrics.set("weights/hash", (self.model.0.weights_hash() >> 12) as f64);
    }
}

fn policy_gradient(
    loss: &PolicyLoss,
    gathered: &Gathered,
    first: usize,
    scores: &Scores,
    upstream: &mut Upstream,
) -> Result<PolicySums, AlgorithmError> {
    let range = first..first + scores.logprobs.len();
    let tokens = PolicyTokens {
        logprob: &scores.logprobs,
        old_logprob: &gathered.old_logprob[range.clone()],
        reference_logprob: loss.kl.map(|_| &gathered.reference[range.clone()]),
        advantage: &gathered.advantage[range.clone()],
        entropy: &scores.entropies,
        weight: &gathered.weight[range.clone()],
        mask: &gathered.mask[range],
    };
    loss.backward(&tokens, &mut upstream.d_logprob, &mut upstream.d_entropy)
}

fn value_gradient(
    loss: &ValueLoss,
    gathered: &Gathered,
    first: usize,
    scores: &Scores,
    factor: f64,
    upstream: &mut Upstream,
) -> Result<ValueSums, AlgorithmError> {
    let range = first..first + scores.values.len();
    let tokens = ValueTokens {
        value: &scores.values,
        old_value: &gathered.old_value[range.clone()],
        target: &gathered.target[range.clone()],
        weight: &gathered.weight[range.clone()],
        mask: &gathered.mask[range],
    };
    let sums = loss.backward(&tokens, &mut upstream.d_value)?;
    upstream.d_value.iter_mut().for_each(|gradient| *gradient *= factor as f32);
    Ok(sums)
}

/// Merges a micro-batch's sums, or keeps the first problem.
fn note<S>(result: Result<S, AlgorithmError>, sums: &mut S, merge: fn(&mut S, &S), failed: &mut Option<WorldError>) {
    match result {
        Ok(next) => merge(sums, &next),
        Err(error) => {
            failed.get_or_insert(WorldError::Algorithm(error));
        }
    }
}
