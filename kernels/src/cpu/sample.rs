//! Choosing tokens.

use rayon::prelude::*;

use super::head::{self, CHUNK, Statistics};
use super::isa::{Isa, kernel};
use super::memory::Scratch;
use crate::maths::{self, LANES};
use crate::{Choice, KernelError};

const OPERATION: &str = "sample";

kernel! {
    /// `Σ e^(z - maximum)` in 16 lanes of f64 and a tree.
    fn mass(z: &[f32], maximum: f32) -> f64 {
        let mut lanes = [0.0f64; LANES];
        for z in z.chunks(LANES) {
            for (sum, &z) in lanes.iter_mut().zip(z) {
                *sum += f64::from(maths::exp(z - maximum));
            }
        }
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
        }
        lanes[0]
    }
}

/// What came of one row.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    id: u32,
    logprob: f32,
    entropy: f32,
}

/// A number whose ascending order is: best first, and the lower id first among equals.
#[inline(always)]
fn rank(z: f32, id: u32) -> u64 {
    // Adding 0 turns -0 into 0. Flipping the sign bit of positive numbers, and all bits of negative ones, orders as the
    // numbers do; no NaN gets here, as the statistics of the row are finite.
    let bits = (z + 0.0).to_bits();
    let ascending = if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits };
    u64::from(!ascending) << 32 | u64::from(id)
}

/// A row's logits at its temperature, `-∞` where banned.
struct Row<'a> {
    z: &'a [f32],
    maximum: f32,
}

impl Row<'_> {
    fn weight(&self, id: u32) -> f64 {
        f64::from(maths::exp(self.z[id as usize] - self.maximum))
    }

    /// The ranks of all ids that may be chosen, in no order.
    fn unsorted_ranks(&self) -> Vec<u64> {
        let ids = self.z.iter().zip(0u32..);
        ids.filter(|&(&z, _)| z != f32::NEG_INFINITY).map(|(&z, id)| rank(z, id)).collect()
    }

    /// Draws from all ids: first a chunk, then an id in it.
    fn draw(&self, isa: Isa, uniform: f64) -> Option<u32> {
        let masses: Vec<f64> = self.z.chunks(CHUNK).map(|z| mass(isa, z, self.maximum)).collect();
        let total = masses.iter().fold(0.0, |sum, mass| sum + mass);
        let goal = uniform * total;
        let mut before = 0.0;
        let mut chosen = None;
        for (chunk, &mass) in masses.iter().enumerate() {
            if mass > 0.0 {
                chosen = Some((chunk, before));
                if before + mass > goal {
                    break;
                }
            }
            before += mass;
        }
        let (chunk, mut before) = chosen?;
        let mut id = None;
        for candidate in chunk * CHUNK..self.z.len().min((chunk + 1) * CHUNK) {
            let weight = self.weight(candidate as u32);
            if weight > 0.0 {
                id = Some(candidate as u32);
                before += weight;
                if before > goal {
                    break;
                }
            }
        }
        id
    }

    /// Draws from the ids that `choice` keeps.
    fn draw_truncated(&self, isa: Isa, choice: &Choice) -> Option<u32> {
        let mut ranks = self.unsorted_ranks();
        let top_k = if choice.top_k == 0 { ranks.len() } else { ranks.len().min(choice.top_k as usize) };
        // Without a limit on the number, sort only as many as the limit on the probability needs.
        let mut count = if choice.top_k == 0 { 256.min(top_k) } else { top_k };
        let all =
            (choice.top_k == 0).then(|| self.z.chunks(CHUNK).fold(0.0, |sum, z| sum + mass(isa, z, self.maximum)));
        let (mut sorted, mut weights) = (0, Vec::new());
        loop {
            // The best `sorted` are in their place already.
            if count < ranks.len() {
                ranks[sorted..].select_nth_unstable(count - sorted);
            }
            ranks[sorted..count].sort_unstable();
            weights.extend(ranks[sorted..count].iter().map(|&rank| self.weight(rank as u32)));
            sorted = count;
            let first = *weights.first()?;
            let total = all.unwrap_or_else(|| weights.iter().sum());
            let mut before = 0.0;
            let mut kept = count;
            for (i, &weight) in weights.iter().enumerate() {
                let too_late = choice.top_p < 1.0 && i > 0 && before >= f64::from(choice.top_p) * total;
                if weight == 0.0 || too_late || weight < f64::from(choice.min_p) * first {
                    kept = i;
                    break;
                }
                before += weight;
            }
            if kept == count && count < top_k {
                count = (count * 8).min(top_k);
                continue;
            }
            let weights = &weights[..kept.max(1)];
            let goal = choice.uniform * weights.iter().sum::<f64>();
            let mut sum = 0.0;
            let drawn = weights.iter().position(|&weight| {
                sum += weight;
                sum > goal
            });
            return Some(ranks[drawn.unwrap_or(weights.len() - 1)] as u32);
        }
    }
}

fn draw(
    isa: Isa,
    row: usize,
    logits: &[f32],
    banned: &[u32],
    choice: &Choice,
    z: &mut [f32],
) -> Result<Drawn, KernelError> {
    let mut statistics = Statistics::EMPTY;
    for (z, logits) in z.chunks_mut(CHUNK).zip(logits.chunks(CHUNK)) {
        z.copy_from_slice(logits);
        head::divide(isa, z, choice.temperature);
        statistics.join(head::part(isa, z));
    }
    if !statistics.is_finite() {
        return Err(KernelError::NotFinite { operation: OPERATION, row });
    }
    for &id in banned {
        if let Some(z) = z.get_mut(id as usize) {
            *z = f32::NEG_INFINITY;
        }
    }
    let id = if choice.greedy {
        greedy(logits, z)
    } else {
        let maximum = z.iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
        if maximum == f32::NEG_INFINITY {
            return Err(KernelError::NoChoice { operation: OPERATION, row });
        }
        let candidates = Row { z, maximum };
        if choice.top_k == 0 && choice.top_p >= 1.0 && choice.min_p <= 0.0 {
            candidates.draw(isa, choice.uniform)
        } else {
            candidates.draw_truncated(isa, choice)
        }
    };
    let Some(id) = id else {
        return Err(KernelError::NoChoice { operation: OPERATION, row });
    };
    // A chosen id is not banned, so its `z` is as it was.
    Ok(Drawn { id, logprob: statistics.logprob(z[id as usize]), entropy: statistics.entropy() })
}

/// The best logit that is not banned; the lowest id among equals.
fn greedy(logits: &[f32], z: &[f32]) -> Option<u32> {
    let mut best: Option<usize> = None;
    for (id, &logit) in logits.iter().enumerate() {
        if z[id] != f32::NEG_INFINITY && best.is_none_or(|best| logit > logits[best]) {
            best = Some(id);
        }
    }
    best.map(|id| id as u32)
}

/// Draws a token per row.
#[expect(clippy::too_many_arguments, reason = "arrays and their shape")]
pub(crate) fn sample(
    isa: Isa,
    scratch: &Scratch,
    logits: &[f32],
    outputs: usize,
    vocabulary: usize,
    banned: &[u32],
    choices: &[Choice],
    ids: &mut [u32],
    logprobs: &mut [f32],
    entropies: &mut [f32],
) -> Result<(), KernelError> {
    let drawn: Vec<Result<Drawn, KernelError>> = choices
        .par_iter()
        .enumerate()
        .map(|(row, choice)| {
            let mut z = scratch.take(vocabulary);
            draw(isa, row, &logits[row * outputs..][..vocabulary], banned, choice, &mut z)
        })
        .collect();
    for (row, drawn) in drawn.into_iter().enumerate() {
        let Drawn { id, logprob, entropy } = drawn?;
        (ids[row], logprobs[row], entropies[row]) = (id, logprob, entropy);
    }
    Ok(())
}
