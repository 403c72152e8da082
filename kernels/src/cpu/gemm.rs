//! Matrix products.
//!
//! All three forms (forward, input gradient, weight gradient) are `c[m, n] = Σ_k a[m, k] · b[k, n]` with one chain of fused
//! multiply-adds per element, in ascending `k`. The chain is never split: vector lanes, register tiles and threads divide `m` and
//! `n` only. The left operand is packed in tiles `[depth][height]`, the right one in panels `[depth][PANEL]`.

use rayon::prelude::*;

use super::isa::Isa;
use super::memory::{Aligned, Scratch, Shared};
use super::tiles::{self, PANEL, TALLEST};

/// Products below this many multiply-adds stay on the calling thread.
const SERIAL: usize = 3 << 19;

/// Operands below this many numbers are packed by the calling thread.
const PACKED_ALONE: usize = 1 << 15;

/// A weight matrix in panels `[outputs / 32][inputs][32]`, the last one padded with zeros.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    pub(crate) panels: Aligned,
}

impl Matrix {
    pub(crate) fn zeros(outputs: usize, inputs: usize) -> Self {
        Self { outputs, inputs, panels: Aligned::zeros(outputs.div_ceil(PANEL) * inputs * PANEL) }
    }

    /// Rows of the weight matrix.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the weight matrix.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub(crate) fn pack(&mut self, weights: &[f32]) {
        let inputs = self.inputs;
        if inputs == 0 {
            return;
        }
        let panels = self.panels.as_mut_slice().par_chunks_mut(inputs * PANEL);
        panels.zip(weights.par_chunks(inputs * PANEL)).for_each(|(panel, rows)| {
            if rows.len() == inputs * PANEL {
                return transpose(rows, inputs, panel);
            }
            for (o, row) in rows.chunks_exact(inputs).enumerate() {
                for (line, &w) in panel.chunks_exact_mut(PANEL).zip(row) {
                    line[o] = w;
                }
            }
        });
    }
}

/// The left operand, in tiles of `height` rows (the last one may be lower), each `[depth][rows of the tile]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) height: usize,
}

/// The right operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Right<'a> {
    /// Packed panels.
    Panels(&'a [f32]),
    /// Row-major `[depth, stride]`, packed on the way.
    Rows { values: &'a [f32], stride: usize },
}

/// Where and how sums are written.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    /// Row-major `[rows, stride]`.
    pub(crate) values: &'a mut [f32],
    pub(crate) stride: usize,
    pub(crate) columns: usize,
    /// The chain starts at the value that is there, not at 0.
    pub(crate) resume: bool,
    /// Added to the finished chain.
    pub(crate) bias: Option<&'a [f32]>,
    /// The old value is added after the bias.
    pub(crate) add: bool,
}

/// Height of the tiles that `rows` rows are cut into: as equal as possible, so that no tile is needlessly low.
pub(crate) fn tile_height(isa: Isa, rows: usize) -> usize {
    let tallest = tiles::tallest(isa);
    rows.div_ceil(rows.div_ceil(tallest).max(1)).max(1)
}

/// Turns `[rows, depth]` into `[depth][rows]`, in squares of 4.
fn transpose(x: &[f32], depth: usize, packed: &mut [f32]) {
    let rows = x.len() / depth;
    let (high, deep) = (rows / 4 * 4, depth / 4 * 4);
    for (k, lines) in (0..deep).step_by(4).zip(packed.chunks_exact_mut(4 * rows)) {
        for m in (0..high).step_by(4) {
            let square: [[f32; 4]; 4] = std::array::from_fn(|i| {
                let row = &x[(m + i) * depth + k..];
                [row[0], row[1], row[2], row[3]]
            });
            for i in 0..4 {
                let column = [square[0][i], square[1][i], square[2][i], square[3][i]];
                lines[i * rows + m..][..4].copy_from_slice(&column);
            }
        }
        for m in high..rows {
            for i in 0..4 {
                lines[i * rows + m] = x[m * depth + k + i];
            }
        }
    }
    for k in deep..depth {
        for m in 0..rows {
            packed[k * rows + m] = x[m * depth + k];
        }
    }
}

/// Packs rows `[rows, depth]` into tiles.
pub(crate) fn pack_rows(x: &[f32], rows: usize, depth: usize, height: usize, packed: &mut [f32]) {
    if depth == 0 {
        return;
    }
    let pack = |(tile, x): (&mut [f32], &[f32])| transpose(x, depth, tile);
    let (packed, x) = (&mut packed[..rows * depth], &x[..rows * depth]);
    if rows * depth < PACKED_ALONE {
        packed.chunks_mut(height * depth).zip(x.chunks(height * depth)).for_each(pack);
    } else {
        packed.par_chunks_mut(height * depth).zip(x.par_chunks(height * depth)).for_each(pack);
    }
}

/// Copies `depth` lines of `N` numbers that lie `stride` apart.
fn copy_lines<const N: usize>(x: &[f32], stride: usize, packed: &mut [f32], depth: usize) {
    // Lines lie on different pages, where the hardware does not look ahead.
    const AHEAD: usize = 16;
    for (k, line) in packed.as_chunks_mut::<N>().0.iter_mut().enumerate().take(depth) {
        tiles::prefetch(x, (k + AHEAD) * stride, N);
        if let Some(from) = x[k * stride..].first_chunk::<N>() {
            *line = *from;
        }
    }
}

/// Packs the transpose of `[depth, rows]` into tiles.
pub(crate) fn pack_columns(x: &[f32], rows: usize, depth: usize, height: usize, packed: &mut [f32]) {
    if depth == 0 {
        return;
    }
    let pack = |(tile, packed): (usize, &mut [f32])| {
        let first = tile * height;
        let count = packed.len() / depth;
        macro_rules! copy {
            ($($n:literal)*) => {
                match count {
                    $($n => return copy_lines::<$n>(&x[first..], rows, packed, depth),)*
                    _ => {}
                }
            };
        }
        copy!(4 5 6 7 8 9 10 11 12);
        for (k, line) in packed.chunks_exact_mut(count).enumerate() {
            line.copy_from_slice(&x[k * rows + first..][..count]);
        }
    };
    let packed = &mut packed[..rows * depth];
    if rows * depth < PACKED_ALONE {
        packed.chunks_mut(height * depth).enumerate().for_each(pack);
    } else {
        packed.par_chunks_mut(height * depth).enumerate().for_each(pack);
    }
}

/// `output = left · right`.
pub(crate) fn multiply(
    isa: Isa,
    scratch: &Scratch,
    left: Left<'_>,
    depth: usize,
    right: Right<'_>,
    output: Output<'_>,
) {
    let Output { values, stride, columns, resume, bias, add } = output;
    let (panels, tiles) = (columns.div_ceil(PANEL), left.rows.div_ceil(left.height));
    if panels == 0 || tiles == 0 {
        return;
    }
    assert!(left.values.len() >= left.rows * depth && values.len() >= (left.rows - 1) * stride + columns);
    let values = Shared::new(values);
    let threads = rayon::current_num_threads();
    let groups = if panels >= 4 * threads { 1 } else { (4 * threads).div_ceil(panels).min(tiles) };
    let tiles_per_group = tiles.div_ceil(groups);
    let work = |task: usize| {
        let (panel, group) = (task % panels, task / panels);
        let first = panel * PANEL;
        let width = PANEL.min(columns - first);
        let borrowed;
        let b = match right {
            Right::Panels(panels) => &panels[panel * depth * PANEL..][..depth * PANEL],
            Right::Rows { values, stride } => {
                let mut packed = scratch.take(depth * PANEL);
                if width == PANEL {
                    copy_lines::<PANEL>(&values[first..], stride, &mut packed, depth);
                } else {
                    for (k, line) in packed.chunks_exact_mut(PANEL).enumerate() {
                        line[..width].copy_from_slice(&values[k * stride + first..][..width]);
                        line[width..].fill(0.0);
                    }
                }
                borrowed = packed;
                &borrowed
            }
        };
        let mut edge = [0.0f32; PANEL * TALLEST];
        for tile in group * tiles_per_group..tiles.min((group + 1) * tiles_per_group) {
            let top = tile * left.height;
            let height = left.height.min(left.rows - top);
            let a = &left.values[top * depth..][..height * depth];
            let direct = width == PANEL && bias.is_none() && !add;
            if resume {
                values.prefetch((top + height) * stride + first, left.height, stride);
            }
            // SAFETY: tasks own distinct (panel, group) pairs, hence distinct rows or columns of `values`; each row's part is
            // taken once at a time.
            let row = |m: usize| unsafe { values.slice((top + m) * stride + first, width) };
            if direct {
                let start = values.pointer(top * stride + first, (height - 1) * stride + width);
                // SAFETY: `a` holds `[depth][height]`, `b` holds `[depth][PANEL]`; `pointer` checked both ends of the tile,
                // whose elements belong to this task.
                unsafe { tiles::panel(isa, height, depth, a.as_ptr(), b.as_ptr(), start, stride, resume) };
                continue;
            }
            if resume {
                for (m, line) in edge.chunks_exact_mut(PANEL).take(height).enumerate() {
                    line[..width].copy_from_slice(row(m));
                }
            }
            // SAFETY: as above; `edge` holds `TALLEST` rows of `PANEL`.
            unsafe { tiles::panel(isa, height, depth, a.as_ptr(), b.as_ptr(), edge.as_mut_ptr(), PANEL, resume) };
            for (m, line) in edge.chunks_exact_mut(PANEL).take(height).enumerate() {
                let line = &mut line[..width];
                if let Some(bias) = bias {
                    line.iter_mut().zip(&bias[first..]).for_each(|(sum, bias)| *sum += bias);
                }
                if add {
                    row(m).iter_mut().zip(line).for_each(|(old, sum)| *old += *sum);
                } else {
                    row(m).copy_from_slice(line);
                }
            }
        }
    };
    let tasks = panels * groups;
    if tasks == 1 || left.rows * depth * columns < SERIAL {
        (0..tasks).for_each(work);
    } else {
        (0..tasks).into_par_iter().for_each(work);
    }
}
