//! The data of a rollout: groups, environments, agents and trajectories.

use std::sync::Arc;

use bevy_ecs::component::Component;
use bevy_ecs::entity::Entity;

use crate::conversation::Sampled;
use crate::environment::{InstanceSeed, Split};
use crate::grammar::AnswerGrammar;
use crate::random::Stream;
use crate::record::{EpisodeStatus, Finish, TurnRecord};
use crate::runtime::Sampling;

/// A group: members play the same instance from the same first prompt.
#[derive(Clone, Copy, Component, Debug)]
pub struct Group {
    /// Number within the rollout, from 0.
    pub number: u32,
    /// Index into [`Tags`](super::Tags).
    pub tag: usize,
    /// Training or validation.
    pub split: Split,
    /// The instance.
    pub seed: InstanceSeed,
    /// Canonical hash of the instance.
    pub instance_hash: u64,
    /// Length of the shortest solution, where known.
    pub difficulty: Option<u32>,
}

/// The reference solution of a group's instance, where there is one.
#[derive(Clone, Component, Debug)]
pub struct Gold(pub String);

/// The environments of a group.
#[derive(Component, Debug, Default)]
#[relationship_target(relationship = MemberOf, linked_spawn)]
pub struct Members(Vec<Entity>);

/// The group that an environment belongs to.
#[derive(Clone, Copy, Component, Debug)]
#[relationship(relationship_target = Members)]
pub struct MemberOf(pub Entity);

/// The environment that a trajectory is played in.
#[derive(Clone, Copy, Component, Debug)]
#[relationship(relationship_target = PlayedBy)]
pub struct Plays(pub Entity);

/// The trajectories of an environment.
#[derive(Component, Debug, Default)]
#[relationship_target(relationship = Plays, linked_spawn)]
pub struct PlayedBy(Vec<Entity>);

/// The agent that acts in a trajectory.
#[derive(Clone, Copy, Component, Debug)]
#[relationship(relationship_target = ActsIn)]
pub struct ActedBy(pub Entity);

/// The trajectories an agent acts in.
#[derive(Component, Debug, Default)]
#[relationship_target(relationship = ActedBy)]
pub struct ActsIn(Vec<Entity>);

/// An environment's place in the rollout.
#[derive(Clone, Copy, Component, Debug)]
#[require(Phase, Observation, PendingActions, TurnResult, Answer)]
pub struct EnvironmentId {
    /// Number within the rollout, from 0: `group · group_size + member`.
    pub number: u32,
    /// Place within the group.
    pub member: u32,
    /// Index into [`Tags`](super::Tags).
    pub tag: usize,
}

/// The configuration that an environment of type `E` runs under.
#[derive(Clone, Component, Debug)]
pub struct Settings<C: Send + Sync + 'static>(pub Arc<C>);

/// The stream of an episode's stochastic transitions.
#[derive(Clone, Copy, Component, Debug)]
pub struct Dynamics(pub Stream);

/// Atomic actions allowed and used.
#[derive(Clone, Copy, Component, Debug)]
pub struct Budget {
    /// Allowed in the episode.
    pub max: usize,
    /// Executed so far.
    pub used: usize,
}

impl Budget {
    /// Actions still allowed.
    #[must_use]
    pub fn left(&self) -> usize {
        self.max.saturating_sub(self.used)
    }
}

/// What happens next in an environment.
#[derive(Clone, Copy, Component, Debug, Default, Eq, PartialEq)]
pub enum Phase {
    /// The state is to be put into words.
    #[default]
    Observe,
    /// The agent is to be asked.
    Prompt,
    /// The model is writing.
    Generate,
    /// The expert is to be asked.
    AskExpert,
    /// The random agent is to be asked.
    AskRandom,
    /// The answer is to be read.
    Parse,
    /// The actions are to be performed.
    Act,
    /// The turn is to be booked.
    Book,
    /// The episode is over; its last state is to be put into words.
    Final,
    /// Nothing happens any more.
    Over,
}

/// The state in words.
#[derive(Clone, Component, Debug, Default)]
pub struct Observation(pub String);

/// An answer that waits to be read.
#[derive(Clone, Component, Debug, Default)]
pub struct Answer {
    /// Forced prefix and what the agent wrote.
    pub text: String,
    /// The tokens, if a model wrote it or the text was tokenised.
    pub sampled: Sampled,
    /// Why it ended.
    pub finish: Option<Finish>,
}

/// Actions that wait to be performed, as the agent wrote them.
#[derive(Clone, Component, Debug, Default)]
pub struct PendingActions(pub Vec<String>);

/// What a turn's actions did. Reward-shaping systems change `reward` here.
#[derive(Clone, Component, Debug, Default)]
pub struct TurnResult {
    /// Sum of the rewards of the executed actions.
    pub reward: f32,
    /// Executed actions by their proper names.
    pub executed: Vec<String>,
    /// The answer held something that is no action here.
    pub unknown_action: bool,
    /// Actions dropped because the budget was used up.
    pub over_budget: usize,
    /// The environment ended the episode.
    pub done: bool,
    /// The task is solved.
    pub success: bool,
    /// Executed actions that changed the state.
    pub effective: u32,
    /// Executed actions that were legal.
    pub valid: u32,
    /// Sums of the environment's own numbers over the executed actions.
    pub metrics: Vec<(&'static str, f32)>,
}

/// How an episode stands, with its totals.
#[derive(Clone, Component, Debug)]
pub struct Episode {
    /// Status.
    pub status: EpisodeStatus,
    /// Sum of the environment's rewards.
    pub episode_return: f32,
    /// Sum of format penalties.
    pub penalty: f32,
    /// Turns in a row without a usable action.
    pub stalled: u32,
}

impl Default for Episode {
    fn default() -> Self {
        Self { status: EpisodeStatus::Running, episode_return: 0.0, penalty: 0.0, stalled: 0 }
    }
}

/// The turns of a trajectory.
#[derive(Clone, Component, Debug, Default)]
#[require(Episode)]
pub struct Turns(pub Vec<TurnRecord>);

/// Who answers.
#[derive(Clone, Copy, Component, Debug, Eq, PartialEq)]
pub enum AgentKind {
    /// The model.
    Policy,
    /// The environment's own solver.
    Expert,
    /// Uniformly random legal actions.
    Random,
}

/// What an agent is asked and allowed.
#[derive(Clone, Component, Debug)]
pub struct AgentSettings {
    /// The answer's form.
    pub grammar: AnswerGrammar,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// First sentence of the system message.
    pub preamble: String,
    /// Stop sampling at the answer's closing tag.
    pub stop_at_answer: bool,
    /// Turns allowed in an episode.
    pub max_turns: usize,
    /// Turns in a row without a usable action after which an episode ends.
    pub max_stalled_turns: u32,
    /// Stop a plan at the first unknown action, instead of skipping it.
    pub stop_at_invalid: bool,
    /// Share of an expert's answers that are random instead, for lessons that leave room to learn.
    pub expert_noise: f64,
    /// Added to the reward of a turn whose answer is out of form or holds an unknown action.
    pub format_penalty: f32,
}
