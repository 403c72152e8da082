//! Generation with continuous batching over a paged KV cache.
//!
//! Every call of [`Generator::advance`] runs one pass: a token of each running response, and as much of new prompts as fits.
//! Prompts that begin like earlier sequences reuse their blocks of keys.

mod block_pool;
mod pass;
mod request;
mod schedule;
mod stop;

use std::collections::VecDeque;
use std::sync::Arc;

use ragen_kernels::{Backend, KEY_BLOCK, Layout};

pub use request::{Completion, Request, Sampling, StopRules};

use block_pool::BlockPool;
use pass::{Drawn, Room};
use request::Sequence;
use schedule::release;

use super::layer::{Scratch, Slot, scratch_floats, slot_floats};
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
        let per_token = 2 * config.hidden_size + slot_floats(config) + scratch_floats(config);
        let head = SAMPLED_ROWS.min(self.running) * (2 * config.hidden_size + config.vocab_size);
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
        if options.banned.iter().filter(|&&id| (id as usize) < weights.vocabulary()).count() == weights.vocabulary() {
            return Err(ModelError::argument("Generator::new", "every id is banned"));
        }
        let (rows, width) = (options.pass_tokens, config.hidden_size);
        let sampled = SAMPLED_ROWS.min(options.running);
        let room = Room {
            inputs: [backend.zeros(rows * width)?, backend.zeros(rows * width)?],
            slot: Slot::new(backend, config, rows)?,
            scratch: Scratch::new(backend, config, rows)?,
            mid: backend.zeros(rows * width)?,
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

    /// Drops all requests.
    pub fn cancel_all(&mut self) {
        self.waiting.clear();
        while let Some(mut sequence) = self.running.pop() {
            release(&mut self.pool, &mut sequence);
        }
    }

    /// Requests that are not finished.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    /// What a running response holds so far, for streaming.
    #[must_use]
    pub fn partial(&self, id: u64) -> Option<&[u32]> {
        self.running.iter().find(|sequence| sequence.request.id == id).map(Sequence::sampled)
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
        let result = self.run(weights).map_err(|error| weights.explain(error));
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
}
