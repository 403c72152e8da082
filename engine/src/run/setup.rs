//! From a scene to a world that is ready to roll out.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use bevy_app::App;
use bevy_ecs::prelude::*;

use crate::codec::Codec;
use crate::conversation::ContextWindow;
use crate::environment::Split;
use crate::grammar::AnswerGrammar;
use crate::prompt;
use crate::runtime::{Model, Sampling};
use crate::scene::{ActiveScene, Scene};
use crate::world::{
    AgentKind, AgentSettings, EnvironmentTypes, Held, PlannedGroup, Tag, Tags, Text, WorldError, make_instance,
};

/// A scene that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// `RG0601`: a tag or its configuration.
    #[error("{0}")]
    Tag(String),
    /// `RG0602`: the model directory.
    #[error(transparent)]
    Model(#[from] crate::model::ModelError),
    /// `RG0603`: an instance cannot be made.
    #[error(transparent)]
    World(#[from] WorldError),
    /// `RG0604`: a file of instances.
    #[error("{}: {reason}", path.display())]
    Instances {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// The groups of every iteration.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Tag of each training group.
    pub train: Vec<usize>,
    /// Instances that training draws from instead of consecutive seeds, per tag.
    pub instances: Vec<PlannedGroup>,
    /// The validation groups, the same every time.
    pub validation: Vec<PlannedGroup>,
}

impl Plan {
    /// The groups of an iteration. `counter` is the number of groups played before.
    #[must_use]
    pub fn train_groups(&self, counter: u64, base: u64) -> Vec<PlannedGroup> {
        let from_file = |number: u64| self.instances[(counter + number) as usize % self.instances.len()];
        let from_seed = |number: u64, &tag: &usize| PlannedGroup { tag, seed: base + counter + number, attempt: 0 };
        (0..)
            .zip(&self.train)
            .map(|(number, tag)| if self.instances.is_empty() { from_seed(number, tag) } else { from_file(number) })
            .collect()
    }
}

/// The agents of a run.
#[derive(Clone, Copy, Debug)]
pub struct Agents {
    /// Plays training episodes.
    pub train: Entity,
    /// Plays validation episodes.
    pub validation: Entity,
    /// Both are models.
    pub ask_model: bool,
}
