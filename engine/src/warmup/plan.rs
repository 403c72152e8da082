//! Plans of a supervised start: which lessons, which model, how long.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bevy_app::App;
use bevy_ecs::prelude::*;
use ragen_kernels::cpu::Cpu;
use serde::{Deserialize, Serialize};

use super::create::{CreateError, ModelShape, create_model};
use super::{Lessons, Study, ValueLesson, study};
use crate::environment::Split;
use crate::evaluation::{Summary, summarise};
use crate::metrics::Metrics;
use crate::prompt::{TurnFacts, turn_block};
use crate::run::{Agents, SetupError, SetupOptions, prepare};
use crate::runtime::{LocalRuntime, Model, Runtime as _, RuntimeError, RuntimeOptions, StepSettings};
use crate::scene::{Estimator, Loaded, Scene, SceneError};
use crate::world::{
    AgentKind, AgentSettings, PlannedGroup, Rollout, Tags, Text, Trajectories, WorldError, run_rollout, system_text,
};

/// Seeds of lessons lie far from those that training and validation use.
const FIRST_LESSON_SEED: u64 = 1 << 40;
/// Episodes whose texts the tokenizer is learned from, per lesson.
const READ_EPISODES: u64 = 256;

/// A supervised start as a RON file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarmupPlan {
    /// Seed of weights, lessons and their order.
    pub seed: u64,
    /// The model to make.
    pub model: ModelShape,
    /// What is taught.
    pub lessons: Vec<LessonPlan>,
    /// Optimiser steps.
    pub steps: u64,
    /// Steps over which the learning rate rises.
    pub rising_steps: u64,
    /// Peak learning rate.
    pub lr: f64,
    /// Rows per step.
    pub mini_batch: usize,
    /// Tokens per pass.
    pub micro_tokens: usize,
    /// Weight of the value head's error beside the cross entropy. Above 0, a value head learns the teachers' returns in the
    /// lessons whose scenes need a critic, so that training does not begin with a critic that knows nothing.
    pub value_weight: f64,
}

impl Default for WarmupPlan {
    fn default() -> Self {
        Self {
            seed: 1,
            model: ModelShape::default(),
            lessons: Vec::new(),
            steps: 1000,
            rising_steps: 50,
            lr: 2e-3,
            mini_batch: 64,
            micro_tokens: 16_384,
            value_weight: 0.0,
        }
    }
}

/// A lesson: the first training tag of a scene, played by a teacher under the scene's own prompts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LessonPlan {
    /// The scene file, relative to the plan.
    pub scene: PathBuf,
    /// Who plays.
    pub teacher: Teacher,
    /// Episodes per round.
    pub episodes: u64,
    /// Share of the teacher's answers that are random instead.
    #[serde(default)]
    pub noise: f64,
}

/// Who plays a lesson.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Teacher {
    /// The environment's solver.
    Expert,
    /// Random legal actions: teaches the form and nothing else.
    Random,
}

/// Something that happened in a warm-up.
#[derive(Debug)]
pub enum WarmupEvent<'a> {
    /// An optimiser step is done.
    Step {
        /// Steps done.
        done: u64,
        /// Steps in all.
        total: u64,
        /// Its numbers.
        metrics: &'a Metrics,
    },
    /// The finished model played the validation instances of a lesson's scene.
    Graded {
        /// The scene's name.
        scene: &'a str,
        /// Its result.
        summary: &'a Summary,
    },
}

/// A warm-up that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WarmupError {
    /// `RG0701`: the plan.
    #[error("{}: {reason}", path.display())]
    Plan {
        /// The plan's file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A lesson's scene.
    #[error(transparent)]
    Scene(#[from] SceneError),
    /// A lesson's world.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A lesson's rollout.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The model directory.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The model.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

struct Lesson {
    app: App,
    loaded: Loaded,
    agents: Agents,
    plan: LessonPlan,
    value: Option<ValueLesson>,
}

/// Makes a model as a plan says and writes its directory to `out`.
///
/// `new_app` makes an app with the environment types that the scenes use.
///
/// # Errors
/// [`WarmupError`]; `out` then holds no weights that look trained.
///
/// # Determinism
/// The files depend on the plan and its scenes alone.
pub fn run_plan(
    plan_path: &Path,
    out: &Path,
    new_app: &mut dyn FnMut() -> App,
    each: &mut dyn FnMut(&WarmupEvent<'_>),
) -> Result<(), WarmupError> {
    let plan = read_plan(plan_path)?;
    let directory = plan_path.parent().unwrap_or(Path::new(""));
    let mut lessons = Vec::new();
    for lesson in &plan.lessons {
        let kind = match lesson.teacher {
            Teacher::Expert => "agent.kind=Expert",
            Teacher::Random => "agent.kind=Random",
        };
        let loaded = Scene::load(&directory.join(&lesson.scene), &[kind.to_owned()])?;
        let mut app = new_app();
        let (_, agents) = prepare(&mut app, &loaded, &SetupOptions::default())?;
        if let Some(mut agent) = app.world_mut().get_mut::<AgentSettings>(agents.train) {
            agent.expert_noise = lesson.noise;
        }
        let value = value_lesson(&loaded.scene).filter(|_| plan.value_weight > 0.0);
        lessons.push(Lesson { app, loaded, agents, plan: lesson.clone(), value });
    }
    let mut texts = Vec::new();
    for lesson in &mut lessons {
        lesson.read(&plan, &mut texts)?;
    }
    let draft = out.with_extension("draft");
    create_model(Arc::new(Cpu::new()), &draft, &plan.model, &texts, plan.seed)?;
    let options = RuntimeOptions {
        context: plan.model.context,
        running: 256,
        pass_tokens: plan.micro_tokens,
        train: true,
        recompute: false,
        value_head: plan.value_weight > 0.0,
        critic: false,
    };
    let (mut runtime, codec) = LocalRuntime::load(Arc::new(Cpu::new()), &draft, options).map_err(SetupError::from)?;
    let codec: Text = Text(Arc::new(codec));
    let (mut step, mut round) = (0, 0);
    while step < plan.steps {
        let mut rows = Lessons::default();
        for lesson in &mut lessons {
            lesson.app.insert_resource(codec.clone());
            let rollout = lesson.rollout(&plan, round, lesson.plan.episodes);
            rows.play(lesson.app.world_mut(), rollout, lesson.value.as_mut())?;
        }
        if rows.is_empty() {
            return Err(plan_error(plan_path, "its lessons give nothing to learn"));
        }
        step = study(&mut runtime, &rows, &study_settings(&plan), step, &mut |done, metrics| {
            each(&WarmupEvent::Step { done, total: plan.steps, metrics });
        })?;
        round += 1;
    }
    runtime.save_model(out)?;
    // The draft's weights are of no further use; a failure to remove them harms nothing.
    let _ = std::fs::remove_dir_all(&draft);
    let mut model = Model(Box::new(runtime));
    for lesson in &mut lessons {
        let world = lesson.app.world_mut();
        world.insert_resource(model);
        let summary = grade(world, &lesson.loaded, lesson.agents)?;
        each(&WarmupEvent::Graded { scene: &lesson.loaded.scene.name, summary: &summary });
        model = match world.remove_resource::<Model>() {
            Some(model) => model,
            None => break,
        };
    }
    Ok(())
}

fn read_plan(path: &Path) -> Result<WarmupPlan, WarmupError> {
    let text = std::fs::read_to_string(path).map_err(|error| plan_error(path, &error.to_string()))?;
    let options = ron::Options::default().with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME);
    let plan: WarmupPlan = options.from_str(&text).map_err(|error| {
        plan_error(path, &format!("line {}, column {}: {}", error.span.start.line, error.span.start.col, error.code))
    })?;
    let problem = [
        (plan.lessons.is_empty(), "it has no lessons"),
        (
            plan.steps == 0 || plan.mini_batch == 0 || plan.micro_tokens == 0,
            "steps, mini_batch and micro_tokens are at least 1",
        ),
        (!(plan.lr > 0.0 && plan.lr.is_finite()), "lr is a positive number"),
        (!(plan.value_weight >= 0.0 && plan.value_weight.is_finite()), "value_weight is at least 0"),
    ];
    problem.into_iter().find(|(wrong, _)| *wrong).map_or(Ok(plan), |(_, reason)| Err(plan_error(path, reason)))
}

fn plan_error(path: &Path, reason: &str) -> WarmupError {
    WarmupError::Plan { path: path.to_owned(), reason: reason.to_owned() }
}

/// What a scene's critic is to predict, if it has one.
fn value_lesson(scene: &Scene) -> Option<ValueLesson> {
    let turn_gamma = match scene.advantage.estimator {
        Estimator::BiLevel { turn_gamma } => turn_gamma,
        Estimator::Gae => scene.advantage.gamma,
        _ => return None,
    };
    Some(ValueLesson { turn_gamma, units: None })
}

fn study_settings(plan: &WarmupPlan) -> Study {
    Study {
        seed: plan.seed,
        mini_batch: plan.mini_batch,
        micro_tokens: plan.micro_tokens,
        value_weight: plan.value_weight,
        optimizer: StepSettings {
            lr: plan.lr as f32,
            betas: (0.9, 0.95),
            eps: 1e-8,
            weight_decay: 0.01,
            clip_norm: Some(1.0),
        },
        warmup_steps: plan.rising_steps,
        steps: plan.steps,
    }
}

impl Lesson {
    fn rollout(&self, plan: &WarmupPlan, round: u64, episodes: u64) -> Rollout {
        let first = FIRST_LESSON_SEED + round * episodes;
        Rollout {
            run_seed: plan.seed,
            split: Split::Train,
            iteration: round,
            groups: (first..first + episodes).map(|seed| PlannedGroup { tag: 0, seed, attempt: 0 }).collect(),
            group_size: 1,
            shared_noise: false,
            agent: self.agents.train,
            asks_model: false,
            keep_pieces: false,
            keep_ids: false,
        }
    }

    /// Collects the prose of a lesson: what the tokenizer is learned from. States whose cells must stay apart are left out,
    /// except where the actions are named in them.
    fn read(&mut self, plan: &WarmupPlan, texts: &mut Vec<String>) -> Result<(), WarmupError> {
        let rollout = self.rollout(plan, 0, READ_EPISODES);
        run_rollout(self.app.world_mut(), rollout, &mut |_| true)?;
        let world = self.app.world();
        let tag = &world.resource::<Tags>().0[0];
        if let Some(agent) = world.get::<AgentSettings>(self.agents.train) {
            let facts = TurnFacts { turn: 1, state: "", warn: true, actions_left: 10, max_tokens: tag.max_tokens };
            // Fixed texts stand in every prompt, so they count as often as episodes.
            for _ in 0..READ_EPISODES {
                texts.extend([system_text(tag, agent), turn_block(&agent.grammar, facts)]);
            }
        }
        for trajectory in &world.resource::<Trajectories>().all {
            for turn in &trajectory.record.turns {
                texts.push(turn.raw_response.clone());
                if tag.max_actions == 1 {
                    texts.push(turn.state.clone());
                }
            }
        }
        Ok(())
    }
}

/// Lets the model play the validation instances of a lesson's scene.
fn grade(world: &mut World, loaded: &Loaded, agents: Agents) -> Result<Summary, WarmupError> {
    let environments = &loaded.scene.environments;
    let mut agent = world.entity_mut(agents.validation);
    agent.insert(AgentKind::Policy);
    let groups = u64::from(environments.validation.groups);
    let first = loaded.scene.seed.validation;
    let rollout = Rollout {
        run_seed: loaded.scene.seed.run,
        split: Split::Validation,
        iteration: 0,
        groups: (first..first + groups).map(|seed| PlannedGroup { tag: 0, seed, attempt: 0 }).collect(),
        group_size: environments.validation.group_size,
        shared_noise: environments.shared_noise,
        agent: agents.validation,
        asks_model: true,
        keep_pieces: false,
        keep_ids: false,
    };
    run_rollout(world, rollout, &mut |_| true)?;
    Ok(summarise(world.resource::<Trajectories>().all.iter().map(|trajectory| &trajectory.record)))
}
