//! Text about a room: observation, instruction, thoughts, and rooms read from text.

use super::{
    MAX_BOXES, MAX_CELLS, Sokoban, SokobanConfig,
    board::{BOX, Code, TARGET, WALL},
};
use crate::environment::{
    ConfigProblem, PromptFacts,
    grid::{
        COORDINATES_TITLE, Direction, MAP_TITLE, ObservationFormat, explain_coordinates, explain_moves, legend,
        write_cells, write_runs, write_size,
    },
};

impl Sokoban {
    /// Appends the observation to `out`.
    ///
    /// Coordinates alone also list the walls, as runs of columns; beside a grid they would only repeat it.
    pub fn observe_into(&self, config: &SokobanConfig, out: &mut String) {
        match config.observation_format {
            ObservationFormat::Grid => self.write_grid(config, out),
            ObservationFormat::Coord => {
                self.write_coordinates(config, out);
                let walls = |cell| self.cells[cell] & WALL != 0;
                write_runs(out, "Walls", self.shape(), config.coord_origin, walls);
            }
            ObservationFormat::GridCoord => {
                out.push_str(COORDINATES_TITLE);
                self.write_coordinates(config, out);
                out.push('\n');
                out.push_str(MAP_TITLE);
                self.write_grid(config, out);
            }
        }
    }

    fn write_grid(&self, config: &SokobanConfig, out: &mut String) {
        let symbols = config.grid_vocab.by_code();
        let shape = self.shape();
        out.reserve(shape.area() + 4 * shape.rows);
        for row in 0..shape.rows {
            if row > 0 {
                out.push('\n');
            }
            for cell in row * shape.columns..(row + 1) * shape.columns {
                out.push(symbols[self.code(cell) as usize]);
            }
        }
    }

    fn write_coordinates(&self, config: &SokobanConfig, out: &mut String) {
        let (shape, origin) = (self.shape(), config.coord_origin);
        write_size(out, shape, origin);
        for (label, code) in [
            ("Targets", Code::Target),
            ("Boxes", Code::Box),
            ("Boxes on target", Code::BoxOnTarget),
            ("Player", Code::Player),
            ("Player on target", Code::PlayerOnTarget),
        ] {
            let cells = (0..shape.area()).filter(|&cell| self.code(cell) == code);
            write_cells(out, label, shape, origin, cells);
        }
    }

    /// Reads a room drawn in the symbols of `config`, one line per row.
    ///
    /// # Errors
    /// Says what is wrong with the drawing: unknown symbols, ragged rows, other than one player, or unequal numbers of boxes
    /// and targets.
    pub fn from_grid(config: &SokobanConfig, text: &str) -> Result<Self, ConfigProblem> {
        let problem = |reason: String| ConfigProblem { field: "grid".into(), reason };
        let lines: Vec<&str> = text.lines().collect();
        let columns = lines.first().map_or(0, |line| line.chars().count());
        let area = lines.len().saturating_mul(columns);
        if area == 0 || area > MAX_CELLS {
            return Err(problem(format!("{} x {columns} cells; a room has 1 to {MAX_CELLS}", lines.len())));
        }
        let symbols = config.grid_vocab.by_code();
        let mut cells = [WALL; MAX_CELLS];
        let mut player = None;
        for (row, line) in lines.iter().enumerate() {
            if line.chars().count() != columns {
                return Err(problem(format!("row {row} has {} cells, the first row {columns}", line.chars().count())));
            }
            for (column, symbol) in line.chars().enumerate() {
                let cell = row * columns + column;
                let code = symbols.iter().position(|known| *known == symbol);
                cells[cell] = match code {
                    Some(0) => WALL,
                    Some(1 | 5) => 0,
                    Some(2 | 6) => TARGET,
                    Some(3) => TARGET | BOX,
                    Some(4) => BOX,
                    _ => {
                        return Err(problem(format!(
                            "{symbol:?} in row {row}, column {column} is none of: {}",
                            legend(&config.grid_vocab.meanings())
                        )));
                    }
                };
                if matches!(code, Some(5 | 6)) && player.replace(cell).is_some() {
                    return Err(problem("a room has one player, this one has two".into()));
                }
            }
        }
        let player = player.ok_or_else(|| problem("the room has no player".into()))?;
        let count = |flags: u8| {
            let cells = cells[..area].iter();
            cells.filter(|cell| **cell & flags == flags).count()
        };
        let (boxes, targets) = (count(BOX), count(TARGET));
        if boxes != targets || !(1..=MAX_BOXES).contains(&boxes) {
            return Err(problem(format!(
                "{boxes} boxes and {targets} targets; a room has as many targets as boxes, 1 to {MAX_BOXES}"
            )));
        }
        Ok(Self {
            cells,
            rows: lines.len() as u16,
            columns: columns as u16,
            player: player as u16,
            boxes: boxes as u16,
            boxes_on_target: count(BOX | TARGET) as u16,
            steps: 0,
        })
    }
}

/// The rules with the symbols and numbers of `config`.
pub(super) fn instruction(config: &SokobanConfig, facts: &PromptFacts<'_>) -> String {
    let [up, _, _, right] = &config.action_lookup;
    let mut text = format!(
        "Push every box onto a target. Walking into a box pushes it one cell if the cell behind it is free; boxes cannot be \
         pulled and walls block everything. Give your moves in order, e.g. `{}`.",
        facts.example(&[right, right, up])
    );
    if config.observation_format != ObservationFormat::Coord {
        text.push_str(&format!(" Symbols: {}.", legend(&config.grid_vocab.meanings())));
    }
    if config.observation_format != ObservationFormat::Grid {
        text.push(' ');
        text.push_str(&explain_coordinates(config.coord_origin));
    }
    text.push(' ');
    text.push_str(&explain_moves(&config.action_lookup, facts));
    text
}

/// A few words about what is next: where the player, the box and its target are, and from where the box is to be pushed.
///
/// They name a place and leave the move to the answer. Wording that varied freely would be noise that a policy gradient has to
/// average out.
pub(super) fn thought(level: &Sokoban, config: &SokobanConfig) -> String {
    let (shape, origin) = (level.shape(), config.coord_origin);
    let Some((direction, from)) = next_push(level) else { return "every box is on a target".into() };
    let pushed = shape.neighbour(from, direction).unwrap_or(from);
    let free = level.targets().filter(|&cell| level.cells[cell] & BOX == 0);
    let target = shape.nearest(pushed, free).unwrap_or(pushed);
    format!(
        "at {}, box {}, target {}, push {} from {}, {}",
        shape.spoken(level.player(), origin),
        shape.spoken(pushed, origin),
        shape.spoken(target, origin),
        direction.word(),
        shape.spoken(from, origin),
        shape.relation(level.player(), from)
    )
}

/// The first push of a shortest solution and the cell that it is made from. Where there is no solution, the push that would
/// bring the nearest box closer to a target.
fn next_push(level: &Sokoban) -> Option<(Direction, usize)> {
    let shape = level.shape();
    if let Some(plan) = level.solve() {
        let mut player = level.player();
        for direction in plan {
            let next = shape.neighbour(player, direction)?;
            if level.cells[next] & BOX != 0 {
                return Some((direction, player));
            }
            player = next;
        }
        return None;
    }
    let loose = level.boxes().filter(|&cell| level.cells[cell] & TARGET == 0);
    let nearest = shape.nearest(level.player(), loose)?;
    let free = level.targets().filter(|&cell| level.cells[cell] & BOX == 0);
    let target = shape.nearest(nearest, free)?;
    let closer = |direction: &Direction| {
        shape
            .neighbour(nearest, *direction)
            .is_some_and(|to| shape.distance(to, target) < shape.distance(nearest, target))
    };
    let direction = Direction::ALL.into_iter().find(closer)?;
    Some((direction, shape.neighbour(nearest, direction.opposite())?))
}
