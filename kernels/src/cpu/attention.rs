//! Causal grouped-query attention over blocks of keys.
//!
//! A block holds, per key head, 16 keys transposed (`[head_dim][16]`) and 16 values (`[16][head_dim]`). A score is a chain of
//! fused multiply-adds over `head_dim`; the softmax denominator is summed in 16 lanes (the slots of a block) and a tree; the
//! output is a chain over keys in ascending position. Slots above a row's position are never read into a result.

use rayon::prelude::*;

use super::isa::{Isa, kernel};
use super::memory::{Aligned, Scratch};
use crate::maths::{self, LANES};
use crate::{AttentionShape, KEY_BLOCK, KernelError, Layout};

/// Blocks of keys and values of one layer.
#[derive(Clone, Debug)]
pub struct Blocks {
    pub(crate) count: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    keys: Aligned,
    values: Aligned,
}

impl Blocks {
    pub(crate) fn zeros(count: usize, shape: AttentionShape) -> Self {
        let length = count * shape.kv_heads * shape.head_dim * KEY_BLOCK;
        Self {
            count,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            keys: Aligned::zeros(length),
            values: Aligned::zeros(length),
        }
    }

    /// Number of blocks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Elements of one head of one block.
    fn head_length(&self) -> usize {
        self.head_dim * KEY_BLOCK
    }

    fn keys(&self, block: u32, head: usize) -> &[f32] {
        &self.keys.as_slice()[(block as usize * self.kv_heads + head) * self.head_length()..][..self.head_length()]
    }

    fn values(&self, block: u32, head: usize) -> &[f32] {
        &self.values.as_slice()[(block as usize * self.kv_heads + head) * self.head_length()..][..self.head_length()]
    }

    pub(crate) fn store(&mut self, k: &[f32], v: &[f32], layout: &Layout) {
        let (head_dim, length) = (self.head_dim, self.head_length());
        let width = self.kv_heads * head_dim;
        let (keys, values) = (self.keys.as_mut_slice(), self.values.as_mut_slice());
        for span in &layout.spans {
            for i in 0..span.rows as usize {
                let position = span.first_position as usize + i;
                let block = layout.table[span.first_entry as usize + position / KEY_BLOCK] as usize;
                let slot = position % KEY_BLOCK;
                let row = (span.first_row as usize + i) * width;
                for head in 0..self.kv_heads {
                    let from = row + head * head_dim;
                    let to = (block * self.kv_heads + head) * length;
                    for (d, &k) in k[from..][..head_dim].iter().enumerate() {
                        keys[to + d * KEY_BLOCK + slot] = k;
                    }
                    values[to + slot * head_dim..][..head_dim].copy_from_slice(&v[from..][..head_dim]);
                }
            }
        }
    }

    pub(crate) fn copy(&mut self, from: u32, to: u32) {
        let length = self.kv_heads * self.head_length();
        let (from, to) = (from as usize * length, to as usize * length);
        self.keys.as_mut_slice().copy_within(from..from + length, to);
        self.values.as_mut_slice().copy_within(from..from + length, to);
    }
}

kernel! {
    /// `out[j] = Σ_d q[d] · k[d][j]`.
    fn dot_lanes(q: &[f32], k: &[f32], out: &mut [f32; KEY_BLOCK]) {
        let mut sums = [0.0f32; KEY_BLOCK];
        for (q, k) in q.iter().zip(k.as_chunks::<KEY_BLOCK>().0) {
            for (sum, k) in sums.iter_mut().zip(k) {
                *sum = q.mul_add(*k, *sum);
            }
        }
        *out = sums;
    }
}

kernel! {
    /// Turns scores into `exp(score · scale - maximum)` and returns the maximum and the sum.
    fn softmax(scores: &mut [f32], count: usize, scale: f32) -> (f32, f32) {
        let mut maximum = [f32::NEG_INFINITY; LANES];
        for (block, scores) in scores.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            for (lane, (score, maximum)) in scores.iter_mut().zip(&mut maximum).enumerate() {
                let scaled = if block * LANES + lane < count { *score * scale } else { f32::NEG_INFINITY };
                *score = scaled;
                *maximum = if scaled > *maximum { scaled } else { *maximum };
            }
        }
        let maximum = maximum.into_iter().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a });
        let mut sums = [0.0f32; LANES];
        for scores in scores.as_chunks_mut::<LANES>().0 {
            for (score, sum) in scores.iter_mut().zip(&mut sums) {
                *score = maths::exp(*score - maximum);
                *sum += *score;
            }
        }
        (maximum, maths::tree(sums))
    }
}

kernel! {
    /// `out += weight · v`.
    fn axpy(weight: f32, v: &[f32], out: &mut [f32]) {
        for (out, v) in out.iter_mut().zip(v) {
            *out = weight.mul_add(*v, *out);
        }
    }
}

/// Position and first table entry of every row.
fn places(layout: &Layout) -> Vec<(usize, usize)> {
    layout
        .spans
        .iter()
        .flat_map(|span| {
            (0..span.rows as usize).map(move |i| (span.first_position as usize + i, span.first_entry as usize))
        })
        .collect()
}

/// Attention of every row; `log_sum` may be empty.
#[expect(clippy::too_many_arguments, reason = "arrays and their shape")]
pub(crate) fn attention(
    isa: Isa,
    scratch: &Scratch,
    q: &[f32],
    layout: &Layout,
    shape: AttentionShape,
    blocks: &Blocks,
    out: &mut [f32],
    log_sum: Option<&mut [f32]>,
) {
    let AttentionShape { heads, kv_heads, head_dim, scale } = shape;
    let group = heads / kv_heads;
    let places = places(layout);
    let row = |r: usize, out: &mut [f32], mut log_sum: Option<&mut [f32]>| {
        let (position, entry) = places[r];
        let count = position + 1;
        let table = &layout.table[entry..][..count.div_ceil(KEY_BLOCK)];
        let mut scores = scratch.take(table.len() * KEY_BLOCK);
        for h in 0..heads {
            let q = &q[(r * heads + h) * head_dim..][..head_dim];
            for (&block, scores) in table.iter().zip(scores.as_chunks_mut::<KEY_BLOCK>().0) {
                dot_lanes(isa, q, blocks.keys(block, h / group), scores);
            }
            let (maximum, sum) = softmax(isa, &mut scores, count, scale);
            let out = &mut out[h * head_dim..][..head_dim];
            out.fill(0.0);
            for (j, &weight) in scores[..count].iter().enumerate() {
                let values = blocks.values(table[j / KEY_BLOCK], h / group);
                axpy(isa, weight, &values[j % KEY_BLOCK * head_dim..][..head_dim], out);
            }
            let inverse = 1.0 / sum;
            out.iter_mut().for_each(|out| *out *= inverse);
            if let Some(log_sum) = &mut log_sum {
                log_sum[h] = maximum + maths::ln(sum);
            }
        }
    };
    let rows = places.len();
    let out = &mut out[..rows * heads * head_dim];
    match log_sum {
        Some(log_sum) => out
            .par_chunks_mut(heads * head_dim)
            .zip(log_sum[..rows * heads].par_chunks_mut(heads))
            .enumerate()
            .for_each(|(r, (out, log_sum))| row(r, out, Some(log_sum))),
        None => out.par_chunks_mut(heads * head_dim).enumerate().for_each(|(r, out)| row(r, out, None)),
    }
}

/// Row that owns each slot, `u32::MAX` where none does.
fn owners(operation: &'static str, layout: &Layout) -> Result<Vec<u32>, KernelError> {
    let mut owners = vec![u32::MAX; layout.block_bound() * KEY_BLOCK];
    let slot = |entry: u32, position: usize| {
        layout.table[entry as usize + position / KEY_BLOCK] as usize * KEY_BLOCK + position % KEY_BLOCK
    };
    for (i, span) in layout.spans.iter().enumerate() {
        for row in 0..span.rows {
            let owner = &mut owners[slot(span.first_entry, (span.first_position + row) as usize)];
            if *owner != u32::MAX {
                return Err(KernelError::Layout {
                    operation,
                    span: i,
                    reason: "writes a slot that another row writes",
                });
            }
            *owner = span.first_row + row;
        }
    }
    for (i, span) in layout.spans.iter().enumerate() {
        let end = if span.rows == 0 { 0 } else { (span.first_position + span.rows) as usize };
        if (0..end).any(|position| owners[slot(span.first_entry, position)] == u32::MAX) {
            return Err(KernelError::Layout { operation, span: i, reason: "sees a key that belongs to no row" });
        }
    }
    Ok(owners)
}

/// Backward of [`attention`].
#[expect(clippy::too_many_arguments, reason = "arrays and their shape")]
pub(crate) fn attention_gradient(
    isa: Isa,
    q: &[f32],
    layout: &Layout,
    shape: AttentionShape,
    blocks: &Blocks,
    out: &[f32],
    log_sum: &[f32],
    d_out: &[f32],
    dq: &mut [f32],
    dk: &mut [f32],
    dv: &mut [f32],
) -> Result<(), KernelError> {
    let AttentionShape { heads, kv_heads, head_dim, scale } = shape;
    let group = heads / kv_heads;
    let owners = owners("attention_gradient", layout)?;
    let places = places(layout);
    let rows = places.len();
    dk[..rows * kv_heads * head_dim].fill(0.0);
    dv[..rows * kv_heads * head_dim].fill(0.0);
    dq[..rows * heads * head_dim].fill(0.0);
    for (r, &(position, entry)) in places.iter().enumerate() {
        for h in 0..heads {
            let at = (r * heads + h) * head_dim;
            let (q, d_out, dq) = (&q[at..][..head_dim], &d_out[at..][..head_dim], &mut dq[at..][..head_dim]);
            let product = d_out.iter().zip(&out[at..]).fold(0.0f32, |sum, (a, b)| a.mul_add(*b, sum));
            for j in 0..=position {
                let block = layout.table[entry + j / KEY_BLOCK];
                let owner = owners[block as usize * KEY_BLOCK + j % KEY_BLOCK] as usize;
                let keys = blocks.keys(block, h / group);
                let v = &blocks.values(block, h / group)[j % KEY_BLOCK * head_dim..][..head_dim];
                let mut score = 0.0f32;
                let mut d_weight = 0.0f32;
                for d in 0..head_dim {
                    score = q[d].mul_add(keys[d * KEY_BLOCK + j % KEY_BLOCK], score);
                    d_weight = d_out[d].mul_add(v[d], d_weight);
                }
                let weight = maths::exp(score * scale - log_sum[r * heads + h]);
                let d_score = weight * (d_weight - product) * scale;
                let to = (owner * kv_heads + h / group) * head_dim;
                axpy(isa, weight, d_out, &mut dv[to..][..head_dim]);
                axpy(isa, d_score, q, &mut dk[to..][..head_dim]);
                for d in 0..head_dim {
                    dq[d] = d_score.mul_add(keys[d * KEY_BLOCK + j % KEY_BLOCK], dq[d]);
                }
            }
        }
    }
    Ok(())
}
