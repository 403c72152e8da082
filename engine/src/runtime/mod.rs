//! The model as the world sees it: something that continues sequences, scores rows and learns.

mod local;

use std::path::Path;

use bevy_ecs::resource::Resource;
use serde::{Deserialize, Serialize};

pub use self::local::{LocalCodec, LocalRuntime, RuntimeOptions};
use crate::record::Finish;

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Sampling {
    /// Logits are divided by this; it also divides them in every log-probability.
    pub temperature: f32,
    /// Keep this many best tokens; 0 keeps all.
    pub top_k: u32,
    /// Nucleus: keep tokens whose better ones hold less than this probability; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens with at least this share of the best one's probability; 0 keeps all.
    pub min_p: f32,
    /// Always take the best token.
    pub greedy: bool,
}

/// A sequence to be continued.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Chosen by the caller; comes back with the completion.
    pub id: u64,
    /// The prompt.
    pub tokens: Vec<u32>,
    /// Most tokens to sample, at least 1.
    pub max_new_tokens: usize,
    /// How to draw.
    pub sampling: Sampling,
    /// Sampling ends after the token that completes one of these texts.
    pub stop_strings: Vec<String>,
    /// Names the random stream: draw `t` depends on this and `t` alone.
    pub stream: u64,
}

/// A sequence that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The request's id.
    pub id: u64,
    /// Sampled tokens, at least one.
    pub tokens: Vec<u32>,
    /// Log-probability of each under the untruncated distribution at the request's temperature.
    pub logprobs: Vec<f32>,
    /// Entropy at each, in nats.
    pub entropies: Vec<f32>,
    /// Why it ended.
    pub finish: Finish,
}

/// A row of tokens and the places in it that matter, ascending and without 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreRow<'a> {
    /// The row.
    pub tokens: &'a [u32],
    /// Places whose token is to be scored given everything before it.
    pub targets: &'a [u32],
}

/// Scores of all targets of all rows, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// Log-probability of the target.
    pub logprobs: Vec<f32>,
    /// Entropy of the distribution over it.
    pub entropies: Vec<f32>,
    /// Value of the prefix before it; empty if there is no critic.
    pub values: Vec<f32>,
}

/// Upstream gradients for the targets of a micro-batch, filled by a loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Upstream {
    /// Derivative of the loss by each log-probability.
    pub d_logprob: Vec<f32>,
    /// Derivative by each entropy.
    pub d_entropy: Vec<f32>,
    /// Derivative by each value.
    pub d_value: Vec<f32>,
}

/// Which weights are meant.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Part {
    /// The policy, with the critic's head if it shares the trunk.
    Actor,
    /// A critic with weights of its own.
    Critic,
}

/// One optimiser step's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSettings {
    /// Learning rate.
    pub lr: f32,
    /// Decay of the moments.
    pub betas: (f32, f32),
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Gradients are scaled down to this norm; `None` never scales.
    pub clip_norm: Option<f32>,
}

/// What an optimiser step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Factor that clipping applied.
    pub scale: f32,
}

/// A model that could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// `RG0301`: a request or row that no model of this shape can take.
    #[error("{0}")]
    Request(String),
    /// `RG0302`: a number that is not finite; weights are as before the step.
    #[error("not a finite number in {place}: {detail}")]
    NotFinite {
        /// Tensor or quantity.
        place: String,
        /// Where exactly, and what was happening.
        detail: String,
    },
    /// `RG0303`: weights or training state on disk that cannot be used or written.
    #[error("{0}")]
    Files(String),
    /// `RG0304`: an operation failed.
    #[error(transparent)]
    Kernel(#[from] ragen_kernels::KernelError),
}

/// A policy with, optionally, a critic and a reference policy.
///
/// # Determinism
/// Completions depend on the request alone, scores on the row alone: never on what else is in the batch. The log-probabilities
/// of a completion are bit for bit those that [`Runtime::score`] gives for the same tokens and weights.
pub trait Runtime: Send + Sync {
    /// Takes a request.
    ///
    /// # Errors
    /// [`RuntimeError::Request`] if it can never be served.
    fn submit(&mut self, request: Request) -> Result<(), RuntimeError>;

    /// Runs until at least one sequence has ended or none is left, and returns those that ended, in order of their ids.
    ///
    /// # Errors
    /// [`RuntimeError::NotFinite`] if logits are not finite.
    fn advance(&mut self) -> Result<Vec<Completion>, RuntimeError>;

    /// Sequences taken and not yet returned.
    fn pending(&self) -> usize;

    /// Forgets all pending sequences.
    fn cancel(&mut self);

    /// Scores rows under the current weights.
    ///
    /// # Errors
    /// As [`Runtime::advance`].
    fn score(&mut self, rows: &[ScoreRow<'_>], temperature: f32) -> Result<Scores, RuntimeError>;

    /// Log-probabilities of the targets under the reference policy: the weights at the time of [`Runtime::freeze_reference`].
    ///
    /// # Errors
    /// [`RuntimeError::Request`] if there is no reference policy.
    fn score_reference(&mut self, rows: &[ScoreRow<'_>], temperature: f32) -> Result<Vec<f32>, RuntimeError>;

    /// Makes the current policy the reference.
    ///
    /// # Errors
    /// As [`Runtime::advance`].
    fn freeze_reference(&mut self) -> Result<(), RuntimeError>;

    /// Adds the gradient of a loss over `rows` to what is accumulated for `part`.
    ///
    /// Rows are cut into micro-batches of at most `micro_tokens` tokens (a longer row is one by itself). For each, `loss` gets
    /// the index of its first target among all targets, the scores, and fills the upstream gradients, which arrive sized and
    /// zeroed.
    ///
    /// # Errors
    /// As [`Runtime::advance`].
    fn accumulate(
        &mut self,
        part: Part,
        rows: &[ScoreRow<'_>],
        temperature: f32,
        micro_tokens: usize,
        loss: &mut (dyn FnMut(usize, &Scores, &mut Upstream) + Send),
    ) -> Result<(), RuntimeError>;

    /// Performs one optimiser step with the accumulated gradient and clears it.
    ///
    /// # Errors
    /// [`RuntimeError::NotFinite`] if the gradient is not finite; weights and moments are unchanged and the gradient is cleared.
    fn step(&mut self, part: Part, settings: &StepSettings) -> Result<StepReport, RuntimeError>;

    /// Hash of the policy's weights.
    fn weights_hash(&self) -> u64;

    /// Writes the policy as a Hugging Face model directory.
    ///
    /// # Errors
    /// [`RuntimeError::Files`] with path and reason.
    fn save_model(&self, directory: &Path) -> Result<(), RuntimeError>;

    /// Writes everything else that influences the future: moments, critic, reference policy.
    ///
    /// # Errors
    /// [`RuntimeError::Files`] with path and reason.
    fn save_training(&self, directory: &Path) -> Result<(), RuntimeError>;

    /// Restores what [`Runtime::save_model`] and [`Runtime::save_training`] wrote.
    ///
    /// # Errors
    /// [`RuntimeError::Files`] with path and reason; the runtime is unusable then.
    fn restore(&mut self, directory: &Path) -> Result<(), RuntimeError>;
}

/// The runtime of the world.
#[derive(Resource)]
pub struct Model(pub Box<dyn Runtime>);
