//! The state of one room and how a move changes it.

use bevy_ecs::component::Component;

use crate::{
    environment::grid::{Direction, Shape},
    random::hash_bytes,
};

/// Largest number of cells of a room.
pub const MAX_CELLS: usize = 256;

/// Number of kinds of cell.
pub(super) const CODES: usize = 7;

/// Flag of a wall cell.
pub(super) const WALL: u8 = 1;
/// Flag of a target cell.
pub(super) const TARGET: u8 = 2;
/// Flag of a cell with a box.
pub(super) const BOX: u8 = 4;

/// What a cell looks like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Code {
    Wall,
    Empty,
    Target,
    BoxOnTarget,
    Box,
    Player,
    PlayerOnTarget,
}

impl Code {
    /// Words for the codes.
    pub(super) const MEANINGS: [&'static str; CODES] =
        ["wall", "empty", "target", "box on target", "box", "player", "player on target"];
}

/// One Sokoban room: walls, targets, boxes and the player.
#[derive(Clone, Component, Debug, PartialEq)]
pub struct Sokoban {
    pub(super) cells: [u8; MAX_CELLS],
    pub(super) rows: u16,
    pub(super) columns: u16,
    pub(super) player: u16,
    pub(super) boxes: u16,
    pub(super) boxes_on_target: u16,
    pub(super) steps: u32,
}

impl Sokoban {
    /// Rows and columns.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape { rows: self.rows.into(), columns: self.columns.into() }
    }

    /// The player's cell, counted row by row.
    #[must_use]
    pub fn player(&self) -> usize {
        self.player.into()
    }

    /// Cells that hold a box, in order.
    pub fn boxes(&self) -> impl Iterator<Item = usize> + '_ {
        self.cells_with(BOX)
    }

    /// Target cells, in order.
    pub fn targets(&self) -> impl Iterator<Item = usize> + '_ {
        self.cells_with(TARGET)
    }

    /// Actions taken so far.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Every box stands on a target.
    #[must_use]
    pub fn is_solved(&self) -> bool {
        self.boxes_on_target == self.boxes
    }

    fn cells_with(&self, flag: u8) -> impl Iterator<Item = usize> + '_ {
        let cells = &self.cells[..self.shape().area()];
        cells.iter().enumerate().filter_map(move |(cell, flags)| (flags & flag != 0).then_some(cell))
    }

    /// What `cell` looks like.
    pub(super) fn code(&self, cell: usize) -> Code {
        let flags = self.cells[cell];
        match (flags & TARGET != 0, cell == self.player()) {
            _ if flags & WALL != 0 => Code::Wall,
            (false, true) => Code::Player,
            (true, true) => Code::PlayerOnTarget,
            (false, false) if flags & BOX != 0 => Code::Box,
            (true, false) if flags & BOX != 0 => Code::BoxOnTarget,
            (false, false) => Code::Empty,
            (true, false) => Code::Target,
        }
    }

    /// Walks or pushes one cell; `false` if a wall, a second box or the edge forbids it.
    pub(super) fn walk(&mut self, direction: Direction) -> bool {
        let shape = self.shape();
        let Some(next) = shape.neighbour(self.player(), direction) else {
            return false;
        };
        if self.cells[next] & WALL != 0 {
            return false;
        }
        if self.cells[next] & BOX != 0 {
            let Some(beyond) = shape.neighbour(next, direction) else {
                return false;
            };
            if self.cells[beyond] & (WALL | BOX) != 0 {
                return false;
            }
            self.cells[next] &= !BOX;
            self.cells[beyond] |= BOX;
            self.boxes_on_target += u16::from(self.cells[beyond] & TARGET != 0);
            self.boxes_on_target -= u16::from(self.cells[next] & TARGET != 0);
        }
        self.player = next as u16;
        true
    }

    /// A hash of size, walls, targets, boxes and player.
    pub(super) fn layout_hash(&self) -> u64 {
        let mut bytes = [0; MAX_CELLS + 6];
        let area = self.shape().area();
        for (at, word) in [self.rows, self.columns, self.player].into_iter().enumerate() {
            bytes[2 * at..2 * at + 2].copy_from_slice(&word.to_le_bytes());
        }
        bytes[6..6 + area].copy_from_slice(&self.cells[..area]);
        hash_bytes(&bytes[..6 + area])
    }
}
