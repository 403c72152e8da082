//! Forward passes over packed sequences.

use ragen_kernels::Backend;

use super::layer::{Pass, forward_last_layer, forward_layer};
use super::network::{Followed, Network, RowOutputs};
use super::pack::PackedBatch;
use super::workspace::Purpose;
use super::{ModelError, Weights};

impl<B: Backend> Network<B> {
    /// Log-probabilities, entropies and values of selected rows, ready to be followed by [`Network::backward_rows`].
    ///
    /// `selected` are rows of the batch (see [`PackedBatch::row`]), in any order and repeated at will; only they go through
    /// the output head. `targets` are the ids whose log-probabilities are wanted; without them the head is left out, as for a
    /// critic. Values are computed if the model has a value head.
    ///
    /// # Errors
    /// Lengths that differ, ids, rows or positions out of range, a temperature that is not positive, a result that is not
    /// finite (naming the weight behind it, if there is one), or what the device reports.
    ///
    /// # Determinism
    /// A row's results depend on its sequence up to there and on nothing else: not on the batch, on sharing or on order.
    pub fn forward_rows(
        &mut self,
        batch: &PackedBatch,
        selected: &[u32],
        targets: Option<&[u32]>,
        temperature: f32,
    ) -> Result<&RowOutputs, ModelError> {
        self.run(batch, selected, targets, temperature, self.workspace.purpose != Purpose::Inference)
    }

    /// As [`Network::forward_rows`], for scoring only: it cannot be followed by a backward pass.
    ///
    /// # Errors
    /// As [`Network::forward_rows`].
    pub fn score_rows(
        &mut self,
        batch: &PackedBatch,
        selected: &[u32],
        targets: Option<&[u32]>,
        temperature: f32,
    ) -> Result<&RowOutputs, ModelError> {
        self.run(batch, selected, targets, temperature, false)
    }

    /// Logits of selected rows, `[selected, vocab_size]`, for comparisons; training never materialises them.
    ///
    /// # Errors
    /// As [`Network::forward_rows`].
    pub fn logits(&mut self, batch: &PackedBatch, selected: &[u32]) -> Result<Vec<f32>, ModelError> {
        self.run(batch, selected, None, 1.0, false)?;
        let vocab_size = self.weights.config().vocab_size;
        let mut host = vec![0.0; selected.len() * vocab_size];
        if let Some(head) = self.workspace.head.as_ref().filter(|_| !selected.is_empty()) {
            let (backend, place) = (self.weights.backend(), self.weights.parameters().head);
            let mut logits = backend.zeros(host.len())?;
            backend.linear(&head.normed, selected.len(), self.weights.matrix(place), None, &mut logits, false)?;
            backend.read(&logits, 0, &mut host)?;
        }
        Ok(host)
    }

    fn run(
        &mut self,
        batch: &PackedBatch,
        selected: &[u32],
        targets: Option<&[u32]>,
        temperature: f32,
        training: bool,
    ) -> Result<&RowOutputs, ModelError> {
        let pass = Pass { tokens: &batch.tokens, positions: &batch.positions, layout: &batch.layout };
        pass.check(&self.weights, "forward_rows")?;
        check_rows(&self.weights, batch, selected, targets, temperature)?;
        if let Some(followed) = self.followed.take() {
            self.spare = followed;
        }
        let outputs = &mut self.outputs;
        for list in [&mut outputs.logprobs, &mut outputs.entropies, &mut outputs.values] {
            list.clear();
        }
        if selected.is_empty() {
            return Ok(&self.outputs);
        }
        self.workspace.reserve(&self.weights, batch.rows(), selected.len(), batch.blocks())?;
        self.run_layers(pass, selected, training)?;
        self.run_head(selected, targets, temperature).map_err(|error| self.weights.explain(error))?;
        if training {
            let mut followed = std::mem::take(&mut self.spare);
            followed.rows = batch.rows();
            followed.version = self.weights.version();
            followed.temperature = temperature;
            followed.selected.clear();
            followed.selected.extend_from_slice(selected);
            followed.targets.clear();
            followed.targets.extend_from_slice(targets.unwrap_or_default());
            self.followed = Some(followed);
        }
        Ok(&self.outputs)
    }

    fn run_layers(&mut self, pass: Pass<'_>, selected: &[u32], training: bool) -> Result<(), ModelError> {
        let (weights, room) = (&self.weights, &mut self.workspace);
        let backend = weights.backend().as_ref();
        let (Some(scratch), Some(head)) = (&mut room.scratch, &mut room.head) else { return Ok(()) };
        let table = weights.value(weights.parameters().embedding);
        backend.embedding(table, pass.tokens, weights.config().hidden_size, &mut room.inputs[0])?;
        let (inputs, slots) = (room.inputs.len(), room.slots.len());
        for layer in 0..weights.config().layers {
            let places = [layer % inputs, (layer + 1) % inputs];
            let [x, next] = room.inputs.get_disjoint_mut(places).expect("there are at least two inputs");
            let (slot, keys) = (&mut room.slots[layer % slots], &mut room.keys[layer % slots]);
            if layer + 1 < weights.config().layers {
                forward_layer(weights, layer, pass, x, slot, scratch, keys, training, Some(next))?;
            } else {
                let out = Some(&mut head.picked);
                forward_last_layer(weights, pass, selected, x, slot, scratch, keys, training, next, out)?;
            }
        }
        Ok(())
    }

    fn run_head(&mut self, selected: &[u32], targets: Option<&[u32]>, temperature: f32) -> Result<(), ModelError> {
        let (weights, room) = (&self.weights, &mut self.workspace);
        let (backend, config) = (weights.backend().as_ref(), weights.config());
        let Some(head) = &mut room.head else { return Ok(()) };
        let rows = selected.len();
        let norm = weights.value(weights.parameters().norm);
        backend.rms_norm(&head.picked, rows, norm, config.rms_norm_eps, &mut head.normed)?;
        let outputs = &mut self.outputs;
        if let Some(targets) = targets {
            backend.head(
                &head.normed,
                rows,
                weights.matrix(weights.parameters().head),
                weights.head_shape(temperature),
                targets,
                &mut head.logprob,
                &mut head.entropy,
                &mut head.log_sum,
            )?;
            outputs.logprobs.resize(rows, 0.0);
            outputs.entropies.resize(rows, 0.0);
            backend.read(&head.logprob, 0, &mut outputs.logprobs)?;
            backend.read(&head.entropy, 0, &mut outputs.entropies)?;
        }
        if let Some(projection) = weights.parameters().value_head {
            weights.project(&head.normed, rows, projection, &mut head.value, false)?;
            outputs.values.resize(rows, 0.0);
            backend.read(&head.value, 0, &mut outputs.values)?;
        }
        Ok(())
    }
}

fn check_rows<B: Backend>(
    weights: &Weights<B>,
    batch: &PackedBatch,
    selected: &[u32],
    targets: Option<&[u32]>,
    temperature: f32,
) -> Result<(), ModelError> {
    let fail = |reason: String| Err(ModelError::argument("forward_rows", reason));
    if let Some(row) = selected.iter().find(|&&row| row as usize >= batch.rows()) {
        return fail(format!("row {row} is not below {}", batch.rows()));
    }
    if let Some(targets) = targets {
        if targets.len() != selected.len() {
            return fail(format!("{} targets for {} rows", targets.len(), selected.len()));
        }
        if let Some(id) = targets.iter().find(|&&id| id as usize >= weights.vocabulary()) {
            return fail(format!("target {id} is not below the vocabulary's {}", weights.vocabulary()));
        }
    }
    if !(temperature.is_finite() && temperature > 0.0) {
        return fail(format!("temperature {temperature} is not positive"));
    }
    Ok(())
}

impl Followed {
    /// Checks that a backward pass fits the forward pass.
    pub(crate) fn check(
        &self,
        rows: usize,
        version: u64,
        gradients: [&[f32]; 3],
        value_head: bool,
    ) -> Result<(), ModelError> {
        let fail = |reason: String| Err(ModelError::argument("backward_rows", reason));
        if self.rows != rows || self.version != version {
            return fail("the batch or the weights are not those of the forward pass".into());
        }
        let scored = !self.targets.is_empty();
        let expected = [scored, scored, value_head];
        for ((name, gradient), possible) in
            ["log-probability", "entropy", "value"].into_iter().zip(gradients).zip(expected)
        {
            if gradient.is_empty() {
                continue;
            }
            if !possible {
                return fail(format!("gradient of a {name} that was not computed"));
            }
            if gradient.len() != self.selected.len() {
                return fail(format!("{} gradients of {name} for {} rows", gradient.len(), self.selected.len()));
            }
        }
        Ok(())
    }
}
