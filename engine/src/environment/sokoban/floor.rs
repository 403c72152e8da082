//! The floor of a room as a graph, and sets of (boxes, player) positions on it.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hasher},
};

use super::{
    Sokoban,
    board::{BOX, TARGET, WALL},
};
use crate::{environment::grid::Direction, random::mix};

/// Largest number of boxes of a room.
pub const MAX_BOXES: usize = 15;

/// Stands for "no cell" and "no box".
pub(super) const NONE: u16 = u16::MAX;

/// The cells that are not wall, renumbered from 0, with their neighbours.
pub(super) struct Floor {
    /// Number of the room's cell.
    pub(super) cell: Vec<u16>,
    /// Neighbour in each direction, or [`NONE`].
    pub(super) next: Vec<[u16; 4]>,
    /// The cell is a target.
    pub(super) target: Vec<bool>,
}

impl Floor {
    pub(super) fn new(level: &Sokoban) -> Self {
        let shape = level.shape();
        let mut number = [NONE; super::MAX_CELLS];
        let cell: Vec<u16> =
            (0..shape.area()).filter(|&cell| level.cells[cell] & WALL == 0).map(|cell| cell as u16).collect();
        for (at, &cell) in cell.iter().enumerate() {
            number[usize::from(cell)] = at as u16;
        }
        let next = cell
            .iter()
            .map(|&cell| {
                Direction::ALL
                    .map(|direction| shape.neighbour(cell.into(), direction).map_or(NONE, |next| number[next]))
            })
            .collect();
        let target = cell.iter().map(|&cell| level.cells[usize::from(cell)] & TARGET != 0).collect();
        Self { cell, next, target }
    }

    pub(super) fn len(&self) -> usize {
        self.cell.len()
    }

    /// Number of the player's cell.
    pub(super) fn player(&self, level: &Sokoban) -> u16 {
        self.cell.iter().position(|&cell| cell == level.player).map_or(0, |at| at as u16)
    }

    /// Numbers of the cells with boxes, in order; the rest is unused.
    pub(super) fn boxes(&self, level: &Sokoban) -> [u8; MAX_BOXES] {
        let mut boxes = [0; MAX_BOXES];
        let occupied = self.cell.iter().enumerate().filter(|(_, cell)| level.cells[usize::from(**cell)] & BOX != 0);
        for (slot, (at, _)) in boxes.iter_mut().zip(occupied) {
            *slot = at as u8;
        }
        boxes
    }
}

/// Direction number of the way back.
pub(super) const fn opposite(direction: usize) -> usize {
    direction ^ 1
}

/// Sorts a handful of numbers.
pub(super) fn sort(items: &mut [u8]) {
    for end in 1..items.len() {
        let item = items[end];
        let mut at = end;
        while at > 0 && items[at - 1] > item {
            items[at] = items[at - 1];
            at -= 1;
        }
        items[at] = item;
    }
}

/// Mixes the words of a key; keys are exact, so quality matters only for speed.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u128(byte.into());
        }
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = mix(self.0 ^ key as u64 ^ mix((key >> 64) as u64));
    }
}

/// Largest size in bits of the dense form of a [`Visited`]: 4 MiB.
const DENSE_BITS: u64 = 1 << 25;

/// A set of positions.
///
/// Where all positions of the room fit, each has its own bit, found by ranking the set of boxes among all sets of that size;
/// otherwise positions are hashed.
pub(super) struct Visited {
    bits: Vec<u64>,
    /// `choose[k][n]`: ways to choose `k + 1` of `n`.
    choose: Vec<Vec<u32>>,
    sparse: HashSet<u128, BuildHasherDefault<KeyHasher>>,
    floor: u64,
    len: usize,
}

impl Visited {
    pub(super) fn new(floor: usize, boxes: usize) -> Self {
        let mut sets = 1_u64;
        for taken in 0..boxes as u64 {
            // Exact at every step: the product of n consecutive numbers is divisible by n!.
            sets = sets.saturating_mul((floor as u64).saturating_sub(taken)) / (taken + 1);
        }
        let positions = sets.saturating_mul(floor as u64);
        let dense = positions <= DENSE_BITS;
        let mut choose = Vec::new();
        if dense {
            let mut row: Vec<u32> = (0..floor as u32).collect();
            for _ in 0..boxes {
                let mut sum = 0_u32;
                let above = row
                    .iter()
                    .map(|&ways| {
                        let here = sum;
                        sum = sum.saturating_add(ways);
                        here
                    })
                    .collect();
                choose.push(std::mem::replace(&mut row, above));
            }
        }
        Self {
            bits: vec![0; if dense { positions.div_ceil(64) as usize } else { 0 }],
            choose,
            sparse: HashSet::default(),
            floor: floor as u64,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The part of a position's key that the boxes make; `sorted` must be in order.
    pub(super) fn boxes_key(&self, sorted: &[u8]) -> u128 {
        if self.choose.is_empty() {
            return sorted.iter().fold(0, |key, &cell| (key | u128::from(cell)) << 8);
        }
        let rank: u64 = sorted.iter().zip(&self.choose).map(|(&cell, ways)| u64::from(ways[usize::from(cell)])).sum();
        u128::from(rank * self.floor)
    }

    /// Adds a position; `false` if it was there.
    pub(super) fn insert(&mut self, boxes_key: u128, player: u16) -> bool {
        let key = boxes_key + u128::from(player);
        let new = if self.choose.is_empty() {
            self.sparse.insert(key)
        } else {
            let word = &mut self.bits[(key >> 6) as usize];
            let bit = 1 << (key & 63);
            let new = *word & bit == 0;
            *word |= bit;
            new
        };
        self.len += usize::from(new);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 9 cells, 3 boxes: 84 sets, and each must have a rank of its own below 84.
    #[test]
    fn box_sets_are_ranked_without_gaps() {
        let visited = Visited::new(9, 3);
        let mut seen = [false; 84];
        for a in 0..9 {
            for b in a + 1..9 {
                for c in b + 1..9 {
                    let rank = visited.boxes_key(&[a, b, c]) / 9;
                    assert!(!std::mem::replace(&mut seen[rank as usize], true));
                }
            }
        }
        assert!(seen.iter().all(|&seen| seen));
    }

    #[test]
    fn large_rooms_are_hashed_and_behave_alike() {
        let mut visited = Visited::new(196, 12);
        assert!(visited.bits.is_empty());
        let boxes: Vec<u8> = (0..12).map(|at| at * 16).collect();
        let key = visited.boxes_key(&boxes);
        assert!(visited.insert(key, 3));
        assert!(!visited.insert(key, 3));
        assert!(visited.insert(key, 4));
        assert_eq!(visited.len(), 2);
    }
}
