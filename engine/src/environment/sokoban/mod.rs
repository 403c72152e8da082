//! Sokoban: push every box onto a target; a wrong push can never be undone.
//!
//! One episode is one [`Sokoban`] component: flags of each cell, the player and two counters. Levels are made by playing
//! backwards from the solved position, so each can be solved. Every action costs 0.1; a box brought onto a target pays 1, a box
//! taken off one costs 1, and the last one pays 10 more.

mod board;
mod config;
mod floor;
mod generate;
mod observe;
mod render;
mod reverse;
mod solve;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use board::{MAX_CELLS, Sokoban};
pub use config::{PictureStyle, SokobanConfig, SokobanSymbols};
pub use floor::MAX_BOXES;

use super::{
    Action, ActionSpace, ConfigProblem, Environment, InstanceSeed, Picture, PromptFacts, ResetError, StepOutcome,
    grid::{Direction, action_space},
};
use crate::{environment::Split, random::Stream};

/// Cost of an action.
const STEP_REWARD: f32 = -0.1;
/// Reward when more boxes stand on targets than before, and cost when fewer do.
const BOX_REWARD: f32 = 1.0;
/// Reward of the solution.
const SOLVED_REWARD: f32 = 10.0;

/// Generations tried for one seed.
const GENERATIONS: u64 = 1_000;

/// Generations that [`Environment::check`] tries before it calls a configuration hopeless.
const PROBES: u64 = 16;

static ACTIONS: [Cow<'static, str>; 4] =
    [Cow::Borrowed("Up"), Cow::Borrowed("Down"), Cow::Borrowed("Left"), Cow::Borrowed("Right")];

impl Sokoban {
    /// The shortest list of moves that solves the room from here; `None` if there is none or it is out of reach of the search.
    #[must_use]
    pub fn solve(&self) -> Option<Vec<Direction>> {
        solve::solve(self)
    }

    /// Performs one move.
    pub fn act(&mut self, config: &SokobanConfig, direction: Direction) -> StepOutcome {
        let before = self.boxes_on_target;
        let effective = self.walk(direction);
        self.steps += 1;
        let success = self.is_solved();
        let mut reward = STEP_REWARD;
        if self.boxes_on_target > before {
            reward += BOX_REWARD;
        } else if self.boxes_on_target < before {
            reward -= BOX_REWARD;
        }
        if success {
            reward += SOLVED_REWARD;
        }
        StepOutcome {
            reward,
            done: success || self.steps >= config.max_steps,
            success,
            effective,
            valid: true,
            metrics: Vec::new(),
        }
    }
}

impl Environment for Sokoban {
    type Config = SokobanConfig;
    const NAME: &'static str = "sokoban";

    fn check(config: &SokobanConfig) -> Vec<ConfigProblem> {
        let mut problems = config.problems();
        let structural = |problem: &ConfigProblem| problem.field != "render_mode";
        if !problems.iter().any(structural) {
            let hopeless = (0..PROBES).all(|seed| {
                let seed = InstanceSeed { seed, split: Split::Train, attempt: 0 };
                generate::generate(config, &mut seed.stream(Self::NAME)).is_none()
            });
            if hopeless {
                problems.push(ConfigProblem { field: "num_boxes".into(), reason: hopeless_reason(config, PROBES) });
            }
        }
        problems
    }

    fn reset(config: &SokobanConfig, seed: InstanceSeed) -> Result<Self, ResetError> {
        let error = |reason| ResetError { environment: Self::NAME, seed: seed.seed, reason };
        let is_structural = |problem: &ConfigProblem| problem.field != "render_mode";
        if let Some(problem) = config.problems().into_iter().find(is_structural) {
            return Err(error(format!("{}: {}", problem.field, problem.reason)));
        }
        (0..GENERATIONS)
            .find_map(|retry| {
                let mut stream = match retry {
                    0 => seed.stream(Self::NAME),
                    _ => seed.retry_stream(Self::NAME, retry),
                };
                generate::generate(config, &mut stream)
            })
            .ok_or_else(|| error(hopeless_reason(config, GENERATIONS)))
    }

    fn instruction(config: &SokobanConfig, facts: &PromptFacts<'_>) -> String {
        observe::instruction(config, facts)
    }

    fn observe(&self, config: &SokobanConfig) -> String {
        let mut text = String::new();
        self.observe_into(config, &mut text);
        text
    }

    fn actions(&self, config: &SokobanConfig) -> ActionSpace {
        action_space(&ACTIONS, &config.action_lookup)
    }

    fn step(&mut self, config: &SokobanConfig, action: Action<'_>, _dynamics: &mut Stream) -> StepOutcome {
        match action {
            Action::Index(index) if index < 4 => self.act(config, Direction::ALL[index]),
            _ => StepOutcome::default(),
        }
    }

    fn render(&self, config: &SokobanConfig) -> Picture {
        Picture::Image(render::render(self, config))
    }

    fn instance_hash(&self, _config: &SokobanConfig) -> u64 {
        self.layout_hash()
    }

    fn expert(&self, config: &SokobanConfig) -> Option<Vec<String>> {
        let plan = self.solve()?;
        let name = |direction: &Direction| config.action_lookup[*direction as usize].clone();
        Some(plan.iter().map(name).collect())
    }

    fn thought(&self, config: &SokobanConfig, _action: &str, _stream: &mut Stream) -> String {
        observe::thought(self, config)
    }

    fn difficulty(&self, _config: &SokobanConfig) -> Option<u32> {
        self.solve().map(|plan| plan.len() as u32)
    }
}

fn hopeless_reason(config: &SokobanConfig, generations: u64) -> String {
    let shape = config.shape();
    format!(
        "none of {generations} attempts made a level with {} boxes in a room of {} x {} at search depth {}; use fewer boxes, a \
         larger room or a deeper search",
        config.num_boxes, shape.rows, shape.columns, config.search_depth
    )
}
