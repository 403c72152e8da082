//! Architecture of a model, read from and written to `config.json`.

mod reader;

use serde_json::{Map, Value, json};

/// Family of decoder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Architecture {
    /// Qwen2 and Qwen2.5: biases on the query, key and value projections.
    Qwen2,
    /// Qwen3: norms on each query and key head, head width independent of the hidden width.
    Qwen3,
    /// Llama 2 and 3.
    Llama,
}

impl Architecture {
    const ALL: [Self; 3] = [Self::Qwen2, Self::Qwen3, Self::Llama];

    /// The class name that `transformers` uses.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Llama => "LlamaForCausalLM",
        }
    }

    fn model_type(self) -> &'static str {
        match self {
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Llama => "llama",
        }
    }
}

/// Stretching of the rotation's wavelengths as in Llama 3.1 (`rope_type` `llama3`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// Factor on long wavelengths.
    pub factor: f64,
    /// Wavelengths above `original_positions / low_frequency_factor` are stretched in full.
    pub low_frequency_factor: f64,
    /// Wavelengths below `original_positions / high_frequency_factor` stay.
    pub high_frequency_factor: f64,
    /// Positions of the model before stretching.
    pub original_positions: f64,
}

/// Shape of a decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Family.
    pub architecture: Architecture,
    /// Rows of the embedding; ids are below this.
    pub vocab_size: usize,
    /// Width of a hidden state.
    pub hidden_size: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f32,
    /// Base of the rotation's wavelengths.
    pub rope_theta: f64,
    /// Stretching of the wavelengths.
    pub rope_scaling: Option<Llama3Scaling>,
    /// Positions that the model was made for.
    pub max_positions: usize,
    /// Whether the output head is the embedding.
    pub tied: bool,
    /// Beginning-of-text id, if named.
    pub bos_id: Option<u32>,
    /// End ids named by the configuration.
    pub eos_ids: Vec<u32>,
}

impl ModelConfig {
    /// Whether query, key and value projections have biases.
    #[must_use]
    pub fn has_qkv_bias(&self) -> bool {
        self.architecture == Architecture::Qwen2
    }

    /// Whether query and key heads are normalised.
    #[must_use]
    pub fn has_head_norms(&self) -> bool {
        self.architecture == Architecture::Qwen3
    }

    /// Width of all query heads together.
    #[must_use]
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key heads together.
    #[must_use]
    pub fn key_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// The `config.json` of this model, as `transformers` reads it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
        put("architectures", json!([self.architecture.class()]));
        put("attention_bias", json!(false));
        put("attention_dropout", json!(0.0));
        put("bos_token_id", json!(self.bos_id));
        put(
            "eos_token_id",
            match self.eos_ids.as_slice() {
                [] => Value::Null,
                [id] => json!(id),
                ids => json!(ids),
            },
        );
        put("head_dim", json!(self.head_dim));
        put("hidden_act", json!("silu"));
        put("hidden_size", json!(self.hidden_size));
        put("initializer_range", json!(0.02));
        put("intermediate_size", json!(self.intermediate_size));
        put("max_position_embeddings", json!(self.max_positions));
        put("model_type", json!(self.architecture.model_type()));
        put("num_attention_heads", json!(self.heads));
        put("num_hidden_layers", json!(self.layers));
        put("num_key_value_heads", json!(self.kv_heads));
        put("rms_norm_eps", json!(shortest(self.rms_norm_eps)));
        put(
            "rope_scaling",
            self.rope_scaling.map_or(Value::Null, |scaling| {
                json!({
                    "factor": scaling.factor,
                    "high_freq_factor": scaling.high_frequency_factor,
                    "low_freq_factor": scaling.low_frequency_factor,
                    "original_max_position_embeddings": scaling.original_positions as u64,
                    "rope_type": "llama3",
                })
            }),
        );
        put("rope_theta", json!(self.rope_theta));
        put("tie_word_embeddings", json!(self.tied));
        put("torch_dtype", json!("float32"));
        put("use_cache", json!(true));
        put("vocab_size", json!(self.vocab_size));
        if self.architecture != Architecture::Llama {
            put("use_sliding_window", json!(false));
        } else {
            put("mlp_bias", json!(false));
        }
        Value::Object(map)
    }
}

/// The f64 with the fewest decimal digits that rounds to `value`, so that 1e-6 is written as such.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}
