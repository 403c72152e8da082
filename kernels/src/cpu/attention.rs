//! Causal grouped-query attention over blocks of keys.
//!
//! A block holds, per key head, 16 keys transposed (`[head_dim][16]`) and 16 values (`[16][width]`, where `width` is `head_dim`
//! rounded up to a multiple of 16). A score is a chain of fused multiply-adds over `head_dim`; the softmax denominator is summed
//! in 16 lanes (the slots of a block) and a tree; the output is a chain over keys in ascending position. Slots above a row's
//! position are never read into a result.
//!
//! Work is cut into tiles of up to 12 pairs of a row and a query head that share a key head, row by row. A pair takes all keys
//! that the whole tile sees in one sweep with the other pairs, and the few further ones alone: the order is the same.

use rayon::prelude::*;

use super::isa::{Isa, kernel};
use super::memory::{Aligned, Scratch, Shared};
use super::tiles::{self, Blocked, TALLEST};
use crate::maths::{self, LANES};
use crate::{AttentionShape, KEY_BLOCK, KernelError, Layout, Span};

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
        let AttentionShape { kv_heads, head_dim, .. } = shape;
        let length = count * kv_heads * head_dim.next_multiple_of(LANES) * KEY_BLOCK;
        Self { count, kv_heads, head_dim, keys: Aligned::zeros(length), values: Aligned::zeros(length) }
    }

    /// Number of blocks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Elements of a value, padding included.
    fn width(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Elements of one head of one block.
    fn head_length(&self) -> usize {
        self.width() * KEY_BLOCK
    }

    fn keys<'a>(&'a self, head: usize, table: &'a [u32]) -> Blocked<'a> {
        blocked(self.keys.as_slice(), self.kv_heads, self.head_length(), head, table)
    }

    fn values<'a>(&'a self, head: usize, table: &'a [u32]) -> Blocked<'a> {
        blocked(self.values.as_slice(), self.kv_heads, self.head_length(), head, table)
    }

    pub(crate) fn store(&mut self, k: &[f32], v: &[f32], layout: &Layout) {
        let (head_dim, width, length) = (self.head_dim, self.width(), self.head_length());
        let row_length = self.kv_heads * head_dim;
        let (keys, values) = (self.keys.as_mut_slice(), self.values.as_mut_slice());
        for span in &layout.spans {
            for i in 0..span.rows as usize {
                let position = span.first_position as usize + i;
                let block = layout.table[span.first_entry as usize + position / KEY_BLOCK] as usize;
                let slot = position % KEY_BLOCK;
                let row = (span.first_row as usize + i) * row_length;
                for head in 0..self.kv_heads {
                    let from = row + head * head_dim;
                    let to = (block * self.kv_heads + head) * length;
                    for (d, &k) in k[from..][..head_dim].iter().enumerate() {
                        keys[to + d * KEY_BLOCK + slot] = k;
                    }
                    values[to + slot * width..][..head_dim].copy_from_slice(&v[from..][..head_dim]);
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

fn blocked<'a>(values: &'a [f32], heads: usize, head_length: usize, head: usize, table: &'a [u32]) -> Blocked<'a> {
    Blocked { values: values.get(head * head_length..).unwrap_or(&[]), stride: heads * head_length, table }
}

kernel! {
    /// Turns the scores of row `m` of a tile into `exp(score · scale - maximum)`; returns the
    /// log of their sum before the maximum was taken off, and the reciprocal of the sum.
    fn softmax(scores: &mut [f32], m: usize, count: usize, scale: f32) -> (f32, f32) {
        let blocks = count.div_ceil(KEY_BLOCK);
        let mut maxima = [f32::NEG_INFINITY; LANES];
        for (e, block) in scores.as_chunks_mut::<{ TALLEST * KEY_BLOCK }>().0[..blocks].iter_mut().enumerate() {
            let scores = &mut block.as_chunks_mut::<KEY_BLOCK>().0[m];
            let seen = count - e * KEY_BLOCK;
            for (j, (score, maximum)) in scores.iter_mut().zip(&mut maxima).enumerate() {
                let scaled = if j < seen { *score * scale } else { f32::NEG_INFINITY };
                *score = scaled;
                *maximum = if scaled > *maximum { scaled } else { *maximum };
            }
        }
        let maximum = maxima.into_iter().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a });
        let mut sums = [0.0f32; LANES];
        for block in &mut scores.as_chunks_mut::<{ TALLEST * KEY_BLOCK }>().0[..blocks] {
            let scores = &mut block.as_chunks_mut::<KEY_BLOCK>().0[m];
            for (score, sum) in scores.iter_mut().zip(&mut sums) {
                *score = maths::exp(*score - maximum);
                *sum += *score;
            }
        }
        let sum = maths::tree(sums);
        (maximum + maths::ln(sum), 1.0 / sum)
    }
}

kernel! {
    /// Turns the scores of row `m` of a tile into their gradients, and the gradients of its weights into the weights.
    fn score_gradients(
        scores: &mut [f32],
        d_weights: &mut [f32],
        m: usize,
        count: usize,
        scale: f32,
        log_sum: f32,
        product: f32,
    ) {
        let blocks = count.div_ceil(KEY_BLOCK);
        let scores = &mut scores.as_chunks_mut::<{ TALLEST * KEY_BLOCK }>().0[..blocks];
        let d_weights = &mut d_weights.as_chunks_mut::<{ TALLEST * KEY_BLOCK }>().0[..blocks];
        for (e, (scores, d_weights)) in scores.iter_mut().zip(d_weights).enumerate() {
            let scores = &mut scores.as_chunks_mut::<KEY_BLOCK>().0[m];
            let d_weights = &mut d_weights.as_chunks_mut::<KEY_BLOCK>().0[m];
            let seen = count - e * KEY_BLOCK;
            for (j, (score, d_weight)) in scores.iter_mut().zip(d_weights).enumerate() {
                let weight = maths::exp(*score * scale - log_sum);
                let d_score = weight * (*d_weight - product) * scale;
                *score = if j < seen { d_score } else { 0.0 };
                *d_weight = if j < seen { weight } else { 0.0 };
            }
        }
    }
}

kernel! {
    /// `out += weight · v`.
    fn add_weighted(weight: f32, v: &[f32], out: &mut [f32]) {
        for (out, v) in out.iter_mut().zip(v) {
            *out = weight.mul_add(*v, *out);
        }
    }
}

kernel! {
    /// `Σ_d a[d][m] · b[d][m]` for every pair of a tile, in ascending `d` as in `tiles::scores`: a row that sees one key gets a
    /// gradient of exactly 0.
    fn products_of(a: &[f32], b: &[f32]) -> [f32; TALLEST] {
        let mut sums = [0.0f32; TALLEST];
        for (a, b) in a.as_chunks::<TALLEST>().0.iter().zip(b.as_chunks::<TALLEST>().0) {
            for m in 0..TALLEST {
                sums[m] = a[m].mul_add(b[m], sums[m]);
            }
        }
        sums
    }
}

/// Up to 12 pairs of a row of `span` and a query head of key head `head`.
#[derive(Clone, Copy, Debug)]
struct Tile {
    span: Span,
    head: usize,
    /// First pair: pair `p` is row `p / group` of the span and head `p % group` of the group.
    first: usize,
    pairs: usize,
    group: usize,
    heads: usize,
}

impl Tile {
    /// Index of pair `m` among all rows and heads.
    fn pair(&self, m: usize) -> usize {
        let p = self.first + m;
        (self.span.first_row as usize + p / self.group) * self.heads + self.head * self.group + p % self.group
    }

    /// Keys that pair `m` sees.
    fn count(&self, m: usize) -> usize {
        self.span.first_position as usize + (self.first + m) / self.group + 1
    }

    /// Copies pairs to rows of `width`.
    fn gather_rows(&self, x: &[f32], head_dim: usize, width: usize, rows: &mut [f32]) {
        for (m, row) in rows.chunks_exact_mut(width).take(self.pairs).enumerate() {
            row[..head_dim].copy_from_slice(&x[self.pair(m) * head_dim..][..head_dim]);
            row[head_dim..].fill(0.0);
        }
    }

    /// Copies pairs, transposed, to `[head_dim][TALLEST]`.
    fn gather(&self, x: &[f32], head_dim: usize, packed: &mut [f32]) {
        for m in 0..self.pairs {
            let x = &x[self.pair(m) * head_dim..][..head_dim];
            for (packed, &x) in packed.chunks_exact_mut(TALLEST).zip(x) {
                packed[m] = x;
            }
        }
    }
}

/// All tiles of a layout, by span, key head and first pair, and the number of multiply-adds of one product over them.
fn tiles(layout: &Layout, shape: AttentionShape) -> (Vec<Tile>, usize) {
    let AttentionShape { heads, kv_heads, head_dim, .. } = shape;
    let group = heads / kv_heads;
    let (mut tiles, mut work) = (Vec::new(), 0);
    for &span in &layout.spans {
        let pairs = span.rows as usize * group;
        work += pairs * heads * (span.first_position + span.rows) as usize * head_dim;
        for head in 0..kv_heads {
            tiles.extend((0..pairs).step_by(TALLEST).map(|first| Tile {
                span,
                head,
                first,
                pairs: TALLEST.min(pairs - first),
                group,
                heads,
            }));
        }
    }
    (tiles, work)
}

/// Work below this many multiply-adds stays on the calling thread.
const SERIAL: usize = 1 << 17;

fn for_each<T: Sync>(work: usize, items: &[T], f: impl Fn(&T) + Send + Sync) {
    if work < SERIAL {
        items.iter().for_each(f);
    } else {
        items.par_iter().for_each(f);
    }
}

/// `out[m] = Σ_j weights[j][m] · values[j]` for the pairs of a tile.
fn weigh(isa: Isa, tile: &Tile, weights: &[f32], values: Blocked<'_>, width: usize, out: &mut [f32]) {
    let common = tile.count(0);
    tiles::weighted(isa, tile.pairs, weights, values, common, width, out);
    for (m, out) in out.chunks_exact_mut(width).take(tile.pairs).enumerate() {
        for j in common..tile.count(m) {
            let (e, slot) = (j / KEY_BLOCK, j % KEY_BLOCK);
            let value = &values.values[values.table[e] as usize * values.stride + slot * width..][..width];
            add_weighted(isa, weights[(e * TALLEST + m) * KEY_BLOCK + slot], value, out);
        }
    }
}

/// Attention of every row.
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
    let (head_dim, width) = (shape.head_dim, blocks.width());
    let (tiles, work) = tiles(layout, shape);
    let (out, log_sum) = (Shared::new(out), log_sum.map(Shared::new));
    for_each(work, &tiles, |tile| {
        let table = &layout.table[tile.span.first_entry as usize..];
        let table = &table[..tile.count(tile.pairs - 1).div_ceil(KEY_BLOCK)];
        let mut buffer = scratch.take(TALLEST * (2 * width + table.len() * KEY_BLOCK));
        let (packed, rest) = buffer.split_at_mut(TALLEST * width);
        let (rows, scores) = rest.split_at_mut(TALLEST * width);
        tile.gather(q, head_dim, packed);
        tiles::scores(isa, tile.pairs, head_dim, packed, blocks.keys(tile.head, table), scores);
        let mut inverses = [0.0; TALLEST];
        for (m, inverse) in inverses.iter_mut().enumerate().take(tile.pairs) {
            let (row_log_sum, row_inverse) = softmax(isa, scores, m, tile.count(m), shape.scale);
            *inverse = row_inverse;
            if let Some(log_sum) = &log_sum {
                // SAFETY: a pair belongs to one tile, and a tile is worked on by one thread.
                unsafe { log_sum.put(tile.pair(m), row_log_sum) };
            }
        }
        weigh(isa, tile, scores, blocks.values(tile.head, table), width, rows);
        for (m, row) in rows.chunks_exact(width).take(tile.pairs).enumerate() {
            // SAFETY: as above.
            let out = unsafe { out.slice(tile.pair(m) * head_dim, head_dim) };
            out.iter_mut().zip(row).for_each(|(out, sum)| *out = sum * inverses[m]);
        }
    });
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

/// A span that sees a block.
#[derive(Clone, Copy, Debug)]
struct Visit {
    /// New number of the block.
    number: u32,
    span: Span,
    /// Position of the block's first slot.
    start: usize,
    /// Number of the span's first tile.
    tile: usize,
}

/// The blocks that a layout uses, renumbered from 0 on, and who sees them.
struct Uses {
    /// Block numbers.
    blocks: Vec<u32>,
    /// The block table with new numbers.
    table: Vec<u32>,
    /// By number, then in the order of spans.
    visits: Vec<Visit>,
}

impl Uses {
    fn new(layout: &Layout, shape: AttentionShape) -> Self {
        let group = shape.heads / shape.kv_heads;
        let mut tile = 0;
        let mut numbers = vec![u32::MAX; layout.block_bound()];
        let mut uses = Self { blocks: Vec::new(), table: vec![0; layout.table.len()], visits: Vec::new() };
        for &span in layout.spans.iter().filter(|span| span.rows > 0) {
            let first = span.first_entry as usize;
            let count = ((span.first_position + span.rows) as usize).div_ceil(KEY_BLOCK);
            for (e, &block) in layout.table[first..first + count].iter().enumerate() {
                let number = &mut numbers[block as usize];
                if *number == u32::MAX {
                    *number = uses.blocks.len() as u32;
                    uses.blocks.push(block);
                }
                uses.table[first + e] = *number;
                uses.visits.push(Visit { number: *number, span, start: e * KEY_BLOCK, tile });
            }
            tile += shape.kv_heads * (span.rows as usize * group).div_ceil(TALLEST);
        }
        uses.visits.sort_by_key(|visit| visit.number);
        uses
    }
}

/// Pairs whose gradients of keys and values are gathered before they are added.
const GATHERED: usize = 4 * TALLEST;

/// Backward of [`attention`]: first `dq`, tile by tile, then `dk` and `dv`, block by block. Scores are computed anew both times.
#[expect(clippy::too_many_arguments, reason = "arrays and their shape")]
pub(crate) fn attention_gradient(
    isa: Isa,
    scratch: &Scratch,
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
    let (width, length) = (blocks.width(), blocks.head_length());
    let owners = owners("attention_gradient", layout)?;
    let uses = Uses::new(layout, shape);
    let (tiles, work) = tiles(layout, shape);

    // Keys by row and values by column, so that every product below has its reduction outermost.
    let mut key_rows = scratch.take(uses.blocks.len() * kv_heads * length);
    let mut value_columns = scratch.take(uses.blocks.len() * kv_heads * length);
    let turn = |(i, (key_rows, value_columns)): (usize, (&mut [f32], &mut [f32]))| {
        let block = uses.blocks[i / kv_heads] as usize;
        let from = (block * kv_heads + i % kv_heads) * length;
        let (keys, values) = (&blocks.keys.as_slice()[from..][..length], &blocks.values.as_slice()[from..][..length]);
        for d in 0..width {
            for j in 0..KEY_BLOCK {
                key_rows[j * width + d] = keys[d * KEY_BLOCK + j];
                value_columns[d * KEY_BLOCK + j] = values[j * width + d];
            }
        }
    };
    key_rows.par_chunks_mut(length).zip(value_columns.par_chunks_mut(length)).enumerate().for_each(turn);
    let (key_rows, value_columns) = (&*key_rows, &*value_columns);

    // What the second pass needs of the first one, by tile: `q` and `d_out` packed, and `d_out · out`.
    let packed_length = TALLEST * head_dim;
    let mut packed_q = scratch.take(tiles.len() * packed_length);
    let mut packed_d = scratch.take(tiles.len() * packed_length);
    let mut products = scratch.take(tiles.len() * TALLEST);
    let (shared_q, shared_d) = (Shared::new(&mut packed_q), Shared::new(&mut packed_d));
    let (dq, shared_products) = (Shared::new(dq), Shared::new(&mut products));
    let numbered: Vec<usize> = (0..tiles.len()).collect();
    for_each(work, &numbered, |&number| {
        let tile = &tiles[number];
        let entries = tile.span.first_entry as usize..;
        let count = tile.count(tile.pairs - 1).div_ceil(KEY_BLOCK);
        let table = &layout.table[entries.clone()][..count];
        let local = &uses.table[entries][..count];
        // SAFETY: a tile is worked on by one thread.
        let (packed, packed_d, products) = unsafe {
            (
                shared_q.slice(number * packed_length, packed_length),
                shared_d.slice(number * packed_length, packed_length),
                shared_products.slice(number * TALLEST, TALLEST),
            )
        };
        let mut buffer = scratch.take(TALLEST * (2 * width + 2 * count * KEY_BLOCK));
        let (packed_out, rest) = buffer.split_at_mut(TALLEST * width);
        let (rows, rest) = rest.split_at_mut(TALLEST * width);
        let (scores, d_weights) = rest.split_at_mut(TALLEST * count * KEY_BLOCK);
        tile.gather(q, head_dim, packed);
        tiles::scores(isa, tile.pairs, head_dim, packed, blocks.keys(tile.head, table), scores);
        tile.gather(d_out, head_dim, packed_d);
        let columns = blocked(value_columns, kv_heads, length, tile.head, local);
        tiles::scores(isa, tile.pairs, head_dim, packed_d, columns, d_weights);
        tile.gather(out, head_dim, packed_out);
        products.copy_from_slice(&products_of(isa, packed_d, &packed_out[..packed_length]));
        for (m, &product) in products.iter().enumerate().take(tile.pairs) {
            score_gradients(isa, scores, d_weights, m, tile.count(m), scale, log_sum[tile.pair(m)], product);
        }
        weigh(isa, tile, scores, blocked(key_rows, kv_heads, length, tile.head, local), width, rows);
        for (m, row) in rows.chunks_exact(width).take(tile.pairs).enumerate() {
            // SAFETY: a pair belongs to one tile, and a tile is worked on by one thread.
            unsafe { dq.slice(tile.pair(m) * head_dim, head_dim) }.copy_from_slice(&row[..head_dim]);
        }
    });

    let (packed_q, packed_d, products) = (&*packed_q, &*packed_d, &*products);
    let (dk, dv) = (Shared::new(dk), Shared::new(dv));
    let heads_of_blocks: Vec<(u32, usize)> =
        (0..uses.blocks.len() as u32).flat_map(|number| (0..kv_heads).map(move |head| (number, head))).collect();
    for_each(work, &heads_of_blocks, |&(number, head)| {
        let block = uses.blocks[number as usize];
        let mut buffer = scratch.take(2 * length + GATHERED * (2 * width + 2 * KEY_BLOCK));
        let (d_keys, rest) = buffer.split_at_mut(length);
        let (d_values, rest) = rest.split_at_mut(length);
        let (q_rows, rest) = rest.split_at_mut(GATHERED * width);
        let (d_rows, rest) = rest.split_at_mut(GATHERED * width);
        let (scores, d_weights) = rest.split_at_mut(GATHERED * KEY_BLOCK);
        d_keys.fill(0.0);
        d_values.fill(0.0);
        let keys = blocks.keys(head, std::slice::from_ref(&block));
        let columns = blocked(value_columns, kv_heads, length, head, std::slice::from_ref(&number));
        let from = uses.visits.partition_point(|visit| visit.number < number);
        let to = uses.visits.partition_point(|visit| visit.number <= number);
        for &Visit { span, start, tile, .. } in &uses.visits[from..to] {
            let group = heads / kv_heads;
            let end = span.rows as usize * group;
            // Earlier rows do not see the block.
            let begin = start.saturating_sub(span.first_position as usize) * group / TALLEST * TALLEST;
            let first_tile = tile + head * end.div_ceil(TALLEST);
            for first in (begin..end).step_by(GATHERED) {
                let pairs = GATHERED.min(end - first);
                let whole = Tile { span, head, first, pairs, group, heads };
                whole.gather_rows(q, head_dim, width, q_rows);
                whole.gather_rows(d_out, head_dim, width, d_rows);
                for top in (0..pairs).step_by(TALLEST) {
                    let tile = Tile { first: first + top, pairs: TALLEST.min(pairs - top), ..whole };
                    let number = first_tile + tile.first / TALLEST;
                    let scores = &mut scores[top * KEY_BLOCK..][..TALLEST * KEY_BLOCK];
                    let d_weights = &mut d_weights[top * KEY_BLOCK..][..TALLEST * KEY_BLOCK];
                    let packed = number * packed_length..(number + 1) * packed_length;
                    tiles::scores(isa, tile.pairs, head_dim, &packed_q[packed.clone()], keys, scores);
                    tiles::scores(isa, tile.pairs, head_dim, &packed_d[packed], columns, d_weights);
                    for m in 0..tile.pairs {
                        let seen = KEY_BLOCK.min(tile.count(m).saturating_sub(start));
                        let (log_sum, product) = (log_sum[tile.pair(m)], products[number * TALLEST + m]);
                        score_gradients(isa, scores, d_weights, m, seen, scale, log_sum, product);
                    }
                }
                // The first pairs may not see the whole block; the others do.
                let partial = (0..pairs).take_while(|&m| whole.count(m) < start + KEY_BLOCK).count();
                for m in 0..partial {
                    for j in 0..whole.count(m).saturating_sub(start) {
                        let (weight, d_score) = (d_weights[m * KEY_BLOCK + j], scores[m * KEY_BLOCK + j]);
                        add_weighted(isa, weight, &d_rows[m * width..][..width], &mut d_values[j * width..][..width]);
                        add_weighted(isa, d_score, &q_rows[m * width..][..width], &mut d_keys[j * width..][..width]);
                    }
                }
                let rest = pairs - partial;
                let (at, row) = (partial * KEY_BLOCK, partial * width);
                tiles::outer(isa, rest, &d_weights[at..], &d_rows[row..], width, d_values);
                tiles::outer(isa, rest, &scores[at..], &q_rows[row..], width, d_keys);
            }
        }
        for j in 0..KEY_BLOCK {
            let owner = owners[block as usize * KEY_BLOCK + j];
            if owner == u32::MAX {
                continue;
            }
            let row = (owner as usize * kv_heads + head) * head_dim;
            // SAFETY: a row owns one slot, and a slot belongs to one block.
            let (dk, dv) = unsafe { (dk.slice(row, head_dim), dv.slice(row, head_dim)) };
            dk.copy_from_slice(&d_keys[j * width..][..head_dim]);
            dv.copy_from_slice(&d_values[j * width..][..head_dim]);
        }
    });
    Ok(())
}
