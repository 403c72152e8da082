//! What a scene can set about FrozenLake.

use serde::{Deserialize, Serialize};

use super::{MAX_SIZE, lake::CODES};
use crate::environment::{
    ConfigProblem,
    grid::{ObservationFormat, check_names, check_symbols},
    render_mode::RenderMode,
};

/// Configuration of FrozenLake. The default is the reference's: 4 x 4, nine tiles of ten frozen, slippery at 0.8.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrozenLakeConfig {
    /// Rows, and as many columns; 2 to 16.
    pub size: usize,
    /// Probability that a tile is frozen, before lakes without a way to the goal are thrown away.
    pub p: f64,
    /// Probability that a move goes where it was meant to; the rest is split between the two sides.
    pub success_rate: f64,
    /// Whether moves can slip at all; `false` is a `success_rate` of 1.
    pub is_slippery: bool,
    /// Steps from start to goal around the holes, at least.
    pub min_distance: usize,
    /// Symbols of the grid.
    pub grid_vocab: FrozenLakeSymbols,
    /// Names of the moves left, down, right and up.
    pub action_lookup: [String; 4],
    /// What the agent is shown.
    pub render_mode: RenderMode,
    /// How the lake is written down.
    pub observation_format: ObservationFormat,
    /// Number of the first row and column in coordinate texts.
    pub coord_origin: usize,
    /// Moves in which the expert wants to reach the goal; 1 to 1000.
    pub expert_horizon: u32,
}

impl Default for FrozenLakeConfig {
    fn default() -> Self {
        Self {
            size: 4,
            p: 0.9,
            success_rate: 0.8,
            is_slippery: true,
            min_distance: 1,
            grid_vocab: FrozenLakeSymbols::default(),
            action_lookup: ["Left", "Down", "Right", "Up"].map(String::from),
            render_mode: RenderMode::Text,
            observation_format: ObservationFormat::Grid,
            coord_origin: 0,
            expert_horizon: 10,
        }
    }
}

/// The characters that stand for the six kinds of cell.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrozenLakeSymbols {
    /// Player on ice.
    pub player: char,
    /// Ice.
    pub frozen: char,
    /// Hole.
    pub hole: char,
    /// Goal.
    pub goal: char,
    /// Player in a hole.
    pub player_in_hole: char,
    /// Player on the goal.
    pub player_on_goal: char,
}

impl Default for FrozenLakeSymbols {
    fn default() -> Self {
        Self { player: 'P', frozen: '_', hole: 'O', goal: 'G', player_in_hole: 'X', player_on_goal: '√' }
    }
}

impl FrozenLakeSymbols {
    /// The symbols in the order of [`Code`](super::lake::Code).
    pub(super) const fn by_code(&self) -> [char; CODES] {
        [self.player, self.frozen, self.hole, self.goal, self.player_in_hole, self.player_on_goal]
    }

    /// Each symbol with its meaning.
    pub(super) fn meanings(&self) -> [(char, &'static str); CODES] {
        const MEANINGS: [&str; CODES] = ["player", "ice", "hole", "goal", "player in hole", "player on goal"];
        let symbols = self.by_code();
        std::array::from_fn(|code| (symbols[code], MEANINGS[code]))
    }
}

impl FrozenLakeConfig {
    /// Probability that a move goes where it was meant to.
    #[must_use]
    pub fn effective_rate(&self) -> f64 {
        if self.is_slippery { self.success_rate } else { 1.0 }
    }

    /// Everything that can be said to be wrong without trying to make a lake.
    pub(super) fn problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        let mut problem = |field: &str, reason: String| {
            problems.push(ConfigProblem { field: field.into(), reason });
        };
        if !(2..=MAX_SIZE).contains(&self.size) {
            problem("size", format!("a lake of {0} x {0} is not possible; 2 to {MAX_SIZE}", self.size));
        }
        for (field, value) in [("p", self.p), ("success_rate", self.success_rate)] {
            if !(0.0..=1.0).contains(&value) {
                problem(field, format!("{value} is not a probability; use a number from 0 to 1"));
            }
        }
        let longest = self.size.saturating_mul(self.size).saturating_sub(1);
        if self.min_distance > longest {
            problem(
                "min_distance",
                format!(
                    "no two cells of a lake of {0} x {0} are {1} steps apart; at most about {2}",
                    self.size,
                    self.min_distance,
                    2 * self.size.saturating_sub(1)
                ),
            );
        }
        if !(1..=1000).contains(&self.expert_horizon) {
            problem("expert_horizon", format!("{} is not within 1 to 1000", self.expert_horizon));
        }
        problems.extend(self.render_mode.problem());
        check_symbols(&self.grid_vocab.meanings(), &mut problems);
        check_names(&self.action_lookup, &mut problems);
        problems
    }
}
