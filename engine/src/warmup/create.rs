//! A new model directory: configuration, tokenizer, random weights.

use std::path::Path;
use std::sync::Arc;

use ragen_kernels::Backend;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::tokenizer::{CHAT_TEMPLATE, CONTROL, TokenizerError, learn};
use crate::files::{FileError, Named as _, write_whole};
use crate::model::{CONFIG, ModelConfig, ModelError, Precision, TOKENIZER, TOKENIZER_CONFIG, WeightOptions, Weights};

/// Shape of a new model of the Qwen2 architecture.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelShape {
    /// Width of the hidden states.
    pub hidden_size: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads; divides `hidden_size`.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of the feed-forward part.
    pub intermediate_size: usize,
    /// Longest sequence.
    pub context: usize,
    /// Most ordinary tokens of the tokenizer.
    pub vocabulary: usize,
}

impl Default for ModelShape {
    fn default() -> Self {
        Self {
            hidden_size: 128,
            layers: 4,
            heads: 4,
            kv_heads: 2,
            intermediate_size: 384,
            context: 1024,
            vocabulary: 1024,
        }
    }
}

/// A model directory that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The weights.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Writes a model directory with random weights and a tokenizer learned from `texts`.
///
/// # Errors
/// [`CreateError`].
///
/// # Determinism
/// The files depend on the arguments alone.
pub fn create_model<B: Backend>(
    backend: Arc<B>,
    directory: &Path,
    shape: &ModelShape,
    texts: &[String],
    seed: u64,
) -> Result<(), CreateError> {
    std::fs::create_dir_all(directory).named("create", directory)?;
    let tokenizer = learn(texts, shape.vocabulary)?;
    let ordinary = tokenizer["model"]["vocab"].as_object().map_or(0, serde_json::Map::len);
    let control = |name: &str| ordinary + CONTROL.iter().position(|token| *token == name).unwrap_or(0);
    let config = json!({
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.intermediate_size,
        "vocab_size": ordinary + CONTROL.len(),
        "max_position_embeddings": shape.context,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": true,
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "bos_token_id": control("<|endoftext|>"),
        "eos_token_id": control("<|im_end|>"),
        "use_sliding_window": false,
        "torch_dtype": "float32",
    });
    let tokenizer_config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": shape.context,
        "clean_up_tokenization_spaces": false,
        "chat_template": CHAT_TEMPLATE,
    });
    write_json(&directory.join(CONFIG), &config)?;
    write_json(&directory.join(TOKENIZER), &tokenizer)?;
    write_json(&directory.join(TOKENIZER_CONFIG), &tokenizer_config)?;
    let config = ModelConfig::read(&directory.join(CONFIG))?;
    let options = WeightOptions { context: shape.context, value_head: false };
    Ok(Weights::random(backend, config, options, seed)?.save(directory, Precision::F32)?)
}

fn write_json(path: &Path, value: &Value) -> Result<(), FileError> {
    let bytes = serde_json::to_vec_pretty(value).map_err(std::io::Error::from).named("write", path)?;
    write_whole(path, &bytes)
}
