//! Small models with random weights.

use std::sync::Arc;

use ragen::model::{Architecture, ModelConfig, WeightOptions, Weights};
use ragen::random::{Purpose, Stream};
use ragen_kernels::cpu::Cpu;

pub(crate) const ARCHITECTURES: [Architecture; 3] = [Architecture::Qwen2, Architecture::Qwen3, Architecture::Llama];

/// Two layers; odd sizes, so that no kernel meets only whole vectors.
pub(crate) fn config(architecture: Architecture, tied: bool) -> ModelConfig {
    ModelConfig {
        architecture,
        vocab_size: 97,
        hidden_size: 36,
        intermediate_size: 50,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: if architecture == Architecture::Qwen3 { 14 } else { 10 },
        rms_norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: None,
        max_positions: 256,
        tied,
        bos_id: None,
        eos_ids: vec![2],
    }
}

/// Weights whose terms all matter: large matrices, norms around 1, biases and value head that are not 0.
pub(crate) fn weights(architecture: Architecture, tied: bool, value_head: bool) -> Weights<Cpu> {
    let config = config(architecture, tied);
    let options = WeightOptions { context: config.max_positions, value_head };
    Weights::build(Arc::new(Cpu::new()), config, options, |name, shape| {
        let mut stream = Stream::new(5, Purpose::Test, &[ragen::random::hash_bytes(name.as_bytes())]);
        let (mean, deviation) = match shape {
            [_] if name.ends_with("norm.weight") => (1.0, 0.2),
            [_] => (0.0, 0.3),
            _ if name == "model.embed_tokens.weight" => (0.0, 0.4),
            [_, inputs, ..] => (0.0, 1.0 / (*inputs as f64).sqrt()),
            [] => (0.0, 0.0),
        };
        Ok((0..shape.iter().product()).map(|_| (mean + deviation * stream.normal()) as f32).collect())
    })
    .unwrap()
}

pub(crate) fn tokens(seed: u64, count: usize) -> Vec<u32> {
    let mut stream = Stream::new(seed, Purpose::Test, &[]);
    (0..count).map(|_| stream.below(97) as u32).collect()
}
