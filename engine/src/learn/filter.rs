//! Groups without signal are dropped before anything is computed for them.

use bevy_ecs::prelude::*;

use super::{Batch, LearnState, settings};
use crate::algorithm::error::AlgorithmError;
use crate::algorithm::filter::metrics::FilterMetrics;
use crate::algorithm::filter::score::group_samples;
use crate::algorithm::filter::{Metric, RolloutFilter};
use crate::metrics::Metrics;
use crate::record::EpisodeStatus;
use crate::scene::ActiveScene;
use crate::tokens::TokenStore;
use crate::world::{Faults, Trajectories, WorldError};

use super::score::trained_tokens;

/// Decides which trajectories and rows take part in the learning step.
///
/// Aborted episodes never do: an outage says nothing about the agent. Neither do trajectories without a sampled token.
pub fn filter_groups(
    trajectories: Res<Trajectories>,
    store: Res<TokenStore>,
    scene: Res<ActiveScene>,
    mut batch: ResMut<Batch>,
    mut state: ResMut<LearnState>,
    mut metrics: ResMut<Metrics>,
    mut faults: ResMut<Faults>,
) {
    if let Err(error) = keep(&trajectories, &store, &settings::filter(&scene.0), &mut batch, &mut metrics) {
        return faults.report(WorldError::Algorithm(error));
    }
    let empty = batch.rows.is_empty();
    state.empty_in_a_row = if empty { state.empty_in_a_row + 1 } else { 0 };
    metrics.set("rollout/empty_after_filter", f64::from(u8::from(empty)));
    metrics.set("rollout/consecutive_empty_after_filter_steps", state.empty_in_a_row as f64);
    metrics.set("train/batch_size", batch.rows.len() as f64);
}

fn keep(
    trajectories: &Trajectories,
    store: &TokenStore,
    filter: &RolloutFilter,
    batch: &mut Batch,
    metrics: &mut Metrics,
) -> Result<(), AlgorithmError> {
    let able: Vec<usize> = (0..trajectories.all.len())
        .filter(|&index| trajectories.all[index].status != EpisodeStatus::Aborted)
        .filter(|&index| !trained_tokens(store, &trajectories.all[index]).is_empty())
        .collect();
    let values: Vec<f64> =
        able.iter().map(|&index| quantity(trajectories, store, batch, filter.metric, index)).collect();
    let groups: Vec<usize> = able.iter().map(|&index| trajectories.all[index].group as usize).collect();
    let samples = group_samples(&values, &groups, trajectories.groups)?;
    let scores: Vec<f64> = samples.iter().map(|sample| filter.metric.score(sample, filter.spread)).collect();
    let selection = filter.select(&scores)?;
    for (name, value) in FilterMetrics::of(&samples, &scores, &selection.groups).named(filter.metric) {
        metrics.set(name, value);
    }
    if let Some(threshold) = selection.threshold {
        metrics.set("rollout/filter_threshold", threshold);
    }
    batch.kept.clear();
    for group in &selection.groups {
        let members: Vec<usize> = (0..able.len()).filter(|&place| groups[place] == *group).collect();
        let rewards: Vec<f64> = members.iter().map(|&place| values[place]).collect();
        batch.kept.extend(filter.members(&rewards).into_iter().map(|member| able[members[member]]));
    }
    batch.kept.sort_unstable();
    batch.rows = batch
        .kept
        .iter()
        .flat_map(|&index| trajectories.all[index].rows.clone())
        .filter(|&row| store.trained_in(store.rows[row].range()).next().is_some())
        .collect();
    batch.kept_share = selection.groups.len() as f64 / trajectories.groups.max(1) as f64;
    Ok(())
}

/// What the metric looks at in one trajectory.
fn quantity(trajectories: &Trajectories, store: &TokenStore, batch: &Batch, metric: Metric, index: usize) -> f64 {
    let tokens = || trained_tokens(store, &trajectories.all[index]);
    match metric {
        Metric::RewardVariance | Metric::Reward | Metric::RewardSum => batch.normalized[index],
        Metric::Length => tokens().len() as f64,
        Metric::Entropy | Metric::EntropyVariance => {
            let tokens = tokens();
            tokens.iter().map(|&token| f64::from(store.entropy[token])).sum::<f64>() / tokens.len().max(1) as f64
        }
    }
}
