//! The beginning of a rollout: groups, environments and trajectories come into being.

use std::collections::BTreeSet;
use std::sync::Arc;

use bevy_ecs::prelude::*;
use rayon::prelude::*;

use super::components::{ActedBy, AgentSettings, Budget, Dynamics, EnvironmentId, Gold, Group, MemberOf, Plays, Turns};
use super::registry::{Instance, Tag, Tags, dynamics};
use super::{Faults, Rollout, WorldError};
use crate::codec::ChatPieces;
use crate::conversation::Conversation;
use crate::environment::{InstanceSeed, PromptFacts, Split};
use crate::prompt;

/// Draws for one seed before a configuration counts as having no instance outside validation.
const MAX_ATTEMPTS: u32 = 256;

/// Canonical hashes of all validation instances, which training never plays.
#[derive(Clone, Debug, Default, Resource)]
pub struct Held(pub BTreeSet<u64>);

/// A group that is to be played.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlannedGroup {
    /// Index into [`Tags`].
    pub tag: usize,
    /// Environment seed.
    pub seed: u64,
    /// Rejected draws that are known already, for groups drawn from a file.
    pub attempt: u32,
}

/// Makes the instance of a planned group; training skips instances that validation holds.
///
/// # Errors
/// [`WorldError::Reset`] or [`WorldError::Exhausted`].
pub fn make_instance(
    tag: &Tag,
    group: PlannedGroup,
    split: Split,
    held: &BTreeSet<u64>,
) -> Result<(InstanceSeed, Instance), WorldError> {
    for attempt in group.attempt..group.attempt + MAX_ATTEMPTS {
        let seed = InstanceSeed { seed: group.seed, split, attempt };
        let instance = tag.configured.instance(seed, 0)?;
        if split == Split::Validation || !held.contains(&instance.hash) {
            return Ok((seed, instance));
        }
    }
    Err(WorldError::Exhausted { tag: tag.name.clone(), seed: group.seed, attempts: MAX_ATTEMPTS })
}

/// The system message of a tag for an agent.
#[must_use]
pub fn system_text(tag: &Tag, agent: &AgentSettings) -> String {
    let facts = PromptFacts {
        max_actions: tag.max_actions,
        max_actions_per_turn: agent.grammar.max_actions,
        separator: &agent.grammar.separator,
        answer_tag: &agent.grammar.answer_tag,
    };
    let instruction = tag.instruction.clone().unwrap_or_else(|| tag.configured.instruction(&facts));
    prompt::system_message(&agent.preamble, &instruction)
}

/// Spawns everything that [`Rollout`] plans.
pub(super) fn spawn_rollout(world: &mut World) {
    if let Err(error) = try_spawn(world) {
        world.resource_mut::<Faults>().report(error);
    }
}

fn try_spawn(world: &mut World) -> Result<(), WorldError> {
    let rollout = world.resource::<Rollout>().clone();
    let tags = world.resource::<Tags>().clone();
    let held = world.resource::<Held>().0.clone();
    let codec = world.get_resource::<super::Text>().map(|text| Arc::clone(&text.0));
    let agent = world.get::<AgentSettings>(rollout.agent).cloned().ok_or(WorldError::NoAgent)?;
    let instances: Vec<(InstanceSeed, Instance)> = rollout
        .groups
        .par_iter()
        .map(|&group| make_instance(&tags.0[group.tag], group, rollout.split, &held))
        .collect::<Result<_, _>>()?;
    let systems: Vec<Arc<[u32]>> = tags
        .0
        .iter()
        .map(|tag| {
            codec.as_ref().map_or_else(
                || Arc::from([]),
                |codec| {
                    let ChatPieces { system_open, system_close, .. } = codec.pieces();
                    let text = codec.encode(&system_text(tag, &agent));
                    Arc::from([system_open.as_slice(), &text, system_close].concat())
                },
            )
        })
        .collect();
    for (number, (planned, (seed, instance))) in rollout.groups.iter().zip(instances).enumerate() {
        let tag = &tags.0[planned.tag];
        let group = world
            .spawn(Group {
                number: number as u32,
                tag: planned.tag,
                split: rollout.split,
                seed,
                instance_hash: instance.hash,
                difficulty: instance.difficulty,
            })
            .id();
        if let Some(gold) = instance.gold {
            world.entity_mut(group).insert(Gold(gold));
        }
        for member in 0..rollout.group_size {
            let noise = if rollout.shared_noise { 0 } else { member };
            let mut environment = world.spawn((
                EnvironmentId { number: number as u32 * rollout.group_size + member, member, tag: planned.tag },
                MemberOf(group),
                Budget { max: tag.max_actions, used: 0 },
                Dynamics(dynamics(tag.configured.environment(), seed.seed, noise)),
            ));
            (instance.insert)(&mut environment);
            let environment = environment.id();
            world.spawn((
                Plays(environment),
                ActedBy(rollout.agent),
                Turns::default(),
                Conversation::new(Arc::clone(&systems[planned.tag])),
            ));
        }
    }
    Ok(())
}
