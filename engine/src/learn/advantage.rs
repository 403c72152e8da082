//! Advantages and the critic's targets.

use bevy_ecs::prelude::*;

use super::score::{trained_tokens, turn_ends};
use super::{Batch, LearnState};
use crate::algorithm::gae::{bi_level_gae, gae};
use crate::algorithm::group::{group_advantages, reinforce_plus_plus, rloo};
use crate::algorithm::modifiers;
use crate::algorithm::statistics::whiten;
use crate::metrics::Metrics;
use crate::scene::{ActiveScene, Estimator};
use crate::tokens::TokenStore;
use crate::world::{Trajectories, Trajectory};

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
) {
    let kept: Vec<&Trajectory> = batch.kept.iter().map(|&index| &trajectories.all[index]).collect();
    let tokens: Vec<Vec<usize>> = kept.iter().map(|trajectory| trained_tokens(&store, trajectory)).collect();
    charge_divergence(&tokens, &scene, &mut state, &mut store, &mut metrics);
    report("scores", batch.kept.iter().map(|&index| batch.scores[index]), &mut metrics);
    report("rewards", tokens.iter().map(|tokens| tokens.iter().map(|&token| f64::from(store.reward[token])).sum()), &mut metrics);
    let settings = &scene.0.advantage;
    match settings.estimator {
        Estimator::Gae | Estimator::BiLevel { .. } => per_token(&kept, &tokens, &scene, &mut store),
        _ => per_trajectory(&kept, &tokens, &scene, &mut store),
    }
}
