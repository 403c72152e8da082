//! Trajectory records: one JSON object per trajectory, schema 1.
//!
//! Records are what users read, share and render later. They hold text and numbers only; reading one never runs code.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::environment::Split;

/// Version of the record format written by this build.
pub const SCHEMA: u32 = 1;

/// How an episode stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub enum EpisodeStatus {
    /// Still playing.
    Running,
    /// Solved.
    Success,
    /// Ended by the environment without success.
    Failed,
    /// All allowed actions were used.
    BudgetExhausted,
    /// All allowed turns were used.
    TurnLimit,
    /// Too many turns in a row without a usable action.
    Stalled,
    /// The prompt left no room for an answer.
    ContextFull,
    /// Ended by an outage that says nothing about the agent; never counted as success or failure.
    Aborted,
}

/// Why a response ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum Finish {
    /// The model sampled an end-of-turn token.
    EndOfTurn,
    /// A stop string, such as the answer's closing tag, was completed.
    StopString,
    /// The response's token limit.
    Length,
    /// Not sampled: written by an expert, a random agent or a script.
    Text,
}

/// What the parser found in a response.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum Verdict {
    /// In form, with at least one action.
    Actions,
    /// In form, but the answer holds no action.
    Empty,
    /// No thought followed by an answer in the required tags.
    Unparsable,
}

/// A chat message.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Text without control tokens.
    pub content: String,
}

/// One turn: what was seen, said and done.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TurnRecord {
    /// Turn number from 1.
    pub turn: u32,
    /// The state before the response.
    pub state: String,
    /// Messages the model was given, if they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompt_messages: Vec<Message>,
    /// Forced prefix and everything the agent wrote, verbatim.
    pub raw_response: String,
    /// The thought, without tags.
    pub thought: String,
    /// The answer's text, without tags.
    pub answer: String,
    /// What the parser made of the response.
    pub verdict: Verdict,
    /// Why the response ended.
    pub finish: Finish,
    /// Actions found in the answer.
    pub parsed_actions: Vec<String>,
    /// Actions performed.
    pub executed_actions: Vec<String>,
    /// Reward of the performed actions.
    pub reward: f32,
    /// Format penalty of this turn, 0 or negative.
    pub penalty: f32,
    /// Numbers that the environment reports, averaged over the turn's actions where more than one ran.
    pub info: Map<String, Value>,
    /// Number of sampled tokens.
    pub token_count: u32,
    /// Sampled token ids, if they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampled_token_ids: Vec<u32>,
    /// Log-probability of each sampled token, if they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampled_logprobs: Vec<f32>,
    /// The turn's tokens as text pieces with their kinds, for the coloured view, if they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<Piece>,
}

/// Where a token came from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[repr(u8)]
pub enum TokenKind {
    /// System message, template pieces, first state.
    Prompt,
    /// Put into the model's mouth by the engine, e.g. `<think>`.
    Forced,
    /// Sampled from the model: the only tokens under the loss.
    Sampled,
    /// Text of the environment after the first state, with the template pieces around it.
    Observation,
}

/// Neighbouring tokens of one kind as text.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Piece {
    /// Kind of all tokens in the piece.
    pub kind: TokenKind,
    /// Their decoded text.
    pub text: String,
}

/// Fixed facts and totals of a trajectory.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Metadata {
    /// Number of the environment in its batch.
    pub env_id: u32,
    /// Number of the group.
    pub group_id: u32,
    /// Place within the group.
    pub member: u32,
    /// Iteration that produced it; 0 before training.
    pub iteration: u64,
    /// Training or validation.
    pub split: Split,
    /// Environment tag, e.g. `SimpleSokoban`.
    pub tag: String,
    /// Environment type, e.g. `sokoban`.
    pub environment: String,
    /// Environment seed.
    pub seed: u64,
    /// Rejected draws before this instance.
    pub attempt: u32,
    /// Canonical hash of the instance, in hexadecimal.
    pub instance_hash: String,
    /// Turns played.
    pub num_turns: u32,
    /// Rewards and penalties.
    pub total_reward: f32,
    /// Sum of the environment's rewards.
    pub episode_return: f32,
    /// Sum of the format penalties, 0 or negative.
    pub penalty: f32,
    /// Solved.
    pub success: bool,
    /// How the episode ended.
    pub status: EpisodeStatus,
    /// Sampled tokens of all turns.
    pub token_count: u32,
    /// Mean entropy of the sampled tokens in nats, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy: Option<f32>,
    /// Length of the shortest solution, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difficulty: Option<u32>,
    /// Reference solution, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gold: Option<String>,
    /// Configuration of the environment, so that the trajectory can be replayed and drawn.
    pub config: Value,
    /// Episode metrics under their full names, e.g. `SimpleSokoban/num_actions`.
    #[serde(flatten)]
    pub metrics: Map<String, Value>,
}

/// One trajectory.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TrajectoryRecord {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `traj_<n>`, unique within the file.
    pub custom_id: String,
    /// States and raw responses in order; a state after the first names the reward that led to it.
    pub messages: Vec<Message>,
    /// Facts and totals.
    pub metadata: Metadata,
    /// The turns.
    pub turns: Vec<TurnRecord>,
    /// The last state, after the final action.
    pub final_state: String,
}
