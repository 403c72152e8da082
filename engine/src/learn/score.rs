//! Episode scores and token rewards.

use bevy_ecs::prelude::*;

use super::{Batch, settings};
use crate::scene::ActiveScene;
use crate::tokens::TokenStore;
use crate::world::{Faults, Trajectories, Trajectory, WorldError};

/// Scores each trajectory and puts rewards on tokens.
///
/// A trajectory's score is the sum of its rewards and penalties. With `reward.per_turn` each turn's reward and penalty go to the
/// turn's last sampled token; otherwise the normalised score goes to the trajectory's last sampled token.
pub fn score_trajectories(
    trajectories: Res<Trajectories>,
    scene: Res<ActiveScene>,
    mut store: ResMut<TokenStore>,
    mut batch: ResMut<Batch>,
    mut faults: ResMut<Faults>,
) {
    let all = &trajectories.all;
    batch.scores = all.iter().map(Trajectory::score).collect();
    if let Some(bad) = batch.scores.iter().position(|score| !score.is_finite()) {
        let detail = format!("trajectory {} ({})", all[bad].record.custom_id, all[bad].record.metadata.tag);
        let error = crate::runtime::RuntimeError::NotFinite { place: "the score of an episode".into(), detail };
        return faults.report(WorldError::Runtime(error));
    }
    let groups: Vec<usize> = all.iter().map(|trajectory| trajectory.group as usize).collect();
    let tags: Vec<usize> = all.iter().map(|trajectory| trajectory.tag).collect();
    batch.normalized = match settings::normalization(&scene.0).normalize(&batch.scores, &groups, &tags) {
        Ok(normalized) => normalized,
        Err(error) => return faults.report(WorldError::Algorithm(error)),
    };
    store.reward.fill(0.0);
    for (trajectory, &score) in all.iter().zip(&batch.normalized) {
        if scene.0.reward.per_turn {
            for (token, turn) in turn_ends(&store, trajectory) {
                store.reward[token] = trajectory.turn_rewards[turn] + trajectory.turn_penalties[turn];
            }
        } else if let Some(last) = trained_tokens(&store, trajectory).last() {
            store.reward[*last] = score as f32;
        }
    }
}

/// Indices of a trajectory's tokens under the loss, over all its rows in turn order.
pub(super) fn trained_tokens(store: &TokenStore, trajectory: &Trajectory) -> Vec<usize> {
    store.rows[trajectory.rows.clone()].iter().flat_map(|row| store.trained_in(row.range())).collect()
}

/// The last trained token of each turn that has one, with the turn's number.
pub(super) fn turn_ends(store: &TokenStore, trajectory: &Trajectory) -> Vec<(usize, usize)> {
    let mut ends: Vec<(usize, usize)> = Vec::new();
    for token in trained_tokens(store, trajectory) {
        let turn = usize::from(store.turn[token]);
        match ends.last_mut() {
            Some(last) if last.1 == turn => last.0 = token,
            _ => ends.push((token, turn)),
        }
    }
    ends
}
