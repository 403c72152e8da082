//! Bandit: one choice between an arm that always pays a little and one that rarely pays a lot.
//!
//! Only the names hint at which is which. One episode is one [`Bandit`] component. Names and their order belong to the
//! instance, so all members of a group answer the same question; the payoff belongs to the member.

mod config;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bevy_ecs::component::Component;

pub use config::{BanditConfig, BanditSplit};

use super::{
    Action, ActionSpace, CardLine, ConfigProblem, Environment, InstanceSeed, Picture, PromptFacts, ResetError,
    StepOutcome, Tone,
};
use crate::random::{Stream, hash_bytes};

/// Two named arms and, after the pull, what came of it.
#[derive(Clone, Component, Debug, PartialEq)]
pub struct Bandit {
    pair: usize,
    /// The second name of the pair is shown first.
    swapped: bool,
    /// Place of the pulled arm in display order, and its payoff.
    pull: Option<(usize, f32)>,
}

impl Bandit {
    /// The arms' names in display order.
    #[must_use]
    pub fn names(&self, config: &BanditConfig) -> [Cow<'static, str>; 2] {
        let mut names = config.pair(self.pair);
        if self.swapped {
            names.reverse();
        }
        names
    }

    /// Whether the arm at a place of the display order pays like the risky one.
    #[must_use]
    pub fn is_risky(&self, config: &BanditConfig, place: usize) -> bool {
        (place == 1) ^ self.swapped ^ config.reverse
    }

    /// Place of the arm with the higher mean payoff.
    #[must_use]
    pub fn best(&self, config: &BanditConfig) -> usize {
        let risky_is_better = config.risky_mean() > f64::from(config.lo_arm_score);
        usize::from(self.is_risky(config, 1) == risky_is_better)
    }

    /// Pulls the arm at a place of the display order.
    pub fn pull(&mut self, config: &BanditConfig, place: usize, dynamics: &mut Stream) -> StepOutcome {
        let reward = if !self.is_risky(config, place) {
            config.lo_arm_score
        } else if dynamics.chance(config.hi_arm_hiscore_prob) {
            config.hi_arm_hiscore
        } else {
            config.hi_arm_loscore
        };
        self.pull = Some((place, reward));
        StepOutcome {
            reward,
            done: true,
            success: place == self.best(config),
            effective: true,
            valid: true,
            metrics: Vec::new(),
        }
    }
}

impl Environment for Bandit {
    type Config = BanditConfig;
    const NAME: &'static str = "bandit";

    fn check(config: &BanditConfig) -> Vec<ConfigProblem> {
        config.problems()
    }

    fn reset(config: &BanditConfig, seed: InstanceSeed) -> Result<Self, ResetError> {
        let mut stream = seed.stream(Self::NAME);
        Ok(Self { pair: stream.below(config.pair_count()), swapped: stream.chance(0.5), pull: None })
    }

    fn instruction(_config: &BanditConfig, facts: &PromptFacts<'_>) -> String {
        format!("Name one of the two arms you are shown, in the form `{}`.", facts.example(&["name"]))
    }

    fn observe(&self, config: &BanditConfig) -> String {
        let [first, second] = self.names(config);
        match self.pull {
            Some((place, reward)) => format!("{}: {reward} points", [first, second][place % 2]),
            None => format!(
                "Two arms: {first} and {second}. Each pays from its own hidden distribution, and its name hints at how it \
                 behaves. Pull the one with the higher average payoff. Answer with exactly one name, e.g. `{first}`."
            ),
        }
    }

    fn actions(&self, config: &BanditConfig) -> ActionSpace {
        ActionSpace::Names(Cow::Owned(self.names(config).into()))
    }

    fn step(&mut self, config: &BanditConfig, action: Action<'_>, dynamics: &mut Stream) -> StepOutcome {
        match action {
            Action::Index(place) if place < 2 => self.pull(config, place, dynamics),
            _ => StepOutcome::default(),
        }
    }

    fn render(&self, config: &BanditConfig) -> Picture {
        let names = self.names(config);
        let arms = names.into_iter().enumerate().map(|(place, name)| {
            let pulled = self.pull.filter(|(pulled, _)| *pulled == place);
            let right = place == self.best(config);
            CardLine {
                text: match pulled {
                    Some((_, reward)) => format!("{name}: {reward} points"),
                    None => name.into_owned(),
                },
                tone: match (pulled, right) {
                    (None, _) => Tone::Plain,
                    (Some(_), true) => Tone::Good,
                    (Some(_), false) => Tone::Bad,
                },
            }
        });
        Picture::Card { title: "Two arms".into(), lines: arms.collect() }
    }

    fn instance_hash(&self, config: &BanditConfig) -> u64 {
        let [first, second] = self.names(config);
        hash_bytes(format!("{first}\n{second}").as_bytes())
    }

    fn expert(&self, config: &BanditConfig) -> Option<Vec<String>> {
        if self.pull.is_some() {
            return Some(Vec::new());
        }
        let names = self.names(config);
        Some(vec![names[self.best(config)].to_string()])
    }

    fn thought(&self, config: &BanditConfig, action: &str, stream: &mut Stream) -> String {
        let names = self.names(config);
        let best = self.best(config);
        let risky = self.is_risky(config, best);
        if !names[best].eq_ignore_ascii_case(action.trim()) {
            return format!("I try {}", action.trim());
        }
        let name = &names[best];
        match stream.below(4) {
            0 => format!("{name} pays more on average"),
            1 => format!("{name} has the higher average"),
            2 if risky => format!("{name} is risky, pays more"),
            3 if risky => format!("{name} pays rarely, but much"),
            _ => format!("{name} is safe, pays more"),
        }
    }

    fn difficulty(&self, _config: &BanditConfig) -> Option<u32> {
        Some(1)
    }

    fn gold(&self, config: &BanditConfig) -> Option<String> {
        let names = self.names(config);
        Some(names[self.best(config)].to_string())
    }
}
