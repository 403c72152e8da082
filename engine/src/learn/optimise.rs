//! Optimiser steps on the kept rows.

use bevy_ecs::prelude::*;

use super::recompute::{score_rows, targets_of};
use super::{Batch, LearnState, VALUE_GAIN, ValueUnits, settings};
use crate::algorithm::advantage::AdvantageSettings;
use crate::algorithm::batch_fit::{divisor, mini_batches};
use crate::algorithm::error::AlgorithmError;
use crate::algorithm::loss::{PolicyLoss, PolicySums, PolicyTokens};
use crate::algorithm::rows::Rows;
use crate::algorithm::value_loss::{ValueLoss, ValueSums, ValueTokens};
use crate::metrics::Metrics;
use crate::random::{Purpose, Stream};
use crate::runtime::{Model, Part, ScoreRow, Scores, Upstream};
use crate::scene::{ActiveScene, CriticKind, Scene};
use crate::tokens::TokenStore;
use crate::world::{Faults, Trajectories, WorldError};

/// The optimiser steps of an iteration: what is still to do, and sums over what is done.
#[derive(Debug, Default, Resource)]
pub struct Update {
    /// Rows of each mini-batch, in the order of the steps.
    mini_batches: Vec<Vec<usize>>,
    done: usize,
    policy_sums: PolicySums,
    value_sums: ValueSums,
    norms: Norms,
    first_ratio_deviation: Option<f64>,
}

impl Update {
    /// Steps done and steps in all.
    #[must_use]
    pub fn progress(&self) -> (usize, usize) {
        (self.done, self.mini_batches.len())
    }

    /// Whether no step is left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.done >= self.mini_batches.len()
    }
}

/// Cuts the kept rows into mini-batches, once per epoch and shuffled, each of which is one optimiser step.
pub fn plan_update(
    trajectories: Res<Trajectories>,
    batch: Res<Batch>,
    scene: Res<ActiveScene>,
    state: Res<LearnState>,
    mut update: ResMut<Update>,
    mut metrics: ResMut<Metrics>,
    mut faults: ResMut<Faults>,
) {
    *update = Update::default();
    metrics.set("train/skipped_update", f64::from(u8::from(batch.rows.is_empty())));
    if batch.rows.is_empty() {
        return;
    }
    match plan(&scene.0, state.iteration, &batch.rows, trajectories.groups, &mut metrics) {
        Ok(mini_batches) => update.mini_batches = mini_batches,
        Err(error) => faults.report(WorldError::Algorithm(error)),
    }
}

fn plan(
    scene: &Scene,
    iteration: u64,
    rows: &[usize],
    groups: usize,
    metrics: &mut Metrics,
) -> Result<Vec<Vec<usize>>, AlgorithmError> {
    let mini_batch = scene.update.mini_batch as usize;
    let stream = |purpose, epoch| Stream::new(scene.seed.run, purpose, &[iteration, epoch]);
    let multiple = divisor(groups, mini_batch, 1)?;
    let fitted = settings::fit(scene).rows(rows.len(), multiple, mini_batch, &mut stream(Purpose::BatchFit, 0))?;
    let cuts = mini_batches(fitted.len(), mini_batch)?;
    metrics.set("train/num_mini_batches", cuts.len() as f64);
    let mut planned = Vec::new();
    for epoch in 0..u64::from(scene.update.epochs) {
        let mut order = fitted.rows.clone();
        if scene.update.shuffle {
            stream(Purpose::Shuffle, epoch).shuffle(&mut order);
        }
        for cut in &cuts {
            // Places beyond the rows are padding that weighs nothing.
            let end = cut.end.min(order.len());
            let chosen: Vec<usize> = order[cut.start.min(end)..end].iter().map(|&place| rows[place]).collect();
            if !chosen.is_empty() {
                planned.push(chosen);
            }
        }
    }
    Ok(planned)
}

/// Performs the next optimiser step.
///
/// Every token's weight in the loss is known before the first backward pass of its step, so that cutting a mini-batch into
/// micro-batches changes nothing but rounding.
pub fn optimise(
    scene: Res<ActiveScene>,
    store: Res<TokenStore>,
    state: Res<LearnState>,
    mut model: ResMut<Model>,
    mut update: ResMut<Update>,
    mut metrics: ResMut<Metrics>,
    mut faults: ResMut<Faults>,
) {
    if update.is_over() {
        return;
    }
    let mut step = OptimiserStep::new(&scene.0, &store, &mut model, &state, &mut update);
    if let Err(error) = step.run() {
        return faults.report(error);
    }
    if update.is_over() {
        report(&update, &scene.0, &state, &model, &mut metrics);
    }
}

/// An optimiser step in hand.
struct OptimiserStep<'a> {
    scene: &'a Scene,
    store: &'a TokenStore,
    model: &'a mut Model,
    update: &'a mut Update,
    iteration: u64,
    units: ValueUnits,
    policy: PolicyLoss,
    value: ValueLoss,
    advantage: AdvantageSettings,
}

#[derive(Debug, Default)]
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

impl<'a> OptimiserStep<'a> {
    fn new(
        scene: &'a Scene,
        store: &'a TokenStore,
        model: &'a mut Model,
        state: &LearnState,
        update: &'a mut Update,
    ) -> Self {
        let units = state.value_units.unwrap_or(ValueUnits { mean: 0.0, scale: 1.0 });
        let mut value = settings::value_loss(scene);
        value.value_clip = value.value_clip.map(|clip| clip / (units.scale * VALUE_GAIN));
        Self {
            scene,
            store,
            model,
            update,
            iteration: state.iteration,
            units,
            policy: settings::policy_loss(scene),
            value,
            advantage: settings::advantage(scene),
        }
    }

    fn run(&mut self) -> Result<(), WorldError> {
        let (scene, store) = (self.scene, self.store);
        let chosen = std::mem::take(&mut self.update.mini_batches[self.update.done]);
        let targets = targets_of(store, &chosen);
        let gathered = Gathered::new(store, &chosen, &targets, &self.policy, self.units)?;
        let rows = score_rows(store, &chosen, &targets);
        let critic = self.advantage.estimator.needs_values();
        let shared = critic && scene.critic.kind == CriticKind::Shared;
        let policy_waits = self.iteration < u64::from(scene.critic.warmup_steps);
        if critic && !shared {
            self.critic_step(&rows, &gathered)?;
        }
        if shared || !policy_waits {
            self.actor_step(&rows, &gathered, shared, policy_waits)?;
        }
        self.update.done += 1;
        Ok(())
    }

    /// A step of a critic with weights of its own.
    fn critic_step(&mut self, rows: &[ScoreRow<'_>], gathered: &Gathered) -> Result<(), WorldError> {
        let micro_tokens = self.scene.update.micro_tokens as usize;
        let temperature = self.scene.sampling.train.temperature as f32;
        let (mut sums, mut failed, value) = (ValueSums::default(), None, self.value);
        self.model.0.accumulate(Part::Critic, rows, temperature, micro_tokens, &mut |first, scores, upstream| {
            let result = value_gradient(&value, gathered, first, scores, 1.0, upstream);
            note(result, &mut sums, ValueSums::merge, &mut failed);
        })?;
        failed.map_or(Ok(()), Err)?;
        self.update.value_sums.merge(&sums);
        let step = settings::critic_step(self.scene, self.iteration);
        self.update.norms.critic += self.model.0.step(Part::Critic, &step)?.gradient_norm;
        Ok(())
    }

    /// A step of the policy, and of the value head on its trunk if there is one.
    fn actor_step(
        &mut self,
        rows: &[ScoreRow<'_>],
        gathered: &Gathered,
        shared: bool,
        policy_waits: bool,
    ) -> Result<(), WorldError> {
        let scene = self.scene;
        let micro_tokens = scene.update.micro_tokens as usize;
        let temperature = scene.sampling.train.temperature as f32;
        let (mut policy_sums, mut value_sums, mut failed) = (PolicySums::default(), ValueSums::default(), None);
        let (policy, value) = (self.policy, self.value);
        self.model.0.accumulate(Part::Actor, rows, temperature, micro_tokens, &mut |first, scores, upstream| {
            if !policy_waits {
                let result = policy_gradient(&policy, gathered, first, scores, upstream);
                note(result, &mut policy_sums, PolicySums::merge, &mut failed);
            }
            if shared {
                let result = value_gradient(&value, gathered, first, scores, scene.critic.value_weight, upstream);
                note(result, &mut value_sums, ValueSums::merge, &mut failed);
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        let report = self.model.0.step(Part::Actor, &settings::actor_step(scene, self.iteration))?;
        let update = &mut *self.update;
        if !policy_waits {
            update.first_ratio_deviation.get_or_insert_with(|| {
                (policy_sums.ratio_maximum - 1.0).abs().max((policy_sums.ratio_minimum - 1.0).abs())
            });
        }
        update.policy_sums.merge(&policy_sums);
        update.value_sums.merge(&value_sums);
        update.norms.actor += report.gradient_norm;
        update.norms.scale += f64::from(report.scale);
        Ok(())
    }
}

/// The numbers of a finished update: means over its steps.
fn report(update: &Update, scene: &Scene, state: &LearnState, model: &Model, metrics: &mut Metrics) {
    let steps = update.done.max(1) as f64;
    let policy = &update.policy_sums;
    metrics.set("actor/pg_loss", policy.policy / steps);
    metrics.set("actor/entropy_loss", policy.entropy / steps);
    if scene.kl.in_loss.is_some() {
        metrics.set("actor/kl_loss", policy.kl / steps);
    }
    metrics.set("actor/pg_clipfrac", policy.clip_fraction());
    metrics.set("actor/pg_clipfrac_lower", policy.lower_clip_fraction());
    metrics.set("actor/ppo_kl", policy.mean_divergence());
    metrics.set("actor/ratio_max", policy.ratio_maximum);
    metrics.set("actor/ratio_min", policy.ratio_minimum);
    metrics.set("actor/bounded_share", policy.bounded_fraction());
    metrics.set("actor/grad_norm", update.norms.actor / steps);
    metrics.set("actor/grad_clip_coef", update.norms.scale / steps);
    metrics.set("actor/lr", f64::from(settings::actor_step(scene, state.iteration).lr));
    if let Some(deviation) = update.first_ratio_deviation {
        metrics.set("actor/first_ratio_deviation", deviation);
    }
    if settings::advantage(scene).estimator.needs_values() {
        let units = state.value_units.unwrap_or(ValueUnits { mean: 0.0, scale: 1.0 });
        metrics.set("critic/vf_loss", update.value_sums.loss / steps);
        metrics.set("critic/vf_clipfrac", update.value_sums.clip_fraction());
        metrics.set("critic/vpred_mean", units.value(update.value_sums.mean_value()));
        if scene.critic.kind == CriticKind::Separate {
            metrics.set("critic/grad_norm", update.norms.critic / steps);
            metrics.set("critic/lr", f64::from(settings::critic_step(scene, state.iteration).lr));
        }
    }
    metrics.set("weights/hash", (model.0.weights_hash() >> 12) as f64);
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
    let mut sums = loss.backward(&tokens, &mut upstream.d_value)?;
    // The loss is measured in deviations of the returns, which are VALUE_GAIN times smaller than outputs suggest.
    let squared = VALUE_GAIN * VALUE_GAIN;
    upstream.d_value.iter_mut().for_each(|gradient| *gradient *= (factor * squared) as f32);
    sums.loss *= squared;
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
