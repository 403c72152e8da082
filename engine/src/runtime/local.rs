//! The runtime on this machine: networks, generator and tokenizer in one process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ragen_kernels::{Backend, KernelError};

use super::{Completion, Part, Request, Runtime, RuntimeError, ScoreRow, Scores, StepReport, StepSettings, Upstream};
use crate::codec::{ChatPieces, Codec};
use crate::files::Named as _;
use crate::model::{
    self, AdamWSettings, ChatTemplate, Generator, GeneratorOptions, ModelConfig, ModelError, Network, PackedBatch,
    Precision, Step, StopRules, Tokenizer, WeightOptions, Weights, pack,
};

/// Files of a model directory beside weights and configuration, which are copied as they are.
const COMPANIONS: [&str; 6] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "README.md",
];

/// What a runtime is to hold.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeOptions {
    /// Longest sequence, prompt and answer together.
    pub context: usize,
    /// Sequences that generate at once.
    pub running: usize,
    /// Tokens per pass when scoring and when reading prompts.
    pub pass_tokens: usize,
    /// Gradients and moments are needed.
    pub train: bool,
    /// Recompute activations in the backward pass instead of keeping them.
    pub recompute: bool,
    /// A value head on the policy's trunk.
    pub value_head: bool,
    /// A critic with weights of its own.
    pub critic: bool,
}

/// What is done with a packed batch: its rows that predict the targets, the targets' ids, the number of targets before.
type PassFn<'a> = dyn FnMut(&PackedBatch, &[u32], &[u32], usize) -> Result<(), ModelError> + 'a;

/// Runs work on the threads that the operations use, so that they do not have to be woken for each operation.
fn inside_pool<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    rayon::scope(|_| work())
}

/// Networks, generator and their files.
pub struct LocalRuntime<B: Backend> {
    source: PathBuf,
    actor: Network<B>,
    critic: Option<Network<B>>,
    reference: Option<Network<B>>,
    generator: Generator<B>,
    end_ids: Vec<u32>,
    options: RuntimeOptions,
}

impl From<ModelError> for RuntimeError {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Kernel(KernelError::NotFinite { operation, row }) => {
                Self::NotFinite { place: "the logits".into(), detail: format!("row {row} of {operation}") }
            }
            ModelError::Kernel(error) => Self::Kernel(error),
            ModelError::Argument { .. } => Self::Request(error.to_string()),
            error => Self::Files(error.to_string()),
        }
    }
}

impl<B: Backend> LocalRuntime<B> {
    /// Loads a model directory.
    ///
    /// # Errors
    /// [`ModelError`] naming file and tensor or key.
    pub fn load(backend: Arc<B>, directory: &Path, options: RuntimeOptions) -> Result<(Self, LocalCodec), ModelError> {
        let config = ModelConfig::read(&directory.join(model::CONFIG))?;
        let codec = LocalCodec::load(directory, &config)?;
        let context = options.context.min(config.max_positions);
        let weights = |value_head| Weights::load(backend.clone(), directory, WeightOptions { context, value_head });
        let network = |mut weights: Weights<B>| {
            weights.set_vocabulary(codec.tokenizer.vocabulary().min(config.vocab_size))?;
            if options.train { Network::trained(weights, options.recompute) } else { Ok(Network::frozen(weights)) }
        };
        let actor = network(weights(options.value_head)?)?;
        let critic = if options.critic { Some(network(weights(true)?)?) } else { None };
        let per_sequence = context.div_ceil(ragen_kernels::KEY_BLOCK);
        let generator_options = GeneratorOptions {
            blocks: (options.running * per_sequence).max(per_sequence),
            running: options.running,
            pass_tokens: options.pass_tokens.max(options.running),
            reuse: true,
            banned: codec.tokenizer.banned_ids(),
        };
        let generator =
            Generator::new(actor.weights(), generator_options, Some(codec.tokenizer.token_bytes().clone()))?;
        let end_ids = codec.tokenizer.end_ids().to_vec();
        let runtime =
            Self { source: directory.to_owned(), actor, critic, reference: None, generator, end_ids, options };
        Ok((runtime, codec))
    }

    /// Cuts rows into runs of at most `budget` tokens and calls `pass` for each with its packed batch, the batch's rows that
    /// predict the targets, the targets' ids, and the number of targets before.
    fn passes(
        rows: &[ScoreRow<'_>],
        budget: usize,
        mut pass: impl FnMut(&PackedBatch, &[u32], &[u32], usize) -> Result<(), ModelError> + Send,
    ) -> Result<(), ModelError> {
        inside_pool(|| Self::passes_here(rows, budget, &mut pass))
    }

    fn passes_here(rows: &[ScoreRow<'_>], budget: usize, pass: &mut PassFn<'_>) -> Result<(), ModelError> {
        let (mut first, mut before) = (0, 0);
        let (mut selected, mut ids) = (Vec::new(), Vec::new());
        while first < rows.len() {
            let (mut end, mut tokens) = (first, 0);
            while end < rows.len() && (end == first || tokens + rows[end].tokens.len() <= budget) {
                tokens += rows[end].tokens.len();
                end += 1;
            }
            let sequences: Vec<&[u32]> = rows[first..end].iter().map(|row| row.tokens).collect();
            let batch = pack(&sequences, true)?;
            selected.clear();
            ids.clear();
            for (sequence, row) in rows[first..end].iter().enumerate() {
                for &target in row.targets {
                    let place = target as usize;
                    if place == 0 || place >= row.tokens.len() {
                        let reason = format!("target {place} is not in 1..{}", row.tokens.len());
                        return Err(ModelError::Argument { call: "score", reason });
                    }
                    selected.push(batch.row(sequence, place - 1));
                    ids.push(row.tokens[place]);
                }
            }
            pass(&batch, &selected, &ids, before)?;
            before += ids.len();
            first = end;
        }
        Ok(())
    }
}

impl<B: Backend> Runtime for LocalRuntime<B> {
    fn submit(&mut self, request: Request) -> Result<(), RuntimeError> {
        let Request { id, tokens, max_new_tokens, sampling, stop_strings, stream } = request;
        let request = model::Request {
            id,
            tokens,
            max_new_tokens,
            sampling: model::Sampling {
                temperature: sampling.temperature,
                top_k: sampling.top_k,
                top_p: sampling.top_p,
                min_p: sampling.min_p,
                greedy: sampling.greedy,
            },
            stop: StopRules { end_ids: self.end_ids.clone(), strings: stop_strings },
            seed: stream,
            coordinates: Vec::new(),
        };
        Ok(self.generator.submit(self.actor.weights(), request)?)
    }

    fn advance(&mut self) -> Result<Vec<Completion>, RuntimeError> {
        let Self { generator, actor, .. } = self;
        let finished = inside_pool(|| {
            let mut finished = Vec::new();
            while finished.is_empty() && generator.pending() > 0 {
                finished = generator.advance(actor.weights())?;
            }
            Ok::<_, ModelError>(finished)
        })?;
        let mut finished: Vec<Completion> = finished
            .into_iter()
            .map(|done| Completion {
                id: done.id,
                tokens: done.tokens,
                logprobs: done.logprobs,
                entropies: done.entropies,
                finish: done.finish,
            })
            .collect();
        finished.sort_unstable_by_key(|done| done.id);
        Ok(finished)
    }

    fn pending(&self) -> usize {
        self.generator.pending()
    }

    fn cancel(&mut self) {
        self.generator.cancel_all();
    }

    fn score(&mut self, rows: &[ScoreRow<'_>], temperature: f32) -> Result<Scores, RuntimeError> {
        let mut scores = Scores::default();
        let Self { actor, critic, options, .. } = self;
        Self::passes(rows, options.pass_tokens, |batch, selected, ids, _| {
            let outputs = actor.score_rows(batch, selected, Some(ids), temperature)?;
            scores.logprobs.extend_from_slice(&outputs.logprobs);
            scores.entropies.extend_from_slice(&outputs.entropies);
            scores.values.extend_from_slice(&outputs.values);
            if let Some(critic) = critic {
                scores.values.extend_from_slice(&critic.score_rows(batch, selected, None, 1.0)?.values);
            }
            Ok(())
        })?;
        Ok(scores)
    }

    fn score_reference(&mut self, rows: &[ScoreRow<'_>], temperature: f32) -> Result<Vec<f32>, RuntimeError> {
        let mut logprobs = Vec::new();
        let Self { reference, options, .. } = self;
        let reference =
            reference.as_mut().ok_or_else(|| RuntimeError::Request("there is no reference policy".into()))?;
        Self::passes(rows, options.pass_tokens, |batch, selected, ids, _| {
            logprobs.extend_from_slice(&reference.score_rows(batch, selected, Some(ids), temperature)?.logprobs);
            Ok(())
        })?;
        Ok(logprobs)
    }

    fn freeze_reference(&mut self) -> Result<(), RuntimeError> {
        self.reference = Some(Network::frozen(self.actor.weights().duplicate()?));
        Ok(())
    }

    fn accumulate(
        &mut self,
        part: Part,
        rows: &[ScoreRow<'_>],
        temperature: f32,
        micro_tokens: usize,
        loss: &mut (dyn FnMut(usize, &Scores, &mut Upstream) + Send),
    ) -> Result<(), RuntimeError> {
        let network = match part {
            Part::Actor => &mut self.actor,
            Part::Critic => self.critic.as_mut().ok_or_else(|| RuntimeError::Request("there is no critic".into()))?,
        };
        let (mut scores, mut upstream) = (Scores::default(), Upstream::default());
        Self::passes(rows, micro_tokens, |batch, selected, ids, before| {
            if ids.is_empty() {
                return Ok(());
            }
            let targets = (part == Part::Actor).then_some(ids);
            let outputs = network.forward_rows(batch, selected, targets, temperature)?;
            scores.logprobs.clone_from(&outputs.logprobs);
            scores.entropies.clone_from(&outputs.entropies);
            scores.values.clone_from(&outputs.values);
            for (gradient, length) in [
                (&mut upstream.d_logprob, scores.logprobs.len()),
                (&mut upstream.d_entropy, scores.entropies.len()),
                (&mut upstream.d_value, scores.values.len()),
            ] {
                gradient.clear();
                gradient.resize(length, 0.0);
            }
            loss(before, &scores, &mut upstream);
            network.backward_rows(batch, &upstream.d_logprob, &upstream.d_entropy, &upstream.d_value)
        })?;
        Ok(())
    }

    fn step(&mut self, part: Part, settings: &StepSettings) -> Result<StepReport, RuntimeError> {
        let network = match part {
            Part::Actor => &mut self.actor,
            Part::Critic => self.critic.as_mut().ok_or_else(|| RuntimeError::Request("there is no critic".into()))?,
        };
        let max_norm = settings.clip_norm.map(f64::from);
        let constants = AdamWSettings {
            lr: settings.lr,
            beta1: settings.betas.0,
            beta2: settings.betas.1,
            eps: settings.eps,
            weight_decay: settings.weight_decay,
            max_norm,
        };
        match inside_pool(|| network.step(&constants))? {
            Step::Applied { gradient_norm } => {
                let scale = max_norm.map_or(1.0, |limit| (limit / (gradient_norm + 1e-6)).min(1.0)) as f32;
                Ok(StepReport { gradient_norm, scale })
            }
            Step::Skipped(found) => Err(RuntimeError::NotFinite {
                place: found.to_string(),
                detail: format!("{part:?}; weights and moments are as before the step"),
            }),
        }
    }

    fn weights_hash(&self) -> u64 {
        // A device that cannot be read fails at the next operation, with its own error.
        let text = self.actor.weights().hash().unwrap_or_default();
        u64::from_str_radix(text.get(..16).unwrap_or("0"), 16).unwrap_or(0)
    }

    fn save_model(&self, directory: &Path) -> Result<(), RuntimeError> {
        self.actor.weights().save(directory, Precision::F32)?;
        for name in COMPANIONS {
            let (from, to) = (self.source.join(name), directory.join(name));
            if from.exists() && from != to {
                std::fs::copy(&from, &to)
                    .named("write", &to)
                    .map_err(|error| RuntimeError::Files(error.to_string()))?;
            }
        }
        Ok(())
    }

    fn save_training(&self, directory: &Path) -> Result<(), RuntimeError> {
        self.actor.save_optimizer(&directory.join("actor_optimizer.safetensors"))?;
        if let Some(critic) = &self.critic {
            critic.weights().save(&directory.join("critic"), Precision::F32)?;
            critic.save_optimizer(&directory.join("critic_optimizer.safetensors"))?;
        }
        if let Some(reference) = &self.reference {
            reference.weights().save(&directory.join("reference"), Precision::F32)?;
        }
        Ok(())
    }

    fn restore(&mut self, directory: &Path) -> Result<(), RuntimeError> {
        self.actor.weights_mut().restore(directory)?;
        self.actor.load_optimizer(&directory.join("actor_optimizer.safetensors"))?;
        if let Some(critic) = &mut self.critic {
            critic.weights_mut().restore(&directory.join("critic"))?;
            critic.load_optimizer(&directory.join("critic_optimizer.safetensors"))?;
        }
        if directory.join("reference").exists() {
            self.freeze_reference()?;
            if let Some(reference) = &mut self.reference {
                reference.weights_mut().restore(&directory.join("reference"))?;
            }
        }
        Ok(())
    }
}

/// Tokenizer and chat template of a model directory.
pub struct LocalCodec {
    tokenizer: Tokenizer,
    pieces: ChatPieces,
}

impl LocalCodec {
    /// Loads tokenizer and template.
    ///
    /// # Errors
    /// [`ModelError`] naming the file.
    pub fn load(directory: &Path, config: &ModelConfig) -> Result<Self, ModelError> {
        let tokenizer = Tokenizer::load(directory, &config.eos_ids)?;
        let template = ChatTemplate::load(directory)?.pieces()?.tokens(&tokenizer)?;
        let (system_open, system_close) = template.system.ok_or_else(|| ModelError::Template {
            reason: "it takes no system message, in which the rules of an environment are told".into(),
        })?;
        let pieces = ChatPieces {
            system_open,
            system_close,
            first_user_open: template.first_user_open,
            user_open: template.user_open,
            user_close: template.user_close,
            assistant_open: template.assistant_open,
            assistant_close: template.assistant_close,
        };
        Ok(Self { tokenizer, pieces })
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }
}

impl Codec for LocalCodec {
    fn encode(&self, text: &str) -> Vec<u32> {
        // Byte-level tokenizers encode every text; one that does not was refused when it was loaded.
        self.tokenizer.encode_text(text).unwrap_or_default()
    }

    fn decode(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids)
    }

    fn pieces(&self) -> &ChatPieces {
        &self.pieces
    }

    fn end_ids(&self) -> &[u32] {
        self.tokenizer.end_ids()
    }

    fn control_texts(&self) -> Vec<String> {
        self.tokenizer.control_ids().iter().map(|&id| self.tokenizer.decode(&[id])).collect()
    }
}
