//! Loading, drawing, hashing and saving of weights.

use std::path::Path;
use std::sync::Arc;

use ragen_kernels::Backend;
use sha2::{Digest as _, Sha256};

use super::super::files::{CONFIG, WEIGHTS, WeightFiles};
use super::super::tensor_file::Precision;
use super::super::tensor_writer::{TensorSpec, replace_file, write_tensors};
use super::super::{ModelConfig, ModelError, ParameterList};
use super::{WeightOptions, Weights};
use crate::random::{Purpose, Stream, hash_bytes};

/// Standard deviation of freshly drawn weights.
const INITIAL_DEVIATION: f64 = 0.02;

impl<B: Backend> Weights<B> {
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
            let mut stream = Stream::new(seed, Purpose::Initialisation, &[hash_bytes(name.as_bytes())]);
            Ok((0..count).map(|_| (INITIAL_DEVIATION * stream.normal()) as f32).collect())
        })
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
}
