//! What the environments on a rectangular grid share: directions, the coordinate text, action names and relations.
//!
//! Cells are numbered row by row from the top left.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{ActionSpace, ConfigProblem};

/// How a grid is written down for the agent.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ObservationFormat {
    /// One character per cell, one line per row.
    #[default]
    Grid,
    /// The coordinates of everything on the grid.
    Coord,
    /// The coordinates, then the grid.
    GridCoord,
}

/// One of the four neighbours of a cell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// To the row above.
    Up,
    /// To the row below.
    Down,
    /// To the column before.
    Left,
    /// To the column after.
    Right,
}

impl Direction {
    /// All four; the order in which Sokoban numbers its actions.
    pub const ALL: [Self; 4] = [Self::Up, Self::Down, Self::Left, Self::Right];

    /// The way back.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    /// The word for it in thoughts.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Left => "left",
            Self::Right => "right",
        }
    }
}

/// Rows and columns of a grid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shape {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns, at least 1.
    pub columns: usize,
}

impl Shape {
    /// Number of cells.
    #[must_use]
    pub const fn area(self) -> usize {
        self.rows * self.columns
    }

    /// Row and column of a cell.
    #[must_use]
    pub const fn place(self, cell: usize) -> (usize, usize) {
        (cell / self.columns, cell % self.columns)
    }

    /// The cell next to `cell`, or `None` beyond the edge.
    #[must_use]
    pub const fn neighbour(self, cell: usize, direction: Direction) -> Option<usize> {
        match direction {
            Direction::Up if cell >= self.columns => Some(cell - self.columns),
            Direction::Down if cell + self.columns < self.area() => Some(cell + self.columns),
            Direction::Left if !cell.is_multiple_of(self.columns) => Some(cell - 1),
            Direction::Right if !(cell + 1).is_multiple_of(self.columns) => Some(cell + 1),
            _ => None,
        }
    }

    /// Steps between two cells when nothing is in the way.
    #[must_use]
    pub const fn distance(self, from: usize, to: usize) -> usize {
        let ((row, column), (other_row, other_column)) = (self.place(from), self.place(to));
        row.abs_diff(other_row) + column.abs_diff(other_column)
    }

    /// Where `to` lies as seen from `from`, in words.
    #[must_use]
    pub fn relation(self, from: usize, to: usize) -> &'static str {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let ((row, column), (other_row, other_column)) = (self.place(from), self.place(to));
        match (other_row.cmp(&row), other_column.cmp(&column)) {
            (Equal, Equal) => "here",
            (Less, Equal) => "up",
            (Greater, Equal) => "down",
            (Equal, Less) => "left",
            (Equal, Greater) => "right",
            (Less, Less) => "up left",
            (Less, Greater) => "up right",
            (Greater, Less) => "down left",
            (Greater, Greater) => "down right",
        }
    }

    /// A cell as a thought names it: row and column, counted from `origin`.
    pub(crate) fn spoken(self, cell: usize, origin: usize) -> String {
        let (row, column) = self.place(cell);
        format!("{} {}", row + origin, column + origin)
    }

    /// The cell of `cells` that is nearest to `from`; the first of several.
    pub(crate) fn nearest(self, from: usize, cells: impl Iterator<Item = usize>) -> Option<usize> {
        cells.min_by_key(|&cell| self.distance(from, cell))
    }
}

/// Title above the coordinates where a grid follows.
pub(crate) const COORDINATES_TITLE: &str = "Coordinates:\n";
/// Title above the grid where coordinates precede it.
pub(crate) const MAP_TITLE: &str = "Map:\n";

/// Appends a number without going through the formatter.
pub(crate) fn push_number(out: &mut String, number: usize) {
    if number >= 10 {
        push_number(out, number / 10);
    }
    out.push(char::from(b'0' + (number % 10) as u8));
}

/// Writes the first line of a coordinate text.
pub(crate) fn write_size(out: &mut String, shape: Shape, origin: usize) {
    out.push_str("Board ");
    push_number(out, shape.rows);
    out.push_str(" x ");
    push_number(out, shape.columns);
    if origin == 0 {
        out.push_str(", zero-based");
    } else {
        out.push_str(", counted from ");
        push_number(out, origin);
    }
}

/// Writes a line `label: (row, column), (row, column)`, or nothing if there are no cells.
pub(crate) fn write_cells(
    out: &mut String,
    label: &str,
    shape: Shape,
    origin: usize,
    cells: impl Iterator<Item = usize>,
) {
    for (count, cell) in cells.enumerate() {
        if count == 0 {
            out.push('\n');
            out.push_str(label);
            out.push(':');
        } else {
            out.push(',');
        }
        let (row, column) = shape.place(cell);
        out.push_str(" (");
        push_number(out, row + origin);
        out.push_str(", ");
        push_number(out, column + origin);
        out.push(')');
    }
}

/// Writes a line such as `Walls: row 0: 0-4; row 1: 0, 4`: per row, the runs of columns where `marked` holds.
pub(crate) fn write_runs(out: &mut String, label: &str, shape: Shape, origin: usize, marked: impl Fn(usize) -> bool) {
    let mut first_row = true;
    for row in 0..shape.rows {
        let mut column = 0;
        let mut first_run = true;
        while column < shape.columns {
            if !marked(row * shape.columns + column) {
                column += 1;
                continue;
            }
            let begin = column;
            while column < shape.columns && marked(row * shape.columns + column) {
                column += 1;
            }
            if !first_run {
                out.push_str(", ");
            } else {
                if first_row {
                    out.push('\n');
                    out.push_str(label);
                    out.push_str(": row ");
                } else {
                    out.push_str("; row ");
                }
                push_number(out, row + origin);
                out.push_str(": ");
            }
            (first_row, first_run) = (false, false);
            push_number(out, begin + origin);
            if column - 1 > begin {
                out.push('-');
                push_number(out, column - 1 + origin);
            }
        }
    }
}

/// The sentence that explains coordinates in an instruction.
pub(crate) fn explain_coordinates(origin: usize) -> String {
    format!("Positions are (row, column), counted from {origin} at the top left; rows grow downwards.")
}

/// The sentence about how many actions may be given and how they are separated.
pub(crate) fn explain_moves(names: &[String; 4], facts: &super::PromptFacts<'_>) -> String {
    let per_answer = if facts.max_actions_per_turn == 1 {
        "one move per answer".to_owned()
    } else {
        format!("up to {} per answer, separated by `{}`", facts.max_actions_per_turn, facts.separator)
    };
    format!("Moves: {}; at most {} in total, {per_answer}.", names.join(", "), facts.max_actions)
}

/// The action space of four names, without allocation where they are the usual ones.
pub(crate) fn action_space(usual: &'static [Cow<'static, str>; 4], names: &[String; 4]) -> ActionSpace {
    ActionSpace::Names(if usual.iter().eq(names) {
        Cow::Borrowed(usual)
    } else {
        Cow::Owned(names.iter().cloned().map(Cow::Owned).collect())
    })
}

/// Problems of configured action names.
pub(crate) fn check_names(names: &[String; 4], problems: &mut Vec<ConfigProblem>) {
    let mut problem = |reason: String| {
        problems.push(ConfigProblem { field: "action_lookup".into(), reason });
    };
    for (at, name) in names.iter().enumerate() {
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-')) {
            problem(format!("`{name}` cannot name an action; use letters, digits, `_` and `-`"));
        }
        if names[..at].iter().any(|other| other.to_lowercase() == name.to_lowercase()) {
            problem(format!("two actions are named `{name}`; names must differ"));
        }
    }
}

/// Problems of configured symbols, given with their meanings.
pub(crate) fn check_symbols(symbols: &[(char, &str)], problems: &mut Vec<ConfigProblem>) {
    let mut problem = |reason: String| {
        problems.push(ConfigProblem { field: "grid_vocab".into(), reason });
    };
    for (at, &(symbol, meaning)) in symbols.iter().enumerate() {
        if symbol.is_whitespace() || symbol.is_control() || matches!(symbol, '<' | '>') {
            problem(format!("{symbol:?} cannot stand for {meaning}; use a visible character other than `<` and `>`"));
        }
        if let Some((_, other)) = symbols[..at].iter().find(|(other, _)| *other == symbol) {
            problem(format!("`{symbol}` stands for both {other} and {meaning}; symbols must differ"));
        }
    }
}

/// The legend of an instruction, e.g. `# wall, _ empty`.
pub(crate) fn legend(symbols: &[(char, &str)]) -> String {
    let entries: Vec<String> = symbols.iter().map(|(symbol, meaning)| format!("{symbol} {meaning}")).collect();
    entries.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { rows: 3, columns: 4 };

    #[test]
    fn neighbours_end_at_the_edge() {
        let all = |cell| Direction::ALL.map(|direction| SHAPE.neighbour(cell, direction));
        assert_eq!(all(0), [None, Some(4), None, Some(1)]);
        assert_eq!(all(11), [Some(7), None, Some(10), None]);
        assert_eq!(all(5), [Some(1), Some(9), Some(4), Some(6)]);
    }

    #[test]
    fn relations_are_seen_from_the_first_cell() {
        assert_eq!(SHAPE.relation(5, 7), "right");
        assert_eq!(SHAPE.relation(5, 0), "up left");
        assert_eq!(SHAPE.relation(5, 11), "down right");
        assert_eq!(SHAPE.relation(5, 5), "here");
    }

    #[test]
    fn runs_are_joined_and_rows_without_any_are_left_out() {
        let mut out = String::new();
        // row 0: 0-1, 3; row 1: none; row 2: 2
        write_runs(&mut out, "Walls", SHAPE, 0, |cell| [0, 1, 3, 10].contains(&cell));
        assert_eq!(out, "\nWalls: row 0: 0-1, 3; row 2: 2");
        out.clear();
        write_runs(&mut out, "Walls", SHAPE, 1, |_| false);
        assert_eq!(out, "");
    }

    #[test]
    fn cells_are_listed_from_the_origin() {
        let mut out = String::new();
        write_cells(&mut out, "Holes", SHAPE, 1, [0, 11].into_iter());
        write_cells(&mut out, "Nothing", SHAPE, 1, [].into_iter());
        assert_eq!(out, "\nHoles: (1, 1), (3, 4)");
    }
}
