//! The scene: one struct per group of settings.

use std::path::PathBuf;

use super::{
    algorithm_settings::{AdvantageSettings, FilterSettings, KlSettings, PolicySettings, RewardSettings},
    environment_settings::EnvironmentSettings,
    macros::{choices, settings},
};

settings! {
    /// One experiment. Every key has a default.
    pub struct Scene {
        /// Name of the experiment, part of the run directory's name.
        name: String = "scene".to_owned(),
        /// The model that acts and learns.
        model: ModelSettings = ModelSettings::default(),
        /// Seeds; equal seeds give equal runs.
        seed: SeedSettings = SeedSettings::default(),
        /// Which environments are played.
        environments: EnvironmentSettings = EnvironmentSettings::default(),
        /// How the agent reads and answers.
        agent: AgentSettings = AgentSettings::default(),
        /// How tokens are drawn.
        sampling: SamplingSettings = SamplingSettings::default(),
        /// What an episode is worth.
        reward: RewardSettings = RewardSettings::default(),
        /// Which groups of a rollout an update learns from.
        filter: FilterSettings = FilterSettings::default(),
        /// How rewards become advantages.
        advantage: AdvantageSettings = AdvantageSettings::default(),
        /// The policy loss.
        policy: PolicySettings = PolicySettings::default(),
        /// Staying near the reference policy.
        kl: KlSettings = KlSettings::default(),
        /// The learning of the policy.
        actor: ActorSettings = ActorSettings::default(),
        /// The learning of the value estimate, for estimators that need one.
        critic: CriticSettings = CriticSettings::default(),
        /// How a rollout is cut into optimiser steps.
        update: UpdateSettings = UpdateSettings::default(),
        /// Length of the run, validation, checkpoints.
        run: RunSettings = RunSettings::default(),
        /// What is written down.
        log: LogSettings = LogSettings::default(),
        /// When a run without hope ends early.
        stop: StopSettings = StopSettings::default(),
    }

    /// The model that acts and learns.
    pub struct ModelSettings {
        /// Model directory in the layout of Hugging Face.
        path: String = "configs/models/tiny".to_owned(),
        /// Compute activations again in the backward pass instead of keeping them: slower, less memory.
        recompute: bool = false,
    }

    /// Seeds of everything random.
    pub struct SeedSettings {
        /// Sampling, shuffling, initialisation.
        run: u64 = 1,
        /// First instance for training; every group takes the next.
        train: u64 = 10000,
        /// First instance for validation, the same in every validation.
        validation: u64 = 123,
    }

    /// How the agent reads and answers.
    pub struct AgentSettings {
        /// Who acts.
        kind: AgentKind = AgentKind::Policy,
        /// What the agent sees of earlier turns.
        context: ContextMode = ContextMode::Full,
        /// Turns kept in the prompt, the present one included; `None` keeps all. Not with `context: Full`.
        history: Option<u32> = None; at_least(1.0),
        /// Turns per episode.
        max_turns: u32 = 5; at_least(1.0),
        /// Actions accepted in one answer.
        max_actions_per_turn: u32 = 2; at_least(1.0),
        /// What stands between two actions of one answer.
        action_separator: String = "||".to_owned(),
        /// Ask for a thought before the answer.
        think: bool = true,
        /// Tag around the thought, without brackets.
        think_tag: String = "think".to_owned(),
        /// Tag around the answer, without brackets.
        answer_tag: String = "answer".to_owned(),
        /// What an invalid action does to those after it in the same answer.
        on_invalid_action: InvalidAction = InvalidAction::Stop,
        /// Turns in a row without a usable action after which the episode ends.
        max_stalled_turns: u32 = 3; at_least(1.0),
        /// Tokens of prompt and answers together.
        max_context_tokens: u32 = 3600; at_least(1.0),
        /// First sentences of the system message; `None` uses the built-in ones.
        system_preamble: Option<String> = None,
    }

    /// How tokens are drawn.
    pub struct SamplingSettings {
        /// In training. The temperature also divides the logits wherever log-probabilities are computed.
        train: TrainSampling = TrainSampling::default(),
        /// In validation.
        validation: ValidationSampling = ValidationSampling::default(),
        /// Sampled tokens per answer at most.
        max_new_tokens: u32 = 400; at_least(1.0),
        /// End an answer at its closing tag.
        stop_at_answer: bool = true,
        /// Sequences that generate at the same time.
        max_sequences: u32 = 256; at_least(1.0),
    }

    /// Sampling in training.
    pub struct TrainSampling {
        /// Divides the logits; above 1 is more random.
        temperature: f64 = 1.0; at_least(0.0),
        /// Only the most likely tokens that together reach this probability.
        top_p: f64 = 1.0; above_to(0.0, 1.0),
        /// Only this many of the most likely tokens; 0 is off.
        top_k: u32 = 0,
        /// Only tokens of at least this share of the most likely one's probability; 0 is off.
        min_p: f64 = 0.0; below(0.0, 1.0),
    }

    /// Sampling in validation.
    pub struct ValidationSampling {
        /// Divides the logits; above 1 is more random.
        temperature: f64 = 0.5; at_least(0.0),
        /// Only the most likely tokens that together reach this probability.
        top_p: f64 = 1.0; above_to(0.0, 1.0),
        /// Only this many of the most likely tokens; 0 is off.
        top_k: u32 = 0,
        /// Only tokens of at least this share of the most likely one's probability; 0 is off.
        min_p: f64 = 0.0; below(0.0, 1.0),
        /// Always take the most likely token, whatever the other keys say.
        greedy: bool = false,
    }

    /// The learning of the policy.
    pub struct ActorSettings {
        /// The optimiser.
        optimizer: ActorOptimizer = ActorOptimizer::default(),
    }

    /// AdamW for the policy.
    pub struct ActorOptimizer {
        /// Learning rate.
        lr: f64 = 1e-6; at_least(0.0),
        /// Decay of the first and second moment.
        betas: (f64, f64) = (0.9, 0.999); below(0.0, 1.0),
        /// Added to the root of the second moment.
        eps: f64 = 1e-8; above(0.0),
        /// Decoupled weight decay.
        weight_decay: f64 = 0.01; at_least(0.0),
        /// Largest norm of the gradient; longer ones are scaled down.
        clip_norm: f64 = 1.0; above(0.0),
        /// How the learning rate moves.
        schedule: ScheduleSettings = ScheduleSettings::default(),
    }

    /// AdamW for the critic.
    pub struct CriticOptimizer {
        /// Learning rate.
        lr: f64 = 1e-5; at_least(0.0),
        /// Decay of the first and second moment.
        betas: (f64, f64) = (0.9, 0.999); below(0.0, 1.0),
        /// Added to the root of the second moment.
        eps: f64 = 1e-8; above(0.0),
        /// Decoupled weight decay.
        weight_decay: f64 = 0.01; at_least(0.0),
        /// Largest norm of the gradient; longer ones are scaled down.
        clip_norm: f64 = 1.0; above(0.0),
        /// How the learning rate moves.
        schedule: ScheduleSettings = ScheduleSettings::default(),
    }

    /// How a learning rate moves.
    pub struct ScheduleSettings {
        /// Its course after the warm-up.
        kind: ScheduleKind = ScheduleKind::Constant,
        /// Optimiser steps in which it rises linearly from 0.
        warmup_steps: u32 = 0,
    }

    /// The value estimate.
    pub struct CriticSettings {
        /// Where it is computed.
        kind: CriticKind = CriticKind::Shared,
        /// Weight of the value loss beside the policy loss; `Shared` only.
        value_weight: f64 = 0.5; at_least(0.0),
        /// How far a value may move from the old one within an update; `None` is unlimited.
        value_clip: Option<f64> = None; above(0.0),
        /// Iterations at the start in which only the critic learns.
        warmup_steps: u32 = 0,
        /// The optimiser; `Separate` only.
        optimizer: CriticOptimizer = CriticOptimizer::default(),
    }

    /// How a rollout is cut into optimiser steps.
    pub struct UpdateSettings {
        /// Passes over the batch.
        epochs: u32 = 1; at_least(1.0),
        /// Rows per optimiser step.
        mini_batch: u32 = 32; at_least(1.0),
        /// Tokens per backward pass; changes memory and speed, never the result.
        micro_tokens: u32 = 8192; at_least(1.0),
        /// Shuffle the rows of every pass.
        shuffle: bool = true,
        /// What happens when the rows do not fill the mini-batches.
        fit: BatchFit = BatchFit::Exact,
    }

    /// Length of the run, validation, checkpoints.
    pub struct RunSettings {
        /// Iterations: a rollout and an update each.
        iterations: u32 = 200; at_least(1.0),
        /// Validate after every so many iterations; 0 never.
        validate_every: u32 = 10,
        /// Validate before the first iteration.
        validate_first: bool = true,
        /// Save a checkpoint after every so many iterations; 0 only at the end.
        save_every: u32 = 100,
        /// Checkpoints kept, the newest.
        keep: u32 = 1; at_least(1.0),
        /// Directory of the run directories.
        directory: PathBuf = PathBuf::from("runs"),
        /// Largest allowed difference between log-probabilities of the rollout and of the update; more is an error.
        max_logprob_difference: f64 = 0.0; at_least(0.0),
    }

    /// What is written down.
    pub struct LogSettings {
        /// Draw trajectories as pictures.
        log_images: bool = false,
        /// Directory of the pictures, within the run directory unless absolute.
        image_dir: PathBuf = PathBuf::from("log/trajectory"),
        /// Draw in every so many iterations; validation is always drawn.
        image_step_size: u32 = 4; at_least(1.0),
        /// Episodes drawn, the first of the batch.
        images_per_batch: u32 = 32; at_least(1.0),
        /// Write trajectories as JSON lines.
        trajectories: bool = true,
        /// Keep token ids and log-probabilities in the trajectories.
        tokens: bool = false,
    }

    /// When a run without hope ends early, after a checkpoint.
    pub struct StopSettings {
        /// Iterations in a row of which the filter left nothing; 0 never stops.
        empty_after_filter: u32 = 5,
        /// Stop when the spread of rewards within groups stays below `variance_ratio` of its beginning.
        variance: bool = true,
        /// Iterations at the beginning and at the end that are compared.
        variance_window: u32 = 10; at_least(1.0),
        /// Share of the first spread that counts as collapsed.
        variance_ratio: f64 = 0.1; between(0.0, 1.0),
        /// Stop when validation success stays below `low_success_threshold`.
        low_success: bool = true,
        /// Validations in a row.
        low_success_window: u32 = 5; at_least(1.0),
        /// Success below this is low.
        low_success_threshold: f64 = 0.01; between(0.0, 1.0),
    }
}

choices! {
    /// Who acts.
    pub enum AgentKind {
        /// The model.
        Policy,
        /// Uniformly random legal actions.
        Random,
        /// The environment's expert.
        Expert,
    }

    /// What the agent sees of earlier turns.
    pub enum ContextMode {
        /// The whole episode as one conversation; one row per episode.
        Full,
        /// The last turns as a conversation; one row per turn.
        LimitedMultiTurn,
        /// The last turns told within one message; one row per turn.
        SingleTurn,
    }

    /// What an invalid action does to those after it in the same answer.
    pub enum InvalidAction {
        /// None of them is performed.
        Stop,
        /// It is left out and the rest is performed.
        Skip,
    }

    /// Course of a learning rate after the warm-up.
    pub enum ScheduleKind {
        /// Stays.
        Constant,
        /// Falls along a cosine.
        Cosine {
            /// Share of the learning rate at the bottom.
            min_ratio: f64 = 0.0; between(0.0, 1.0),
            /// Waves until the last iteration; 0.5 ends at the bottom.
            cycles: f64 = 0.5; above(0.0),
        },
    }

    /// Where the value estimate is computed.
    pub enum CriticKind {
        /// A head on the actor's layers: one model in memory.
        Shared,
        /// A model of its own, begun as a copy of the actor.
        Separate,
    }

    /// What happens when the rows do not fill the mini-batches.
    pub enum BatchFit {
        /// The last mini-batch is smaller.
        Exact,
        /// Random rows are repeated.
        Copy,
        /// Random rows are dropped.
        Delete,
        /// Rows without loss are added.
        Pad,
    }
}
