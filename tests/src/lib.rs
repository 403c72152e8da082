//! Small worlds for the outside tests: an environment of a few lines, a codec whose tokens can be chosen freely, and a model
//! that says what a script tells it.

pub mod tiny;

use std::collections::VecDeque;
use std::path::Path;

use bevy_app::App;
use bevy_ecs::prelude::*;
use ragen::codec::{ChatPieces, Codec};
use ragen::conversation::ContextWindow;
use ragen::environment::{
    Action, ActionSpace, CardLine, Environment, InstanceSeed, Picture, PromptFacts, ResetError, Split, StepOutcome,
    Tone,
};
use ragen::grammar::AnswerGrammar;
use ragen::random::Stream;
use ragen::record::Finish;
use ragen::runtime::{
    Completion, Model, Part, Request, Runtime, RuntimeError, Sampling, ScoreRow, Scores, StepReport, StepSettings,
    Upstream,
};
use ragen::world::{
    AddEnvironment as _, AgentKind, AgentSettings, EnvironmentTypes, PlannedGroup, Rollout, Tag, Tags, Text,
    WorldPlugin,
};
use serde::{Deserialize, Serialize};

/// Walk up a stair: `Up` climbs, `Down` descends, the top ends the episode.
#[derive(Clone, Component, Debug)]
pub struct Stair {
    height: i64,
}

/// Configuration of [`Stair`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StairConfig {
    /// Steps to climb.
    pub top: i64,
}

impl Default for StairConfig {
    fn default() -> Self {
        Self { top: 3 }
    }
}

impl Environment for Stair {
    type Config = StairConfig;
    const NAME: &'static str = "stair";

    fn reset(_: &StairConfig, seed: InstanceSeed) -> Result<Self, ResetError> {
        Ok(Self { height: (seed.seed % 2) as i64 + i64::from(seed.attempt) })
    }

    fn instruction(config: &StairConfig, facts: &PromptFacts<'_>) -> String {
        format!("Climb to {}. Say {}.", config.top, facts.example(&["Up"]))
    }

    fn observe(&self, _: &StairConfig) -> String {
        format!("height {}", self.height)
    }

    fn actions(&self, _: &StairConfig) -> ActionSpace {
        ActionSpace::Names(vec!["Up".into(), "Down".into()].into())
    }

    fn step(&mut self, config: &StairConfig, action: Action<'_>, _: &mut Stream) -> StepOutcome {
        self.height += if action == Action::Index(0) { 1 } else { -1 };
        let done = self.height >= config.top;
        StepOutcome {
            reward: f32::from(u8::from(done)),
            done,
            success: done,
            effective: true,
            valid: true,
            metrics: Vec::new(),
        }
    }

    fn render(&self, config: &StairConfig) -> Picture {
        Picture::Card { title: "stair".into(), lines: vec![CardLine { text: self.observe(config), tone: Tone::Plain }] }
    }

    fn expert(&self, config: &StairConfig) -> Option<Vec<String>> {
        Some(vec!["Up".into(); (config.top - self.height).max(1) as usize])
    }
}

/// First id of a control token.
pub const START: u32 = 1000;
/// The end-of-turn token.
pub const END: u32 = 1001;

/// A codec in which id `n < 256` is the byte `n`, ids from 2000 are words of a list, and 1000 and 1001 are control tokens.
pub struct ByteCodec {
    words: Vec<String>,
    pieces: ChatPieces,
}

impl ByteCodec {
    /// A codec with additional tokens `2000, 2001, …` for `words`, which its encoder never uses.
    #[must_use]
    pub fn new(words: &[&str]) -> Self {
        let open = |role: &str| [vec![START], role.bytes().map(u32::from).collect(), vec![10]].concat();
        let close = vec![END, 10];
        let pieces = ChatPieces {
            system_open: open("s"),
            system_close: close.clone(),
            first_user_open: open("u"),
            user_open: open("u"),
            user_close: close.clone(),
            assistant_open: open("a"),
            assistant_close: close,
        };
        Self { words: words.iter().map(|&word| word.to_owned()).collect(), pieces }
    }
}

impl Codec for ByteCodec {
    fn encode(&self, text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &id in ids {
            match id {
                START => bytes.extend_from_slice(b"<|im_start|>"),
                END => bytes.extend_from_slice(b"<|im_end|>"),
                0..256 => bytes.push(id as u8),
                _ => bytes.extend_from_slice(self.words[id as usize - 2000].as_bytes()),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn pieces(&self) -> &ChatPieces {
        &self.pieces
    }

    fn end_ids(&self) -> &[u32] {
        &[END]
    }

    fn control_texts(&self) -> Vec<String> {
        vec!["<|im_start|>".into(), "<|im_end|>".into()]
    }
}

/// A model that answers each request with the next line of a script and remembers what it was asked.
pub struct Scripted {
    script: VecDeque<(Vec<u32>, Finish)>,
    waiting: VecDeque<Request>,
    /// Every request so far.
    pub seen: std::sync::Arc<std::sync::Mutex<Vec<Request>>>,
}

impl Scripted {
    /// A model with a script. After its end the last line is repeated.
    #[must_use]
    pub fn new(script: Vec<(Vec<u32>, Finish)>) -> Self {
        Self { script: script.into(), waiting: VecDeque::new(), seen: std::sync::Arc::default() }
    }
}

fn unable<T>() -> Result<T, RuntimeError> {
    Err(RuntimeError::Request("a script has no weights".into()))
}

impl Runtime for Scripted {
    fn submit(&mut self, request: Request) -> Result<(), RuntimeError> {
        if let Ok(mut seen) = self.seen.lock() {
            seen.push(request.clone());
        }
        self.waiting.push_back(request);
        Ok(())
    }

    fn advance(&mut self) -> Result<Vec<Completion>, RuntimeError> {
        let Some(request) = self.waiting.pop_front() else { return Ok(Vec::new()) };
        let (tokens, finish) = match self.script.len() {
            0 => return unable(),
            1 => self.script[0].clone(),
            _ => self.script.pop_front().unwrap_or((vec![END], Finish::EndOfTurn)),
        };
        // Log-probabilities that name their place, so that a shift by one would show.
        let logprobs = (0..tokens.len()).map(|place| -0.25 - place as f32).collect();
        Ok(vec![Completion { id: request.id, entropies: vec![0.5; tokens.len()], logprobs, tokens, finish }])
    }

    fn pending(&self) -> usize {
        self.waiting.len()
    }

    fn cancel(&mut self) {
        self.waiting.clear();
    }

    fn score(&mut self, _: &[ScoreRow<'_>], _: f32) -> Result<Scores, RuntimeError> {
        unable()
    }

    fn score_reference(&mut self, _: &[ScoreRow<'_>], _: f32) -> Result<Vec<f32>, RuntimeError> {
        unable()
    }

    fn freeze_reference(&mut self) -> Result<(), RuntimeError> {
        unable()
    }

    fn accumulate(
        &mut self,
        _: Part,
        _: &[ScoreRow<'_>],
        _: f32,
        _: usize,
        _: &mut (dyn FnMut(usize, &Scores, &mut Upstream) + Send),
    ) -> Result<(), RuntimeError> {
        unable()
    }

    fn step(&mut self, _: Part, _: &StepSettings) -> Result<StepReport, RuntimeError> {
        unable()
    }

    fn weights_hash(&self) -> u64 {
        0
    }

    fn save_model(&self, _: &Path) -> Result<(), RuntimeError> {
        unable()
    }

    fn save_training(&self, _: &Path) -> Result<(), RuntimeError> {
        unable()
    }

    fn restore(&mut self, _: &Path) -> Result<(), RuntimeError> {
        unable()
    }
}

/// Settings for [`stair_world`].
#[derive(Clone, Debug)]
pub struct WorldSettings {
    /// Who plays.
    pub kind: AgentKind,
    /// How prompts are built.
    pub window: ContextWindow,
    /// Turns per episode.
    pub max_turns: usize,
    /// Actions per turn.
    pub max_actions_per_turn: usize,
    /// Actions per episode.
    pub max_actions: usize,
    /// Groups.
    pub groups: u64,
    /// Members per group.
    pub group_size: u32,
}

/// A world with [`Stair`] and a rollout to be played in it.
pub fn stair_world(settings: &WorldSettings, codec: ByteCodec, model: Option<Scripted>) -> (App, Rollout) {
    let mut app = App::new();
    app.add_plugins(WorldPlugin).add_environment::<Stair>();
    let types = app.world().resource::<EnvironmentTypes>().clone();
    let configured = types.configure("stair", serde_json::json!({})).unwrap_or_else(|error| panic!("{error}"));
    let tag =
        Tag { name: "Stair".into(), configured, max_actions: settings.max_actions, max_tokens: 50, instruction: None };
    let control_texts = codec.control_texts();
    app.insert_resource(Tags(vec![tag])).insert_resource(Text(std::sync::Arc::new(codec)));
    if let Some(model) = model {
        app.insert_resource(Model(Box::new(model)));
    }
    let grammar = AnswerGrammar {
        think_tag: Some("think".into()),
        answer_tag: "answer".into(),
        separator: "||".into(),
        max_actions: settings.max_actions_per_turn,
        control_texts,
    };
    let sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, greedy: false };
    let agent = AgentSettings {
        grammar,
        sampling,
        preamble: "Act.".into(),
        stop_at_answer: true,
        max_turns: settings.max_turns,
        max_stalled_turns: 3,
        stop_at_invalid: true,
        expert_noise: 0.0,
        format_penalty: -0.1,
    };
    let agent = app.world_mut().spawn((settings.kind, agent, settings.window)).id();
    let rollout = Rollout {
        run_seed: 1,
        split: Split::Train,
        iteration: 1,
        groups: (0..settings.groups).map(|seed| PlannedGroup { tag: 0, seed: 2 * seed, attempt: 0 }).collect(),
        group_size: settings.group_size,
        shared_noise: false,
        agent,
        asks_model: settings.kind == AgentKind::Policy,
        keep_pieces: true,
        keep_ids: true,
    };
    (app, rollout)
}
