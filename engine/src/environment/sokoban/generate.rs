//! Makes levels that can be solved because they were played backwards from the solved position.

use super::{
    Sokoban, SokobanConfig,
    board::{BOX, MAX_CELLS, TARGET, WALL},
    reverse::ReverseSearch,
};
use crate::{
    environment::grid::{Direction, Shape},
    random::Stream,
};

/// Reverse plays per generation before it counts as failed.
const TRIES: usize = 4;

/// Chance that the digging walker draws a new direction.
const TURN_CHANCE: f64 = 0.35;

/// Cells that a step of the walker digs, as offsets (row, column) plus one.
const STAMPS: [&[(usize, usize)]; 5] = [
    &[(1, 0), (1, 1), (1, 2)],
    &[(0, 1), (1, 1), (2, 1)],
    &[(1, 0), (1, 1), (2, 1)],
    &[(1, 0), (1, 1), (2, 0), (2, 1)],
    &[(1, 1), (1, 2), (2, 1)],
];

/// One attempt at a level; `None` if there was too little floor or no try moved a box.
pub(super) fn generate(config: &SokobanConfig, stream: &mut Stream) -> Option<Sokoban> {
    let shape = config.shape();
    for _ in 0..TRIES {
        let mut level = Sokoban {
            cells: dig(shape, stream),
            rows: shape.rows as u16,
            columns: shape.columns as u16,
            player: 0,
            boxes: config.num_boxes as u16,
            boxes_on_target: config.num_boxes as u16,
            steps: 0,
        };
        place(&mut level, stream)?;
        let mut search = ReverseSearch::new(&level);
        let displacement = search.run(config.search_depth);
        if displacement > 0 {
            search.apply(&mut level);
            loosen(&mut level, displacement, stream);
            return Some(level);
        }
    }
    None
}

/// Digs floor along a random walk and leaves the outer border as wall.
fn dig(shape: Shape, stream: &mut Stream) -> [u8; MAX_CELLS] {
    let Shape { rows, columns } = shape;
    let mut cells = [WALL; MAX_CELLS];
    let steps = 17 * (rows + columns) / 10;
    let mut direction = Direction::ALL[stream.below(4)];
    let mut row = 1 + stream.below(rows - 1);
    let mut column = 1 + stream.below(columns - 1);
    for _ in 0..steps {
        if stream.chance(TURN_CHANCE) {
            direction = Direction::ALL[stream.below(4)];
        }
        match direction {
            Direction::Up => row -= 1,
            Direction::Down => row += 1,
            Direction::Left => column -= 1,
            Direction::Right => column += 1,
        }
        row = row.clamp(1, rows - 2);
        column = column.clamp(1, columns - 2);
        for (down, right) in STAMPS[stream.below(STAMPS.len())] {
            cells[(row + down - 1) * columns + column + right - 1] = 0;
        }
    }
    for column in 0..columns {
        cells[column] = WALL;
        cells[(rows - 1) * columns + column] = WALL;
    }
    for row in 0..rows {
        cells[row * columns] = WALL;
        cells[row * columns + columns - 1] = WALL;
    }
    cells
}

/// Puts the player and the targets, each with its box, on floor cells; `None` if there are too few.
fn place(level: &mut Sokoban, stream: &mut Stream) -> Option<()> {
    let mut free = [0_u8; MAX_CELLS];
    let mut count = 0;
    for cell in 0..level.shape().area() {
        if level.cells[cell] == 0 {
            free[count] = cell as u8;
            count += 1;
        }
    }
    let boxes = usize::from(level.boxes);
    if count <= boxes + 1 {
        return None;
    }
    let mut take = || {
        let at = stream.below(count);
        let cell = free[at];
        free.copy_within(at + 1..count, at);
        count -= 1;
        usize::from(cell)
    };
    level.player = take() as u16;
    for _ in 0..boxes {
        level.cells[take()] |= TARGET | BOX;
    }
    Some(())
}

/// Walks the player a few steps away from the box that the reverse play left it at.
fn loosen(level: &mut Sokoban, displacement: usize, stream: &mut Stream) {
    if !stream.chance(if displacement == 1 { 0.8 } else { 0.5 }) {
        return;
    }
    let shape = level.shape();
    let mut visited = [level.player(); 4];
    for step in 1..=3 {
        let mut free = [0; 4];
        let mut count = 0;
        for direction in Direction::ALL {
            if let Some(next) = shape.neighbour(level.player(), direction)
                && level.cells[next] & (WALL | BOX) == 0
                && !visited.contains(&next)
            {
                free[count] = next;
                count += 1;
            }
        }
        if count == 0 {
            return;
        }
        let next = free[stream.below(count)];
        level.player = next as u16;
        visited[step] = next;
        if !stream.chance(0.5) {
            return;
        }
    }
}
