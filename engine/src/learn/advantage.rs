//! Advantages and the critic's targets.

use bevy_ecs::prelude::*;

use super::score::{trained_tokens, turn_ends};
use super::{Batch, LearnState, ValueUnits, settings};
use crate::algorithm::advantage::AdvantageBatch;
use crate::algorithm::error::AlgorithmError;
use crate::algorithm::kl::penalise_rewards;
use crate::algorithm::rows::Rows;
use crate::algorithm::value_loss::explained_variance;
use crate::metrics::Metrics;
use crate::scene::ActiveScene;
use crate::tokens::TokenStore;
use crate::world::{Faults, Trajectories, Trajectory, WorldError};

/// Fills `advantage` and `return_` of all trained tokens of the kept trajectories.
///
/// An estimator sees a trajectory as the sequence of its trained tokens, over all rows in turn order: what stands between them
/// (prompts, observations) takes no part, in any context mode.
pub fn estimate_advantages(
    trajectories: Res<Trajectories>,
    batch: Res<Batch>,
    scene: Res<ActiveScene>,
    mut state: ResMut<LearnState>,
    mut store: ResMut<TokenStore>,
    mut metrics: ResMut<Metrics>,
    mut faults: ResMut<Faults>,
) {
    if batch.kept.is_empty() {
        return;
    }
    let kept: Vec<&Trajectory> = batch.kept.iter().map(|&index| &trajectories.all[index]).collect();
    let mut gathered = Gathered::new(&store, &kept);
    let estimated = gathered
        .charge_divergence(&store, &scene, &mut state, &mut metrics)
        .and_then(|()| gathered.estimate(&kept, &batch, &trajectories, &scene, &mut state, &mut store, &mut metrics));
    if let Err(error) = estimated {
        faults.report(WorldError::Algorithm(error));
    }
}

/// The trained tokens of the kept trajectories, one after the other.
struct Gathered {
    /// Index of each in the token store.
    tokens: Vec<usize>,
    /// Where each trajectory begins, and the end.
    bounds: Vec<usize>,
    rewards: Vec<f64>,
    turn_ends: Vec<bool>,
    mask: Vec<bool>,
}

impl Gathered {
    fn new(store: &TokenStore, kept: &[&Trajectory]) -> Self {
        let (mut tokens, mut bounds, mut ends) = (Vec::new(), vec![0], Vec::new());
        for trajectory in kept {
            let mut of_turns = turn_ends(store, trajectory).into_iter().map(|(token, _)| token).peekable();
            for token in trained_tokens(store, trajectory) {
                ends.push(of_turns.next_if_eq(&token).is_some());
                tokens.push(token);
            }
            bounds.push(tokens.len());
        }
        let rewards = tokens.iter().map(|&token| f64::from(store.reward[token])).collect();
        Self { mask: vec![true; tokens.len()], tokens, bounds, rewards, turn_ends: ends }
    }

    fn of(&self, numbers: &[f32]) -> Vec<f64> {
        self.tokens.iter().map(|&token| f64::from(numbers[token])).collect()
    }

    /// Takes the divergence from the reference policy off the rewards, if the scene asks for it.
    fn charge_divergence(
        &mut self,
        store: &TokenStore,
        scene: &ActiveScene,
        state: &mut LearnState,
        metrics: &mut Metrics,
    ) -> Result<(), AlgorithmError> {
        let Some(wanted) = &scene.0.kl.in_reward else { return Ok(()) };
        let weight = state.kl_weight.unwrap_or(wanted.weight);
        let penalised = penalise_rewards(
            Rows::new(&self.bounds)?,
            &self.rewards,
            &self.of(&store.logprob),
            &self.of(&store.reference_logprob),
            &self.mask,
            settings::kl_estimator(wanted.estimator),
            weight,
        )?;
        metrics.set("actor/reward_kl_penalty", penalised.divergence);
        metrics.set("actor/reward_kl_penalty_coeff", weight);
        let rows = self.bounds.len() - 1;
        state.kl_weight =
            Some(settings::kl_controller(wanted.controller).update(weight, penalised.divergence, rows)?);
        self.rewards = penalised.rewards;
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a system's data, handed on")]
    fn estimate(
        &self,
        kept: &[&Trajectory],
        batch: &Batch,
        trajectories: &Trajectories,
        scene: &ActiveScene,
        state: &mut LearnState,
        store: &mut TokenStore,
        metrics: &mut Metrics,
    ) -> Result<(), AlgorithmError> {
        let rows = Rows::new(&self.bounds)?;
        let scores: Vec<f64> = rows.iter().map(|row| self.rewards[row].iter().sum()).collect();
        let groups: Vec<usize> = kept.iter().map(|trajectory| trajectory.group as usize).collect();
        let kept_groups = groups.iter().collect::<std::collections::BTreeSet<_>>().len();
        let outputs = self.of(&store.value);
        let all = vec![true; kept.len()];
        let settings = settings::advantage(&scene.0);
        let estimate = |values: &[f64]| {
            settings.estimate(&AdvantageBatch {
                rows,
                rewards: &self.rewards,
                values: Some(values),
                mask: &self.mask,
                turn_ends: Some(&self.turn_ends),
                scores: &scores,
                groups: &groups,
                counted: &all,
                original: &all,
                kept: (kept_groups, trajectories.groups),
            })
        };
        let units = match state.value_units {
            Some(units) => units,
            // Without a value to go by, returns are what followed.
            None => ValueUnits::of(&estimate(&vec![0.0; outputs.len()])?.returns),
        };
        let values: Vec<f64> = outputs.iter().map(|&output| units.value(output)).collect();
        let estimates = estimate(&values)?;
        if settings.estimator.needs_values() {
            state.value_units = Some(units);
        }
        for (&token, &value) in self.tokens.iter().zip(&values) {
            store.value[token] = value as f32;
        }
        for (place, &token) in self.tokens.iter().enumerate() {
            store.advantage[token] = estimates.advantages[place] as f32;
            store.return_[token] = estimates.returns[place] as f32;
        }
        let scores: Vec<f64> = batch.kept.iter().map(|&index| batch.scores[index]).collect();
        report("score", &scores, metrics);
        report("advantages", &estimates.advantages, metrics);
        if settings.estimator.needs_values() {
            report("returns", &estimates.returns, metrics);
            report("values", &values, metrics);
            metrics.set("critic/vf_explained_var", explained_variance(&estimates.returns, &values, &self.mask)?);
        }
        Ok(())
    }
}

/// Mean, largest and smallest of some numbers.
fn report(name: &str, values: &[f64], metrics: &mut Metrics) {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    metrics.set(format!("critic/{name}/mean"), mean);
    metrics.set(format!("critic/{name}/max"), values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    metrics.set(format!("critic/{name}/min"), values.iter().copied().fold(f64::INFINITY, f64::min));
}
