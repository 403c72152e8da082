//! The state of one lake, how it is made, and how a move changes it.

use bevy_ecs::component::Component;

use super::FrozenLakeConfig;
use crate::{
    environment::grid::{Direction, Shape},
    random::{Stream, hash_bytes},
};

/// Largest number of rows and columns.
pub const MAX_SIZE: usize = 16;

/// Number of kinds of cell.
pub(super) const CODES: usize = 6;

/// The directions in the order of the actions; neighbours in this circle are a quarter turn apart.
pub const DIRECTIONS: [Direction; 4] = [Direction::Left, Direction::Down, Direction::Right, Direction::Up];

/// What a cell looks like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Code {
    Player,
    Frozen,
    Hole,
    Goal,
    PlayerInHole,
    PlayerOnGoal,
}

/// One frozen lake and the player on it.
#[derive(Clone, Component, Debug, PartialEq)]
pub struct FrozenLake {
    /// One bit for each cell, set where there is a hole.
    pub(super) holes: [u64; MAX_SIZE * MAX_SIZE / 64],
    pub(super) size: u16,
    pub(super) start: u16,
    pub(super) goal: u16,
    pub(super) player: u16,
    pub(super) steps: u32,
    /// Number of the last action, for pictures; initially down.
    pub(super) facing: u8,
}

impl FrozenLake {
    /// Rows and columns.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape { rows: self.size.into(), columns: self.size.into() }
    }

    /// The cell that the episode began on.
    #[must_use]
    pub fn start(&self) -> usize {
        self.start.into()
    }

    /// The goal's cell.
    #[must_use]
    pub fn goal(&self) -> usize {
        self.goal.into()
    }

    /// The player's cell.
    #[must_use]
    pub fn player(&self) -> usize {
        self.player.into()
    }

    /// Whether the ice is broken at `cell`.
    #[must_use]
    pub fn is_hole(&self, cell: usize) -> bool {
        self.holes[cell / 64] >> (cell % 64) & 1 != 0
    }

    /// Cells with holes, in order.
    pub fn holes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.shape().area()).filter(|&cell| self.is_hole(cell))
    }

    /// What `cell` looks like.
    pub(super) fn code(&self, cell: usize) -> Code {
        let here = cell == self.player();
        if self.is_hole(cell) {
            [Code::Hole, Code::PlayerInHole][usize::from(here)]
        } else if cell == self.goal() {
            [Code::Goal, Code::PlayerOnGoal][usize::from(here)]
        } else {
            [Code::Frozen, Code::Player][usize::from(here)]
        }
    }

    /// One draw of tiles and end points, or `None` if the goal is out of reach or too near.
    pub(super) fn draw(config: &FrozenLakeConfig, stream: &mut Stream) -> Option<Self> {
        let mut lake = Self {
            holes: [0; MAX_SIZE * MAX_SIZE / 64],
            size: config.size as u16,
            start: 0,
            goal: 0,
            player: 0,
            steps: 0,
            facing: 1,
        };
        for cell in 0..lake.shape().area() {
            let broken = !stream.chance(config.p);
            lake.holes[cell / 64] |= u64::from(broken) << (cell % 64);
        }
        let mut place = || stream.below(config.size) * config.size + stream.below(config.size);
        let (start, goal) = (place(), place());
        for cell in [start, goal] {
            lake.holes[cell / 64] &= !(1 << (cell % 64));
        }
        (lake.start, lake.goal, lake.player) = (start as u16, goal as u16, start as u16);
        let distance = lake.distance()?;
        (distance > 0 && distance >= config.min_distance).then_some(lake)
    }

    /// Steps from the player to the goal around the holes, or `None` if there is no way.
    #[must_use]
    pub fn distance(&self) -> Option<usize> {
        let shape = self.shape();
        let mut seen = self.holes;
        let mut queue = [0_u8; MAX_SIZE * MAX_SIZE];
        queue[0] = self.player as u8;
        seen[self.player() / 64] |= 1 << (self.player() % 64);
        let (mut begin, mut end, mut distance) = (0, 1, 0);
        while begin < end {
            let ring = begin..end;
            begin = end;
            for at in ring {
                let cell = usize::from(queue[at]);
                if cell == self.goal() {
                    return Some(distance);
                }
                for next in DIRECTIONS.into_iter().filter_map(|to| shape.neighbour(cell, to)) {
                    if seen[next / 64] >> (next % 64) & 1 == 0 {
                        seen[next / 64] |= 1 << (next % 64);
                        queue[end] = next as u8;
                        end += 1;
                    }
                }
            }
            distance += 1;
        }
        None
    }

    /// Moves the player by action number `action`, perhaps to a side of it; `true` if the position changed.
    ///
    /// One draw decides: the first of (turned left, as meant, turned right) whose cumulative probability exceeds it.
    pub(super) fn slide(&mut self, config: &FrozenLakeConfig, action: usize, dynamics: &mut Stream) -> bool {
        let mut taken = action;
        if config.is_slippery {
            let side = (1.0 - config.success_rate) / 2.0;
            let draw = dynamics.unit();
            if draw < side {
                taken = (action + 3) % 4;
            } else if draw >= side + config.success_rate {
                taken = (action + 1) % 4;
            }
        }
        self.facing = action as u8;
        self.steps += 1;
        let next = self.shape().neighbour(self.player(), DIRECTIONS[taken]);
        if let Some(next) = next {
            self.player = next as u16;
        }
        next.is_some()
    }

    /// A hash of size, holes, goal and player.
    pub(super) fn layout_hash(&self) -> u64 {
        let mut bytes = [0; 8 * 4 + 6];
        for (at, word) in self.holes.iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
        for (at, word) in [self.size, self.goal, self.player].into_iter().enumerate() {
            bytes[32 + 2 * at..34 + 2 * at].copy_from_slice(&word.to_le_bytes());
        }
        hash_bytes(&bytes)
    }
}
