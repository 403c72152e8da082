//! The backward pass, written out.

use ragen_kernels::Backend;

use super::layer::{Pass, Scratch, Slot, forward_last_layer, forward_layer};
use super::network::{Followed, Network, not_trained};
use super::pack::PackedBatch;
use super::parameters::Projection;
use super::workspace::{BackwardRoom, HeadRoom, Purpose};
use super::{ModelError, Weights};

impl<B: Backend> Network<B> {
    /// Adds the gradients of one micro-batch to the accumulated ones.
    ///
    /// `batch` is the batch of the preceding [`Network::forward_rows`]. The three lists are the loss' derivatives with respect
    /// to that pass' log-probabilities, entropies and values, one per selected row; an empty list stands for zeros.
    ///
    /// # Errors
    /// A frozen network, no preceding forward pass, lengths that differ, or what the device reports.
    ///
    /// # Determinism
    /// The order of every sum is fixed by the batch; recomputation changes no bit.
    pub fn backward_rows(
        &mut self,
        batch: &PackedBatch,
        d_logprobs: &[f32],
        d_entropies: &[f32],
        d_values: &[f32],
    ) -> Result<(), ModelError> {
        let Self { weights, workspace: room, optimizer, followed, .. } = self;
        let gradients = &mut optimizer.as_mut().ok_or_else(|| not_trained("backward_rows"))?.gradients;
        let Some(taken) = followed.take() else {
            if d_logprobs.is_empty() && d_entropies.is_empty() && d_values.is_empty() {
                return Ok(());
            }
            return Err(ModelError::argument("backward_rows", "no forward pass precedes it"));
        };
        let given = [d_logprobs, d_entropies, d_values];
        taken.check(batch.rows(), weights.version(), given, weights.has_value_head())?;
        let (Some(scratch), Some(head), Some(d)) = (&mut room.scratch, &room.head, &mut room.backward) else {
            return Err(not_trained("backward_rows"));
        };
        let (backend, config) = (weights.backend().clone(), weights.config());
        let rows = batch.rows();

        backward_head(weights, head, d, gradients, &taken, given)?;
        backend.fill(&mut d.hidden, rows * config.hidden_size, 0.0)?;

        let pass = Pass { tokens: &batch.tokens, positions: &batch.positions, layout: &batch.layout };
        let slots = room.slots.len();
        for layer in (0..config.layers).rev() {
            let (slot, keys) = (&mut room.slots[layer % slots], &mut room.keys[layer % slots]);
            let last = layer + 1 == config.layers;
            let (inputs, outputs) = room.inputs.split_at_mut(layer + 1);
            let (x, output) = (&inputs[layer], &mut outputs[0]);
            match (room.purpose == Purpose::Recompute, last) {
                (false, _) => {}
                (true, false) => forward_layer(weights, layer, pass, x, slot, scratch, keys, true, None)?,
                (true, true) => {
                    forward_last_layer(weights, pass, &taken.selected, x, slot, scratch, keys, true, output, None)?;
                }
            }
            if last {
                // Only the selected rows went through this half: their gradients are in `d.picked`, their middles where other
                // layers have their output.
                let count = taken.selected.len();
                backward_feed_forward(weights, layer, count, Half::of(output, slot), scratch, d, true, gradients)?;
                backend.scatter_add(&d.picked, &taken.selected, config.hidden_size, &mut d.hidden)?;
            } else {
                backward_feed_forward(weights, layer, rows, Half::of(&slot.mid, slot), scratch, d, false, gradients)?;
            }
            backward_attention(weights, layer, pass, x, slot, scratch, keys, d, gradients)?;
        }
        let table = &mut gradients[weights.parameters().embedding];
        backend.embedding_gradient(pass.tokens, &d.hidden, config.hidden_size, table)?;
        self.spare = taken;
        Ok(())
    }
}

/// From log-probabilities, entropies and values to the picked hidden rows (`d.picked`).
fn backward_head<B: Backend>(
    weights: &Weights<B>,
    head: &HeadRoom<B>,
    d: &mut BackwardRoom<B>,
    gradients: &mut [B::Buffer],
    followed: &Followed,
    [d_logprobs, d_entropies, d_values]: [&[f32]; 3],
) -> Result<(), ModelError> {
    let (backend, config, places) = (weights.backend().as_ref(), weights.config(), weights.parameters());
    let rows = followed.selected.len();
    if d_logprobs.is_empty() && d_entropies.is_empty() {
        backend.fill(&mut d.head, rows * config.hidden_size, 0.0)?;
    } else {
        for (given, room) in [(d_logprobs, &mut d.logprob), (d_entropies, &mut d.entropy)] {
            if given.is_empty() {
                backend.fill(room, rows, 0.0)?;
            } else {
                backend.write(room, 0, given)?;
            }
        }
        backend.head_gradient(
            &head.normed,
            rows,
            weights.value(places.head),
            weights.matrix(places.head),
            weights.head_shape(followed.temperature),
            &followed.targets,
            &head.log_sum,
            &head.entropy,
            &d.logprob,
            &d.entropy,
            &mut d.head,
            &mut gradients[places.head],
        )?;
    }
    if let Some(projection) = places.value_head.filter(|_| !d_values.is_empty()) {
        backend.write(&mut d.head_value, 0, d_values)?;
        project_backward(weights, projection, rows, &head.normed, &d.head_value, Some((&mut d.head, true)), gradients)?;
    }
    let (norm, eps) = (weights.value(places.norm), config.rms_norm_eps);
    let d_norm = &mut gradients[places.norm];
    backend.rms_norm_gradient(&head.picked, rows, norm, eps, &d.head, &mut d.picked, false, d_norm)?;
    Ok(())
}

/// Gradients of a projection's weight, bias and, if asked for, input.
fn project_backward<B: Backend>(
    weights: &Weights<B>,
    projection: Projection,
    rows: usize,
    x: &B::Buffer,
    dy: &B::Buffer,
    dx: Option<(&mut B::Buffer, bool)>,
    gradients: &mut [B::Buffer],
) -> Result<(), ModelError> {
    let backend = weights.backend().as_ref();
    let Projection { weight, bias, outputs, inputs } = projection;
    // A bias always follows its weight in the list.
    let (d_weight, d_bias) = match bias {
        Some(bias) => {
            let (before, after) = gradients.split_at_mut(bias);
            (&mut before[weight], Some(&mut after[0]))
        }
        None => (&mut gradients[weight], None),
    };
    backend.linear_weight_gradient(x, dy, rows, outputs, inputs, d_weight, d_bias)?;
    if let Some((dx, accumulate)) = dx {
        let (original, matrix) = (weights.value(weight), weights.matrix(weight));
        backend.linear_input_gradient(dy, rows, original, matrix, dx, accumulate)?;
    }
    Ok(())
}

/// What the feed-forward half of a layer kept.
struct Half<'a, B: Backend> {
    mid: &'a B::Buffer,
    gate: &'a B::Buffer,
    up: &'a B::Buffer,
}

impl<'a, B: Backend> Half<'a, B> {
    fn of(mid: &'a B::Buffer, slot: &'a Slot<B>) -> Self {
        Self { mid, gate: &slot.gate, up: &slot.up }
    }
}

/// Turns `d.hidden`, or `d.picked` if `picked`, from the gradient of a layer's output into that of its middle.
#[expect(clippy::too_many_arguments, reason = "input, output and three kinds of room")]
fn backward_feed_forward<B: Backend>(
    weights: &Weights<B>,
    layer: usize,
    rows: usize,
    half: Half<'_, B>,
    scratch: &mut Scratch<B>,
    d: &mut BackwardRoom<B>,
    picked: bool,
    gradients: &mut [B::Buffer],
) -> Result<(), ModelError> {
    let (backend, config) = (weights.backend().as_ref(), weights.config());
    let places = weights.parameters().layers[layer];
    let (count, eps) = (rows * config.intermediate_size, config.rms_norm_eps);
    let norm = weights.value(places.post_norm);
    let Half { mid, gate, up } = half;
    let d_rows = if picked { &mut d.picked } else { &mut d.hidden };
    backend.swiglu(gate, up, count, &mut scratch.active)?;
    let into = Some((&mut d.active, false));
    project_backward(weights, places.down, rows, &scratch.active, d_rows, into, gradients)?;
    backend.swiglu_gradient(gate, up, count, &d.active, &mut d.gate, &mut d.up)?;
    backend.rms_norm(mid, rows, norm, eps, &mut scratch.normed)?;
    let into = Some((&mut d.normed, false));
    project_backward(weights, places.gate, rows, &scratch.normed, &d.gate, into, gradients)?;
    let into = Some((&mut d.normed, true));
    project_backward(weights, places.up, rows, &scratch.normed, &d.up, into, gradients)?;
    let d_norm = &mut gradients[places.post_norm];
    backend.rms_norm_gradient(mid, rows, norm, eps, &d.normed, d_rows, true, d_norm)?;
    Ok(())
}

/// Turns `d.hidden` from the gradient of a layer's middle into that of its input.
#[expect(clippy::too_many_arguments, reason = "input, output and four kinds of room")]
fn backward_attention<B: Backend>(
    weights: &Weights<B>,
    layer: usize,
    pass: Pass<'_>,
    x: &B::Buffer,
    slot: &Slot<B>,
    scratch: &mut Scratch<B>,
    keys: &B::Blocks,
    d: &mut BackwardRoom<B>,
    gradients: &mut [B::Buffer],
) -> Result<(), ModelError> {
    let (backend, config) = (weights.backend().as_ref(), weights.config());
    let places = weights.parameters().layers[layer];
    let shape = weights.attention_shape();
    let (rows, eps) = (pass.rows(), config.rms_norm_eps);
    let into = Some((&mut d.attended, false));
    project_backward(weights, places.output, rows, &slot.attended, &d.hidden, into, gradients)?;
    backend.attention_gradient(
        &slot.query,
        pass.layout,
        shape,
        keys,
        &slot.attended,
        &slot.log_sum,
        &d.attended,
        &mut d.query,
        &mut d.key,
        &mut d.value,
    )?;
    backend.rope(&mut d.query, pass.positions, shape.heads, shape.head_dim, weights.rope(), true)?;
    backend.rope(&mut d.key, pass.positions, shape.kv_heads, shape.head_dim, weights.rope(), true)?;
    let (d_query, d_key) = match (&mut d.raw, &slot.raw, places.head_norms) {
        (Some((d_query, d_key)), Some((query, key)), Some((query_norm, key_norm))) => {
            let (norm, d_norm) = (weights.value(query_norm), &mut gradients[query_norm]);
            let heads = rows * shape.heads;
            backend.rms_norm_gradient(query, heads, norm, eps, &d.query, d_query, false, d_norm)?;
            let (norm, d_norm) = (weights.value(key_norm), &mut gradients[key_norm]);
            let heads = rows * shape.kv_heads;
            backend.rms_norm_gradient(key, heads, norm, eps, &d.key, d_key, false, d_norm)?;
            (&*d_query, &*d_key)
        }
        _ => (&d.query, &d.key),
    };
    let norm = weights.value(places.input_norm);
    backend.rms_norm(x, rows, norm, eps, &mut scratch.normed)?;
    let parts = [(places.query, d_query), (places.key, d_key), (places.value, &d.value)];
    for (number, (projection, dy)) in parts.into_iter().enumerate() {
        let into = Some((&mut d.normed, number > 0));
        project_backward(weights, projection, rows, &scratch.normed, dy, into, gradients)?;
    }
    let d_norm = &mut gradients[places.input_norm];
    backend.rms_norm_gradient(x, rows, norm, eps, &d.normed, &mut d.hidden, true, d_norm)?;
    Ok(())
}
