//! What is asked of the generator and what it answers.

use ragen_kernels::{Backend, Choice};

use super::super::{ModelError, Weights};
use super::stop::{StopMatcher, check_strings};
use crate::random::{Purpose, Stream};
use crate::record::Finish;

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by this. If `greedy`, it matters only for the reported log-probabilities.
    pub temperature: f32,
    /// Keep this many best tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep, from the best down, tokens until their probabilities reach this; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens with at least this share of the best token's probability; 0 keeps all.
    pub min_p: f32,
    /// Take the best token.
    pub greedy: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, greedy: false }
    }
}

/// When a response ends, besides its token limit.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StopRules {
    /// Ids that end it; they belong to the response.
    pub end_ids: Vec<u32>,
    /// Strings that end it. The token that completes one is kept whole, even if it holds more text.
    pub strings: Vec<String>,
}

/// A prompt to continue.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Chosen by the caller; returned with the completion.
    pub id: u64,
    /// The prompt, not empty.
    pub tokens: Vec<u32>,
    /// Token limit of the response, at least 1.
    pub max_new_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// When the response ends.
    pub stop: StopRules,
    /// Seed of the draws.
    pub seed: u64,
    /// Names the draws: token `t` uses [`Purpose::Sampling`] at these coordinates followed by `t`.
    pub coordinates: Vec<u64>,
}

/// A finished response.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The request's.
    pub id: u64,
    /// Sampled ids; the last one is the end id if `finish` says so.
    pub tokens: Vec<u32>,
    /// Log-probability of each id in the untruncated distribution at the request's temperature.
    pub logprobs: Vec<f32>,
    /// Entropy of that distribution at each id, in nats.
    pub entropies: Vec<f32>,
    /// Why it ended.
    pub finish: Finish,
    /// Bytes of the last token beyond the stop string; 0 for other endings.
    pub overshoot: u32,
}

impl Request {
    /// Checks a request against the model. `blocks` is what the cache holds in all, `banned` is sorted.
    pub(crate) fn check<B: Backend>(
        &self,
        weights: &Weights<B>,
        capacity: usize,
        banned: &[u32],
        decodes: bool,
    ) -> Result<(), ModelError> {
        let fail = |reason: String| Err(ModelError::argument("submit", reason));
        let id = self.id;
        if self.tokens.is_empty() || self.max_new_tokens == 0 {
            return fail(format!("request {id}: the prompt and the token limit must not be empty"));
        }
        let limit = weights.config().vocab_size;
        if let Some(token) = self.tokens.iter().find(|&&token| token as usize >= limit) {
            return fail(format!("request {id}: token id {token} is not below {limit}"));
        }
        let limit = weights.context().min(capacity);
        let (length, more) = (self.tokens.len(), self.max_new_tokens);
        if length.checked_add(more).is_none_or(|total| total > limit) {
            return fail(format!(
                "request {id}: {length} tokens and up to {more} new ones exceed the room for {limit}"
            ));
        }
        let Sampling { temperature, top_p, min_p, .. } = self.sampling;
        if !(temperature.is_finite() && temperature > 0.0) {
            return fail(format!("request {id}: temperature {temperature} is not positive"));
        }
        if !(top_p > 0.0 && top_p <= 1.0 && (0.0..=1.0).contains(&min_p)) {
            return fail(format!("request {id}: top_p {top_p} is not in 0..=1 or min_p {min_p} is not"));
        }
        if let Some(end) = self.stop.end_ids.iter().find(|end| banned.binary_search(end).is_ok()) {
            return fail(format!("request {id}: end id {end} is banned from sampling"));
        }
        if !decodes && !self.stop.strings.is_empty() {
            return fail(format!("request {id}: stop strings need a generator that knows the tokens' bytes"));
        }
        check_strings(&self.stop.strings)
    }
}

/// A request in progress.
pub(crate) struct Sequence {
    pub(crate) request: Request,
    /// Prompt and what was sampled.
    pub(crate) tokens: Vec<u32>,
    /// Leading tokens whose keys are stored, or will be once the pass being built has run.
    pub(crate) computed: usize,
    pub(crate) blocks: Vec<u32>,
    /// Serial number of the last full block, and how many full blocks the pool knows.
    pub(crate) chain: u64,
    pub(crate) registered: usize,
    logprobs: Vec<f32>,
    entropies: Vec<f32>,
    matcher: StopMatcher,
}

impl Sequence {
    pub(crate) fn new(mut request: Request) -> Self {
        let mut tokens = std::mem::take(&mut request.tokens);
        tokens.reserve_exact(request.max_new_tokens);
        let room = request.max_new_tokens;
        request.coordinates.push(0);
        Self {
            request,
            tokens,
            computed: 0,
            blocks: Vec::new(),
            chain: super::block_pool::ROOT,
            registered: 0,
            logprobs: Vec::with_capacity(room),
            entropies: Vec::with_capacity(room),
            matcher: StopMatcher::default(),
        }
    }

    /// The choice of the next token.
    pub(crate) fn choice(&mut self) -> Choice {
        let draw = self.logprobs.len() as u64;
        let request = &mut self.request;
        if let Some(last) = request.coordinates.last_mut() {
            *last = draw;
        }
        let uniform = Stream::new(request.seed, Purpose::Sampling, &request.coordinates).unit();
        let Sampling { temperature, top_k, top_p, min_p, greedy } = request.sampling;
        Choice { temperature, top_k, top_p, min_p, greedy, uniform }
    }

    /// Appends a sampled token; returns why and with how much overshoot the response ends, if it does.
    pub(crate) fn push(&mut self, id: u32, logprob: f32, entropy: f32, bytes: &[u8]) -> Option<(Finish, u32)> {
        self.tokens.push(id);
        self.logprobs.push(logprob);
        self.entropies.push(entropy);
        let stop = &self.request.stop;
        if stop.end_ids.contains(&id) {
            return Some((Finish::EndOfTurn, 0));
        }
        if let Some(overshoot) = self.matcher.push(&stop.strings, bytes) {
            return Some((Finish::StopString, overshoot));
        }
        (self.logprobs.len() == self.request.max_new_tokens).then_some((Finish::Length, 0))
    }

    pub(crate) fn sampled(&self) -> &[u32] {
        &self.tokens[self.tokens.len() - self.logprobs.len()..]
    }

    pub(crate) fn finish(self, (finish, overshoot): (Finish, u32)) -> Completion {
        let tokens = self.sampled().to_vec();
        let Self { request, logprobs, entropies, .. } = self;
        Completion { id: request.id, tokens, logprobs, entropies, finish, overshoot }
    }
}
