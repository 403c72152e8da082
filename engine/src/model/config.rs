//! Architecture of a model, read from and written to `config.json`.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::ModelError;
use super::keys::Keys;

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

/// More layers than any model has; protects against absurd files.
const LAYER_LIMIT: usize = 4096;

/// Keys that say nothing about the computation done here.
const IGNORED: &[&str] = &[
    "_attn_implementation_autoset",
    "_name_or_path",
    "attention_dropout",
    "chunk_size_feed_forward",
    "dtype",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "max_window_layers",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "sliding_window",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unsloth_fixed",
    "use_cache",
];

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

    /// Reads `config.json`.
    ///
    /// # Errors
    /// Names the file and the key: a missing or ill-typed key, an unknown architecture, a feature that is not implemented,
    /// or a key that is not known and might change the computation.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let bytes = std::fs::read(path).map_err(|source| ModelError::File { path: path.to_owned(), source })?;
        Self::parse(path, &bytes)
    }

    /// Parses the text of a `config.json`; `path` is used in errors only.
    ///
    /// # Errors
    /// As [`ModelConfig::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, ModelError> {
        let mut keys = Keys::parse(path, bytes)?;
        let classes: Vec<String> = keys
            .optional("architectures", |value| serde_json::from_value(value.clone()).ok(), "a list of names")?
            .unwrap_or_default();
        let model_type = keys.text("model_type")?;
        let architecture = Architecture::ALL
            .into_iter()
            .find(|known| model_type.as_deref() == Some(known.model_type()))
            .or_else(|| {
                Architecture::ALL
                    .into_iter()
                    .find(|known| model_type.is_none() && classes.first().is_some_and(|class| class == known.class()))
            });
        let Some(architecture) = architecture else {
            let found = model_type.or(classes.first().cloned()).unwrap_or_else(|| "nothing".into());
            return Err(keys.error("model_type", format!("`{found}` is not supported; expected qwen2, qwen3 or llama")));
        };
        if let Some(class) = classes.iter().find(|class| *class != architecture.class()) {
            let expected = architecture.class();
            return Err(keys.error("architectures", format!("`{class}` is not supported; expected `{expected}`")));
        }

        let hidden_size = keys.size("hidden_size")?;
        let heads = keys.size("num_attention_heads")?;
        let kv_heads = keys.optional_size("num_key_value_heads")?.unwrap_or(heads);
        let head_dim = match keys.optional_size("head_dim")? {
            Some(width) => width,
            None if hidden_size.is_multiple_of(heads) => hidden_size / heads,
            None => {
                let reason = format!("missing, and hidden_size {hidden_size} is no multiple of {heads} heads");
                return Err(keys.error("head_dim", reason));
            }
        };
        if !head_dim.is_multiple_of(2) {
            return Err(keys.error("head_dim", format!("{head_dim} is odd, so it cannot be rotated in pairs")));
        }
        if !heads.is_multiple_of(kv_heads) {
            let reason = format!("{kv_heads} does not divide num_attention_heads {heads}");
            return Err(keys.error("num_key_value_heads", reason));
        }
        let layers = keys.size("num_hidden_layers")?;
        if layers > LAYER_LIMIT {
            return Err(keys.error("num_hidden_layers", format!("{layers} is more than {LAYER_LIMIT}")));
        }
        keys.fixed("hidden_act", &json!("silu"))?;
        for key in ["attention_bias", "mlp_bias", "use_mrope"] {
            keys.fixed(key, &json!(false))?;
        }
        keys.refuse("quantization_config", "quantised weights are not supported")?;
        refuse_windows(&mut keys, layers)?;
        let (rope_theta, rope_scaling) = rope(&mut keys)?;
        let rms_norm_eps = keys.number("rms_norm_eps")?.unwrap_or(1e-6);
        if !(0.0..1.0).contains(&rms_norm_eps) {
            return Err(keys.error("rms_norm_eps", format!("{rms_norm_eps} is not in 0..1")));
        }
        let config = Self {
            architecture,
            vocab_size: keys.size("vocab_size")?,
            hidden_size,
            intermediate_size: keys.size("intermediate_size")?,
            layers,
            heads,
            kv_heads,
            head_dim,
            rms_norm_eps: rms_norm_eps as f32,
            rope_theta,
            rope_scaling,
            max_positions: keys.size("max_position_embeddings")?,
            tied: keys.flag("tie_word_embeddings")?.unwrap_or(false),
            bos_id: keys.ids("bos_token_id")?.first().copied(),
            eos_ids: keys.ids("eos_token_id")?,
        };
        keys.finish(IGNORED)?;
        Ok(config)
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

/// Refuses attention windows that would really cut something off.
fn refuse_windows(keys: &mut Keys<'_>, layers: usize) -> Result<(), ModelError> {
    let window = keys.peek("sliding_window").is_some_and(|value| !value.is_null());
    let spared = keys.peek("max_window_layers").and_then(Value::as_u64).unwrap_or(0);
    let used = keys.flag("use_sliding_window")?;
    if window && used == Some(true) && spared < layers as u64 {
        return Err(keys.error("use_sliding_window", "sliding-window attention is not supported".into()));
    }
    if window && used.is_none() {
        return Err(keys.error("sliding_window", "sliding-window attention is not supported; expected null".into()));
    }
    let kinds: Option<Vec<String>> =
        keys.optional("layer_types", |value| serde_json::from_value(value.clone()).ok(), "a list of names")?;
    if let Some(kind) = kinds.unwrap_or_default().into_iter().find(|kind| kind != "full_attention") {
        return Err(keys.error("layer_types", format!("`{kind}` is not supported; expected `full_attention`")));
    }
    Ok(())
}

/// Base and scaling, from the keys of `transformers` 4 (`rope_theta`, `rope_scaling`) or 5 (`rope_parameters`).
fn rope(keys: &mut Keys<'_>) -> Result<(f64, Option<Llama3Scaling>), ModelError> {
    let mut theta = keys.number("rope_theta")?;
    let mut scaling = None;
    for key in ["rope_scaling", "rope_parameters"] {
        let Some(mut inner) = keys.object(key)? else { continue };
        theta = inner.number("rope_theta")?.or(theta);
        let named = inner.text("rope_type")?;
        let kind = inner.text("type")?;
        match named.or(kind).as_deref() {
            None | Some("default") => {}
            Some("llama3") => {
                let mut required = |name: &str| match inner.number(name)? {
                    Some(value) if value.is_finite() && value > 0.0 => Ok(value),
                    Some(value) => Err(inner.error(name, format!("{value} is not positive"))),
                    None => Err(inner.error(name, "missing".into())),
                };
                let found = Llama3Scaling {
                    factor: required("factor")?,
                    low_frequency_factor: required("low_freq_factor")?,
                    high_frequency_factor: required("high_freq_factor")?,
                    original_positions: required("original_max_position_embeddings")?,
                };
                if found.high_frequency_factor <= found.low_frequency_factor {
                    return Err(inner.error("high_freq_factor", "must exceed low_freq_factor".into()));
                }
                scaling = Some(found);
            }
            Some(other) => {
                return Err(inner.error("rope_type", format!("`{other}` is not supported; expected default or llama3")));
            }
        }
        inner.finish(&[])?;
    }
    let theta = theta.unwrap_or(10_000.0);
    if !(theta.is_finite() && theta > 0.0) {
        return Err(keys.error("rope_theta", format!("{theta} is not positive")));
    }
    Ok((theta, scaling))
}
