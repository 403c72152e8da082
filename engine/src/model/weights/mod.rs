//! A model's weights on a device.

mod files;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ragen_kernels::{AttentionShape, Backend, HeadShape, KernelError};

use super::parameters::{ParameterList, Projection};
use super::rope::rope_table;
use super::{ModelConfig, ModelError, NonFinite};

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

    /// Sets the value head's bias, such as to the mean return before the critic has learnt anything.
    ///
    /// # Errors
    /// A model without a value head, or what the device reports.
    pub fn set_value_bias(&mut self, bias: f32) -> Result<(), ModelError> {
        match self.list.value_head.and_then(|projection| projection.bias) {
            Some(place) => self.write(place, &[bias]),
            None => Err(ModelError::argument("set_value_bias", "the model has no value head")),
        }
    }

    /// The first parameter that holds a number that is not finite.
    ///
    /// # Errors
    /// What the device reports.
    pub fn first_non_finite(&self) -> Result<Option<usize>, ModelError> {
        for (place, value) in self.values.iter().enumerate() {
            if !self.backend.sum_squares(value)?.is_finite() {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Names the weight behind a result that is not finite, if there is one.
    pub(crate) fn explain(&self, error: ModelError) -> ModelError {
        if let ModelError::Kernel(KernelError::NotFinite { .. }) = error
            && let Ok(Some(place)) = self.first_non_finite()
        {
            let parameter = self.list.get(place).name.clone();
            return ModelError::NonFinite(NonFinite { parameter, weight: true });
        }
        error
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
