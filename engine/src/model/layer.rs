//! One decoder layer, forwards.
//!
//! ```text
//! n = norm(x);  q, k, v = n Wq + bq, n Wk + bk, n Wv + bv;  q, k = rotate(norm(q)), rotate(norm(k))
//! m = x + attention(q, k, v) Wo;  n = norm(m);  y = m + (silu(n Wg) · n Wu) Wd
//! ```

use ragen_kernels::{Backend, Layout};

use super::{ModelConfig, ModelError, Weights};

/// Which rows a pass computes and which keys they see.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) tokens: &'a [u32],
    pub(crate) positions: &'a [u32],
    pub(crate) layout: &'a Layout,
}

impl Pass<'_> {
    pub(crate) fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Checks ids and positions against the model.
    pub(crate) fn check<B: Backend>(&self, weights: &Weights<B>, call: &'static str) -> Result<(), ModelError> {
        if self.tokens.len() != self.positions.len() || self.tokens.len() != self.layout.rows() {
            let (tokens, positions, rows) = (self.tokens.len(), self.positions.len(), self.layout.rows());
            let reason = format!("{tokens} tokens, {positions} positions and {rows} rows of spans do not agree");
            return Err(ModelError::argument(call, reason));
        }
        let limit = weights.config().vocab_size;
        if let Some(token) = self.tokens.iter().find(|&&token| token as usize >= limit) {
            return Err(ModelError::argument(call, format!("token id {token} is not below {limit}")));
        }
        let limit = weights.context();
        if let Some(position) = self.positions.iter().find(|&&position| position as usize >= limit) {
            return Err(ModelError::argument(call, format!("position {position} is not below the context {limit}")));
        }
        Ok(())
    }
}

/// What the backward pass of a layer needs from its forward pass, besides the layer's input and its blocks of keys.
pub(crate) struct Slot<B: Backend> {
    /// Input of the feed-forward half, `[tokens, width]`.
    pub(crate) mid: B::Buffer,
    /// Rotated queries, `[tokens, heads · head_dim]`.
    pub(crate) query: B::Buffer,
    /// Queries and keys before their norms.
    pub(crate) raw: Option<(B::Buffer, B::Buffer)>,
    /// Output of attention, `[tokens, heads · head_dim]`.
    pub(crate) attended: B::Buffer,
    /// Logs of the softmax denominators, `[tokens, heads]`.
    pub(crate) log_sum: B::Buffer,
    /// `[tokens, intermediate]`.
    pub(crate) gate: B::Buffer,
    /// `[tokens, intermediate]`.
    pub(crate) up: B::Buffer,
}

impl<B: Backend> Slot<B> {
    pub(crate) fn new(backend: &B, config: &ModelConfig, tokens: usize) -> Result<Self, ModelError> {
        let (queries, keys) = (tokens * config.query_width(), tokens * config.key_width());
        let raw = if config.has_head_norms() { Some((backend.zeros(queries)?, backend.zeros(keys)?)) } else { None };
        Ok(Self {
            mid: backend.zeros(tokens * config.hidden_size)?,
            query: backend.zeros(queries)?,
            raw,
            attended: backend.zeros(queries)?,
            log_sum: backend.zeros(tokens * config.heads)?,
            gate: backend.zeros(tokens * config.intermediate_size)?,
            up: backend.zeros(tokens * config.intermediate_size)?,
        })
    }
}

/// Numbers per token of a [`Slot`].
pub(crate) fn slot_floats(config: &ModelConfig) -> usize {
    let raw = if config.has_head_norms() { config.query_width() + config.key_width() } else { 0 };
    config.hidden_size + 2 * config.query_width() + raw + config.heads + 2 * config.intermediate_size
}

/// Room that every layer uses anew.
pub(crate) struct Scratch<B: Backend> {
    /// `[tokens, width]`.
    pub(crate) normed: B::Buffer,
    /// `[tokens, kv_heads · head_dim]`.
    key: B::Buffer,
    /// `[tokens, kv_heads · head_dim]`.
    value: B::Buffer,
    /// `[tokens, intermediate]`.
    pub(crate) active: B::Buffer,
}

impl<B: Backend> Scratch<B> {
    pub(crate) fn new(backend: &B, config: &ModelConfig, tokens: usize) -> Result<Self, ModelError> {
        Ok(Self {
            normed: backend.zeros(tokens * config.hidden_size)?,
            key: backend.zeros(tokens * config.key_width())?,
            value: backend.zeros(tokens * config.key_width())?,
            active: backend.zeros(tokens * config.intermediate_size)?,
        })
    }
}

/// Numbers per token of a [`Scratch`].
pub(crate) fn scratch_floats(config: &ModelConfig) -> usize {
    config.hidden_size + 2 * config.key_width() + config.intermediate_size
}

/// Computes a layer, `x` to `next`, and stores its keys and values; without `next`, only what the backward pass needs.
///
/// `training` also keeps the softmax denominators.
#[expect(clippy::too_many_arguments, reason = "input, output and three kinds of room")]
pub(crate) fn forward_layer<B: Backend>(
    weights: &Weights<B>,
    layer: usize,
    pass: Pass<'_>,
    x: &B::Buffer,
    slot: &mut Slot<B>,
    scratch: &mut Scratch<B>,
    blocks: &mut B::Blocks,
    training: bool,
    next: Option<&mut B::Buffer>,
) -> Result<(), ModelError> {
    attend(weights, layer, pass, x, slot, scratch, blocks, training)?;
    let Slot { mid, gate, up, .. } = slot;
    feed_forward(weights, layer, pass.rows(), mid, gate, up, scratch, next)
}

/// Computes the last layer. No row sees its output but the row itself, so only `selected` rows go through the feed-forward
/// half: their middles are gathered into `mid`, and their outputs, in the order of `selected`, are written to `out`.
#[expect(clippy::too_many_arguments, reason = "input, output and three kinds of room")]
pub(crate) fn forward_last_layer<B: Backend>(
    weights: &Weights<B>,
    pass: Pass<'_>,
    selected: &[u32],
    x: &B::Buffer,
    slot: &mut Slot<B>,
    scratch: &mut Scratch<B>,
    blocks: &mut B::Blocks,
    training: bool,
    mid: &mut B::Buffer,
    out: Option<&mut B::Buffer>,
) -> Result<(), ModelError> {
    let config = weights.config();
    let layer = config.layers - 1;
    attend(weights, layer, pass, x, slot, scratch, blocks, training)?;
    weights.backend().gather(&slot.mid, selected, config.hidden_size, mid)?;
    feed_forward(weights, layer, selected.len(), mid, &mut slot.gate, &mut slot.up, scratch, out)
}

/// The first half of a layer, `x` to `slot.mid`.
#[expect(clippy::too_many_arguments, reason = "input, output and three kinds of room")]
fn attend<B: Backend>(
    weights: &Weights<B>,
    layer: usize,
    pass: Pass<'_>,
    x: &B::Buffer,
    slot: &mut Slot<B>,
    scratch: &mut Scratch<B>,
    blocks: &mut B::Blocks,
    training: bool,
) -> Result<(), ModelError> {
    let (backend, config) = (weights.backend().as_ref(), weights.config());
    let places = weights.parameters().layers[layer];
    let shape = weights.attention_shape();
    let (rows, width, eps) = (pass.rows(), config.hidden_size, config.rms_norm_eps);

    backend.rms_norm(x, rows, weights.value(places.input_norm), eps, &mut scratch.normed)?;
    match (&mut slot.raw, places.head_norms) {
        (Some((query, key)), Some((query_norm, key_norm))) => {
            weights.project(&scratch.normed, rows, places.query, query, false)?;
            weights.project(&scratch.normed, rows, places.key, key, false)?;
            backend.rms_norm(query, rows * shape.heads, weights.value(query_norm), eps, &mut slot.query)?;
            backend.rms_norm(key, rows * shape.kv_heads, weights.value(key_norm), eps, &mut scratch.key)?;
        }
        _ => {
            weights.project(&scratch.normed, rows, places.query, &mut slot.query, false)?;
            weights.project(&scratch.normed, rows, places.key, &mut scratch.key, false)?;
        }
    }
    weights.project(&scratch.normed, rows, places.value, &mut scratch.value, false)?;
    backend.rope(&mut slot.query, pass.positions, shape.heads, shape.head_dim, weights.rope(), false)?;
    backend.rope(&mut scratch.key, pass.positions, shape.kv_heads, shape.head_dim, weights.rope(), false)?;
    backend.store(&scratch.key, &scratch.value, pass.layout, shape, blocks)?;
    let log_sum = if training { Some(&mut slot.log_sum) } else { None };
    backend.attention(&slot.query, pass.layout, shape, blocks, &mut slot.attended, log_sum)?;
    backend.copy(x, &mut slot.mid, rows * width)?;
    weights.project(&slot.attended, rows, places.output, &mut slot.mid, true)?;
    Ok(())
}

/// The second half of a layer over `rows` rows, `mid` to `next`; keeps gate and up.
#[expect(clippy::too_many_arguments, reason = "input, output and three kinds of room")]
fn feed_forward<B: Backend>(
    weights: &Weights<B>,
    layer: usize,
    rows: usize,
    mid: &B::Buffer,
    gate: &mut B::Buffer,
    up: &mut B::Buffer,
    scratch: &mut Scratch<B>,
    next: Option<&mut B::Buffer>,
) -> Result<(), ModelError> {
    let (backend, config) = (weights.backend().as_ref(), weights.config());
    let places = weights.parameters().layers[layer];
    backend.rms_norm(mid, rows, weights.value(places.post_norm), config.rms_norm_eps, &mut scratch.normed)?;
    weights.project(&scratch.normed, rows, places.gate, gate, false)?;
    weights.project(&scratch.normed, rows, places.up, up, false)?;
    if let Some(next) = next {
        backend.swiglu(gate, up, rows * config.intermediate_size, &mut scratch.active)?;
        backend.copy(mid, next, rows * config.hidden_size)?;
        weights.project(&scratch.active, rows, places.down, next, true)?;
    }
    Ok(())
}
