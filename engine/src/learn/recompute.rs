//! Log-probabilities, values and reference log-probabilities before the update.

use bevy_ecs::prelude::*;

use super::Batch;
use crate::metrics::Metrics;
use crate::runtime::{Model, RuntimeError, ScoreRow};
use crate::scene::ActiveScene;
use crate::tokens::TokenStore;
use crate::world::{Faults, WorldError};

/// Scores the kept rows under the current weights.
///
/// The log-probabilities must be those that were recorded when the tokens were sampled, bit for bit, since generation and
/// training run the same operations. The largest difference is a metric, and an error above `run.max_logprob_difference`.
pub fn recompute(
    batch: Res<Batch>,
    scene: Res<ActiveScene>,
    mut store: ResMut<TokenStore>,
    mut model: ResMut<Model>,
    mut metrics: ResMut<Metrics>,
    mut faults: ResMut<Faults>,
) {
    if let Err(error) = try_recompute(&batch, &scene, &mut store, &mut model, &mut metrics) {
        faults.report(WorldError::Runtime(error));
    }
}

fn try_recompute(
    batch: &Batch,
    scene: &ActiveScene,
    store: &mut TokenStore,
    model: &mut Model,
    metrics: &mut Metrics,
) -> Result<(), RuntimeError> {
    let targets = targets_of(store, &batch.rows);
    let rows = score_rows(store, &batch.rows, &targets);
    let temperature = scene.0.sampling.train.temperature as f32;
    let scores = model.0.score(&rows, temperature)?;
    let reference = match scene.0.kl.in_loss.is_some() || scene.0.kl.in_reward.is_some() {
        true => model.0.score_reference(&rows, temperature)?,
        false => Vec::new(),
    };
    let (mut largest, mut sum, mut place) = (0.0_f64, 0.0, 0);
    let mut next = 0;
    for (&row, targets) in batch.rows.iter().zip(&targets) {
        let start = store.rows[row].start as usize;
        for &target in targets {
            let token = start + target as usize;
            let difference = f64::from(scores.logprobs[next] - store.behaviour_logprob[token]).abs();
            sum += difference;
            if difference > largest {
                (largest, place) = (difference, token);
            }
            store.logprob[token] = scores.logprobs[next];
            store.value[token] = scores.values.get(next).copied().unwrap_or(0.0);
            store.reference_logprob[token] = reference.get(next).copied().unwrap_or(0.0);
            next += 1;
        }
    }
    metrics.set("rollout/logp_diff_max", largest);
    metrics.set("rollout/logp_diff_mean", sum / next.max(1) as f64);
    metrics.set("train/trained_tokens", next as f64);
    metrics
        .set("actor/entropy", scores.entropies.iter().map(|&nats| f64::from(nats)).sum::<f64>() / next.max(1) as f64);
    if !reference.is_empty() {
        let mean = reference.iter().map(|&logprob| f64::from(logprob)).sum::<f64>() / next as f64;
        metrics.set("rollout/ref_log_prob", mean);
    }
    if largest > scene.0.run.max_logprob_difference {
        return Err(RuntimeError::Request(format!(
            "token {place}: sampled with log-probability {}, recomputed as {}; the difference {largest:e} is above \
             run.max_logprob_difference",
            store.behaviour_logprob[place], store.logprob[place]
        )));
    }
    Ok(())
}

/// Places of the tokens under the loss within each row.
pub(super) fn targets_of(store: &TokenStore, rows: &[usize]) -> Vec<Vec<u32>> {
    let places = |row: &usize| {
        let range = store.rows[*row].range();
        let start = range.start;
        store.trained_in(range).map(|token| (token - start) as u32).collect()
    };
    rows.iter().map(places).collect()
}

/// Rows as the runtime takes them.
pub(super) fn score_rows<'a>(store: &'a TokenStore, rows: &[usize], targets: &'a [Vec<u32>]) -> Vec<ScoreRow<'a>> {
    rows.iter()
        .zip(targets)
        .map(|(&row, targets)| ScoreRow { tokens: &store.id[store.rows[row].range()], targets })
        .collect()
}
