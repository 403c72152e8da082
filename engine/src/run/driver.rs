//! The loop of a run: roll out, learn, report, validate, save.

use std::path::{Path, PathBuf};
use std::time::Instant;

use bevy_app::App;
use bevy_ecs::prelude::*;
use serde::{Deserialize, Serialize};

use super::checkpoint::{self, CheckpointError};
use super::directory::RunDirectory;
use super::pictures;
use super::setup::{self, Agents, Plan, SetupError, SetupOptions};
use crate::environment::Split;
use crate::evaluation::{Summary, by_tag, summarise};
use crate::files::{FileError, Named as _, write_whole};
use crate::learn::{LearnState, learn};
use crate::metrics::Metrics;
use crate::record::TrajectoryRecord;
use crate::runtime::Model;
use crate::scene::{Loaded, Scene};
use crate::world::{
    EnvironmentTypes, PlannedGroup, Rollout, RolloutProgress, Text, Trajectories, WorldError, run_rollout,
};

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scene or a file that it names.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A rollout or learning step failed.
    #[error("iteration {iteration}: {source}")]
    World {
        /// Iteration in which it happened.
        iteration: u64,
        /// What happened.
        source: WorldError,
    },
    /// A file of the run directory.
    #[error(transparent)]
    File(#[from] FileError),
    /// A picture.
    #[error(transparent)]
    Render(#[from] crate::render::RenderError),
    /// A checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Validation episodes are played.
    Validate,
    /// Training episodes are played.
    Rollout,
    /// Gradients are computed and weights move.
    Learn,
    /// A checkpoint is written.
    Save,
}

/// Something that happened in a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// A phase begins or goes on.
    Phase {
        /// Which.
        phase: Phase,
        /// Iteration in hand, from 1; 0 before the first.
        iteration: u64,
        /// Work done.
        done: u64,
        /// Work in all.
        total: u64,
        /// How the rollout stands, if it is one.
        rollout: RolloutProgress,
    },
    /// An iteration is over.
    Iteration {
        /// Which, from 1.
        iteration: u64,
        /// Its numbers.
        metrics: &'a Metrics,
    },
    /// A validation is over.
    Validation {
        /// After how many iterations.
        iteration: u64,
        /// Its result over all tags.
        summary: &'a Summary,
    },
    /// Something was written.
    Written {
        /// What, in a word.
        what: &'static str,
        /// Where.
        path: &'a Path,
    },
    /// Something that the user should know.
    Note(String),
}

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Write a checkpoint as soon as the state allows and stop.
    Stop,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The run directory.
    pub directory: PathBuf,
    /// Iterations completed.
    pub iterations: u64,
    /// Validation success after each validated iteration.
    pub validations: Vec<(u64, f64)>,
    /// The last checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// Why it ended before its last iteration, if it did.
    pub stopped: Option<String>,
    /// Stopped from outside.
    pub interrupted: bool,
}

/// What a checkpoint holds beside the model.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct RunState {
    learn: LearnState,
    train_counter: u64,
    log_lengths: [u64; 2],
    validations: Vec<(u64, f64)>,
    monitors: super::stop::Monitors,
}

/// A run in hand.
pub struct Run {
    app: App,
    scene: Scene,
    plan: Plan,
    agents: Agents,
    directory: RunDirectory,
    state: RunState,
    checkpoint: Option<PathBuf>,
}

impl Run {
    /// Starts a run in a new directory. `app` brings the environment types and any systems of the user's.
    ///
    /// # Errors
    /// [`RunError`]; nothing is left behind but an empty directory.
    pub fn create(mut app: App, loaded: &Loaded, directory: &Path) -> Result<Self, RunError> {
        let options = SetupOptions { train: true, ..SetupOptions::default() };
        let (plan, agents) = setup::prepare(&mut app, loaded, &options)?;
        let scene = loaded.scene.clone();
        let directory = RunDirectory::create(directory)?;
        write_whole(&directory.scene(), scene.to_ron().as_bytes())?;
        Ok(Self { app, scene, plan, agents, directory, state: RunState::default(), checkpoint: None })
    }

    /// Continues a run from its newest usable checkpoint, or from the start if it has none. Returns also why newer
    /// checkpoints were refused.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn resume(mut app: App, loaded: &Loaded, directory: &Path) -> Result<(Self, Vec<String>), RunError> {
        let directory = RunDirectory::open(directory)?;
        let found = match checkpoint::newest(&directory.checkpoints()) {
            Ok(found) => Some(found),
            Err(CheckpointError::None { refused, .. }) if refused.is_empty() => None,
            Err(error) => return Err(error.into()),
        };
        let model = found.as_ref().map(|(path, _)| path.clone());
        let options = SetupOptions { resume: model.is_some(), model, train: true };
        let (plan, agents) = setup::prepare(&mut app, loaded, &options)?;
        let scene = loaded.scene.clone();
        let mut run = Self { app, scene, plan, agents, directory, state: RunState::default(), checkpoint: None };
        let mut refused = Vec::new();
        if let Some((path, newer)) = found {
            refused = newer;
            let state = path.join("state.json");
            let text = std::fs::read(&state).named("read", &state)?;
            run.state = serde_json::from_slice(&text).map_err(std::io::Error::from).named("read", &state)?;
            if let Some(mut model) = run.app.world_mut().get_resource_mut::<Model>() {
                model.0.restore(&path).map_err(|error| CheckpointError::Part(error.to_string()))?;
            }
            run.app.insert_resource(run.state.learn.clone());
            run.checkpoint = Some(path);
        }
        run.directory.rewind(run.state.learn.iteration, run.state.log_lengths)?;
        Ok((run, refused))
    }

    /// The run directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.root()
    }

    /// The world.
    pub fn world_mut(&mut self) -> &mut World {
        self.app.world_mut()
    }

    /// Runs to the last iteration, or until a rule or the observer stops it. A checkpoint is always left.
    ///
    /// # Errors
    /// [`RunError`]; the last good checkpoint is untouched.
    pub fn execute(&mut self, observer: &mut dyn FnMut(&Event<'_>) -> Control) -> Result<Outcome, RunError> {
        let mut outcome = Outcome {
            directory: self.directory.root().to_owned(),
            iterations: self.state.learn.iteration,
            validations: Vec::new(),
            checkpoint: None,
            stopped: None,
            interrupted: false,
        };
        match self.execute_until(observer) {
            Ok(reason) => outcome.stopped = reason,
            Err(RunError::World { source: WorldError::Interrupted, .. }) => outcome.interrupted = true,
            Err(error) => return Err(error),
        }
        self.save(observer)?;
        outcome.iterations = self.state.learn.iteration;
        outcome.validations.clone_from(&self.state.validations);
        outcome.checkpoint.clone_from(&self.checkpoint);
        Ok(outcome)
    }

    fn execute_until(&mut self, observer: &mut dyn FnMut(&Event<'_>) -> Control) -> Result<Option<String>, RunError> {
        let run = self.scene.run.clone();
        if self.state.learn.iteration == 0 && self.state.validations.is_empty() && run.validate_first {
            let (mut metrics, started) = (Metrics::default(), Instant::now());
            self.validate(0, observer, &mut metrics)?;
            metrics.set_timing("timing_s/testing", started.elapsed().as_secs_f64());
            self.directory.append(&metrics.line(0), &metrics.timing_line(0))?;
            self.save(observer)?;
        }
        let iterations = u64::from(run.iterations);
        while self.state.learn.iteration < iterations {
            let iteration = self.state.learn.iteration + 1;
            let last = iteration == iterations;
            self.iterate(iteration, observer)?;
            let mut metrics = std::mem::take(&mut *self.app.world_mut().resource_mut::<Metrics>());
            if due(iteration, last, u64::from(run.validate_every)) {
                let started = Instant::now();
                self.validate(iteration, observer, &mut metrics)?;
                metrics.set_timing("timing_s/testing", started.elapsed().as_secs_f64());
            }
            let stop = self.finish_iteration(iteration, &mut metrics, observer)?;
            if let Some(reason) = stop {
                return Ok(Some(reason));
            }
            if due(iteration, last, u64::from(run.save_every)) {
                self.save(observer)?;
            }
        }
        Ok(None)
    }

    /// Books an iteration whose weights are final.
    fn finish_iteration(
        &mut self,
        iteration: u64,
        metrics: &mut Metrics,
        observer: &mut dyn FnMut(&Event<'_>) -> Control,
    ) -> Result<Option<String>, RunError> {
        let stop = self.state.monitors.observe(&self.scene.stop, metrics);
        self.state.learn = self.app.world().resource::<LearnState>().clone();
        self.state.learn.iteration = iteration;
        self.app.world_mut().resource_mut::<LearnState>().iteration = iteration;
        self.state.train_counter += self.plan.train.len() as u64;
        self.directory.append(&metrics.line(iteration), &metrics.timing_line(iteration))?;
        observer(&Event::Iteration { iteration, metrics });
        Ok(stop)
    }

    /// Rollout and learning step of an iteration.
    fn iterate(&mut self, iteration: u64, observer: &mut dyn FnMut(&Event<'_>) -> Control) -> Result<(), RunError> {
        let failed = |source| RunError::World { iteration, source };
        let started = Instant::now();
        let groups = self.plan.train_groups(self.state.train_counter, self.scene.seed.train);
        self.roll_out(Split::Train, iteration, groups, Phase::Rollout, observer)?;
        let rolled_out = started.elapsed().as_secs_f64();
        let world = self.app.world_mut();
        world.resource_mut::<Metrics>().clear();
        self.report_rollout(iteration, rolled_out)?;
        let world = self.app.world_mut();
        observer(&phase(Phase::Learn, iteration, 0, 1));
        let learning = Instant::now();
        if self.agents.ask_model {
            // Half an update is no state to save, so that a wish to stop is heard after it.
            let mut each_step = |done, total| {
                let _ = observer(&phase(Phase::Learn, iteration, done as u64, total as u64));
            };
            learn(world, &mut each_step).map_err(failed)?;
        }
        let mut metrics = world.resource_mut::<Metrics>();
        metrics.set_timing("timing_s/learn", learning.elapsed().as_secs_f64());
        metrics.set_timing("timing_s/step", started.elapsed().as_secs_f64());
        Ok(())
    }

    /// Metrics, records and pictures of a training rollout.
    fn report_rollout(&mut self, iteration: u64, seconds: f64) -> Result<(), RunError> {
        let world = self.app.world_mut();
        let trajectories = world.remove_resource::<Trajectories>().unwrap_or_default();
        let records: Vec<&TrajectoryRecord> = trajectories.all.iter().map(|trajectory| &trajectory.record).collect();
        let all = summarise(records.iter().copied());
        let control = world.get_resource::<Text>().map(|text| text.0.control_texts()).unwrap_or_default();
        let turns = records.iter().flat_map(|record| &record.turns);
        let impersonations = turns.filter(|turn| impersonates(&turn.raw_response, &control)).count();
        let mut metrics = world.resource_mut::<Metrics>();
        for (tag, summary) in by_tag(records.iter().copied()) {
            summary.write("train", &tag, &mut metrics);
        }
        metrics.set("train/response_length", all.response_length);
        metrics.set("train/turns", all.turns);
        metrics.set("train/truncated_rate", all.truncated_turns);
        metrics.set("train/rollout_attempts", 1.0);
        metrics.set("train/impersonation", impersonations as f64);
        metrics.set_timing("timing_s/gen", seconds);
        metrics.set_timing("perf/generated_tokens_per_s", all.tokens as f64 / seconds);
        metrics.set_timing("perf/episodes_per_s", all.episodes as f64 / seconds);
        if self.scene.log.trajectories {
            self.directory.write_trajectories(false, iteration, records.iter().copied())?;
        }
        if self.scene.log.log_images && iteration.is_multiple_of(u64::from(self.scene.log.image_step_size)) {
            self.draw(&records, &format!("train/step_{iteration}"))?;
        }
        self.app.insert_resource(trajectories);
        Ok(())
    }

    /// Plays the validation episodes and books their success.
    fn validate(
        &mut self,
        iteration: u64,
        observer: &mut dyn FnMut(&Event<'_>) -> Control,
        metrics: &mut Metrics,
    ) -> Result<(), RunError> {
        self.roll_out(Split::Validation, iteration, self.plan.validation.clone(), Phase::Validate, observer)?;
        let trajectories = std::mem::take(&mut *self.app.world_mut().resource_mut::<Trajectories>());
        let records: Vec<&TrajectoryRecord> = trajectories.all.iter().map(|trajectory| &trajectory.record).collect();
        for (tag, summary) in by_tag(records.iter().copied()) {
            summary.write("val", &tag, metrics);
        }
        let summary = summarise(records.iter().copied());
        self.state.validations.push((iteration, summary.success));
        if self.scene.log.trajectories {
            self.directory.write_trajectories(true, iteration, records.iter().copied())?;
        }
        if self.scene.log.log_images {
            self.draw(&records, &format!("validation/step_{iteration}"))?;
        }
        observer(&Event::Validation { iteration, summary: &summary });
        Ok(())
    }

    fn draw(&self, records: &[&TrajectoryRecord], below: &str) -> Result<(), RunError> {
        let log = &self.scene.log;
        let root = if log.image_dir.is_absolute() {
            log.image_dir.clone()
        } else {
            self.directory.root().join(&log.image_dir)
        };
        let types = self.app.world().resource::<EnvironmentTypes>();
        let chosen = records.iter().take(log.images_per_batch as usize).copied();
        Ok(pictures::draw_all(types, chosen, &root.join(below)).map(drop)?)
    }

    fn roll_out(
        &mut self,
        split: Split,
        iteration: u64,
        groups: Vec<PlannedGroup>,
        kind: Phase,
        observer: &mut dyn FnMut(&Event<'_>) -> Control,
    ) -> Result<(), RunError> {
        let (settings, agent) = match split {
            Split::Train => (self.scene.environments.train.group_size, self.agents.train),
            Split::Validation => (self.scene.environments.validation.group_size, self.agents.validation),
        };
        let total = groups.len() as u64 * u64::from(settings);
        let rollout = Rollout {
            run_seed: self.scene.seed.run,
            split,
            // Validation meets the same chance every time, so that successes can be compared.
            iteration: if split == Split::Validation { 0 } else { iteration },
            groups,
            group_size: settings,
            shared_noise: self.scene.environments.shared_noise,
            agent,
            asks_model: self.agents.ask_model,
            keep_pieces: self.scene.log.log_images,
            keep_ids: self.scene.log.tokens,
        };
        let mut each_tick = |rollout: RolloutProgress| {
            let event = Event::Phase { phase: kind, iteration, done: u64::from(rollout.finished), total, rollout };
            // A validation belongs to an iteration whose weights are final already, so it is not cut short.
            observer(&event) == Control::Continue || split == Split::Validation
        };
        run_rollout(self.app.world_mut(), rollout, &mut each_tick)
            .map_err(|source| RunError::World { iteration, source })?;
        let mut trajectories = self.app.world_mut().resource_mut::<Trajectories>();
        for trajectory in &mut trajectories.all {
            trajectory.record.metadata.iteration = iteration;
        }
        Ok(())
    }

    /// Writes a checkpoint of the present state, unless the newest one is of this iteration.
    fn save(&mut self, observer: &mut dyn FnMut(&Event<'_>) -> Control) -> Result<(), RunError> {
        let step = self.state.learn.iteration;
        if self.checkpoint.as_ref() == Some(&checkpoint::step_directory(&self.directory.checkpoints(), step)) {
            return Ok(());
        }
        observer(&phase(Phase::Save, step, 0, 1));
        self.state.log_lengths = self.directory.log_lengths()?;
        let (state, scene) = (&self.state, self.directory.scene());
        let model = self.app.world().get_resource::<Model>();
        let path = checkpoint::save(&self.directory.checkpoints(), step, self.scene.run.keep as usize, |directory| {
            let text = serde_json::to_vec_pretty(state).map_err(|error| CheckpointError::Part(error.to_string()))?;
            write_whole(&directory.join("state.json"), &text)?;
            let target = directory.join("scene.ron");
            std::fs::copy(&scene, &target).named("write", &target)?;
            if let Some(model) = model {
                let written = model.0.save_model(directory).and_then(|()| model.0.save_training(directory));
                written.map_err(|error| CheckpointError::Part(error.to_string()))?;
            }
            Ok(())
        })?;
        observer(&Event::Written { what: "checkpoint", path: &path });
        self.checkpoint = Some(path);
        Ok(())
    }
}

/// Whether a response spells control tokens or lines that only the environment writes.
fn impersonates(response: &str, control: &[String]) -> bool {
    ["[Turn ", "Reward:"].iter().any(|line| response.contains(line))
        || control.iter().any(|text| response.contains(text))
}

fn phase(phase: Phase, iteration: u64, done: u64, total: u64) -> Event<'static> {
    Event::Phase { phase, iteration, done, total, rollout: RolloutProgress::default() }
}

fn due(iteration: u64, last: bool, every: u64) -> bool {
    every > 0 && (last || iteration.is_multiple_of(every))
}
