//! Files of first observations: instances that were chosen once and can be played, filtered and published.

use std::path::Path;

use bevy_ecs::world::World;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::setup::SetupError;
use crate::environment::Split;
use crate::record::Message;
use crate::world::{AgentSettings, Held, PlannedGroup, Tag, WorldError, make_instance, system_text};

/// One line of an instance file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct InstanceRecord {
    /// Environment tag.
    pub tag: String,
    /// Environment seed.
    pub seed: u64,
    /// Rejected draws before this instance.
    #[serde(default)]
    pub attempt: u32,
    /// Place in the file.
    pub index: u64,
    /// What an agent is shown first.
    pub messages: Vec<Message>,
    /// Canonical hash of the instance, in hexadecimal.
    pub instance_hash: String,
    /// Length of the shortest solution, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difficulty: Option<u32>,
}

/// Makes `count` instances of a tag from consecutive seeds.
///
/// # Errors
/// [`WorldError`] if one cannot be made.
pub fn curate(
    world: &World,
    tag: &Tag,
    agent: &AgentSettings,
    split: Split,
    first_seed: u64,
    count: u64,
) -> Result<Vec<InstanceRecord>, WorldError> {
    let held = world.get_resource::<Held>().cloned().unwrap_or_default();
    let system = system_text(tag, agent);
    (0..count)
        .into_par_iter()
        .map(|index| {
            let group = PlannedGroup { tag: 0, seed: first_seed + index, attempt: 0 };
            let (seed, instance) = make_instance(tag, group, split, &held.0)?;
            let facts = crate::prompt::TurnFacts {
                turn: 1,
                state: &instance.observation,
                warn: false,
                actions_left: tag.max_actions,
                max_tokens: tag.max_tokens,
            };
            let user = crate::prompt::turn_block(&agent.grammar, facts);
            let message = |role: &str, content: String| Message { role: role.into(), content };
            Ok(InstanceRecord {
                tag: tag.name.clone(),
                seed: seed.seed,
                attempt: seed.attempt,
                index,
                messages: vec![message("system", system.clone()), message("user", user)],
                instance_hash: format!("{:016x}", instance.hash),
                difficulty: instance.difficulty,
            })
        })
        .collect()
}

/// Reads an instance file as groups to be played.
///
/// # Errors
/// [`SetupError::Instances`] naming the line: not an instance, an unknown tag, or an instance that is no longer the one that
/// was written (its hash differs).
pub fn read_instances(path: &Path, tags: &[Tag]) -> Result<Vec<PlannedGroup>, SetupError> {
    let fail = |reason: String| SetupError::Instances { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    let lines: Vec<(usize, &str)> = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return Err(fail("it holds no instance".into()));
    }
    lines
        .into_par_iter()
        .map(|(number, line)| {
            let place = format!("line {}", number + 1);
            let record: InstanceRecord =
                serde_json::from_str(line).map_err(|error| fail(format!("{place}: {error}")))?;
            let known = || tags.iter().map(|tag| tag.name.as_str()).collect::<Vec<_>>().join(", ");
            let tag = tags.iter().position(|tag| tag.name == record.tag).ok_or_else(|| {
                fail(format!("{place}: tag `{}` is not in the scene, which has {}", record.tag, known()))
            })?;
            let group = PlannedGroup { tag, seed: record.seed, attempt: record.attempt };
            let (_, instance) = make_instance(&tags[tag], group, Split::Train, &std::collections::BTreeSet::new())?;
            let found = format!("{:016x}", instance.hash);
            if found != record.instance_hash {
                let reason = format!(
                    "{place}: the instance of seed {} is {found} now, not {}",
                    record.seed, record.instance_hash
                );
                return Err(fail(reason));
            }
            Ok(group)
        })
        .collect()
}
