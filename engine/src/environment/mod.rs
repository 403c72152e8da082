//! What an environment is, and the four that come with the engine.
//!
//! An environment is a plain component that implements [`Environment`]. The engine adds everything around it: groups, seeds,
//! budgets, penalties, prompts, parsing, pictures and metrics. Nothing here knows tokens or models.

pub mod bandit;
pub mod countdown;
pub mod frozen_lake;
pub mod grid;
mod pixel;
pub mod render_mode;
pub mod sokoban;
pub mod tags;

use std::borrow::Cow;

use bevy_ecs::component::{Component, Mutable};
use image::RgbImage;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::random::{Purpose, Stream, hash_bytes};

/// Whether an instance is for training or for measuring.
///
/// Environments with a fixed set of problems give the two splits disjoint parts of it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum Split {
    /// Instances that gradients see.
    Train,
    /// Instances that only measurements see.
    Validation,
}

/// Names the one instance that a group plays: the same seed always makes the same instance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InstanceSeed {
    /// The environment seed (base seed plus group counter).
    pub seed: u64,
    /// Which part of a fixed problem set may be used.
    pub split: Split,
    /// How many earlier draws for this seed were rejected, for example because validation holds the same instance.
    pub attempt: u32,
}

impl InstanceSeed {
    /// The stream that all of this instance's generation draws from.
    #[must_use]
    pub fn stream(self, environment: &str) -> Stream {
        let name = hash_bytes(environment.as_bytes());
        Stream::new(self.seed, Purpose::Instance, &[name, u64::from(self.attempt)])
    }

    /// The stream of the `retry`-th repeated generation inside one reset, for generators that can fail.
    #[must_use]
    pub fn retry_stream(self, environment: &str, retry: u64) -> Stream {
        let name = hash_bytes(environment.as_bytes());
        Stream::new(self.seed, Purpose::Retry, &[name, u64::from(self.attempt), retry])
    }
}

/// What an agent may do in the present state.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ActionSpace {
    /// One of these names, compared without regard to case; the action is the index into the list.
    Names(Cow<'static, [Cow<'static, str>]>),
    /// Any text; the environment judges it.
    Text,
}

/// One atomic action.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action<'a> {
    /// Index into [`ActionSpace::Names`].
    Index(usize),
    /// Text for an environment with [`ActionSpace::Text`].
    Text(&'a str),
}

/// What one action did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// Reward of this action alone.
    pub reward: f32,
    /// The episode is over; no further action may follow.
    pub done: bool,
    /// The task is solved.
    pub success: bool,
    /// The state changed.
    pub effective: bool,
    /// The action was well formed and legal.
    pub valid: bool,
    /// Further numbers for the metrics, each averaged over the turns of an episode.
    pub metrics: Vec<(&'static str, f32)>,
}

/// Facts of the running configuration that instruction texts quote, so that no number in a prompt can be wrong.
#[derive(Clone, Debug)]
pub struct PromptFacts<'a> {
    /// Atomic actions allowed in one episode.
    pub max_actions: usize,
    /// Atomic actions accepted in one answer.
    pub max_actions_per_turn: usize,
    /// What stands between two actions of one answer.
    pub separator: &'a str,
    /// Name of the answer tag, without brackets.
    pub answer_tag: &'a str,
}

impl PromptFacts<'_> {
    /// An example answer in the effective form, e.g. `<answer>Right || Up</answer>`.
    #[must_use]
    pub fn example(&self, actions: &[&str]) -> String {
        let shown = &actions[..actions.len().min(self.max_actions_per_turn.max(1))];
        let list = shown.join(&format!(" {} ", self.separator));
        format!("<{tag}>{list}</{tag}>", tag = self.answer_tag)
    }
}

/// A state as a picture.
#[derive(Clone, Debug)]
pub enum Picture {
    /// A finished image, any size.
    Image(RgbImage),
    /// A card with a title and lines of text, drawn by the renderer.
    Card {
        /// Heading of the card.
        title: String,
        /// Lines below it; each may carry a highlighted state such as the chosen arm.
        lines: Vec<CardLine>,
    },
}

/// One line of a [`Picture::Card`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CardLine {
    /// The text.
    pub text: String,
    /// How the line is set off.
    pub tone: Tone,
}

/// Emphasis of a card line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tone {
    /// Ordinary text.
    Plain,
    /// Chosen, current.
    Chosen,
    /// Right, won.
    Good,
    /// Wrong, lost.
    Bad,
}

/// No instance could be made.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{environment}: no instance for seed {seed}: {reason}")]
pub struct ResetError {
    /// Environment type.
    pub environment: &'static str,
    /// Seed of the instance.
    pub seed: u64,
    /// Why, and what to change in the configuration.
    pub reason: String,
}

/// One problem with a configuration, found before anything runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigProblem {
    /// Field of the configuration, e.g. `dim_room`; empty for the whole.
    pub field: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

/// A world that an agent acts in, as a component holding the state of one episode.
///
/// # Determinism
/// `reset` depends on `config` and `seed` alone, `step` on the state, the action and the draws from `dynamics`.
///
/// # Example
/// `engine/examples/custom_environment.rs` is a whole environment in fewer than 60 lines.
pub trait Environment: Component<Mutability = Mutable> + Clone + Sized {
    /// What a scene can set. `Default` is the reference's default.
    type Config: Clone + std::fmt::Debug + Default + DeserializeOwned + Serialize + Send + Sync + 'static;

    /// Name of the type as scenes write it, e.g. `sokoban`.
    const NAME: &'static str;

    /// Everything that is wrong with `config`; empty when it can be used.
    fn check(config: &Self::Config) -> Vec<ConfigProblem> {
        let _ = config;
        Vec::new()
    }

    /// Makes the instance of `seed` in its first state.
    ///
    /// # Errors
    /// [`ResetError`] if no instance exists for this configuration.
    fn reset(config: &Self::Config, seed: InstanceSeed) -> Result<Self, ResetError>;

    /// The rules, as part of the system message. Every number and symbol comes from `config` and `facts`.
    fn instruction(config: &Self::Config, facts: &PromptFacts<'_>) -> String;

    /// The state as text. This is all that a text agent sees.
    fn observe(&self, config: &Self::Config) -> String;

    /// The actions possible in this episode.
    fn actions(&self, config: &Self::Config) -> ActionSpace;

    /// Performs one action. Never called after `done`.
    fn step(&mut self, config: &Self::Config, action: Action<'_>, dynamics: &mut Stream) -> StepOutcome;

    /// The state as a picture.
    fn render(&self, config: &Self::Config) -> Picture;

    /// A number that is equal for two instances exactly if they pose the same problem. The default hashes the observation.
    fn instance_hash(&self, config: &Self::Config) -> u64 {
        hash_bytes(self.observe(config).as_bytes())
    }

    /// The best plan from here, as answer texts in order, or `None` if the environment has no expert.
    ///
    /// For stochastic environments the plan is the policy's choice now and may hold a single action.
    fn expert(&self, config: &Self::Config) -> Option<Vec<String>> {
        let _ = config;
        None
    }

    /// A uniformly random legal answer text.
    fn random_action(&self, config: &Self::Config, stream: &mut Stream) -> String {
        match self.actions(config) {
            ActionSpace::Names(names) => stream.choose(&names).to_string(),
            ActionSpace::Text => String::new(),
        }
    }

    /// A few words about the state that a short thought may mention, used by the supervised warm-up. `action` is the one that
    /// the thought leads to.
    fn thought(&self, config: &Self::Config, action: &str, stream: &mut Stream) -> String {
        let (_, _) = (config, stream);
        format!("I choose {action}")
    }

    /// How hard the instance is, e.g. the length of the shortest solution, if known.
    fn difficulty(&self, config: &Self::Config) -> Option<u32> {
        let _ = config;
        None
    }

    /// The reference solution to be kept in trajectory records, if there is one.
    fn gold(&self, config: &Self::Config) -> Option<String> {
        let _ = config;
        None
    }
}
