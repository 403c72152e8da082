//! Generation with continuous batching over a paged KV cache.
//!
//! Every call of [`Generator::advance`] runs one pass: a token of each running response, and as much of new prompts as fits.
//! Prompts that begin like earlier sequences reuse their blocks of keys.

use std::collections::VecDeque;
use std::sync::Arc;

use ragen_kernels::{Backend, Choice, KEY_BLOCK, Layout, Span};

use super::block_pool::{BlockPool, ROOT};
use super::layer::{Pass, Scratch, Slot, forward_layer};
use super::request::{Completion, Request, Sequence};
use super::{ModelConfig, ModelError, TokenBytes, Weights};
use crate::record::Finish;

/// Rows whose logits are held at a time.
const SAMPLED_ROWS: usize = 64;

/// Sizes of a generator.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratorOptions {
    /// Blocks of [`KEY_BLOCK`] positions in the KV cache.
    pub blocks: usize,
    /// Responses that grow at the same time.
    pub running: usize,
    /// Tokens per pass; at least `running`.
    pub pass_tokens: usize,
    /// Whether prompts reuse blocks of earlier sequences. It changes speed only.
    pub reuse: bool,
    /// Ids that are never sampled.
    pub banned: Vec<u32>,
}

impl GeneratorOptions {
    /// Bytes that a generator of this size holds.
    #[must_use]
    pub fn bytes(&self, config: &ModelConfig) -> u64 {
        let cache = self.blocks * KEY_BLOCK * 2 * config.key_width() * config.layers;
        let per_token =
            2 * config.hidden_size + super::layer::slot_floats(config) + super::layer::scratch_floats(config);
        let head = SAMPLED_ROWS * (2 * config.hidden_size + config.vocab_size);
        4 * (cache as u64 + (self.pass_tokens * per_token) as u64 + head as u64)
    }
}

/// Counts of what a generator did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct GeneratorCounts {
    /// Passes run.
    pub passes: u64,
    /// Tokens that went through the model.
    pub computed: u64,
    /// Prompt tokens whose keys were reused.
    pub reused: u64,
    /// Tokens sampled.
    pub sampled: u64,
    /// Times a response gave its blocks back because the cache was full; it continues later with the same result.
    pub preempted: u64,
}

/// Samples responses to many requests at once.
///
/// # Determinism
/// A completion depends on the weights and its request alone: not on other requests, on the options or on reuse.
pub struct Generator<B: Backend> {
    config: ModelConfig,
    options: GeneratorOptions,
    bytes: Option<Arc<TokenBytes>>,
    pool: BlockPool,
    keys: Vec<B::Blocks>,
    room: Room<B>,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    version: u64,
    counts: GeneratorCounts,
    tokens: Vec<u32>,
    positions: Vec<u32>,
    layout: Layout,
    /// Last row of every sequence in the pass whose tokens are then all computed, and its place in `running`.
    ready: Vec<(u32, usize)>,
    /// How the sequences of the pass end, by their place in `running`.
    endings: Vec<(usize, (Finish, u32))>,
    drawn: Drawn,
}

/// Memory of a pass.
struct Room<B: Backend> {
    inputs: [B::Buffer; 2],
    slot: Slot<B>,
    scratch: Scratch<B>,
    picked: B::Buffer,
    normed: B::Buffer,
    logits: B::Buffer,
}

/// Host side of sampling.
#[derive(Default)]
struct Drawn {
    rows: Vec<u32>,
    choices: Vec<Choice>,
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    entropies: Vec<f32>,
}

impl<B: Backend> std::fmt::Debug for Generator<B> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Generator").field("options", &self.options).field("counts", &self.counts).finish()
    }
}

impl<B: Backend> Generator<B> {
    /// A generator for models shaped like `weights`. Stop strings need the bytes of tokens.
    ///
    /// # Errors
    /// Sizes of 0 or fewer tokens per pass than running responses, a banned id outside the vocabulary, or what the device
    /// reports.
    pub fn new(
        weights: &Weights<B>,
        mut options: GeneratorOptions,
        bytes: Option<Arc<TokenBytes>>,
    ) -> Result<Self, ModelError> {
        let (backend, config) = (weights.backend().as_ref(), weights.config());
        if options.blocks == 0 || options.running == 0 || options.pass_tokens < options.running {
            let reason = "blocks and running must be at least 1, and pass_tokens at least running";
            return Err(ModelError::argument("Generator::new", reason));
        }
        options.banned.sort_unstable();
        options.banned.dedup();
        if let Some(id) = options.banned.iter().find(|&&id| id as usize >= config.vocab_size) {
            let reason = format!("banned id {id} is not below {}", config.vocab_size);
            return Err(ModelError::argument("Generator::new", reason));
        }
        let (rows, width) = (options.pass_tokens, config.hidden_size);
        let sampled = SAMPLED_ROWS.min(options.running);
        let room = Room {
            inputs: [backend.zeros(rows * width)?, backend.zeros(rows * width)?],
            slot: Slot::new(backend, config, rows)?,
            scratch: Scratch::new(backend, config, rows)?,
            picked: backend.zeros(sampled * width)?,
            normed: backend.zeros(sampled * width)?,
            logits: backend.zeros(sampled * config.vocab_size)?,
        };
        let keys = (0..config.layers)
            .map(|_| Ok(backend.blocks(options.blocks, weights.attention_shape())?))
            .collect::<Result<_, ModelError>>()?;
        Ok(Self {
            config: config.clone(),
            pool: BlockPool::new(options.blocks),
            options,
            bytes,
            keys,
            room,
            waiting: VecDeque::new(),
            running: Vec::new(),
            version: weights.version(),
            counts: GeneratorCounts::default(),
            tokens: Vec::new(),
            positions: Vec::new(),
            layout: Layout::default(),
            ready: Vec::new(),
            endings: Vec::new(),
            drawn: Drawn::default(),
        })
    }

    /// Appends a request to the queue.
    ///
    /// # Errors
    /// A request that can never run: empty, out of range, longer than the context or the whole cache, or with stop strings
    /// where the tokens' bytes are unknown.
    pub fn submit(&mut self, weights: &Weights<B>, request: Request) -> Result<(), ModelError> {
        let capacity = self.options.blocks * KEY_BLOCK;
        request.check(weights, capacity, &self.options.banned, self.bytes.is_some())?;
        self.waiting.push_back(Sequence::new(request));
        Ok(())
    }

    /// Drops all requests with an id; returns whether there was one.
    pub fn cancel(&mut self, id: u64) -> bool {
        let before = self.pending();
        self.waiting.retain(|sequence| sequence.request.id != id);
        for index in (0..self.running.len()).rev() {
            if self.running[index].request.id == id {
                let mut sequence = self.running.remove(index);
                release(&mut self.pool, &mut sequence);
            }
        }
        self.pending() < before
    }

    /// Requests that are not finished.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> GeneratorCounts {
        self.counts
    }

    /// Runs one pass and returns the responses that it finished.
    ///
    /// If the weights changed since the last pass, stored keys are dropped and responses under way continue with the new
    /// weights.
    ///
    /// # Errors
    /// A model of another shape, or what the device reports; requests then stay as they were before the pass.
    pub fn advance(&mut self, weights: &Weights<B>) -> Result<Vec<Completion>, ModelError> {
        if *weights.config() != self.config {
            return Err(ModelError::argument("advance", "the model does not have the generator's shape"));
        }
        if self.version != weights.version() {
            self.rewind();
            self.version = weights.version();
        }
        self.pool.tick();
        self.plan();
        if self.tokens.is_empty() {
            return Ok(Vec::new());
        }
        let result = self.run(weights);
        if result.is_err() {
            self.rewind();
        }
        result?;
        self.counts.passes += 1;
        self.counts.computed += self.tokens.len() as u64;
        let mut completions = Vec::with_capacity(self.endings.len());
        for (index, ending) in self.endings.drain(..).rev() {
            let mut sequence = self.running.remove(index);
            release(&mut self.pool, &mut sequence);
            completions.push(sequence.finish(ending));
        }
        completions.reverse();
        Ok(completions)
    }

    /// Forgets all keys; running responses wait to be computed again, in their order.
    fn rewind(&mut self) {
        self.pool.forget();
        while let Some(mut sequence) = self.running.pop() {
            release(&mut self.pool, &mut sequence);
            self.waiting.push_front(sequence);
        }
    }

    /// Lays out the next pass: running responses first, then new ones in order. Spans that use another sequence's blocks come
    /// after the spans that fill them.
    fn plan(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.layout.spans.clear();
        self.layout.table.clear();
        self.ready.clear();
        self.endings.clear();
        let mut spare = self.options.pass_tokens - self.running.len();
        let mut index = 0;
        while index < self.running.len() {
            let sequence = &self.running[index];
            let open = sequence.tokens.len() - sequence.computed;
            let rows = 1 + (open - 1).min(spare);
            let needed = (sequence.computed + rows).div_ceil(KEY_BLOCK).saturating_sub(sequence.blocks.len());
            while self.pool.available() < needed && self.running.len() > index {
                self.preempt_last();
            }
            if self.running.len() == index {
                break;
            }
            spare -= rows - 1;
            self.schedule(index, rows);
            index += 1;
        }
        while spare > 0 && self.running.len() < self.options.running {
            let Some(mut sequence) = self.waiting.pop_front() else { break };
            self.adopt(&mut sequence);
            let rows = (sequence.tokens.len() - sequence.computed).min(spare);
            let needed = (sequence.computed + rows).div_ceil(KEY_BLOCK) - sequence.blocks.len();
            // Each running response may soon need another block.
            if self.pool.available() < needed + self.running.len() {
                release(&mut self.pool, &mut sequence);
                self.waiting.push_front(sequence);
                break;
            }
            self.counts.reused += sequence.computed as u64;
            spare -= rows;
            self.running.push(sequence);
            self.schedule(self.running.len() - 1, rows);
        }
    }

    /// Sends the response that started last back to the queue.
    fn preempt_last(&mut self) {
        if let Some(mut sequence) = self.running.pop() {
            release(&mut self.pool, &mut sequence);
            self.waiting.push_front(sequence);
            self.counts.preempted += 1;
        }
    }

    /// Lets a new sequence use the known blocks that hold its beginning; its last token is always computed.
    fn adopt(&mut self, sequence: &mut Sequence) {
        if !self.options.reuse {
            return;
        }
        let whole = (sequence.tokens.len() - 1) / KEY_BLOCK;
        for tokens in sequence.tokens.chunks_exact(KEY_BLOCK).take(whole) {
            let Some((block, serial)) = self.pool.find(sequence.chain, tokens) else { break };
            self.pool.share(block);
            sequence.blocks.push(block);
            sequence.chain = serial;
            sequence.registered += 1;
            sequence.computed += KEY_BLOCK;
        }
    }

    /// Adds the next `rows` tokens of a running sequence to the pass.
    fn schedule(&mut self, index: usize, rows: usize) {
        let sequence = &mut self.running[index];
        let (start, end) = (sequence.computed, sequence.computed + rows);
        while sequence.blocks.len() < end.div_ceil(KEY_BLOCK) {
            // `plan` made sure of enough blocks.
            let Some(block) = self.pool.take() else { break };
            sequence.blocks.push(block);
        }
        if self.options.reuse {
            while (sequence.registered + 1) * KEY_BLOCK <= end {
                let place = sequence.registered;
                let tokens = &sequence.tokens[place * KEY_BLOCK..(place + 1) * KEY_BLOCK];
                sequence.chain = self.pool.register(sequence.blocks[place], sequence.chain, tokens, place);
                sequence.registered += 1;
            }
        }
        let span = Span {
            first_row: self.tokens.len() as u32,
            rows: rows as u32,
            first_position: start as u32,
            first_entry: self.layout.table.len() as u32,
        };
        self.layout.spans.push(span);
        self.layout.table.extend_from_slice(&sequence.blocks);
        self.tokens.extend_from_slice(&sequence.tokens[start..end]);
        self.positions.extend(start as u32..end as u32);
        sequence.computed = end;
        if end == sequence.tokens.len() {
            self.ready.push((self.tokens.len() as u32 - 1, index));
        }
    }

    fn run(&mut self, weights: &Weights<B>) -> Result<(), ModelError> {
        let pass = Pass { tokens: &self.tokens, positions: &self.positions, layout: &self.layout };
        let backend = weights.backend().as_ref();
        let Room { inputs: [x, next], slot, scratch, .. } = &mut self.room;
        backend.embedding(weights.value(weights.parameters().embedding), pass.tokens, self.config.hidden_size, x)?;
        for (layer, keys) in self.keys.iter_mut().enumerate() {
            forward_layer(weights, layer, pass, x, slot, scratch, keys, false, Some(next))?;
            std::mem::swap(x, next);
        }
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
    fn sample(&mut self, weights: &Weights<B>, range: std::ops::Range<usize>) -> Result<(), ModelError> {
        let (backend, drawn, room) = (weights.backend().as_ref(), &mut self.drawn, &mut self.room);
        let (count, width, outputs) = (range.len(), self.config.hidden_size, self.config.vocab_size);
        drawn.rows.clear();
        drawn.choices.clear();
        for &(row, index) in &self.ready[range.clone()] {
            drawn.rows.push(row);
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

/// Gives a sequence's blocks back, the last one first, so that it can start over.
fn release(pool: &mut BlockPool, sequence: &mut Sequence) {
    while let Some(block) = sequence.blocks.pop() {
        pool.release(block);
    }
    (sequence.computed, sequence.registered, sequence.chain) = (0, 0, ROOT);
}
