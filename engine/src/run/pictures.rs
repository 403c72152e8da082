//! Pictures of trajectories, drawn by playing them again.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::environment::{InstanceSeed, Picture};
use crate::record::TrajectoryRecord;
use crate::render::{RenderError, draw_trajectory, save_png};
use crate::world::EnvironmentTypes;

/// The states of a trajectory as pictures: one before each turn and the last one.
///
/// The environment is made again from the record's configuration and seed, and the executed actions are performed again. If the
/// environment is unknown here, or does not come to the recorded states, there are no pictures and the states' texts are drawn.
#[must_use]
pub fn replay(types: &EnvironmentTypes, record: &TrajectoryRecord) -> Vec<Picture> {
    let facts = &record.metadata;
    let Ok(configured) = types.configure(&facts.environment, facts.config.clone()) else { return Vec::new() };
    if !configured.check().is_empty() {
        return Vec::new();
    }
    let seed = InstanceSeed { seed: facts.seed, split: facts.split, attempt: facts.attempt };
    let Ok(instance) = configured.instance(seed, facts.member) else { return Vec::new() };
    let mut environment = instance.replay;
    let mut pictures = Vec::with_capacity(record.turns.len() + 1);
    for turn in &record.turns {
        if environment.observe() != turn.state {
            return Vec::new();
        }
        pictures.push(environment.picture());
        for action in &turn.executed_actions {
            if environment.act(action).is_none() {
                return Vec::new();
            }
        }
    }
    if environment.observe() == record.final_state {
        pictures.push(environment.picture());
    }
    pictures
}

/// Draws records into `directory`, one PNG each, named after tag and trajectory. Returns the files in order.
///
/// # Errors
/// [`RenderError`] if a file cannot be written; files are whole or absent.
pub fn draw_all<'a>(
    types: &EnvironmentTypes,
    records: impl Iterator<Item = &'a TrajectoryRecord>,
    directory: &Path,
) -> Result<Vec<PathBuf>, RenderError> {
    std::fs::create_dir_all(directory).map_err(|source| RenderError::Write { path: directory.to_owned(), source })?;
    records
        .collect::<Vec<_>>()
        .into_par_iter()
        .map(|record| {
            let name: String =
                record.custom_id.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '-' }).collect();
            let path = directory.join(format!("{name}.png"));
            save_png(&draw_trajectory(record, &replay(types, record)), &path)?;
            Ok(path)
        })
        .collect()
}
