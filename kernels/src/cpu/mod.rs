//! Operations on the CPU.
//!
//! `gemm` and `tiles` multiply, `attention`, `head` and `sample` are built on them, `rows` and `optimiser` hold the rest. `isa`
//! compiles each inner loop for several instruction sets; `memory` lends scratch that is used again.

mod attention;
mod check;
mod features;
mod gemm;
mod head;
mod isa;
mod memory;
mod optimiser;
mod rows;
mod sample;
mod tiles;

use rayon::prelude::*;

pub use attention::Blocks;
pub use features::{Features, features};
pub use gemm::Matrix;
pub use isa::Isa;

use crate::{AdamW, AttentionShape, Backend, Choice, HeadShape, KEY_BLOCK, KernelError, Layout};
use check::{at_least, exactly, product};
use gemm::{Left, Output, Right};
use memory::Scratch;
use rows::PIECE;

/// The CPU executor: f32, on all threads of the current rayon pool.
///
/// Call operations from a thread of that pool, for example inside [`rayon::scope`]: a caller from outside falls asleep and is
/// woken again in every operation, which costs tens of microseconds each time.
#[derive(Debug)]
pub struct Cpu {
    isa: Isa,
    scratch: Scratch,
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

impl Cpu {
    /// An executor that uses the fastest instructions of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Isa::best())
    }

    /// An executor that uses an instruction set of one's choice; results are the same.
    #[must_use]
    pub fn with(isa: Isa) -> Self {
        Self { isa, scratch: Scratch::default() }
    }

    /// Instructions in use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }
}

/// Calls `f` with the index of the first element and each piece of `y`, on all threads if there are several.
fn for_pieces(y: &mut [f32], f: impl Fn(usize, &mut [f32]) + Send + Sync) {
    if y.len() <= PIECE {
        return f(0, y);
    }
    y.par_chunks_mut(PIECE).enumerate().for_each(|(i, piece)| f(i * PIECE, piece));
}

fn blocks_match(operation: &'static str, blocks: &Blocks, shape: AttentionShape) -> Result<(), KernelError> {
    check::shape(operation, shape)?;
    if (blocks.kv_heads, blocks.head_dim) == (shape.kv_heads, shape.head_dim) {
        return Ok(());
    }
    let value = product(&[shape.kv_heads, shape.head_dim]) as f64;
    let expected = "the width of the keys that the blocks were made for";
    Err(KernelError::Value { operation, argument: "shape", value, expected })
}

fn head_matches(operation: &'static str, matrix: &Matrix, shape: HeadShape) -> Result<(), KernelError> {
    check::temperature(operation, shape.temperature)?;
    exactly(operation, "rows of the matrix", matrix.outputs, shape.outputs)?;
    exactly(operation, "columns of the matrix", matrix.inputs, shape.width)?;
    if shape.vocabulary == 0 || shape.vocabulary > shape.outputs {
        let (index, bound) = (shape.vocabulary, shape.outputs + 1);
        return Err(KernelError::Index { operation, argument: "vocabulary", index, bound });
    }
    Ok(())
}

impl Backend for Cpu {
    type Buffer = Vec<f32>;
    type Matrix = Matrix;
    type Blocks = Blocks;

    fn zeros(&self, length: usize) -> Result<Vec<f32>, KernelError> {
        check::possible("zeros", "length", length)?;
        Ok(vec![0.0; length])
    }

    fn upload(&self, values: &[f32]) -> Result<Vec<f32>, KernelError> {
        Ok(values.to_vec())
    }

    fn write(&self, buffer: &mut Vec<f32>, offset: usize, values: &[f32]) -> Result<(), KernelError> {
        at_least("write", "buffer", buffer.len(), offset.saturating_add(values.len()))?;
        buffer[offset..][..values.len()].copy_from_slice(values);
        Ok(())
    }

    fn read(&self, buffer: &Vec<f32>, offset: usize, values: &mut [f32]) -> Result<(), KernelError> {
        at_least("read", "buffer", buffer.len(), offset.saturating_add(values.len()))?;
        values.copy_from_slice(&buffer[offset..][..values.len()]);
        Ok(())
    }

    fn length(&self, buffer: &Vec<f32>) -> usize {
        buffer.len()
    }

    fn fill(&self, buffer: &mut Vec<f32>, count: usize, value: f32) -> Result<(), KernelError> {
        at_least("fill", "buffer", buffer.len(), count)?;
        for_pieces(&mut buffer[..count], |_, piece| piece.fill(value));
        Ok(())
    }

    fn copy(&self, x: &Vec<f32>, y: &mut Vec<f32>, count: usize) -> Result<(), KernelError> {
        at_least("copy", "x", x.len(), count)?;
        at_least("copy", "y", y.len(), count)?;
        for_pieces(&mut y[..count], |first, piece| piece.copy_from_slice(&x[first..][..piece.len()]));
        Ok(())
    }

    fn add(&self, x: &Vec<f32>, y: &mut Vec<f32>, count: usize) -> Result<(), KernelError> {
        at_least("add", "x", x.len(), count)?;
        at_least("add", "y", y.len(), count)?;
        for_pieces(&mut y[..count], |first, piece| rows::add(self.isa, &x[first..][..piece.len()], piece));
        Ok(())
    }

    fn gather(&self, x: &Vec<f32>, indices: &[u32], width: usize, y: &mut Vec<f32>) -> Result<(), KernelError> {
        self.lookup("gather", x, indices, width, y)
    }

    fn scatter_add(&self, x: &Vec<f32>, indices: &[u32], width: usize, y: &mut Vec<f32>) -> Result<(), KernelError> {
        self.spread("scatter_add", x, indices, width, y)
    }

    fn matrix(&self, weights: &Vec<f32>, outputs: usize, inputs: usize) -> Result<Matrix, KernelError> {
        exactly("matrix", "weights", weights.len(), product(&[outputs, inputs]))?;
        let mut matrix = Matrix::zeros(outputs, inputs);
        matrix.pack(weights);
        Ok(matrix)
    }

    fn repack(&self, weights: &Vec<f32>, matrix: &mut Matrix) -> Result<(), KernelError> {
        exactly("repack", "weights", weights.len(), matrix.outputs * matrix.inputs)?;
        matrix.pack(weights);
        Ok(())
    }

    fn linear(
        &self,
        x: &Vec<f32>,
        rows: usize,
        matrix: &Matrix,
        bias: Option<&Vec<f32>>,
        y: &mut Vec<f32>,
        accumulate: bool,
    ) -> Result<(), KernelError> {
        let Matrix { outputs, inputs, panels } = matrix;
        let (outputs, inputs) = (*outputs, *inputs);
        at_least("linear", "x", x.len(), product(&[rows, inputs]))?;
        at_least("linear", "y", y.len(), product(&[rows, outputs]))?;
        if let Some(bias) = bias {
            exactly("linear", "bias", bias.len(), outputs)?;
        }
        let output = Output {
            values: y,
            stride: outputs,
            columns: outputs,
            resume: false,
            bias: bias.map(Vec::as_slice),
            add: accumulate,
        };
        self.product(x, rows, inputs, Right::Panels(panels.as_slice()), output);
        Ok(())
    }

    fn linear_input_gradient(
        &self,
        dy: &Vec<f32>,
        rows: usize,
        weights: &Vec<f32>,
        matrix: &Matrix,
        dx: &mut Vec<f32>,
        accumulate: bool,
    ) -> Result<(), KernelError> {
        let (outputs, inputs) = (matrix.outputs, matrix.inputs);
        at_least("linear_input_gradient", "dy", dy.len(), product(&[rows, outputs]))?;
        exactly("linear_input_gradient", "weights", weights.len(), outputs * inputs)?;
        at_least("linear_input_gradient", "dx", dx.len(), product(&[rows, inputs]))?;
        let output = Output { values: dx, stride: inputs, columns: inputs, resume: false, bias: None, add: accumulate };
        self.product(dy, rows, outputs, Right::Rows { values: weights, stride: inputs }, output);
        Ok(())
    }

    fn linear_weight_gradient(
        &self,
        x: &Vec<f32>,
        dy: &Vec<f32>,
        rows: usize,
        outputs: usize,
        inputs: usize,
        dw: &mut Vec<f32>,
        db: Option<&mut Vec<f32>>,
    ) -> Result<(), KernelError> {
        at_least("linear_weight_gradient", "x", x.len(), product(&[rows, inputs]))?;
        at_least("linear_weight_gradient", "dy", dy.len(), product(&[rows, outputs]))?;
        exactly("linear_weight_gradient", "dw", dw.len(), product(&[outputs, inputs]))?;
        if let Some(db) = db {
            exactly("linear_weight_gradient", "db", db.len(), outputs)?;
            rows::column_sums(self.isa, &dy[..rows * outputs], db);
        }
        head::weight_gradient(self.isa, &self.scratch, x, dy, rows, outputs, inputs, dw);
        Ok(())
    }

    fn embedding(&self, table: &Vec<f32>, ids: &[u32], width: usize, y: &mut Vec<f32>) -> Result<(), KernelError> {
        self.lookup("embedding", table, ids, width, y)
    }

    fn embedding_gradient(
        &self,
        ids: &[u32],
        dy: &Vec<f32>,
        width: usize,
        d_table: &mut Vec<f32>,
    ) -> Result<(), KernelError> {
        self.spread("embedding_gradient", dy, ids, width, d_table)
    }

    fn rms_norm(&self, x: &Vec<f32>, rows: usize, w: &Vec<f32>, eps: f32, y: &mut Vec<f32>) -> Result<(), KernelError> {
        let count = product(&[rows, w.len()]);
        at_least("rms_norm", "x", x.len(), count)?;
        at_least("rms_norm", "y", y.len(), count)?;
        rows::rms_norm(self.isa, &x[..count], w, eps, &mut y[..count]);
        Ok(())
    }

    fn rms_norm_gradient(
        &self,
        x: &Vec<f32>,
        rows: usize,
        w: &Vec<f32>,
        eps: f32,
        dy: &Vec<f32>,
        dx: &mut Vec<f32>,
        accumulate: bool,
        dw: &mut Vec<f32>,
    ) -> Result<(), KernelError> {
        let count = product(&[rows, w.len()]);
        at_least("rms_norm_gradient", "x", x.len(), count)?;
        at_least("rms_norm_gradient", "dy", dy.len(), count)?;
        at_least("rms_norm_gradient", "dx", dx.len(), count)?;
        exactly("rms_norm_gradient", "dw", dw.len(), w.len())?;
        let mut inverses = self.scratch.take(rows);
        let (x, dy, dx) = (&x[..count], &dy[..count], &mut dx[..count]);
        rows::rms_norm_gradient(self.isa, x, w, eps, dy, dx, accumulate, &mut inverses, dw);
        Ok(())
    }

    fn rope(
        &self,
        x: &mut Vec<f32>,
        positions: &[u32],
        heads: usize,
        head_dim: usize,
        table: &Vec<f32>,
        inverse: bool,
    ) -> Result<(), KernelError> {
        let count = product(&[positions.len(), heads, head_dim]);
        at_least("rope", "x", x.len(), count)?;
        if !head_dim.is_multiple_of(2) {
            let value = head_dim as f64;
            return Err(KernelError::Value {
                operation: "rope",
                argument: "head_dim",
                value,
                expected: "an even number",
            });
        }
        if count == 0 {
            return Ok(());
        }
        check::indices("rope", "position", positions, table.len() / head_dim)?;
        rows::rope(self.isa, &mut x[..count], positions, heads * head_dim, head_dim, table, inverse);
        Ok(())
    }

    fn blocks(&self, count: usize, shape: AttentionShape) -> Result<Blocks, KernelError> {
        check::shape("blocks", shape)?;
        check::possible("blocks", "count", product(&[count, shape.kv_heads, shape.head_dim, 2 * KEY_BLOCK]))?;
        Ok(Blocks::zeros(count, shape))
    }

    fn store(
        &self,
        k: &Vec<f32>,
        v: &Vec<f32>,
        layout: &Layout,
        shape: AttentionShape,
        blocks: &mut Blocks,
    ) -> Result<(), KernelError> {
        blocks_match("store", blocks, shape)?;
        let rows = check::layout("store", layout, blocks.count)?;
        let count = product(&[rows, shape.kv_heads, shape.head_dim]);
        at_least("store", "k", k.len(), count)?;
        at_least("store", "v", v.len(), count)?;
        blocks.store(k, v, layout);
        Ok(())
    }

    fn copy_block(&self, blocks: &mut Blocks, from: u32, to: u32) -> Result<(), KernelError> {
        check::indices("copy_block", "block", &[from, to], blocks.count)?;
        blocks.copy(from, to);
        Ok(())
    }

    fn attention(
        &self,
        q: &Vec<f32>,
        layout: &Layout,
        shape: AttentionShape,
        blocks: &Blocks,
        out: &mut Vec<f32>,
        log_sum: Option<&mut Vec<f32>>,
    ) -> Result<(), KernelError> {
        blocks_match("attention", blocks, shape)?;
        let rows = check::layout("attention", layout, blocks.count)?;
        let count = product(&[rows, shape.heads, shape.head_dim]);
        at_least("attention", "q", q.len(), count)?;
        at_least("attention", "out", out.len(), count)?;
        if let Some(log_sum) = &log_sum {
            at_least("attention", "log_sum", log_sum.len(), product(&[rows, shape.heads]))?;
        }
        let log_sum = log_sum.map(Vec::as_mut_slice);
        attention::attention(self.isa, &self.scratch, q, layout, shape, blocks, out, log_sum);
        Ok(())
    }

    fn attention_gradient(
        &self,
        q: &Vec<f32>,
        layout: &Layout,
        shape: AttentionShape,
        blocks: &Blocks,
        out: &Vec<f32>,
        log_sum: &Vec<f32>,
        d_out: &Vec<f32>,
        dq: &mut Vec<f32>,
        dk: &mut Vec<f32>,
        dv: &mut Vec<f32>,
    ) -> Result<(), KernelError> {
        const OPERATION: &str = "attention_gradient";
        blocks_match(OPERATION, blocks, shape)?;
        let rows = check::layout(OPERATION, layout, blocks.count)?;
        let count = product(&[rows, shape.heads, shape.head_dim]);
        let kv_count = product(&[rows, shape.kv_heads, shape.head_dim]);
        at_least(OPERATION, "q", q.len(), count)?;
        at_least(OPERATION, "out", out.len(), count)?;
        at_least(OPERATION, "log_sum", log_sum.len(), product(&[rows, shape.heads]))?;
        at_least(OPERATION, "d_out", d_out.len(), count)?;
        at_least(OPERATION, "dq", dq.len(), count)?;
        at_least(OPERATION, "dk", dk.len(), kv_count)?;
        at_least(OPERATION, "dv", dv.len(), kv_count)?;
        attention::attention_gradient(
            self.isa,
            &self.scratch,
            q,
            layout,
            shape,
            blocks,
            out,
            log_sum,
            d_out,
            dq,
            dk,
            dv,
        )
    }

    fn swiglu(&self, gate: &Vec<f32>, up: &Vec<f32>, count: usize, y: &mut Vec<f32>) -> Result<(), KernelError> {
        at_least("swiglu", "gate", gate.len(), count)?;
        at_least("swiglu", "up", up.len(), count)?;
        at_least("swiglu", "y", y.len(), count)?;
        for_pieces(&mut y[..count], |first, y| rows::swiglu(self.isa, &gate[first..], &up[first..], y));
        Ok(())
    }

    fn swiglu_gradient(
        &self,
        gate: &Vec<f32>,
        up: &Vec<f32>,
        count: usize,
        dy: &Vec<f32>,
        d_gate: &mut Vec<f32>,
        d_up: &mut Vec<f32>,
    ) -> Result<(), KernelError> {
        at_least("swiglu_gradient", "gate", gate.len(), count)?;
        at_least("swiglu_gradient", "up", up.len(), count)?;
        at_least("swiglu_gradient", "dy", dy.len(), count)?;
        at_least("swiglu_gradient", "d_gate", d_gate.len(), count)?;
        at_least("swiglu_gradient", "d_up", d_up.len(), count)?;
        gate[..count]
            .par_chunks(PIECE)
            .zip(up[..count].par_chunks(PIECE))
            .zip(dy[..count].par_chunks(PIECE))
            .zip(d_gate[..count].par_chunks_mut(PIECE))
            .zip(d_up[..count].par_chunks_mut(PIECE))
            .for_each(|((((gate, up), dy), d_gate), d_up)| {
                rows::swiglu_gradient(self.isa, gate, up, dy, d_gate, d_up);
            });
        Ok(())
    }

    /// # Errors
    /// Besides lengths and indices: [`KernelError::NotFinite`] when a row's logits have no softmax (outputs are written).
    fn head(
        &self,
        x: &Vec<f32>,
        rows: usize,
        matrix: &Matrix,
        shape: HeadShape,
        targets: &[u32],
        logprob: &mut Vec<f32>,
        entropy: &mut Vec<f32>,
        log_sum: &mut Vec<f32>,
    ) -> Result<(), KernelError> {
        head_matches("head", matrix, shape)?;
        at_least("head", "x", x.len(), product(&[rows, shape.width]))?;
        exactly("head", "targets", targets.len(), rows)?;
        check::indices("head", "target", targets, shape.vocabulary)?;
        at_least("head", "logprob", logprob.len(), rows)?;
        at_least("head", "entropy", entropy.len(), rows)?;
        at_least("head", "log_sum", log_sum.len(), rows)?;
        head::head(self.isa, &self.scratch, x, rows, matrix, shape, targets, logprob, entropy, log_sum)
    }

    fn head_gradient(
        &self,
        x: &Vec<f32>,
        rows: usize,
        weights: &Vec<f32>,
        matrix: &Matrix,
        shape: HeadShape,
        targets: &[u32],
        log_sum: &Vec<f32>,
        entropy: &Vec<f32>,
        d_logprob: &Vec<f32>,
        d_entropy: &Vec<f32>,
        dx: &mut Vec<f32>,
        d_weights: &mut Vec<f32>,
    ) -> Result<(), KernelError> {
        const OPERATION: &str = "head_gradient";
        head_matches(OPERATION, matrix, shape)?;
        at_least(OPERATION, "x", x.len(), product(&[rows, shape.width]))?;
        exactly(OPERATION, "weights", weights.len(), shape.outputs * shape.width)?;
        exactly(OPERATION, "targets", targets.len(), rows)?;
        check::indices(OPERATION, "target", targets, shape.vocabulary)?;
        at_least(OPERATION, "log_sum", log_sum.len(), rows)?;
        at_least(OPERATION, "entropy", entropy.len(), rows)?;
        at_least(OPERATION, "d_logprob", d_logprob.len(), rows)?;
        at_least(OPERATION, "d_entropy", d_entropy.len(), rows)?;
        at_least(OPERATION, "dx", dx.len(), rows * shape.width)?;
        exactly(OPERATION, "d_weights", d_weights.len(), shape.outputs * shape.width)?;
        head::head_gradient(
            self.isa,
            &self.scratch,
            x,
            rows,
            weights,
            matrix,
            shape,
            targets,
            log_sum,
            entropy,
            d_logprob,
            d_entropy,
            dx,
            d_weights,
        );
        Ok(())
    }

    /// Banned ids leave before the truncations: `top_k` counts, and `top_p` renormalises over, the tokens that may be chosen.
    ///
    /// # Errors
    /// Besides lengths: [`KernelError::NotFinite`] when a row's logits have no softmax, [`KernelError::NoChoice`] when no
    /// token is left, [`KernelError::Value`] for a temperature or uniform number out of range.
    fn sample(
        &self,
        logits: &Vec<f32>,
        rows: usize,
        outputs: usize,
        vocabulary: usize,
        banned: &[u32],
        choices: &[Choice],
        ids: &mut [u32],
        logprobs: &mut [f32],
        entropies: &mut [f32],
    ) -> Result<(), KernelError> {
        at_least("sample", "logits", logits.len(), product(&[rows, outputs]))?;
        if vocabulary == 0 || vocabulary > outputs {
            let (index, bound) = (vocabulary, outputs + 1);
            return Err(KernelError::Index { operation: "sample", argument: "vocabulary", index, bound });
        }
        exactly("sample", "choices", choices.len(), rows)?;
        exactly("sample", "ids", ids.len(), rows)?;
        exactly("sample", "logprobs", logprobs.len(), rows)?;
        exactly("sample", "entropies", entropies.len(), rows)?;
        for choice in choices {
            check::temperature("sample", choice.temperature)?;
            if !(0.0..1.0).contains(&choice.uniform) {
                let value = choice.uniform;
                return Err(KernelError::Value {
                    operation: "sample",
                    argument: "uniform",
                    value,
                    expected: "in [0, 1)",
                });
            }
        }
        sample::sample(self.isa, &self.scratch, logits, outputs, vocabulary, banned, choices, ids, logprobs, entropies)
    }

    fn sum_squares(&self, x: &Vec<f32>) -> Result<f64, KernelError> {
        Ok(optimiser::sum_squares(self.isa, x))
    }

    fn adamw(
        &self,
        parameter: &mut Vec<f32>,
        gradient: &Vec<f32>,
        first: &mut Vec<f32>,
        second: &mut Vec<f32>,
        step: &AdamW,
    ) -> Result<(), KernelError> {
        let length = parameter.len();
        exactly("adamw", "gradient", gradient.len(), length)?;
        exactly("adamw", "first", first.len(), length)?;
        exactly("adamw", "second", second.len(), length)?;
        if step.step == 0 {
            return Err(KernelError::Value {
                operation: "adamw",
                argument: "step",
                value: 0.0,
                expected: "at least 1",
            });
        }
        optimiser::adamw(self.isa, parameter, gradient, first, second, step);
        Ok(())
    }
}

impl Cpu {
    /// `output = x · right` for row-major `x`.
    fn product(&self, x: &[f32], rows: usize, depth: usize, right: Right<'_>, output: Output<'_>) {
        if rows == 0 {
            return;
        }
        let height = gemm::tile_height(self.isa, rows);
        if height == 1 {
            let left = Left { values: x, rows, height };
            return gemm::multiply(self.isa, &self.scratch, left, depth, right, output);
        }
        let mut packed = self.scratch.take(rows * depth);
        gemm::pack_rows(x, rows, depth, height, &mut packed);
        gemm::multiply(self.isa, &self.scratch, Left { values: &packed, rows, height }, depth, right, output);
    }

    fn lookup(
        &self,
        operation: &'static str,
        table: &[f32],
        indices: &[u32],
        width: usize,
        y: &mut [f32],
    ) -> Result<(), KernelError> {
        let count = product(&[indices.len(), width]);
        at_least(operation, "y", y.len(), count)?;
        if width == 0 {
            return Ok(());
        }
        check::indices(operation, "index", indices, table.len() / width)?;
        for (y, &index) in y.chunks_exact_mut(width).zip(indices) {
            y.copy_from_slice(&table[index as usize * width..][..width]);
        }
        Ok(())
    }

    fn spread(
        &self,
        operation: &'static str,
        x: &[f32],
        indices: &[u32],
        width: usize,
        y: &mut [f32],
    ) -> Result<(), KernelError> {
        let count = product(&[indices.len(), width]);
        at_least(operation, "x", x.len(), count)?;
        if width == 0 {
            return Ok(());
        }
        check::indices(operation, "index", indices, y.len() / width)?;
        for (x, &index) in x.chunks_exact(width).zip(indices) {
            rows::add(self.isa, x, &mut y[index as usize * width..][..width]);
        }
        Ok(())
    }
}
