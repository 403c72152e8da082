//! Element-wise operations and those over one row at a time.

use rayon::prelude::*;

use super::isa::{Isa, kernel};
use crate::maths::{self, LANES};

/// Elements per parallel piece of an element-wise operation.
pub(crate) const PIECE: usize = 1 << 14;

/// Columns per parallel piece of a sum over rows.
const COLUMNS: usize = 64;

kernel! {
    /// `y += x`.
    pub(crate) fn add(x: &[f32], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y += x;
        }
    }
}

kernel! {
    /// `y = gate / (1 + e^-gate) · up`.
    pub(crate) fn swiglu(gate: &[f32], up: &[f32], y: &mut [f32]) {
        for ((y, &gate), &up) in y.iter_mut().zip(gate).zip(up) {
            *y = gate / (1.0 + maths::exp(-gate)) * up;
        }
    }
}

kernel! {
    /// Backward of `swiglu`.
    pub(crate) fn swiglu_gradient(gate: &[f32], up: &[f32], dy: &[f32], d_gate: &mut [f32], d_up: &mut [f32]) {
        for ((((&gate, &up), &dy), d_gate), d_up) in gate.iter().zip(up).zip(dy).zip(d_gate).zip(d_up) {
            let sigmoid = maths::sigmoid(gate);
            *d_up = dy * (gate * sigmoid);
            *d_gate = dy * up * (sigmoid * (1.0 + gate * (1.0 - sigmoid)));
        }
    }
}

/// `Σ_i f(i)` for `i < count`: lane `i % 16` in ascending `i`, then the tree.
#[inline(always)]
fn lane_sum(count: usize, f: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let whole = count / LANES * LANES;
    for i in (0..whole).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += f(i + lane);
        }
    }
    for i in whole..count {
        lanes[i - whole] += f(i);
    }
    maths::tree(lanes)
}

/// `1 / sqrt(mean x² + eps)`.
#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let squares = lane_sum(x.len(), |i| x[i] * x[i]);
    maths::rsqrt(squares / x.len() as f32 + eps)
}

kernel! {
    /// RMS norm of the rows in `x`.
    fn rms_norm_rows(x: &[f32], w: &[f32], eps: f32, y: &mut [f32]) {
        let width = w.len();
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            let inverse = inverse_rms(x, eps);
            for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
                *y = x * inverse * w;
            }
        }
    }
}

/// `y = x / sqrt(mean x² + eps) · w` for every row.
pub(crate) fn rms_norm(isa: Isa, x: &[f32], w: &[f32], eps: f32, y: &mut [f32]) {
    if w.is_empty() {
        return;
    }
    let piece = w.len() * PIECE.div_ceil(w.len());
    if x.len() <= 2 * piece {
        return rms_norm_rows(isa, x, w, eps, y);
    }
    x.par_chunks(piece).zip(y.par_chunks_mut(piece)).for_each(|(x, y)| rms_norm_rows(isa, x, w, eps, y));
}

kernel! {
    /// Input gradient of the rows in `x`; `inverses` receives each row's `1 / sqrt(mean x² + eps)`.
    fn rms_norm_gradient_rows(
        x: &[f32],
        w: &[f32],
        eps: f32,
        dy: &[f32],
        dx: &mut [f32],
        accumulate: bool,
        inverses: &mut [f32],
    ) {
        let width = w.len();
        let rows = x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width)).zip(inverses);
        for (((x, dy), dx), inverse) in rows {
            let scale = inverse_rms(x, eps);
            *inverse = scale;
            let (x, dy, w, dx) = (&x[..width], &dy[..width], &w[..width], &mut dx[..width]);
            let projection = lane_sum(width, |i| dy[i] * w[i] * x[i]);
            let correction = projection / width as f32 * scale * scale;
            for i in 0..width {
                let gradient = scale * (dy[i] * w[i] - x[i] * correction);
                dx[i] = if accumulate { dx[i] + gradient } else { gradient };
            }
        }
    }
}

kernel! {
    /// `dw[i] += Σ_r dy[r, i] · x[r, i] · inverses[r]` for columns from `first` on, in ascending `r`.
    fn rms_norm_weight_gradient(x: &[f32], dy: &[f32], width: usize, first: usize, inverses: &[f32], dw: &mut [f32]) {
        for ((x, dy), &inverse) in x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(inverses) {
            let (x, dy) = (&x[first..][..dw.len()], &dy[first..][..dw.len()]);
            for ((dw, x), dy) in dw.iter_mut().zip(x).zip(dy) {
                *dw = (dy * inverse).mul_add(*x, *dw);
            }
        }
    }
}

/// Backward of [`rms_norm`].
#[expect(clippy::too_many_arguments, reason = "arrays and their shape")]
pub(crate) fn rms_norm_gradient(
    isa: Isa,
    x: &[f32],
    w: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    accumulate: bool,
    inverses: &mut [f32],
    dw: &mut [f32],
) {
    let width = w.len();
    if width == 0 {
        return;
    }
    let rows = PIECE.div_ceil(width);
    let piece = width * rows;
    if x.len() <= piece {
        rms_norm_gradient_rows(isa, x, w, eps, dy, dx, accumulate, inverses);
        return rms_norm_weight_gradient(isa, x, dy, width, 0, inverses, dw);
    }
    x.par_chunks(piece)
        .zip(dy.par_chunks(piece))
        .zip(dx.par_chunks_mut(piece))
        .zip(inverses.par_chunks_mut(rows))
        .for_each(|(((x, dy), dx), inverses)| {
            rms_norm_gradient_rows(isa, x, w, eps, dy, dx, accumulate, inverses);
        });
    dw.par_chunks_mut(COLUMNS).enumerate().for_each(|(piece, dw)| {
        rms_norm_weight_gradient(isa, x, dy, width, piece * COLUMNS, inverses, dw);
    });
}

kernel! {
    /// `sums[i] += Σ_r x[r, first + i]`, in ascending `r`.
    fn column_sums_piece(x: &[f32], width: usize, first: usize, sums: &mut [f32]) {
        for row in x.chunks_exact(width) {
            for (sum, x) in sums.iter_mut().zip(&row[first..]) {
                *sum += x;
            }
        }
    }
}

/// `sums[i] += Σ_r x[r, i]`, in ascending `r`.
pub(crate) fn column_sums(isa: Isa, x: &[f32], sums: &mut [f32]) {
    let width = sums.len();
    if x.len() <= PIECE {
        if width > 0 {
            column_sums_piece(isa, x, width, 0, sums);
        }
        return;
    }
    let columns = 4 * COLUMNS;
    sums.par_chunks_mut(columns).enumerate().for_each(|(piece, sums)| {
        column_sums_piece(isa, x, width, piece * columns, sums);
    });
}

kernel! {
    /// Turns the heads of consecutive rows.
    fn rope_rows(x: &mut [f32], positions: &[u32], width: usize, head_dim: usize, table: &[f32], inverse: bool) {
        let half = head_dim / 2;
        for (row, &position) in x.chunks_exact_mut(width).zip(positions) {
            let angles = &table[position as usize * head_dim..][..head_dim];
            let (cos, sin) = angles.split_at(half);
            for head in row.chunks_exact_mut(head_dim) {
                let (a, b) = head.split_at_mut(half);
                for (((a, b), &cos), &sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                    let sin = if inverse { -sin } else { sin };
                    let (first, second) = (*a, *b);
                    *a = first * cos - second * sin;
                    *b = second * cos + first * sin;
                }
            }
        }
    }
}

/// Turns every row's heads by the angle of its position.
pub(crate) fn rope(
    isa: Isa,
    x: &mut [f32],
    positions: &[u32],
    width: usize,
    head_dim: usize,
    table: &[f32],
    inverse: bool,
) {
    if width == 0 {
        return;
    }
    let rows = PIECE.div_ceil(width);
    if positions.len() <= rows {
        return rope_rows(isa, x, positions, width, head_dim, table, inverse);
    }
    x.par_chunks_mut(width * rows).zip(positions.par_chunks(rows)).for_each(|(x, positions)| {
        rope_rows(isa, x, positions, width, head_dim, table, inverse);
    });
}
