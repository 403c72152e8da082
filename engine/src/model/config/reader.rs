//! Reading of `config.json`.

use std::path::Path;

use serde_json::{Value, json};

use super::super::ModelError;
use super::super::keys::Keys;
use super::{Architecture, Llama3Scaling, ModelConfig};

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
