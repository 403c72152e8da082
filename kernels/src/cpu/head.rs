//! The output head: log-probability and entropy over the vocabulary, chunk by chunk, and the gradient of both.
//!
//! Statistics of a row are those of its chunks of [`CHUNK`] columns, joined in ascending order. `sample` sees whole rows and
//! uses the same chunks, so both give the same bits.

use rayon::prelude::*;

use super::gemm::{self, Left, Matrix, Output, Right};
use super::isa::{Isa, kernel};
use super::memory::Scratch;
use super::tiles::PANEL;
use crate::maths::{self, LANES};
use crate::{HeadShape, KernelError};

/// Columns of the vocabulary that are worked on at a time.
pub(crate) const CHUNK: usize = 1024;

/// Where `z` is this far below the maximum, `exp` is 0; clamping keeps `0 · ∞` out.
const FLOOR: f32 = -110.0;

/// Softmax statistics of one chunk: `Σ e^(z - maximum)` and `Σ e^(z - maximum) (z - maximum)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    maximum: f32,
    sum: f32,
    weighted: f32,
}

kernel! {
    /// Divides by the temperature.
    pub(crate) fn divide(z: &mut [f32], temperature: f32) {
        for z in z {
            *z /= temperature;
        }
    }
}

kernel! {
    /// Statistics of one chunk.
    pub(crate) fn part(z: &[f32]) -> Part {
        let mut maxima = [f32::NEG_INFINITY; LANES];
        let (whole, rest) = z.as_chunks::<LANES>();
        for z in whole {
            for (maximum, &z) in maxima.iter_mut().zip(z) {
                *maximum = if z > *maximum { z } else { *maximum };
            }
        }
        for (maximum, &z) in maxima.iter_mut().zip(rest) {
            *maximum = if z > *maximum { z } else { *maximum };
        }
        let maximum = maxima.into_iter().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a });
        // Any base will do when nothing is possible; 0 avoids `∞ - ∞`.
        let base = if maximum == f32::NEG_INFINITY { 0.0 } else { maximum };
        let (mut sums, mut weighted) = ([0.0f32; LANES], [0.0f32; LANES]);
        for z in whole {
            for lane in 0..LANES {
                let d = z[lane] - base;
                let d = if d < FLOOR { FLOOR } else { d };
                let e = maths::exp(d);
                sums[lane] += e;
                weighted[lane] = e.mul_add(d, weighted[lane]);
            }
        }
        for (lane, z) in rest.iter().enumerate() {
            let d = z - base;
            let d = if d < FLOOR { FLOOR } else { d };
            let e = maths::exp(d);
            sums[lane] += e;
            weighted[lane] = e.mul_add(d, weighted[lane]);
        }
        Part { maximum, sum: maths::tree(sums), weighted: maths::tree(weighted) }
    }
}

/// Softmax statistics of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statistics {
    maximum: f32,
    sum: f64,
    weighted: f64,
}

impl Statistics {
    pub(crate) const EMPTY: Self = Self { maximum: f32::NEG_INFINITY, sum: 0.0, weighted: 0.0 };

    /// Joins the next chunk.
    pub(crate) fn join(&mut self, part: Part) {
        let (sum, weighted) = (f64::from(part.sum), f64::from(part.weighted));
        if part.sum == 0.0 {
            return;
        }
        if self.sum == 0.0 {
            *self = Self { maximum: part.maximum, sum, weighted };
            return;
        }
        let maximum = if part.maximum > self.maximum { part.maximum } else { self.maximum };
        let (old, new) = (self.maximum - maximum, part.maximum - maximum);
        let (old_factor, new_factor) = (f64::from(maths::exp(old)), f64::from(maths::exp(new)));
        // An infinite difference has factor 0; its product must be 0 as well.
        let old_weighted = if old_factor == 0.0 { 0.0 } else { self.weighted + self.sum * f64::from(old) };
        let new_weighted = if new_factor == 0.0 { 0.0 } else { weighted + sum * f64::from(new) };
        self.weighted = old_factor * old_weighted + new_factor * new_weighted;
        self.sum = old_factor * self.sum + new_factor * sum;
        self.maximum = maximum;
    }

    /// Log-probability of a token with this `z`.
    pub(crate) fn logprob(&self, z: f32) -> f32 {
        (f64::from(z) - f64::from(self.maximum) - maths::ln_wide(self.sum)) as f32
    }

    /// Entropy in nats.
    pub(crate) fn entropy(&self) -> f32 {
        let entropy = (maths::ln_wide(self.sum) - self.weighted / self.sum) as f32;
        if entropy < 0.0 { 0.0 } else { entropy }
    }

    /// `ln Σ e^z`.
    pub(crate) fn log_sum(&self) -> f32 {
        (f64::from(self.maximum) + maths::ln_wide(self.sum)) as f32
    }

    /// Whether every number that went in was finite or `-∞`, and one was finite.
    pub(crate) fn is_finite(&self) -> bool {
        self.maximum.is_finite() && self.sum.is_finite() && self.sum > 0.0
    }
}

/// Packs rows once for all chunks.
fn pack<'a>(isa: Isa, x: &[f32], rows: usize, width: usize, packed: &'a mut [f32]) -> Left<'a> {
    let height = gemm::tile_height(isa, rows);
    gemm::pack_rows(x, rows, width, height, packed);
    Left { values: packed, rows, height }
}

/// Logits of the chunk that starts at `first`, divided by the temperature.
fn chunk_logits(
    isa: Isa,
    scratch: &Scratch,
    left: Left<'_>,
    matrix: &Matrix,
    shape: HeadShape,
    first: usize,
    logits: &mut [f32],
) {
    let columns = CHUNK.min(shape.vocabulary - first);
    let panels = &matrix.panels.as_slice()[first / PANEL * PANEL * shape.width..];
    let output = Output { values: logits, stride: columns, columns, resume: false, bias: None, add: false };
    gemm::multiply(isa, scratch, left, shape.width, Right::Panels(panels), output);
}

/// Log-probabilities of the targets, entropies and log-sum-exps.
#[expect(clippy::too_many_arguments, reason = "arrays and their shape")]
pub(crate) fn head(
    isa: Isa,
    scratch: &Scratch,
    x: &[f32],
    rows: usize,
    matrix: &Matrix,
    shape: HeadShape,
    targets: &[u32],
    logprob: &mut [f32],
    entropy: &mut [f32],
    log_sum: &mut [f32],
) -> Result<(), KernelError> {
    if rows == 0 {
        return Ok(());
    }
    let mut packed = scratch.take(rows * shape.width);
    let left = pack(isa, x, rows, shape.width, &mut packed);
    let mut logits = scratch.take(rows * CHUNK.min(shape.vocabulary));
    let mut states = vec![(Statistics::EMPTY, 0.0f32); rows];
    for first in (0..shape.vocabulary).step_by(CHUNK) {
        let columns = CHUNK.min(shape.vocabulary - first);
        chunk_logits(isa, scratch, left, matrix, shape, first, &mut logits);
        states.par_iter_mut().zip(logits.par_chunks_mut(columns)).zip(targets).for_each(|((state, z), &target)| {
            divide(isa, z, shape.temperature);
            state.0.join(part(isa, z));
            if let Some(&z) = (target as usize).checked_sub(first).and_then(|target| z.get(target)) {
                state.1 = z;
            }
        });
    }
    for (row, (state, z)) in states.iter().enumerate() {
        logprob[row] = state.logprob(*z);
        entropy[row] = state.entropy();
        log_sum[row] = state.log_sum();
    }
    match states.iter().position(|(state, _)| !state.is_finite()) {
        None => Ok(()),
        Some(row) => Err(KernelError::NotFinite { operation: "head", row }),
    }
}

/// What turns a row's logits into their gradient.
#[derive(Clone, Copy, Debug)]
struct Upstream {
    temperature: f32,
    log_sum: f32,
    entropy: f32,
    d_logprob: f32,
    d_entropy: f32,
}

kernel! {
    /// Turns a chunk of logits into `-d_logprob · p - d_entropy · p · (ln p + entropy)`, divided by the temperature.
    fn logit_gradient(z: &mut [f32], upstream: Upstream) {
        let Upstream { temperature, log_sum, entropy, d_logprob, d_entropy } = upstream;
        for z in z {
            let ln_p = *z / temperature - log_sum;
            let ln_p = if ln_p < FLOOR { FLOOR } else { ln_p };
            let p = maths::exp(ln_p);
            *z = -(p * d_entropy.mul_add(ln_p + entropy, d_logprob)) / temperature;
        }
    }
}

/// Backward of [`head`].
#[expect(clippy::too_many_arguments, reason = "arrays and their shape")]
pub(crate) fn head_gradient(
    isa: Isa,
    scratch: &Scratch,
    x: &[f32],
    rows: usize,
    weights: &[f32],
    matrix: &Matrix,
    shape: HeadShape,
    targets: &[u32],
    log_sum: &[f32],
    entropy: &[f32],
    d_logprob: &[f32],
    d_entropy: &[f32],
    dx: &mut [f32],
    d_weights: &mut [f32],
) {
    let width = shape.width;
    if rows == 0 {
        return;
    }
    dx[..rows * width].fill(0.0);
    let mut packed = scratch.take(rows * width);
    let left = pack(isa, x, rows, width, &mut packed);
    let chunk = CHUNK.min(shape.vocabulary);
    let mut logits = scratch.take(rows * chunk);
    let mut turned = scratch.take(rows * chunk);
    for first in (0..shape.vocabulary).step_by(CHUNK) {
        let columns = CHUNK.min(shape.vocabulary - first);
        chunk_logits(isa, scratch, left, matrix, shape, first, &mut logits);
        logits[..rows * columns].par_chunks_mut(columns).enumerate().for_each(|(row, z)| {
            let upstream = Upstream {
                temperature: shape.temperature,
                log_sum: log_sum[row],
                entropy: entropy[row],
                d_logprob: d_logprob[row],
                d_entropy: d_entropy[row],
            };
            logit_gradient(isa, z, upstream);
            if let Some(z) = (targets[row] as usize).checked_sub(first).and_then(|target| z.get_mut(target)) {
                *z += d_logprob[row] / shape.temperature;
            }
        });
        let weights = &weights[first * width..][..columns * width];
        input_gradient(isa, scratch, &logits, rows, columns, width, weights, dx, true, &mut turned);
        let d_weights = &mut d_weights[first * width..][..columns * width];
        weight_gradient(isa, scratch, x, &logits, rows, columns, width, d_weights);
    }
}

/// `dx (+)= dy · weights`; `resume` lets the chain start at `dx`.
#[expect(clippy::too_many_arguments, reason = "arrays and their shape")]
fn input_gradient(
    isa: Isa,
    scratch: &Scratch,
    dy: &[f32],
    rows: usize,
    outputs: usize,
    inputs: usize,
    weights: &[f32],
    dx: &mut [f32],
    resume: bool,
    packed: &mut [f32],
) {
    let left = pack(isa, dy, rows, outputs, packed);
    let right = Right::Rows { values: weights, stride: inputs };
    let output = Output { values: dx, stride: inputs, columns: inputs, resume, bias: None, add: false };
    gemm::multiply(isa, scratch, left, outputs, right, output);
}

/// `dw[o, i] += Σ_r dy[r, o] · x[r, i]`, a chain that starts at `dw` and ascends in `r`.
#[expect(clippy::too_many_arguments, reason = "arrays and their shape")]
pub(crate) fn weight_gradient(
    isa: Isa,
    scratch: &Scratch,
    x: &[f32],
    dy: &[f32],
    rows: usize,
    outputs: usize,
    inputs: usize,
    dw: &mut [f32],
) {
    const DEPTH: usize = 512;
    let height = gemm::tile_height(isa, outputs);
    let mut packed = scratch.take(outputs * DEPTH.min(rows));
    for first in (0..rows).step_by(DEPTH) {
        let depth = DEPTH.min(rows - first);
        gemm::pack_columns(&dy[first * outputs..][..depth * outputs], outputs, depth, height, &mut packed);
        let left = Left { values: &packed, rows: outputs, height };
        let right = Right::Rows { values: &x[first * inputs..], stride: inputs };
        let output = Output { values: dw, stride: inputs, columns: inputs, resume: true, bias: None, add: false };
        gemm::multiply(isa, scratch, left, depth, right, output);
    }
}
