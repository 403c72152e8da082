//! Memory of forward and backward passes, made once and kept.

use ragen_kernels::{Backend, KEY_BLOCK};

use super::layer::{Scratch, Slot, scratch_floats, slot_floats};
use super::{ModelConfig, ModelError, Weights};

/// What a workspace is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// Forward passes only.
    Inference,
    /// Training with all activations kept.
    Training,
    /// Training that keeps only each layer's input and computes the rest of the layer again on the way back.
    Recompute,
}

/// Rooms for the rows that go through the output head.
pub(crate) struct HeadRoom<B: Backend> {
    pub(crate) picked: B::Buffer,
    pub(crate) normed: B::Buffer,
    pub(crate) logprob: B::Buffer,
    pub(crate) entropy: B::Buffer,
    pub(crate) log_sum: B::Buffer,
    pub(crate) value: B::Buffer,
}

/// Rooms for gradients of activations.
pub(crate) struct BackwardRoom<B: Backend> {
    pub(crate) hidden: B::Buffer,
    pub(crate) normed: B::Buffer,
    pub(crate) active: B::Buffer,
    pub(crate) gate: B::Buffer,
    pub(crate) up: B::Buffer,
    pub(crate) attended: B::Buffer,
    pub(crate) query: B::Buffer,
    pub(crate) key: B::Buffer,
    pub(crate) value: B::Buffer,
    pub(crate) raw: Option<(B::Buffer, B::Buffer)>,
    pub(crate) picked: B::Buffer,
    pub(crate) head: B::Buffer,
    pub(crate) logprob: B::Buffer,
    pub(crate) entropy: B::Buffer,
    pub(crate) head_value: B::Buffer,
}

/// All rooms of one network.
pub(crate) struct Workspace<B: Backend> {
    pub(crate) purpose: Purpose,
    tokens: usize,
    selected: usize,
    blocks: usize,
    /// Inputs of the layers and the last layer's output: all of them when training, two otherwise.
    pub(crate) inputs: Vec<B::Buffer>,
    /// One per layer, or a single one that all layers use.
    pub(crate) slots: Vec<Slot<B>>,
    /// One per layer, or a single one that all layers use.
    pub(crate) keys: Vec<B::Blocks>,
    pub(crate) scratch: Option<Scratch<B>>,
    pub(crate) head: Option<HeadRoom<B>>,
    pub(crate) backward: Option<BackwardRoom<B>>,
}

impl<B: Backend> Workspace<B> {
    pub(crate) fn new(purpose: Purpose) -> Self {
        Self {
            purpose,
            tokens: 0,
            selected: 0,
            blocks: 0,
            inputs: Vec::new(),
            slots: Vec::new(),
            keys: Vec::new(),
            scratch: None,
            head: None,
            backward: None,
        }
    }

    /// Makes room for a pass; does nothing if there is enough.
    pub(crate) fn reserve(
        &mut self,
        weights: &Weights<B>,
        tokens: usize,
        selected: usize,
        blocks: usize,
    ) -> Result<(), ModelError> {
        if tokens <= self.tokens && selected <= self.selected && blocks <= self.blocks {
            return Ok(());
        }
        // Selected rows may repeat, and the last layer computes each of them.
        let tokens = tokens.max(self.tokens).max(selected);
        let selected = selected.max(self.selected);
        let blocks = blocks.max(self.blocks).max(tokens.div_ceil(KEY_BLOCK));
        // The old rooms go first, so that both are never held at once.
        *self = Self::new(self.purpose);
        let (backend, config) = (weights.backend().as_ref(), weights.config());
        let per_layer = if self.purpose == Purpose::Training { config.layers } else { 1 };
        let inputs = if self.purpose == Purpose::Inference { 2 } else { config.layers + 1 };
        for _ in 0..inputs {
            self.inputs.push(backend.zeros(tokens * config.hidden_size)?);
        }
        for _ in 0..per_layer {
            self.slots.push(Slot::new(backend, config, tokens)?);
            self.keys.push(backend.blocks(blocks, weights.attention_shape())?);
        }
        self.scratch = Some(Scratch::new(backend, config, tokens)?);
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        self.head = Some(HeadRoom {
            picked: backend.zeros(selected * width)?,
            normed: backend.zeros(selected * width)?,
            logprob: backend.zeros(selected)?,
            entropy: backend.zeros(selected)?,
            log_sum: backend.zeros(selected)?,
            value: backend.zeros(selected)?,
        });
        if self.purpose != Purpose::Inference {
            let (queries, keys) = (tokens * config.query_width(), tokens * config.key_width());
            let raw =
                if config.has_head_norms() { Some((backend.zeros(queries)?, backend.zeros(keys)?)) } else { None };
            self.backward = Some(BackwardRoom {
                hidden: backend.zeros(tokens * width)?,
                normed: backend.zeros(tokens * width)?,
                active: backend.zeros(tokens * inner)?,
                gate: backend.zeros(tokens * inner)?,
                up: backend.zeros(tokens * inner)?,
                attended: backend.zeros(queries)?,
                query: backend.zeros(queries)?,
                key: backend.zeros(keys)?,
                value: backend.zeros(keys)?,
                raw,
                picked: backend.zeros(selected * width)?,
                head: backend.zeros(selected * width)?,
                logprob: backend.zeros(selected)?,
                entropy: backend.zeros(selected)?,
                head_value: backend.zeros(selected)?,
            });
        }
        (self.tokens, self.selected, self.blocks) = (tokens, selected, blocks);
        Ok(())
    }
}

/// Bytes that a workspace holds for a pass of `tokens` rows of which `selected` go through the head.
#[must_use]
pub fn workspace_bytes(config: &ModelConfig, purpose: Purpose, tokens: usize, selected: usize) -> u64 {
    let (width, inner) = (config.hidden_size, config.intermediate_size);
    let (queries, keys) = (config.query_width(), config.key_width());
    let per_layer = if purpose == Purpose::Training { config.layers } else { 1 };
    let inputs = if purpose == Purpose::Inference { 2 } else { config.layers + 1 };
    let mut per_token = inputs * width + per_layer * (slot_floats(config) + 2 * keys) + scratch_floats(config);
    let mut per_row = 2 * width + 4;
    if purpose != Purpose::Inference {
        let raw = if config.has_head_norms() { queries + keys } else { 0 };
        per_token += 2 * width + 3 * inner + 2 * queries + 2 * keys + raw;
        per_row += 2 * width + 3;
    }
    4 * (tokens as u64 * per_token as u64 + selected as u64 * per_row as u64)
}
