//! Whole runs that take a second: a random model of two narrow layers and a scene with all four environments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bevy_app::{App, Plugin};
use bevy_ecs::prelude::*;
use ragen::RagenPlugins;
use ragen::environment::PromptFacts;
use ragen::environment::tags::TAGS;
use ragen::metrics::Metrics;
use ragen::run::{Control, Event, Outcome, Run};
use ragen::scene::{Loaded, Scene};
use ragen::warmup::{ModelShape, create_model};
use ragen::world::{EnvironmentTypes, Phase, Plays, Turn, TurnResult, TurnSystems, Turns};
use ragen_kernels::cpu::Cpu;
use safetensors::SafeTensors;
use tempfile::TempDir;

/// All four environments, a few short answers each.
const SCENE: &str = r#"(
    name: "tiny",
    environments: (
        train: (mix: ["SimpleSokoban", "FrozenLake", "Bandit", "Countdown"], groups: 4, group_size: 4),
        validation: (mix: ["SimpleSokoban", "FrozenLake", "Bandit", "Countdown"], groups: 4),
    ),
    agent: (context: SingleTurn, history: 1, max_turns: 2, max_context_tokens: 700),
    sampling: (max_new_tokens: 8, max_sequences: 16),
    actor: (optimizer: (lr: 1e-3)),
    update: (mini_batch: 8, micro_tokens: 4096),
    run: (iterations: 1, validate_first: false, validate_every: 0, save_every: 1, keep: 2),
    log: (tokens: true),
    stop: (variance: false, low_success: false),
)"#;

/// An app with the engine's plugins, in which every answer also earns something for its length in bytes.
///
/// A random model solves nothing; paid by the byte, the members of a group still differ.
pub fn paid_by_the_byte() -> App {
    let mut app = plain_app();
    app.add_plugins(ByTheByte);
    app
}

/// An app with the engine's plugins.
pub fn plain_app() -> App {
    let mut app = App::empty();
    app.add_plugins(RagenPlugins);
    app
}

struct ByTheByte;

impl Plugin for ByTheByte {
    fn build(&self, app: &mut App) {
        app.add_systems(Turn, pay.in_set(TurnSystems::Shape));
    }
}

fn pay(trajectories: Query<(&Plays, &Turns)>, mut environments: Query<(&Phase, &mut TurnResult)>) {
    for (plays, turns) in &trajectories {
        if let (Ok((Phase::Book, mut result)), Some(turn)) = (environments.get_mut(plays.0), turns.0.last()) {
            result.reward += 0.05 * (turn.raw_response.len() % 32) as f32;
        }
    }
}

/// Writes a random model of two layers of width 32 whose tokenizer knows the words of all environments.
pub fn write_model(directory: &Path, seed: u64) {
    let types = plain_app().world().resource::<EnvironmentTypes>().clone();
    let facts = PromptFacts { max_actions: 10, max_actions_per_turn: 2, separator: "||", answer_tag: "answer" };
    let instruction = |tag: &ragen::environment::tags::Tag| {
        let configured = types.configure_ron(tag.environment, tag.config).unwrap_or_else(|error| panic!("{error}"));
        configured.instruction(&facts)
    };
    let texts: Vec<String> = TAGS.iter().map(instruction).collect();
    let shape = ModelShape {
        hidden_size: 32,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        intermediate_size: 64,
        context: 1024,
        vocabulary: 512,
    };
    create_model(Arc::new(Cpu::new()), directory, &shape, &texts, seed).unwrap_or_else(|error| panic!("{error}"));
}

/// A model, and room for run directories beside it.
pub struct Bench {
    directory: TempDir,
}

impl Default for Bench {
    fn default() -> Self {
        let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        write_model(&directory.path().join("model"), 7);
        Self { directory }
    }
}

impl Bench {
    /// Makes the model.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The model's directory.
    #[must_use]
    pub fn model(&self) -> PathBuf {
        self.directory.path().join("model")
    }

    /// A path for a run directory.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The scene with some keys set.
    #[must_use]
    pub fn scene(&self, set: &[&str]) -> Loaded {
        let mut overrides = vec![format!("model.path={}", self.model().display())];
        overrides.extend(set.iter().map(|&text| text.to_owned()));
        Scene::parse("tiny.ron", SCENE, &overrides).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A run that is about to begin in the directory `name`.
    #[must_use]
    pub fn start(&self, name: &str, set: &[&str]) -> Run {
        Run::create(paid_by_the_byte(), &self.scene(set), &self.at(name))
            .unwrap_or_else(|error| panic!("{set:?}: {error}"))
    }

    /// Runs the scene into the directory `name`.
    #[must_use]
    pub fn run(&self, name: &str, set: &[&str]) -> Finished {
        finish(&mut self.start(name, set))
    }

    /// Continues the run in a directory; also returns why newer checkpoints were refused.
    #[must_use]
    pub fn resume(&self, name: &str, set: &[&str]) -> (Finished, Vec<String>) {
        let (mut run, refused) = Run::resume(paid_by_the_byte(), &self.scene(set), &self.at(name))
            .unwrap_or_else(|error| panic!("{set:?}: {error}"));
        (finish(&mut run), refused)
    }
}

/// A run that is over.
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
    /// The metrics of its iterations.
    pub metrics: Vec<Metrics>,
}

/// Runs to the end.
#[must_use]
pub fn finish(run: &mut Run) -> Finished {
    let mut all = Vec::new();
    let mut observer = |event: &Event<'_>| {
        if let Event::Iteration { metrics, .. } = event {
            all.push((*metrics).clone());
        }
        Control::Continue
    };
    let outcome = run.execute(&mut observer).unwrap_or_else(|error| panic!("{error}"));
    Finished { outcome, metrics: all }
}

impl Finished {
    /// The weights of the last checkpoint by tensor.
    #[must_use]
    pub fn weights(&self) -> BTreeMap<String, Vec<f32>> {
        weights(self.outcome.checkpoint.as_deref().unwrap_or_else(|| panic!("the run left no checkpoint")))
    }

    /// Everything that depends on the seed alone: metrics, trajectories and weights, byte for byte.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let root = &self.outcome.directory;
        let read = |path: &Path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut files = BTreeMap::from([("metrics.jsonl".to_owned(), read(&root.join("metrics.jsonl")))]);
        let folders = [Some(root.join("trajectories")), self.outcome.checkpoint.clone()];
        for folder in folders.into_iter().flatten() {
            let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if name.ends_with(".jsonl") || name.ends_with(".safetensors") {
                    files.insert(name, read(&path));
                }
            }
        }
        files
    }
}

/// The weights of a model directory by tensor.
#[must_use]
pub fn weights(directory: &Path) -> BTreeMap<String, Vec<f32>> {
    let path = directory.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = SafeTensors::deserialize(&bytes).unwrap_or_else(|error| panic!("{error}"));
    let numbers = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|&four| f32::from_le_bytes(four)).collect();
    file.iter().map(|(name, tensor)| (name.to_owned(), numbers(tensor.data()))).collect()
}

/// Asserts that two sets of files are equal and names the first that is not.
pub fn assert_same_files(left: &BTreeMap<String, Vec<u8>>, right: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>());
    for (name, bytes) in left {
        let differs = bytes.iter().zip(&right[name]).position(|(left, right)| left != right);
        assert!(differs.is_none() && bytes.len() == right[name].len(), "{name} differs from byte {differs:?} on");
    }
}
