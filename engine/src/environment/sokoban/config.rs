//! What a scene can set about Sokoban.

use serde::{Deserialize, Serialize};

use super::{
    MAX_BOXES, MAX_CELLS,
    board::{CODES, Code},
};
use crate::environment::{
    ConfigProblem,
    grid::{ObservationFormat, Shape, check_names, check_symbols},
    render_mode::RenderMode,
};

/// Configuration of Sokoban. The default is the reference's: 6 x 6, three boxes, search depth 300.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SokobanConfig {
    /// Rows and columns of the room, outer walls included.
    pub dim_room: (usize, usize),
    /// Rows; overrides `dim_room` together with `dim_y`.
    pub dim_x: Option<usize>,
    /// Columns; overrides `dim_room` together with `dim_x`.
    pub dim_y: Option<usize>,
    /// Actions after which the episode ends unsolved.
    pub max_steps: u32,
    /// Boxes, and as many targets.
    pub num_boxes: usize,
    /// Moves that the generator plays backwards from the solved position, at most.
    pub search_depth: usize,
    /// Symbols of the grid.
    pub grid_vocab: SokobanSymbols,
    /// Names of the moves up, down, left and right.
    pub action_lookup: [String; 4],
    /// What the agent is shown.
    pub render_mode: RenderMode,
    /// How the room is written down.
    pub observation_format: ObservationFormat,
    /// Number of the first row and column in coordinate texts.
    pub coord_origin: usize,
    /// How pictures are drawn.
    pub picture: PictureStyle,
    /// Every pixel of a picture becomes a square of this side; 1 to 64.
    pub picture_scale: u32,
}

impl Default for SokobanConfig {
    fn default() -> Self {
        Self {
            dim_room: (6, 6),
            dim_x: None,
            dim_y: None,
            max_steps: 100,
            num_boxes: 3,
            search_depth: 300,
            grid_vocab: SokobanSymbols::default(),
            action_lookup: ["Up", "Down", "Left", "Right"].map(String::from),
            render_mode: RenderMode::Text,
            observation_format: ObservationFormat::Grid,
            coord_origin: 0,
            picture: PictureStyle::Sprites,
            picture_scale: 1,
        }
    }
}

/// How a room is drawn.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PictureStyle {
    /// A sprite of 16 x 16 pixels for each cell.
    #[default]
    Sprites,
    /// One pixel of one colour for each cell.
    Tiny,
}

/// The characters that stand for the seven kinds of cell.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SokobanSymbols {
    /// Wall.
    pub wall: char,
    /// Free floor.
    pub empty: char,
    /// Free target.
    pub target: char,
    /// Box on a target.
    pub box_on_target: char,
    /// Box off the targets.
    #[serde(rename = "box")]
    pub box_off_target: char,
    /// Player on plain floor.
    pub player: char,
    /// Player on a target.
    pub player_on_target: char,
}

impl Default for SokobanSymbols {
    fn default() -> Self {
        Self {
            wall: '#',
            empty: '_',
            target: 'O',
            box_on_target: '√',
            box_off_target: 'X',
            player: 'P',
            player_on_target: 'S',
        }
    }
}

impl SokobanSymbols {
    /// The symbols in the order of [`Code`].
    pub(super) const fn by_code(&self) -> [char; CODES] {
        [
            self.wall,
            self.empty,
            self.target,
            self.box_on_target,
            self.box_off_target,
            self.player,
            self.player_on_target,
        ]
    }

    /// Each symbol with its meaning.
    pub(super) fn meanings(&self) -> [(char, &'static str); CODES] {
        let symbols = self.by_code();
        std::array::from_fn(|code| (symbols[code], Code::MEANINGS[code]))
    }
}

impl SokobanConfig {
    /// Rows and columns in effect.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let (rows, columns) = match (self.dim_x, self.dim_y) {
            (Some(rows), Some(columns)) => (rows, columns),
            _ => self.dim_room,
        };
        Shape { rows, columns }
    }

    /// Everything that can be said to be wrong without trying to make a level.
    pub(super) fn problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        let mut problem = |field: &str, reason: String| {
            problems.push(ConfigProblem { field: field.into(), reason });
        };
        if self.dim_x.is_some() != self.dim_y.is_some() {
            let (given, missing) = if self.dim_x.is_some() { ("dim_x", "dim_y") } else { ("dim_y", "dim_x") };
            problem(given, format!("`{given}` counts only together with `{missing}`; give both or `dim_room`"));
        }
        let Shape { rows, columns } = self.shape();
        let field = if self.dim_x.and(self.dim_y).is_some() { "dim_x" } else { "dim_room" };
        let interior = rows.saturating_sub(2).saturating_mul(columns.saturating_sub(2));
        if rows.saturating_mul(columns) > MAX_CELLS {
            problem(
                field,
                format!("a room of {rows} x {columns} is too large; at most {MAX_CELLS} cells, e.g. (16, 16)"),
            );
        } else if interior < 3 {
            problem(
                field,
                format!(
                    "a room of {rows} x {columns} has {interior} cells inside its walls, but a player, a box and a free cell \
                     need 3; use at least (3, 5) or (4, 4), e.g. (6, 6)"
                ),
            );
        } else {
            let most = (interior - 2).min(MAX_BOXES);
            if self.num_boxes > most {
                problem(
                    "num_boxes",
                    format!(
                        "{} boxes do not fit into a room of {rows} x {columns}; at most {most}, and a quarter of that for \
                         levels that are easily found",
                        self.num_boxes
                    ),
                );
            }
        }
        if self.num_boxes == 0 {
            problem("num_boxes", "a level needs at least 1 box".into());
        }
        if self.max_steps == 0 {
            problem("max_steps", "an episode needs at least 1 step".into());
        }
        if self.search_depth < 3 {
            problem(
                "search_depth",
                format!("a search of depth {} moves no box; use at least 3, better 30 or more", self.search_depth),
            );
        }
        if !(1..=64).contains(&self.picture_scale) {
            problem("picture_scale", format!("{} is not within 1 to 64", self.picture_scale));
        }
        problems.extend(self.render_mode.problem());
        check_symbols(&self.grid_vocab.meanings(), &mut problems);
        check_names(&self.action_lookup, &mut problems);
        problems
    }
}
