//! FrozenLake: walk to the goal; holes end the episode and the ice may carry the player aside.
//!
//! One episode is one [`FrozenLake`] component. Holes, start and goal are drawn uniformly until a way around the holes exists.
//! Entering the goal pays 1, everything else nothing.

mod config;
mod lake;
mod observe;
mod policy;
mod render;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use config::{FrozenLakeConfig, FrozenLakeSymbols};
pub use lake::{DIRECTIONS, FrozenLake, MAX_SIZE};

use super::{
    Action, ActionSpace, ConfigProblem, Environment, InstanceSeed, Picture, PromptFacts, ResetError, StepOutcome,
    grid::action_space,
};
use crate::{environment::Split, random::Stream};

/// Lakes drawn for one seed.
const DRAWS: usize = 100_000;

static ACTIONS: [Cow<'static, str>; 4] =
    [Cow::Borrowed("Left"), Cow::Borrowed("Down"), Cow::Borrowed("Right"), Cow::Borrowed("Up")];

impl FrozenLake {
    /// The best action number now and the probability of reaching the goal within `horizon` moves, playing on in the best way.
    #[must_use]
    pub fn best_action(&self, config: &FrozenLakeConfig, horizon: u32) -> (usize, f64) {
        policy::best_action(self, config, horizon)
    }

    /// Performs action number `action` of [`DIRECTIONS`].
    pub fn act(&mut self, config: &FrozenLakeConfig, action: usize, dynamics: &mut Stream) -> StepOutcome {
        let effective = self.slide(config, action % 4, dynamics);
        let success = self.player() == self.goal();
        StepOutcome {
            reward: f32::from(u8::from(success)),
            done: success || self.is_hole(self.player()),
            success,
            effective,
            valid: true,
            metrics: Vec::new(),
        }
    }
}

impl Environment for FrozenLake {
    type Config = FrozenLakeConfig;
    const NAME: &'static str = "frozen_lake";

    fn check(config: &FrozenLakeConfig) -> Vec<ConfigProblem> {
        let mut problems = config.problems();
        let structural = |problem: &ConfigProblem| problem.field != "render_mode";
        if !problems.iter().any(structural) {
            let seed = InstanceSeed { seed: 0, split: Split::Train, attempt: 0 };
            if let Err(error) = Self::reset(config, seed) {
                problems.push(ConfigProblem { field: "min_distance".into(), reason: error.reason });
            }
        }
        problems
    }

    fn reset(config: &FrozenLakeConfig, seed: InstanceSeed) -> Result<Self, ResetError> {
        let error = |reason| ResetError { environment: Self::NAME, seed: seed.seed, reason };
        let is_structural = |problem: &ConfigProblem| problem.field != "render_mode";
        if let Some(problem) = config.problems().into_iter().find(is_structural) {
            return Err(error(format!("{}: {}", problem.field, problem.reason)));
        }
        let mut stream = seed.stream(Self::NAME);
        (0..DRAWS).find_map(|_| Self::draw(config, &mut stream)).ok_or_else(|| {
            error(format!(
                "none of {DRAWS} lakes of {0} x {0} with p {1} had a goal {2} steps or more away; use a smaller \
                     `min_distance` or a larger `size`",
                config.size, config.p, config.min_distance
            ))
        })
    }

    fn instruction(config: &FrozenLakeConfig, facts: &PromptFacts<'_>) -> String {
        observe::instruction(config, facts)
    }

    fn observe(&self, config: &FrozenLakeConfig) -> String {
        let mut text = String::new();
        self.observe_into(config, &mut text);
        text
    }

    fn actions(&self, config: &FrozenLakeConfig) -> ActionSpace {
        action_space(&ACTIONS, &config.action_lookup)
    }

    fn step(&mut self, config: &FrozenLakeConfig, action: Action<'_>, dynamics: &mut Stream) -> StepOutcome {
        match action {
            Action::Index(index) if index < 4 => self.act(config, index, dynamics),
            _ => StepOutcome::default(),
        }
    }

    fn render(&self, _config: &FrozenLakeConfig) -> Picture {
        Picture::Image(render::render(self))
    }

    fn instance_hash(&self, _config: &FrozenLakeConfig) -> u64 {
        self.layout_hash()
    }

    fn expert(&self, config: &FrozenLakeConfig) -> Option<Vec<String>> {
        let name = |action: &usize| config.action_lookup[*action].clone();
        Some(policy::plan(self, config).iter().map(name).collect())
    }

    fn thought(&self, config: &FrozenLakeConfig, _action: &str, _stream: &mut Stream) -> String {
        observe::thought(self, config)
    }

    fn difficulty(&self, _config: &FrozenLakeConfig) -> Option<u32> {
        self.distance().map(|distance| distance as u32)
    }
}
