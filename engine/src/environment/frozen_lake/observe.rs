//! Text about a lake: observation, instruction and thoughts.

use super::{FrozenLake, FrozenLakeConfig, lake::Code};
use crate::environment::{
    PromptFacts,
    grid::{
        COORDINATES_TITLE, Direction, MAP_TITLE, ObservationFormat, explain_coordinates, explain_moves, legend,
        write_cells, write_size,
    },
};

impl FrozenLake {
    /// Appends the observation to `out`.
    pub fn observe_into(&self, config: &FrozenLakeConfig, out: &mut String) {
        match config.observation_format {
            ObservationFormat::Grid => self.write_grid(config, out),
            ObservationFormat::Coord => self.write_coordinates(config, out),
            ObservationFormat::GridCoord => {
                out.push_str(COORDINATES_TITLE);
                self.write_coordinates(config, out);
                out.push('\n');
                out.push_str(MAP_TITLE);
                self.write_grid(config, out);
            }
        }
    }

    fn write_grid(&self, config: &FrozenLakeConfig, out: &mut String) {
        let symbols = config.grid_vocab.by_code();
        let shape = self.shape();
        out.reserve(shape.area() + 2 * shape.rows);
        for row in 0..shape.rows {
            if row > 0 {
                out.push('\n');
            }
            for cell in row * shape.columns..(row + 1) * shape.columns {
                out.push(symbols[self.code(cell) as usize]);
            }
        }
    }

    fn write_coordinates(&self, config: &FrozenLakeConfig, out: &mut String) {
        let (shape, origin) = (self.shape(), config.coord_origin);
        write_size(out, shape, origin);
        let player = match self.code(self.player()) {
            Code::PlayerInHole => "Player in hole",
            Code::PlayerOnGoal => "Player on goal",
            _ => "Player",
        };
        for (label, cell) in [("Start", self.start()), ("Goal", self.goal()), (player, self.player())] {
            write_cells(out, label, shape, origin, std::iter::once(cell));
        }
        let holes = self.holes().filter(|&cell| cell != self.player());
        write_cells(out, "Holes", shape, origin, holes);
    }
}

/// The rules with the symbols and numbers of `config`.
pub(super) fn instruction(config: &FrozenLakeConfig, facts: &PromptFacts<'_>) -> String {
    let [left, _, _, up] = &config.action_lookup;
    let mut text = String::from("Walk across the ice to the goal without entering a hole.");
    if config.effective_rate() < 1.0 {
        text.push_str(" The ice may carry you to one side of your chosen direction.");
    }
    text.push_str(&format!(" Give moves in order, e.g. `{}`.", facts.example(&[left, up])));
    if config.observation_format != ObservationFormat::Coord {
        text.push_str(&format!(" Symbols: {}.", legend(&config.grid_vocab.meanings())));
    }
    if config.observation_format != ObservationFormat::Grid {
        let last = config.size.saturating_sub(1) + config.coord_origin;
        text.push_str(&format!(" {} The far corner is ({last}, {last}).", explain_coordinates(config.coord_origin)));
    }
    text.push(' ');
    text.push_str(&explain_moves(&config.action_lookup, facts));
    text
}

/// A few true words about where the player and the goal are and on which sides there are holes, without a hint at the move.
pub(super) fn thought(lake: &FrozenLake, config: &FrozenLakeConfig) -> String {
    let (shape, player, origin) = (lake.shape(), lake.player(), config.coord_origin);
    let is_hole = |direction: &Direction| shape.neighbour(player, *direction).is_some_and(|cell| lake.is_hole(cell));
    let holes: Vec<&str> = Direction::ALL.into_iter().filter(is_hole).map(Direction::word).collect();
    format!(
        "at {}, goal {} {}, {}",
        shape.spoken(player, origin),
        shape.spoken(lake.goal(), origin),
        shape.relation(player, lake.goal()),
        if holes.is_empty() { "no hole beside".to_owned() } else { format!("hole {}", holes.join(" ")) }
    )
}
