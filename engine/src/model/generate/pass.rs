//! One pass through the model, and the tokens drawn from it.

use std::ops::Range;

use ragen_kernels::{Backend, Choice};

use super::super::layer::{Pass, Scratch, Slot, forward_last_layer, forward_layer};
use super::super::{ModelError, Weights};
use super::{Generator, SAMPLED_ROWS};

/// Memory of a pass.
pub(super) struct Room<B: Backend> {
    pub(super) inputs: [B::Buffer; 2],
    pub(super) slot: Slot<B>,
    pub(super) scratch: Scratch<B>,
    /// Middles of the last layer's rows that a token is drawn from.
    pub(super) mid: B::Buffer,
    pub(super) picked: B::Buffer,
    pub(super) normed: B::Buffer,
    pub(super) logits: B::Buffer,
}

/// Host side of sampling.
#[derive(Default)]
pub(super) struct Drawn {
    pub(super) rows: Vec<u32>,
    pub(super) choices: Vec<Choice>,
    pub(super) ids: Vec<u32>,
    pub(super) logprobs: Vec<f32>,
    pub(super) entropies: Vec<f32>,
}

impl<B: Backend> Generator<B> {
    pub(super) fn run(&mut self, weights: &Weights<B>) -> Result<(), ModelError> {
        let pass = Pass { tokens: &self.tokens, positions: &self.positions, layout: &self.layout };
        let backend = weights.backend().as_ref();
        let Room { inputs: [x, next], slot, scratch, mid, .. } = &mut self.room;
        backend.embedding(weights.value(weights.parameters().embedding), pass.tokens, self.config.hidden_size, x)?;
        let last = self.config.layers - 1;
        for (layer, keys) in self.keys[..last].iter_mut().enumerate() {
            forward_layer(weights, layer, pass, x, slot, scratch, keys, false, Some(next))?;
            std::mem::swap(x, next);
        }
        self.drawn.rows.clear();
        self.drawn.rows.extend(self.ready.iter().map(|&(row, _)| row));
        let (rows, keys) = (&self.drawn.rows, &mut self.keys[last]);
        forward_last_layer(weights, pass, rows, x, slot, scratch, keys, false, mid, Some(next))?;
        std::mem::swap(x, next);
        let count = self.ready.len();
        self.drawn.ids.resize(count, 0);
        self.drawn.logprobs.resize(count, 0.0);
        self.drawn.entropies.resize(count, 0.0);
        for first in (0..count).step_by(SAMPLED_ROWS) {
            self.sample(weights, first..(first + SAMPLED_ROWS).min(count))?;
        }
        self.counts.sampled += count as u64;
        for (place, &(_, index)) in self.ready.iter().enumerate() {
            let id = self.drawn.ids[place];
            let bytes = self.bytes.as_ref().map_or(&[][..], |table| table.get(id));
            let (logprob, entropy) = (self.drawn.logprobs[place], self.drawn.entropies[place]);
            if let Some(ending) = self.running[index].push(id, logprob, entropy, bytes) {
                self.endings.push((index, ending));
            }
        }
        Ok(())
    }

    /// Draws the next token of some sequences whose tokens are all computed.
    fn sample(&mut self, weights: &Weights<B>, range: Range<usize>) -> Result<(), ModelError> {
        let (backend, drawn, room) = (weights.backend().as_ref(), &mut self.drawn, &mut self.room);
        let (count, width, outputs) = (range.len(), self.config.hidden_size, self.config.vocab_size);
        drawn.rows.clear();
        drawn.choices.clear();
        for (place, &(_, index)) in range.clone().zip(&self.ready[range.clone()]) {
            drawn.rows.push(place as u32);
            drawn.choices.push(self.running[index].choice());
        }
        backend.gather(&room.inputs[0], &drawn.rows, width, &mut room.picked)?;
        let norm = weights.value(weights.parameters().norm);
        backend.rms_norm(&room.picked, count, norm, self.config.rms_norm_eps, &mut room.normed)?;
        let head = weights.matrix(weights.parameters().head);
        backend.linear(&room.normed, count, head, None, &mut room.logits, false)?;
        backend.sample(
            &room.logits,
            count,
            outputs,
            weights.vocabulary(),
            &self.options.banned,
            &drawn.choices,
            &mut drawn.ids[range.clone()],
            &mut drawn.logprobs[range.clone()],
            &mut drawn.entropies[range],
        )?;
        Ok(())
    }
}
