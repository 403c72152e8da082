//! From a scene to a world that is ready to roll out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bevy_app::App;
use bevy_ecs::prelude::*;
use ragen_kernels::cpu::Cpu;
use rayon::prelude::*;

use crate::codec::Codec as _;
use crate::conversation::{self, ContextWindow};
use crate::environment::{InstanceSeed, Split, tags::TAGS};
use crate::grammar::AnswerGrammar;
use crate::model::ModelError;
use crate::prompt;
use crate::runtime::{LocalRuntime, Model, RuntimeOptions, Sampling};
use crate::scene::{self, ActiveScene, CriticKind, Estimator, Loaded, MixEntry, Scene, SceneError, groups_per_tag};
use crate::world::{
    AgentKind, AgentSettings, EnvironmentTypes, Held, PlannedGroup, Tag, Tags, Text, WorldError, make_instance,
};

/// A scene that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The scene.
    #[error(transparent)]
    Scene(#[from] SceneError),
    /// The model directory.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// `RG0622`: the model directory does not exist.
    #[error("model {path}: there is no such directory; `model.path` names a Hugging Face model directory")]
    NoModel {
        /// The path as the scene gives it.
        path: String,
    },
    /// `RG0623`: an instance cannot be made.
    #[error(transparent)]
    World(#[from] WorldError),
    /// `RG0624`: a file of instances.
    #[error("{}: {reason}", path.display())]
    Instances {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// The groups of every iteration.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Tag of each training group.
    pub train: Vec<usize>,
    /// Instances that training draws from instead of consecutive seeds, per tag.
    pub instances: Vec<PlannedGroup>,
    /// The validation groups, the same every time.
    pub validation: Vec<PlannedGroup>,
}

impl Plan {
    /// The groups of an iteration. `counter` is the number of groups played before.
    #[must_use]
    pub fn train_groups(&self, counter: u64, base: u64) -> Vec<PlannedGroup> {
        let from_file = |number: u64| self.instances[(counter + number) as usize % self.instances.len()];
        let from_seed = |number: u64, &tag: &usize| PlannedGroup { tag, seed: base + counter + number, attempt: 0 };
        (0..)
            .zip(&self.train)
            .map(|(number, tag)| if self.instances.is_empty() { from_seed(number, tag) } else { from_file(number) })
            .collect()
    }
}

/// The agents of a run.
#[derive(Clone, Copy, Debug)]
pub struct Agents {
    /// Plays training episodes.
    pub train: Entity,
    /// Plays validation episodes.
    pub validation: Entity,
    /// Both are models.
    pub ask_model: bool,
}

/// What is to be set up beyond the scene.
#[derive(Clone, Debug, Default)]
pub struct SetupOptions {
    /// Model directory instead of the scene's.
    pub model: Option<PathBuf>,
    /// Gradients and moments are needed.
    pub train: bool,
    /// The last state is that of a checkpoint, so that nothing is to be frozen as reference now.
    pub resume: bool,
}

/// Makes the world of a scene: tags, validation instances, agents, model.
///
/// # Errors
/// [`SetupError`]; everything that is wrong with the scene at once, before a model is loaded.
pub fn prepare(app: &mut App, loaded: &Loaded, options: &SetupOptions) -> Result<(Plan, Agents), SetupError> {
    let scene = &loaded.scene;
    let tags = collect_tags(app, loaded)?;
    let plan = make_plan(app, loaded, &tags)?;
    let asks_model = scene.agent.kind == scene::AgentKind::Policy;
    app.insert_resource(Tags(tags)).insert_resource(ActiveScene(scene.clone()));
    let mut control_texts = Vec::new();
    if asks_model {
        let directory = match &options.model {
            Some(path) => path.clone(),
            None => find_model(&scene.model.path, loaded)?,
        };
        let (mut runtime, codec) =
            LocalRuntime::load(Arc::new(Cpu::new()), &directory, runtime_options(scene, options.train))?;
        control_texts = codec.control_texts();
        if options.train && !options.resume && (scene.kl.in_loss.is_some() || scene.kl.in_reward.is_some()) {
            crate::runtime::Runtime::freeze_reference(&mut runtime).map_err(WorldError::from)?;
        }
        app.insert_resource(Text(Arc::new(codec))).insert_resource(Model(Box::new(runtime)));
    }
    let kind = match scene.agent.kind {
        scene::AgentKind::Policy => AgentKind::Policy,
        scene::AgentKind::Random => AgentKind::Random,
        scene::AgentKind::Expert => AgentKind::Expert,
    };
    let window = context_window(scene);
    let mut spawn = |sampling| {
        let settings = agent_settings(scene, sampling, control_texts.clone());
        app.world_mut().spawn((kind, settings, window)).id()
    };
    let train = spawn(train_sampling(scene));
    let validation = spawn(validation_sampling(scene));
    Ok((plan, Agents { train, validation, ask_model: asks_model }))
}

/// Where a model directory is: as given, or beside the scene file, or beside the scene file's directory.
fn find_model(given: &str, loaded: &Loaded) -> Result<PathBuf, SetupError> {
    let scene = loaded.path().parent().unwrap_or(Path::new("")).to_owned();
    let candidates = [PathBuf::from(given), scene.join(given), scene.join("..").join(given)];
    candidates.into_iter().find(|path| path.is_dir()).ok_or_else(|| SetupError::NoModel { path: given.to_owned() })
}

fn runtime_options(scene: &Scene, train: bool) -> RuntimeOptions {
    let critic = train && matches!(scene.advantage.estimator, Estimator::Gae | Estimator::BiLevel { .. });
    RuntimeOptions {
        context: scene.agent.max_context_tokens as usize,
        running: scene.sampling.max_sequences as usize,
        pass_tokens: scene.update.micro_tokens as usize,
        train,
        recompute: scene.model.recompute,
        value_head: critic && scene.critic.kind == CriticKind::Shared,
        critic: critic && scene.critic.kind == CriticKind::Separate,
    }
}

/// Every tag that the scene's mixtures name, in the order of their first use.
fn collect_tags(app: &App, loaded: &Loaded) -> Result<Vec<Tag>, SceneError> {
    let types = app.world().resource::<EnvironmentTypes>();
    let own = &loaded.scene.environments.tags;
    let known: Vec<&str> = TAGS.iter().map(|tag| tag.name).chain(own.keys().map(String::as_str)).collect();
    let mut problems = loaded.check(&known);
    let environments = &loaded.scene.environments;
    let mut tags: Vec<Tag> = Vec::new();
    for MixEntry { tag: name, .. } in environments.train.mix.iter().chain(&environments.validation.mix) {
        if tags.iter().any(|tag| tag.name == *name) {
            continue;
        }
        let tag = match (own.get(name), TAGS.iter().find(|tag| tag.name == name)) {
            (Some(settings), _) => match types.configure_tag(&settings.environment, loaded, name) {
                Err(error) => {
                    problems.extend(error.problems);
                    continue;
                }
                Ok(configured) => Tag {
                    name: name.clone(),
                    configured,
                    max_actions: settings.max_actions as usize,
                    max_tokens: settings.max_tokens as usize,
                    instruction: settings.instruction.clone(),
                },
            },
            (None, Some(built_in)) => match types.configure_ron(built_in.environment, built_in.config) {
                Err(reason) => {
                    problems.push(loaded.problem_at("environments", format!("tag {name}: {reason}")));
                    continue;
                }
                Ok(configured) => Tag {
                    name: name.clone(),
                    configured,
                    max_actions: built_in.max_actions,
                    max_tokens: built_in.max_tokens,
                    instruction: None,
                },
            },
            // An unknown tag is among the problems already.
            (None, None) => continue,
        };
        for problem in tag.configured.check() {
            let path = format!("environments.tags.{name}.config.{}", problem.field);
            problems.push(loaded.problem(
                scene::Code::Environment,
                path.trim_end_matches('.'),
                format!("tag {name}: {}", problem.reason),
            ));
        }
        if loaded.scene.agent.kind == scene::AgentKind::Expert && !has_expert(&tag, loaded.scene.seed.train) {
            let reason = format!("tag {name}: the environment `{}` has no expert", tag.configured.environment());
            problems.push(loaded.problem(scene::Code::Environment, "agent.kind", reason));
        }
        tags.push(tag);
    }
    if problems.is_empty() { Ok(tags) } else { Err(SceneError { problems }) }
}

/// Whether an expert knows what to do in the first instance; one that cannot be made is reported elsewhere.
fn has_expert(tag: &Tag, seed: u64) -> bool {
    let seed = InstanceSeed { seed, split: Split::Train, attempt: 0 };
    tag.configured.instance(seed, 0).map_or(true, |instance| instance.replay.expert().is_some())
}

/// The groups of training and validation, and the instances that training must not play.
fn make_plan(app: &mut App, loaded: &Loaded, tags: &[Tag]) -> Result<Plan, SetupError> {
    let scene = &loaded.scene;
    let environments = &scene.environments;
    let index = |name: &str| tags.iter().position(|tag| tag.name == name).unwrap_or(0);
    let spread = |mix: &[MixEntry], groups: u32| -> Vec<usize> {
        let counts = groups_per_tag(mix, groups);
        mix.iter().zip(counts).flat_map(|(entry, count)| vec![index(&entry.tag); count as usize]).collect()
    };
    let validation: Vec<PlannedGroup> = (0..)
        .zip(spread(&environments.validation.mix, environments.validation.groups))
        .map(|(number, tag)| PlannedGroup { tag, seed: scene.seed.validation + number, attempt: 0 })
        .collect();
    let mut held = Held::default();
    if environments.reject_validation_instances {
        let hashes: Result<Vec<u64>, WorldError> = validation
            .par_iter()
            .map(|&group| Ok(make_instance(&tags[group.tag], group, Split::Validation, &held.0)?.1.hash))
            .collect();
        held.0.extend(hashes?);
    }
    app.insert_resource(held);
    let mut instances = Vec::new();
    if let Some(path) = &environments.train.instance_file {
        instances = super::instances::read_instances(path, tags)?;
    }
    Ok(Plan { train: spread(&environments.train.mix, environments.train.groups), instances, validation })
}

fn context_window(scene: &Scene) -> ContextWindow {
    ContextWindow {
        mode: match scene.agent.context {
            scene::ContextMode::Full => conversation::ContextMode::Full,
            scene::ContextMode::LimitedMultiTurn => conversation::ContextMode::LimitedMultiTurn,
            scene::ContextMode::SingleTurn => conversation::ContextMode::SingleTurn,
        },
        turns: scene.agent.history.map(|turns| turns as usize),
        max_tokens: scene.agent.max_context_tokens as usize,
        max_new_tokens: scene.sampling.max_new_tokens as usize,
    }
}

/// The agent of a scene as the world takes it.
#[must_use]
pub fn agent_settings(scene: &Scene, sampling: Sampling, control_texts: Vec<String>) -> AgentSettings {
    let agent = &scene.agent;
    AgentSettings {
        grammar: AnswerGrammar {
            think_tag: agent.think.then(|| agent.think_tag.clone()),
            answer_tag: agent.answer_tag.clone(),
            separator: agent.action_separator.clone(),
            max_actions: agent.max_actions_per_turn as usize,
            control_texts,
        },
        sampling,
        preamble: agent.system_preamble.clone().unwrap_or_else(|| prompt::PREAMBLE.to_owned()),
        stop_at_answer: scene.sampling.stop_at_answer,
        max_turns: agent.max_turns as usize,
        max_stalled_turns: agent.max_stalled_turns,
        stop_at_invalid: agent.on_invalid_action == scene::InvalidAction::Stop,
        expert_noise: 0.0,
        format_penalty: scene.reward.format_penalty as f32,
    }
}

fn train_sampling(scene: &Scene) -> Sampling {
    let settings = &scene.sampling.train;
    Sampling {
        temperature: settings.temperature as f32,
        top_k: settings.top_k,
        top_p: settings.top_p as f32,
        min_p: settings.min_p as f32,
        greedy: false,
    }
}

fn validation_sampling(scene: &Scene) -> Sampling {
    let settings = &scene.sampling.validation;
    // Greedy decoding ignores the temperature, except in the log-probabilities that it reports.
    let temperature = if settings.greedy && settings.temperature == 0.0 { 1.0 } else { settings.temperature as f32 };
    Sampling {
        temperature,
        top_k: settings.top_k,
        top_p: settings.top_p as f32,
        min_p: settings.min_p as f32,
        greedy: settings.greedy,
    }
}
