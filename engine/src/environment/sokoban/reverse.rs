//! Plays a solved position backwards and keeps the best position met.
//!
//! A depth-first search over moves in which a box behind the player is always pulled along. A position is worth the number of
//! changes of the pulled box times the total distance of the boxes from their targets, and nothing unless every target shows.

use super::{
    Sokoban,
    board::BOX,
    floor::{Floor, MAX_BOXES, NONE, Visited, opposite, sort},
};
use crate::environment::grid::Shape;

/// Positions after which a search stops.
const MAX_VISITED: usize = 300_000;

/// One move of the line being searched.
struct Frame {
    player: u16,
    /// Direction to be tried next.
    direction: u8,
    /// The box that the move pulled, or [`NONE`], and where it stood before.
    pulled: u16,
    from: u16,
    /// The box pulled last on the line, or [`NONE`], and how often that changed.
    last_box: u16,
    swaps: u32,
    boxes_key: u128,
}

/// A search and the best position it has found.
pub(super) struct ReverseSearch {
    floor: Floor,
    shape: Shape,
    boxes: usize,
    /// Where the box of each target stands.
    box_of: [u8; MAX_BOXES],
    home: [u8; MAX_BOXES],
    /// The box on each floor cell, or [`NONE`].
    occupant: Vec<u16>,
    displacement: usize,
    boxes_on_target: usize,
    best_score: Option<u64>,
    best_boxes: [u8; MAX_BOXES],
    best_displacement: usize,
    best_player: u16,
}

impl ReverseSearch {
    /// Starts from a position in which every box stands on its target.
    pub(super) fn new(level: &Sokoban) -> Self {
        let floor = Floor::new(level);
        let boxes = usize::from(level.boxes);
        let home = floor.boxes(level);
        let mut occupant = vec![NONE; floor.len()];
        for (number, &cell) in home[..boxes].iter().enumerate() {
            occupant[usize::from(cell)] = number as u16;
        }
        Self {
            best_player: floor.player(level),
            shape: level.shape(),
            floor,
            boxes,
            box_of: home,
            home,
            occupant,
            displacement: 0,
            boxes_on_target: boxes,
            best_score: None,
            best_boxes: home,
            best_displacement: 0,
        }
    }

    /// Searches lines of fewer than `depth` moves; gives the displacement of the best position.
    pub(super) fn run(&mut self, depth: usize) -> usize {
        let mut visited = Visited::new(self.floor.len(), self.boxes);
        if depth < 2 {
            return 0;
        }
        let boxes_key = visited.boxes_key(&self.home[..self.boxes]);
        let mut line = vec![Frame {
            player: self.best_player,
            direction: 0,
            pulled: NONE,
            from: NONE,
            last_box: NONE,
            swaps: 0,
            boxes_key,
        }];
        visited.insert(boxes_key, self.best_player);
        self.judge(self.best_player, 0);
        loop {
            let may_deepen = line.len() + 2 <= depth;
            let Some(frame) = line.last_mut() else {
                break;
            };
            if frame.direction == 4 || !may_deepen {
                let (pulled, from) = (frame.pulled, frame.from);
                line.pop();
                if pulled != NONE {
                    self.move_box(pulled, from);
                }
                continue;
            }
            if visited.len() >= MAX_VISITED {
                break;
            }
            let direction = usize::from(frame.direction);
            frame.direction += 1;
            let player = frame.player;
            let neighbours = &self.floor.next[usize::from(player)];
            let (front, behind) = (neighbours[direction], neighbours[opposite(direction)]);
            if front == NONE || self.occupant[usize::from(front)] != NONE {
                continue;
            }
            let pulled = if behind == NONE { NONE } else { self.occupant[usize::from(behind)] };
            let mut child = Frame { player: front, direction: 0, pulled, from: behind, ..*frame };
            if pulled != NONE {
                self.move_box(pulled, player);
                let mut sorted = self.box_of;
                sort(&mut sorted[..self.boxes]);
                child.boxes_key = visited.boxes_key(&sorted[..self.boxes]);
                child.swaps += u32::from(child.last_box != pulled);
                child.last_box = pulled;
            }
            if visited.insert(child.boxes_key, front) {
                self.judge(front, child.swaps);
                line.push(child);
            } else if pulled != NONE {
                self.move_box(pulled, behind);
            }
        }
        self.best_displacement
    }

    /// Puts the best position found into `level`.
    pub(super) fn apply(&self, level: &mut Sokoban) {
        let cell = |at: u8| usize::from(self.floor.cell[usize::from(at)]);
        for &home in &self.home[..self.boxes] {
            level.cells[cell(home)] &= !BOX;
        }
        for &place in &self.best_boxes[..self.boxes] {
            level.cells[cell(place)] |= BOX;
        }
        let on_target = |&&place: &&u8| self.floor.target[usize::from(place)];
        level.boxes_on_target = self.best_boxes[..self.boxes].iter().filter(on_target).count() as u16;
        level.player = self.floor.cell[usize::from(self.best_player)];
    }

    /// Keeps the present position if it is better than all before.
    fn judge(&mut self, player: u16, swaps: u32) {
        let shows_targets = self.boxes_on_target == 0 && !self.floor.target[usize::from(player)];
        let score = if shows_targets { u64::from(swaps) * self.displacement as u64 } else { 0 };
        if self.best_score.is_none_or(|best| score > best) {
            self.best_score = Some(score);
            self.best_boxes = self.box_of;
            self.best_displacement = self.displacement;
            self.best_player = player;
        }
    }

    fn move_box(&mut self, number: u16, to: u16) {
        let at = usize::from(number);
        let (home, from) = (self.home[at], self.box_of[at]);
        self.displacement += self.distance(home, to as u8);
        self.displacement -= self.distance(home, from);
        self.boxes_on_target += usize::from(self.floor.target[usize::from(to)]);
        self.boxes_on_target -= usize::from(self.floor.target[usize::from(from)]);
        self.occupant[usize::from(from)] = NONE;
        self.occupant[usize::from(to)] = number;
        self.box_of[at] = to as u8;
    }

    fn distance(&self, from: u8, to: u8) -> usize {
        let cell = |at: u8| usize::from(self.floor.cell[usize::from(at)]);
        self.shape.distance(cell(from), cell(to))
    }
}
