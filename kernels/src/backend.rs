//! The operation set.

use crate::{KernelError, Layout};

/// Head counts of an attention operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Factor on `q · k`, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
}

/// Shape of the output head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadShape {
    /// Width of a hidden state.
    pub width: usize,
    /// Rows of the head's matrix.
    pub outputs: usize,
    /// Leading rows that stand for a token; later rows take no part (probability 0).
    pub vocabulary: usize,
    /// Logits are divided by this.
    pub temperature: f32,
}

/// How one row's token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Logits are divided by this; ignored when `greedy`, except in the reported log-probability.
    pub temperature: f32,
    /// Keep this many best tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep, from the best down, each token whose predecessors hold less than this probability; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens with at least this share of the best token's probability; 0 keeps all.
    pub min_p: f32,
    /// Take the best token (the lowest id among equals).
    pub greedy: bool,
    /// A uniform number in `[0, 1)` that decides the draw.
    pub uniform: f64,
}

/// Constants of one AdamW step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Number of this step, from 1.
    pub step: u64,
    /// Every gradient is multiplied by this first (global-norm clipping).
    pub gradient_scale: f32,
}

/// The operations of a transformer on one kind of device.
///
/// Arrays are flat and row-major; `rows` counts packed tokens. Activations may be longer than the shapes demand: what lies
/// behind is left alone. Parameters, their gradients and optimiser states have the exact length. Accumulation is in f32 unless
/// said otherwise.
///
/// # Errors
/// Every operation checks the lengths, indices and spans of its arguments before it does anything. [`Backend::head`] and
/// [`Backend::sample`] name the first row whose logits have no softmax ([`KernelError::NotFinite`]).
///
/// # Determinism
/// The result of a row depends on that row and, in attention, on the keys it sees: never on the number of rows, on the
/// span it arrives in, on block numbers or on the number of threads. Every reduction has an order fixed by the model's shapes.
pub trait Backend: Send + Sync + 'static {
    /// A flat array of numbers.
    type Buffer: Send + Sync;
    /// A weight matrix `[outputs, inputs]` in the layout that this backend multiplies fastest.
    type Matrix: Send + Sync;
    /// Blocks of keys and values of one layer.
    type Blocks: Send + Sync;

    /// An array of zeros.
    fn zeros(&self, length: usize) -> Result<Self::Buffer, KernelError>;
    /// Copies host numbers to a new array.
    fn upload(&self, values: &[f32]) -> Result<Self::Buffer, KernelError>;
    /// Overwrites elements from `offset` on.
    fn write(&self, buffer: &mut Self::Buffer, offset: usize, values: &[f32]) -> Result<(), KernelError>;
    /// Reads elements from `offset` on into `values`.
    fn read(&self, buffer: &Self::Buffer, offset: usize, values: &mut [f32]) -> Result<(), KernelError>;
    /// Number of elements.
    fn length(&self, buffer: &Self::Buffer) -> usize;
    /// Sets the first `count` elements.
    fn fill(&self, buffer: &mut Self::Buffer, count: usize, value: f32) -> Result<(), KernelError>;
    /// `y[i] = x[i]` for `i < count`.
    fn copy(&self, x: &Self::Buffer, y: &mut Self::Buffer, count: usize) -> Result<(), KernelError>;
    /// `y[i] += x[i]` for `i < count`.
    fn add(&self, x: &Self::Buffer, y: &mut Self::Buffer, count: usize) -> Result<(), KernelError>;

    /// `y[r, :] = x[indices[r], :]`.
    fn gather(&self, x: &Self::Buffer, indices: &[u32], width: usize, y: &mut Self::Buffer) -> Result<(), KernelError>;
    /// `y[indices[r], :] += x[r, :]`, in the order of `r` where indices repeat.
    fn scatter_add(
        &self,
        x: &Self::Buffer,
        indices: &[u32],
        width: usize,
        y: &mut Self::Buffer,
    ) -> Result<(), KernelError>;

    /// Prepares a weight matrix. `weights`: `[outputs, inputs]`.
    fn matrix(&self, weights: &Self::Buffer, outputs: usize, inputs: usize) -> Result<Self::Matrix, KernelError>;
    /// Prepares it again after `weights` changed.
    fn repack(&self, weights: &Self::Buffer, matrix: &mut Self::Matrix) -> Result<(), KernelError>;

    /// `y[r, o] = (accumulate ? y[r, o] : 0) + (Σ_i x[r, i] · W[o, i] + bias[o])`, the sum as one chain of fused
    /// multiply-adds in ascending `i` that starts at 0; bias and old value are added afterwards, in that order.
    fn linear(
        &self,
        x: &Self::Buffer,
        rows: usize,
        matrix: &Self::Matrix,
        bias: Option<&Self::Buffer>,
        y: &mut Self::Buffer,
        accumulate: bool,
    ) -> Result<(), KernelError>;
    /// `dx[r, i] (+)= Σ_o dy[r, o] · W[o, i]`. `weights` is the row-major original of `matrix`.
    fn linear_input_gradient(
        &self,
        dy: &Self::Buffer,
        rows: usize,
        weights: &Self::Buffer,
        matrix: &Self::Matrix,
        dx: &mut Self::Buffer,
        accumulate: bool,
    ) -> Result<(), KernelError>;
    /// `dw[o, i] += Σ_r dy[r, o] · x[r, i]` and `db[o] += Σ_r dy[r, o]`: chains in ascending `r` that start at the old values,
    /// so micro-batches that follow each other give the bits of one batch.
    #[expect(clippy::too_many_arguments, reason = "two inputs, two outputs and their shape")]
    fn linear_weight_gradient(
        &self,
        x: &Self::Buffer,
        dy: &Self::Buffer,
        rows: usize,
        outputs: usize,
        inputs: usize,
        dw: &mut Self::Buffer,
        db: Option<&mut Self::Buffer>,
    ) -> Result<(), KernelError>;

    /// `y[t, :] = table[ids[t], :]`.
    fn embedding(
        &self,
        table: &Self::Buffer,
        ids: &[u32],
        width: usize,
        y: &mut Self::Buffer,
    ) -> Result<(), KernelError>;
    /// `d_table[ids[t], :] += dy[t, :]`, in ascending `t`.
    fn embedding_gradient(
        &self,
        ids: &[u32],
        dy: &Self::Buffer,
        width: usize,
        d_table: &mut Self::Buffer,
    ) -> Result<(), KernelError>;

    /// `y[r, i] = x[r, i] / sqrt(mean_i x[r, i]² + eps) · w[i]`. The mean is summed in 16 lanes, then in a fixed tree.
    fn rms_norm(
        &self,
        x: &Self::Buffer,
        rows: usize,
        w: &Self::Buffer,
        eps: f32,
        y: &mut Self::Buffer,
    ) -> Result<(), KernelError>;
    /// Backward of [`Backend::rms_norm`]: `dx (+)=` if `accumulate`, `dw +=` in ascending row.
    #[expect(clippy::too_many_arguments, reason = "two inputs, two outputs and their shape")]
    fn rms_norm_gradient(
        &self,
        x: &Self::Buffer,
        rows: usize,
        w: &Self::Buffer,
        eps: f32,
        dy: &Self::Buffer,
        dx: &mut Self::Buffer,
        accumulate: bool,
        dw: &mut Self::Buffer,
    ) -> Result<(), KernelError>;

    /// Rotates pairs `(i, i + head_dim / 2)` of each of `heads` heads of row `r` by the angle of `positions[r]`, in place.
    ///
    /// `table`: `[max_position, head_dim]`, cosines then sines of a position. `inverse` turns back (the backward pass).
    fn rope(
        &self,
        x: &mut Self::Buffer,
        positions: &[u32],
        heads: usize,
        head_dim: usize,
        table: &Self::Buffer,
        inverse: bool,
    ) -> Result<(), KernelError>;

    /// Room for `count` blocks of keys and values.
    fn blocks(&self, count: usize, shape: AttentionShape) -> Result<Self::Blocks, KernelError>;
    /// Writes keys and values, `[rows, kv_heads · head_dim]` each (keys already rotated), to their slots.
    fn store(
        &self,
        k: &Self::Buffer,
        v: &Self::Buffer,
        layout: &Layout,
        shape: AttentionShape,
        blocks: &mut Self::Blocks,
    ) -> Result<(), KernelError>;
    /// Copies a block, for a sequence that continues another one's partly filled block.
    fn copy_block(&self, blocks: &mut Self::Blocks, from: u32, to: u32) -> Result<(), KernelError>;
    /// Causal grouped-query attention over stored keys. `q`, `out`: `[rows, heads · head_dim]`; `log_sum`: `[rows, heads]`,
    /// the log of each softmax denominator (with scaled scores), needed by the backward pass only.
    fn attention(
        &self,
        q: &Self::Buffer,
        layout: &Layout,
        shape: AttentionShape,
        blocks: &Self::Blocks,
        out: &mut Self::Buffer,
        log_sum: Option<&mut Self::Buffer>,
    ) -> Result<(), KernelError>;
    /// Backward of [`Backend::attention`]: overwrites `dq`, and `dk`, `dv` (row-major like `k`, `v`, one row per packed row).
    /// A key shared by several spans receives their gradients in the order of spans. Every key that a span sees must belong
    /// to a row of this layout.
    #[expect(clippy::too_many_arguments, reason = "inputs, outputs and their shape")]
    fn attention_gradient(
        &self,
        q: &Self::Buffer,
        layout: &Layout,
        shape: AttentionShape,
        blocks: &Self::Blocks,
        out: &Self::Buffer,
        log_sum: &Self::Buffer,
        d_out: &Self::Buffer,
        dq: &mut Self::Buffer,
        dk: &mut Self::Buffer,
        dv: &mut Self::Buffer,
    ) -> Result<(), KernelError>;

    /// `y[i] = gate[i] / (1 + exp(-gate[i])) · up[i]` for `i < count`.
    fn swiglu(
        &self,
        gate: &Self::Buffer,
        up: &Self::Buffer,
        count: usize,
        y: &mut Self::Buffer,
    ) -> Result<(), KernelError>;
    /// Backward of [`Backend::swiglu`]: overwrites `d_gate` and `d_up`.
    fn swiglu_gradient(
        &self,
        gate: &Self::Buffer,
        up: &Self::Buffer,
        count: usize,
        dy: &Self::Buffer,
        d_gate: &mut Self::Buffer,
        d_up: &mut Self::Buffer,
    ) -> Result<(), KernelError>;

    /// For each row: log-probability of its target, entropy (nats) and log-sum-exp of `x · Wᵀ / temperature`, in vocabulary
    /// chunks; `[rows, vocabulary]` never exists.
    #[expect(clippy::too_many_arguments, reason = "inputs, outputs and their shape")]
    fn head(
        &self,
        x: &Self::Buffer,
        rows: usize,
        matrix: &Self::Matrix,
        shape: HeadShape,
        targets: &[u32],
        logprob: &mut Self::Buffer,
        entropy: &mut Self::Buffer,
        log_sum: &mut Self::Buffer,
    ) -> Result<(), KernelError>;
    /// Backward of [`Backend::head`] for upstream gradients of log-probability and entropy: overwrites `dx`, `d_weights +=`.
    #[expect(clippy::too_many_arguments, reason = "inputs, outputs and their shape")]
    fn head_gradient(
        &self,
        x: &Self::Buffer,
        rows: usize,
        weights: &Self::Buffer,
        matrix: &Self::Matrix,
        shape: HeadShape,
        targets: &[u32],
        log_sum: &Self::Buffer,
        entropy: &Self::Buffer,
        d_logprob: &Self::Buffer,
        d_entropy: &Self::Buffer,
        dx: &mut Self::Buffer,
        d_weights: &mut Self::Buffer,
    ) -> Result<(), KernelError>;
    /// Draws a token per row from logits `[rows, outputs]` (as made by [`Backend::linear`]); ids at or above `vocabulary` and
    /// those in `banned` are never chosen (but keep their place in the softmax); they leave before `top_k` counts and `top_p`
    /// renormalises. Then `top_k`, `top_p` and `min_p` act in this order. Reports the log-probability and entropy of the
    /// untruncated distribution at the row's temperature: the very bits that [`Backend::head`] gives for the same hidden state.
    #[expect(clippy::too_many_arguments, reason = "inputs, outputs and their shape")]
    fn sample(
        &self,
        logits: &Self::Buffer,
        rows: usize,
        outputs: usize,
        vocabulary: usize,
        banned: &[u32],
        choices: &[Choice],
        ids: &mut [u32],
        logprobs: &mut [f32],
        entropies: &mut [f32],
    ) -> Result<(), KernelError>;

    /// Sum of squares, in f64, in a fixed order.
    fn sum_squares(&self, x: &Self::Buffer) -> Result<f64, KernelError>;
    /// One AdamW step: decay, moments, then the update, as in Loshchilov and Hutter 2019.
    fn adamw(
        &self,
        parameter: &mut Self::Buffer,
        gradient: &Self::Buffer,
        first: &mut Self::Buffer,
        second: &mut Self::Buffer,
        step: &AdamW,
    ) -> Result<(), KernelError>;
}
