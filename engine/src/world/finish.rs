//! The end of a rollout: trajectories become plain data, and their entities go.

use std::collections::HashMap;
use std::ops::Range;

use bevy_ecs::prelude::*;
use serde_json::{Map, Value, json};

use super::components::{EnvironmentId, Episode, Gold, Group, MemberOf, Observation, Plays, Turns};
use super::registry::Tags;
use super::{Rollout, Text};
use crate::conversation::Conversation;
use crate::environment::Split;
use crate::prompt;
use crate::record::{EpisodeStatus, Message, Metadata, Piece, SCHEMA, TrajectoryRecord, TurnRecord};
use crate::tokens::TokenStore;

/// A finished trajectory as the learner sees it.
#[derive(Clone, Debug)]
pub struct Trajectory {
    /// Index of its group.
    pub group: u32,
    /// Place within the group.
    pub member: u32,
    /// Index into [`Tags`].
    pub tag: usize,
    /// How it ended.
    pub status: EpisodeStatus,
    /// Its rows in the token store.
    pub rows: Range<usize>,
    /// Reward of each turn, without penalty.
    pub turn_rewards: Vec<f32>,
    /// Format penalty of each turn.
    pub turn_penalties: Vec<f32>,
    /// Everything a reader wants to know.
    pub record: TrajectoryRecord,
}

impl Trajectory {
    /// Rewards and penalties: what training maximises.
    #[must_use]
    pub fn score(&self) -> f64 {
        self.turn_rewards.iter().chain(&self.turn_penalties).map(|&reward| f64::from(reward)).sum()
    }
}

/// The trajectories of the last rollout, in the order of group and member.
#[derive(Clone, Debug, Default, Resource)]
pub struct Trajectories {
    /// The trajectories.
    pub all: Vec<Trajectory>,
    /// Members per group.
    pub group_size: usize,
    /// Number of groups.
    pub groups: usize,
}

/// Moves every trajectory out of the world and despawns the rollout's entities.
pub(super) fn collect_trajectories(world: &mut World) {
    let rollout = world.resource::<Rollout>().clone();
    let tags = world.resource::<Tags>().clone();
    let text = world.get_resource::<Text>().map(|text| text.0.clone());
    type Played = (EnvironmentId, String, (Group, Option<String>));
    let mut environments: HashMap<Entity, Played> = HashMap::new();
    let mut query = world.query::<(Entity, &EnvironmentId, &Observation, &MemberOf)>();
    let found: Vec<_> =
        query.iter(world).map(|(entity, &id, state, group)| (entity, id, state.0.clone(), group.0)).collect();
    for (entity, id, state, group) in found {
        if let Some(&facts) = world.get::<Group>(group) {
            let gold = world.get::<Gold>(group).map(|gold| gold.0.clone());
            environments.insert(entity, (id, state, (facts, gold)));
        }
    }
    let mut query = world.query::<(&Plays, &mut Turns, &mut Conversation, &Episode)>();
    let mut finished: Vec<_> = query
        .iter_mut(world)
        .filter_map(|(plays, mut turns, mut conversation, episode)| {
            let (id, state, group) = environments.remove(&plays.0)?;
            let (turns, conversation) = (std::mem::take(&mut turns.0), std::mem::take(&mut *conversation));
            Some((id, state, group, turns, conversation, episode.clone()))
        })
        .collect();
    finished.sort_unstable_by_key(|(id, ..)| id.number);
    let groups: Vec<Entity> = world.query_filtered::<Entity, With<Group>>().iter(world).collect();
    for group in groups {
        world.despawn(group);
    }
    let mut store = world.remove_resource::<TokenStore>().unwrap_or_default();
    store.clear();
    let mut all = Vec::with_capacity(finished.len());
    for (id, final_state, (group, gold), mut turns, conversation, episode) in finished {
        let first = store.rows.len();
        store.append(&conversation, all.len() as u32, group.number);
        if let Some(text) = &text {
            keep_tokens(&mut turns, &conversation, &rollout, &|ids| text.decode(ids));
        }
        let tag = &tags.0[id.tag];
        let tokens: usize = conversation.turns().iter().map(|turn| turn.sampled.len()).sum();
        let entropy: f64 =
            conversation.turns().iter().flat_map(|turn| &turn.entropies).map(|&nats| f64::from(nats)).sum();
        let record = TrajectoryRecord {
            schema: SCHEMA,
            custom_id: format!("traj_{}", id.number),
            messages: messages(&turns, &final_state),
            metadata: Metadata {
                env_id: id.number,
                group_id: group.number,
                member: id.member,
                iteration: rollout.iteration,
                split: rollout.split,
                tag: tag.name.clone(),
                environment: tag.configured.environment().to_owned(),
                seed: group.seed.seed,
                attempt: group.seed.attempt,
                instance_hash: format!("{:016x}", group.instance_hash),
                num_turns: turns.len() as u32,
                total_reward: episode.episode_return + episode.penalty,
                episode_return: episode.episode_return,
                penalty: episode.penalty,
                success: episode.status == EpisodeStatus::Success,
                status: episode.status,
                token_count: tokens as u32,
                entropy: (tokens > 0 && rollout.asks_model).then(|| (entropy / tokens as f64) as f32),
                difficulty: group.difficulty,
                gold,
                config: tag.configured.config(),
                metrics: episode_metrics(&tag.name, &turns, &episode),
            },
            turns,
            final_state,
        };
        all.push(Trajectory {
            group: group.number,
            member: id.member,
            tag: id.tag,
            status: episode.status,
            rows: first..store.rows.len(),
            turn_rewards: record.turns.iter().map(|turn| turn.reward).collect(),
            turn_penalties: record.turns.iter().map(|turn| turn.penalty).collect(),
            record,
        });
    }
    world.insert_resource(store);
    world.insert_resource(Trajectories { all, group_size: rollout.group_size as usize, groups: rollout.groups.len() });
}

/// Puts each turn's tokens into its record: pieces for pictures, ids and log-probabilities on request.
fn keep_tokens(
    turns: &mut [TurnRecord],
    conversation: &Conversation,
    rollout: &Rollout,
    decode: &dyn Fn(&[u32]) -> String,
) {
    use crate::record::TokenKind::{Forced, Observation, Prompt, Sampled};
    for (number, (record, tokens)) in turns.iter_mut().zip(conversation.turns()).enumerate() {
        if rollout.keep_pieces {
            let around = if number == 0 || rollout.split == Split::Validation { Prompt } else { Observation };
            let parts = [(around, &tokens.user), (Forced, &tokens.forced), (Sampled, &tokens.sampled)];
            let pieces = parts.into_iter().filter(|(_, ids)| !ids.is_empty());
            record.pieces = pieces.map(|(kind, ids)| Piece { kind, text: decode(ids) }).collect();
        }
        if rollout.keep_ids {
            record.sampled_token_ids.clone_from(&tokens.sampled);
            record.sampled_logprobs.clone_from(&tokens.logprobs);
        }
    }
}

/// States and responses in order; each state after the first names the reward that led to it.
fn messages(turns: &[TurnRecord], final_state: &str) -> Vec<Message> {
    let mut messages = Vec::with_capacity(turns.len() * 2 + 1);
    let mut earned = 0.0;
    let state = |text: &str, earned: f32| Message {
        role: "user".into(),
        content: if earned == 0.0 { text.to_owned() } else { format!("{text} (reward: {})", prompt::number(earned)) },
    };
    for turn in turns {
        messages.push(state(&turn.state, earned));
        messages.push(Message { role: "assistant".into(), content: turn.raw_response.clone() });
        earned = turn.reward;
    }
    messages.push(state(final_state, earned));
    messages
}

/// The metrics of one episode under their full names.
fn episode_metrics(tag: &str, turns: &[TurnRecord], episode: &Episode) -> Map<String, Value> {
    let mut metrics = Map::new();
    let count = turns.len().max(1) as f64;
    let actions: usize = turns.iter().map(|turn| turn.executed_actions.len()).sum();
    metrics.insert(format!("{tag}/num_actions"), json!(actions));
    metrics.insert(format!("{tag}/episodic_return"), json!(episode.episode_return));
    metrics.insert(format!("{tag}/raw_reward"), json!(f64::from(episode.episode_return) / count));
    let mut keys: Vec<&String> = Vec::new();
    for key in turns.iter().flat_map(|turn| turn.info.keys()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    for key in keys {
        let sum: f64 = turns.iter().filter_map(|turn| turn.info.get(key)?.as_f64()).sum();
        metrics.insert(format!("{tag}/{key}"), json!(sum / count));
    }
    metrics
}
