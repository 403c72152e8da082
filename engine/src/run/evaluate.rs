//! Evaluation without training.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use bevy_app::App;
use serde::Serialize;

use super::driver::RunError;
use super::setup::{self, SetupOptions};
use crate::environment::Split;
use crate::evaluation::{Summary, by_tag, summarise};
use crate::record::TrajectoryRecord;
use crate::scene::Loaded;
use crate::world::{Rollout, RolloutProgress, Trajectories, run_rollout};

/// What is evaluated beyond the scene's validation settings.
#[derive(Clone, Debug, Default)]
pub struct EvaluationOptions {
    /// Model directory instead of the scene's.
    pub model: Option<PathBuf>,
    /// Keep coloured text pieces in records, for pictures.
    pub keep_pieces: bool,
    /// Keep token ids and log-probabilities in records.
    pub keep_ids: bool,
}

/// Results of an evaluation.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// Over all tags.
    #[serde(flatten)]
    pub all: Summary,
    /// Per tag.
    pub tags: BTreeMap<String, Summary>,
    /// Wall time of the episodes.
    pub seconds: f64,
    /// The trajectories.
    #[serde(skip)]
    pub records: Vec<TrajectoryRecord>,
}

/// Plays the scene's validation episodes once.
///
/// # Errors
/// [`RunError`]; [`WorldError::Interrupted`](crate::world::WorldError::Interrupted) if `each_tick` returns `false`.
pub fn evaluate(
    mut app: App,
    loaded: &Loaded,
    options: &EvaluationOptions,
    each_tick: &mut dyn FnMut(RolloutProgress, u64) -> bool,
) -> Result<Evaluation, RunError> {
    let scene = &loaded.scene;
    let setup_options = SetupOptions { model: options.model.clone(), ..SetupOptions::default() };
    let (plan, agents) = setup::prepare(&mut app, loaded, &setup_options)?;
    let group_size = scene.environments.validation.group_size;
    let total = plan.validation.len() as u64 * u64::from(group_size);
    let rollout = Rollout {
        run_seed: scene.seed.run,
        split: Split::Validation,
        iteration: 0,
        groups: plan.validation,
        group_size,
        shared_noise: scene.environments.shared_noise,
        agent: agents.validation,
        asks_model: agents.ask_model,
        keep_pieces: options.keep_pieces,
        keep_ids: options.keep_ids,
    };
    let started = Instant::now();
    run_rollout(app.world_mut(), rollout, &mut |progress| each_tick(progress, total))
        .map_err(|source| RunError::World { iteration: 0, source })?;
    let seconds = started.elapsed().as_secs_f64();
    let trajectories = std::mem::take(&mut *app.world_mut().resource_mut::<Trajectories>());
    let records: Vec<TrajectoryRecord> = trajectories.all.into_iter().map(|trajectory| trajectory.record).collect();
    Ok(Evaluation { all: summarise(&records), tags: by_tag(&records), seconds, records })
}
