//! The best way over the ice: finite-horizon value iteration.

use super::{
    FrozenLake, FrozenLakeConfig,
    lake::{DIRECTIONS, MAX_SIZE},
};

const CELLS: usize = MAX_SIZE * MAX_SIZE;

/// Values closer than this count as equal; the lower action wins.
const TIE: f64 = 1e-12;

/// The action that most probably leads to the goal within `horizon` moves, and that probability.
pub(super) fn best_action(lake: &FrozenLake, config: &FrozenLakeConfig, horizon: u32) -> (usize, f64) {
    let shape = lake.shape();
    let rate = config.effective_rate();
    let side = (1.0 - rate) / 2.0;
    let mut targets = [[0_u8; 4]; CELLS];
    for (cell, to) in targets.iter_mut().enumerate().take(shape.area()) {
        *to = DIRECTIONS.map(|direction| shape.neighbour(cell, direction).unwrap_or(cell) as u8);
    }
    let mut value = [0.0; CELLS];
    value[lake.goal()] = 1.0;
    let choose = |value: &[f64; CELLS], cell: usize| {
        let of = targets[cell].map(|to| value[usize::from(to)]);
        let mut best = (0, f64::NEG_INFINITY);
        for action in 0..4 {
            let expected = rate * of[action] + side * (of[(action + 3) % 4] + of[(action + 1) % 4]);
            if expected > best.1 + TIE {
                best = (action, expected);
            }
        }
        best
    };
    for _ in 1..horizon {
        let mut better = value;
        for cell in (0..shape.area()).filter(|&cell| !lake.is_hole(cell) && cell != lake.goal()) {
            better[cell] = choose(&value, cell).1;
        }
        value = better;
    }
    choose(&value, lake.player())
}

/// The expert's moves from here: a whole plan where nothing slips, else the best move now.
pub(super) fn plan(lake: &FrozenLake, config: &FrozenLakeConfig) -> Vec<usize> {
    if lake.is_hole(lake.player()) || lake.player() == lake.goal() {
        return Vec::new();
    }
    let shape = lake.shape();
    let horizon = |lake: &FrozenLake| {
        let left = config.expert_horizon.saturating_sub(lake.steps);
        let area = shape.area() as u32;
        // Where the goal cannot be reached in the moves left, the way to it still is the best one.
        let nearest = lake.distance().map_or(area, |distance| distance as u32);
        if left >= nearest { left } else { area }
    };
    if config.effective_rate() < 1.0 {
        return vec![best_action(lake, config, horizon(lake)).0];
    }
    let mut walker = lake.clone();
    let mut moves = Vec::new();
    while let Some(distance) = walker.distance()
        && distance > 0
    {
        let (action, _) = best_action(&walker, config, distance as u32);
        let Some(next) = shape.neighbour(walker.player(), DIRECTIONS[action]) else {
            break;
        };
        walker.player = next as u16;
        moves.push(action);
    }
    moves
}
