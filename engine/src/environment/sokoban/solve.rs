//! The shortest solution of a room, counted in moves.

use std::collections::VecDeque;

use super::{
    Sokoban,
    floor::{Floor, MAX_BOXES, NONE, Visited, opposite, sort},
};
use crate::environment::grid::Direction;

/// Positions after which a search gives up.
const MAX_VISITED: usize = 4_000_000;

/// One position met by the search.
#[derive(Clone, Copy)]
struct Node {
    boxes: [u8; MAX_BOXES],
    player: u8,
    direction: u8,
    parent: u32,
}

/// The shortest list of moves that solves `level`, the first in the order up, down, left, right among equals; `None` if there
/// is none or the search would visit more than four million positions.
///
/// Breadth-first over player and boxes, without pushes to cells from which no target can be reached.
pub(super) fn solve(level: &Sokoban) -> Option<Vec<Direction>> {
    if level.is_solved() {
        return Some(Vec::new());
    }
    let floor = Floor::new(level);
    let boxes = usize::from(level.boxes);
    let alive = alive(&floor);
    let start = Node { boxes: floor.boxes(level), player: floor.player(level) as u8, direction: 0, parent: 0 };
    if start.boxes[..boxes].iter().any(|&cell| !alive[usize::from(cell)]) {
        return None;
    }
    let mut visited = Visited::new(floor.len(), boxes);
    visited.insert(visited.boxes_key(&start.boxes[..boxes]), start.player.into());
    let mut nodes = vec![start];
    let mut at = 0;
    while let Some(&node) = nodes.get(at) {
        let placed = &node.boxes[..boxes];
        let key = visited.boxes_key(placed);
        for direction in 0..4 {
            let next = floor.next[usize::from(node.player)][direction];
            if next == NONE {
                continue;
            }
            let mut child = Node { player: next as u8, direction: direction as u8, parent: at as u32, ..node };
            let mut child_key = key;
            let mut solved = false;
            if let Some(pushed) = placed.iter().position(|&cell| u16::from(cell) == next) {
                let beyond = floor.next[usize::from(next)][direction];
                if beyond == NONE || !alive[usize::from(beyond)] || placed.contains(&(beyond as u8)) {
                    continue;
                }
                child.boxes[pushed] = beyond as u8;
                let moved = &mut child.boxes[..boxes];
                sort(moved);
                solved = moved.iter().all(|&cell| floor.target[usize::from(cell)]);
                child_key = visited.boxes_key(moved);
            }
            if visited.insert(child_key, next) {
                nodes.push(child);
                if solved {
                    return Some(plan(&nodes));
                }
            }
        }
        if visited.len() > MAX_VISITED {
            return None;
        }
        at += 1;
    }
    None
}

/// The moves that lead to the last of `nodes`.
fn plan(nodes: &[Node]) -> Vec<Direction> {
    let mut at = nodes.len() - 1;
    let mut moves = Vec::new();
    while at != 0 {
        moves.push(Direction::ALL[usize::from(nodes[at].direction)]);
        at = nodes[at].parent as usize;
    }
    moves.reverse();
    moves
}

/// Cells from which a lone box can be pushed to some target: found by pulling from the targets.
fn alive(floor: &Floor) -> Vec<bool> {
    let mut alive = floor.target.clone();
    let mut queue: VecDeque<usize> = (0..floor.len()).filter(|&cell| alive[cell]).collect();
    while let Some(cell) = queue.pop_front() {
        for direction in 0..4 {
            // A push in `direction` from `before` to `cell` needs room for the player behind `before`.
            let before = floor.next[cell][opposite(direction)];
            if before == NONE
                || alive[usize::from(before)]
                || floor.next[usize::from(before)][opposite(direction)] == NONE
            {
                continue;
            }
            alive[usize::from(before)] = true;
            queue.push_back(before.into());
        }
    }
    alive
}
