//! A model's weights on a device.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ragen_kernels::{AttentionShape, Backend, HeadShape};
use sha2::{Digest as _, Sha256};

use super::files::{CONFIG, WEIGHTS, WeightFiles};
use super::parameters::{ParameterList, Projection};
use super::rope::rope_table;
use super::tensors::{Precision, TensorSpec, replace_file, write_tensors};
use super::{ModelConfig, ModelError};
use crate::random::{Purpose, Stream};

/// Standard deviation of freshly drawn weights.
const INITIAL_DEVIATION: f64 = 0.02;

/// Source of [`Weights::version`]: only equality of versions means something.
static NEXT_VERSION: AtomicU64 = AtomicU64::new(1);

/// What to do beyond reading the weights.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WeightOptions {
    /// Positions to prepare for; at most the configuration's.
    pub context: usize,
    /// Whether the model has a value head. Its weights are read if the files have them, and are 0 otherwise.
    pub value_head: bool,
}

/// Parameters, packed matrices and the rotation table of one model.
pub struct Weights<B: Backend> {
    backend: Arc<B>,
    config: ModelConfig,
    list: ParameterList,
    values: Vec<B::Buffer>,
    matrices: Vec<Option<B::Matrix>>,
    rope: B::Buffer,
    context: usize,
    vocabulary: usize,
    version: u64,
}

impl<B: Backend> std::fmt::Debug for Weights<B> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Weights").field("config", &self.config).field("version", &self.version).finish()
    }
}

impl<B: Backend> Weights<B> {
    /// Builds weights from a source of tensors.
    ///
    /// # Errors
    /// What `read` and the device report; a context of 0 or beyond the configuration's positions.
    pub fn build(
        backend: Arc<B>,
        config: ModelConfig,
        options: WeightOptions,
        mut read: impl FnMut(&str, &[usize]) -> Result<Vec<f32>, ModelError>,
    ) -> Result<Self, ModelError> {
        let context = options.context;
        if context == 0 || context > config.max_positions {
            let reason = format!("context {context} is not in 1..={}", config.max_positions);
            return Err(ModelError::argument("Weights::build", reason));
        }
        let list = ParameterList::new(&config, options.value_head);
        let (mut values, mut matrices) = (Vec::new(), Vec::new());
        for parameter in list.iter() {
            let host = read(&parameter.name, &parameter.shape)?;
            if host.len() != parameter.length() {
                let reason = format!("`{}` has {} elements, not {}", parameter.name, host.len(), parameter.length());
                return Err(ModelError::argument("Weights::build", reason));
            }
            let value = backend.upload(&host)?;
            let matrix = if parameter.matrix {
                Some(backend.matrix(&value, parameter.shape[0], parameter.shape[1])?)
            } else {
                None
            };
            values.push(value);
            matrices.push(matrix);
        }
        let rope = backend.upload(&rope_table(&config, context))?;
        let vocabulary = config.vocab_size;
        let version = NEXT_VERSION.fetch_add(1, Ordering::Relaxed);
        Ok(Self { backend, config, list, values, matrices, rope, context, vocabulary, version })
    }

    /// Reads a model directory.
    ///
    /// # Errors
    /// Names the file and the key or tensor; see [`ModelConfig::read`] and [`WeightFiles`].
    pub fn load(backend: Arc<B>, directory: &Path, options: WeightOptions) -> Result<Self, ModelError> {
        let config = ModelConfig::read(&directory.join(CONFIG))?;
        Self::load_files(backend, config, options, WeightFiles::open(directory)?)
    }

    /// Reads opened weight files.
    ///
    /// # Errors
    /// As [`Weights::load`].
    pub fn load_files(
        backend: Arc<B>,
        config: ModelConfig,
        options: WeightOptions,
        mut files: WeightFiles,
    ) -> Result<Self, ModelError> {
        let known = ParameterList::new(&config, true);
        files.refuse_unknown(|name| {
            known.iter().any(|parameter| parameter.name == name)
                || name == "lm_head.weight"
                || name.ends_with(".rotary_emb.inv_freq")
        })?;
        let tied_copy = config.tied && files.contains("lm_head.weight");
        Self::build(backend, config, options, |name, shape| {
            if name.starts_with("value_head.") && !files.contains(name) {
                return Ok(vec![0.0; shape.iter().product()]);
            }
            let values = files.read(name, shape)?;
            if tied_copy && name == "model.embed_tokens.weight" && files.read("lm_head.weight", shape)? != values {
                let reason = "differs from the embedding though tie_word_embeddings is true".into();
                return Err(files.error("lm_head.weight", reason));
            }
            Ok(values)
        })
    }

    /// Draws weights: normal with deviation 0.02, norms 1, biases and value head 0.
    ///
    /// # Errors
    /// As [`Weights::build`].
    ///
    /// # Determinism
    /// A parameter's numbers depend on `seed` and its name alone.
    pub fn random(backend: Arc<B>, config: ModelConfig, options: WeightOptions, seed: u64) -> Result<Self, ModelError> {
        Self::build(backend, config, options, |name, shape| {
            let count = shape.iter().product();
            if name.ends_with("norm.weight") {
                return Ok(vec![1.0; count]);
            }
            if name.ends_with(".bias") || name.starts_with("value_head.") {
                return Ok(vec![0.0; count]);
            }
            let mut stream = Stream::new(seed, Purpose::Initialisation, &[crate::random::hash_bytes(name.as_bytes())]);
            Ok((0..count).map(|_| (INITIAL_DEVIATION * stream.normal()) as f32).collect())
        })
    }

    /// A copy with memory of its own, such as a frozen reference model.
    ///
    /// # Errors
    /// What the device reports.
    pub fn duplicate(&self) -> Result<Self, ModelError> {
        let options = WeightOptions { context: self.context, value_head: self.list.value_head.is_some() };
        let mut place = 0;
        let mut copy = Self::build(self.backend.clone(), self.config.clone(), options, |_, _| {
            place += 1;
            self.read(place - 1)
        })?;
        copy.vocabulary = self.vocabulary;
        Ok(copy)
    }

    /// The device.
    #[must_use]
    pub fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    /// The architecture.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Names, shapes and order of the parameters.
    #[must_use]
    pub fn parameters(&self) -> &ParameterList {
        &self.list
    }

    /// Positions that sequences may use.
    #[must_use]
    pub fn context(&self) -> usize {
        self.context
    }

    /// Whether there is a value head.
    #[must_use]
    pub fn has_value_head(&self) -> bool {
        self.list.value_head.is_some()
    }

    /// Ids below this stand for tokens; rows of the head above it take no part.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Sets the number of ids that stand for tokens, where the embedding is padded beyond the tokenizer's vocabulary.
    ///
    /// # Errors
    /// If it is 0 or exceeds the embedding's rows.
    pub fn set_vocabulary(&mut self, vocabulary: usize) -> Result<(), ModelError> {
        if vocabulary == 0 || vocabulary > self.config.vocab_size {
            let reason = format!("{vocabulary} ids, but the embedding has {} rows", self.config.vocab_size);
            return Err(ModelError::argument("set_vocabulary", reason));
        }
        self.vocabulary = vocabulary;
        self.version = NEXT_VERSION.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Changes whenever the weights change; no two models ever share one. It lasts only as long as the process.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// SHA-256 over names and values of all parameters, in hexadecimal.
    ///
    /// # Errors
    /// What the device reports.
    pub fn hash(&self) -> Result<String, ModelError> {
        let mut digest = Sha256::new();
        for (place, parameter) in self.list.iter().enumerate() {
            digest.update(parameter.name.as_bytes());
            digest.update([0]);
            for value in self.read(place)? {
                digest.update(value.to_le_bytes());
            }
        }
        Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads a parameter's values.
    ///
    /// # Errors
    /// What the device reports.
    ///
    /// # Panics
    /// If `place` is not below the number of parameters.
    pub fn read(&self, place: usize) -> Result<Vec<f32>, ModelError> {
        let mut values = vec![0.0; self.list.get(place).length()];
        self.backend.read(&self.values[place], 0, &mut values)?;
        Ok(values)
    }

    /// Replaces a parameter's values.
    ///
    /// # Errors
    /// A wrong number of values, or what the device reports.
    ///
    /// # Panics
    /// If `place` is not below the number of parameters.
    pub fn write(&mut self, place: usize, values: &[f32]) -> Result<(), ModelError> {
        let parameter = self.list.get(place);
        if values.len() != parameter.length() {
            let reason = format!("`{}` has {} elements, not {}", parameter.name, parameter.length(), values.len());
            return Err(ModelError::argument("Weights::write", reason));
        }
        self.backend.write(&mut self.values[place], 0, values)?;
        if let Some(matrix) = &mut self.matrices[place] {
            self.backend.repack(&self.values[place], matrix)?;
        }
        self.version = NEXT_VERSION.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Saves `config.json` and `model.safetensors` so that `transformers` loads them.
    ///
    /// # Errors
    /// What the device or the file system reports. Each file is either complete or as it was.
    pub fn save(&self, directory: &Path, precision: Precision) -> Result<(), ModelError> {
        std::fs::create_dir_all(directory).map_err(|source| ModelError::File { path: directory.to_owned(), source })?;
        let path = directory.join(CONFIG);
        let mut text = self.config.to_json();
        text["torch_dtype"] = if precision == Precision::F32 { "float32" } else { "bfloat16" }.into();
        replace_file(&path, |file| {
            serde_json::to_writer_pretty(file, &text)
                .map_err(|error| ModelError::File { path: path.clone(), source: error.into() })
        })?;
        let specs: Vec<_> = self
            .list
            .iter()
            .map(|parameter| TensorSpec { name: parameter.name.clone(), shape: parameter.shape.clone() })
            .collect();
        write_tensors(&directory.join(WEIGHTS), &specs, &[], precision, |place, values| {
            *values = self.read(place)?;
            Ok(())
        })
    }

    /// Changes parameters in place and packs their matrices again.
    pub(crate) fn update(
        &mut self,
        mut change: impl FnMut(usize, &mut B::Buffer) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        self.version = NEXT_VERSION.fetch_add(1, Ordering::Relaxed);
        for (place, value) in self.values.iter_mut().enumerate() {
            change(place, value)?;
            if let Some(matrix) = &mut self.matrices[place] {
                self.backend.repack(value, matrix)?;
            }
        }
        Ok(())
    }

    pub(crate) fn value(&self, place: usize) -> &B::Buffer {
        &self.values[place]
    }

    pub(crate) fn matrix(&self, place: usize) -> &B::Matrix {
        self.matrices[place].as_ref().expect("places of projections and of the head are built as matrices")
    }

    pub(crate) fn rope(&self) -> &B::Buffer {
        &self.rope
    }

    pub(crate) fn attention_shape(&self) -> AttentionShape {
        AttentionShape {
            heads: self.config.heads,
            kv_heads: self.config.kv_heads,
            head_dim: self.config.head_dim,
            scale: (1.0 / (self.config.head_dim as f64).sqrt()) as f32,
        }
    }

    pub(crate) fn head_shape(&self, temperature: f32) -> HeadShape {
        HeadShape {
            width: self.config.hidden_size,
            outputs: self.config.vocab_size,
            vocabulary: self.vocabulary,
            temperature,
        }
    }

    /// `y (+)= x · Wᵀ + bias` of a projection.
    pub(crate) fn project(
        &self,
        x: &B::Buffer,
        rows: usize,
        projection: Projection,
        y: &mut B::Buffer,
        accumulate: bool,
    ) -> Result<(), ModelError> {
        let bias = projection.bias.map(|place| self.value(place));
        Ok(self.backend.linear(x, rows, self.matrix(projection.weight), bias, y, accumulate)?)
    }
}
