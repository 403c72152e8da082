//! The optimiser and the norm of its gradients.

use rayon::prelude::*;

use super::isa::{Isa, kernel};
use super::rows::PIECE;
use crate::AdamW;
use crate::maths::{self, LANES};

/// Squares are summed in pieces of this many elements, whatever the number of threads.
const SUM_PIECE: usize = 1 << 16;

kernel! {
    /// `Σ x²` in 16 lanes of f64, then in a tree.
    fn sum_squares_piece(x: &[f32]) -> f64 {
        let mut lanes = [0.0f64; LANES];
        let (whole, rest) = x.as_chunks::<LANES>();
        for x in whole {
            for (sum, &x) in lanes.iter_mut().zip(x) {
                *sum = f64::from(x).mul_add(f64::from(x), *sum);
            }
        }
        for (sum, &x) in lanes.iter_mut().zip(rest) {
            *sum = f64::from(x).mul_add(f64::from(x), *sum);
        }
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
        }
        lanes[0]
    }
}

/// `Σ x²`: pieces of a fixed length, added in order.
pub(crate) fn sum_squares(isa: Isa, x: &[f32]) -> f64 {
    if x.len() <= SUM_PIECE {
        return sum_squares_piece(isa, x);
    }
    let pieces: Vec<f64> = x.par_chunks(SUM_PIECE).map(|x| sum_squares_piece(isa, x)).collect();
    pieces.into_iter().fold(0.0, |sum, piece| sum + piece)
}

/// What one step multiplies with.
#[derive(Clone, Copy, Debug)]
struct Factors {
    decay: f32,
    rate: f32,
    root: f32,
    step: AdamW,
}

kernel! {
    /// One step on a piece.
    fn adamw_piece(parameter: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32], factors: Factors) {
        let Factors { decay, rate, root, step } = factors;
        let AdamW { beta1, beta2, eps, gradient_scale, .. } = step;
        for (((p, &g), m), v) in parameter.iter_mut().zip(gradient).zip(first).zip(second) {
            let g = g * gradient_scale;
            *m = (1.0 - beta1).mul_add(g, beta1 * *m);
            *v = ((1.0 - beta2) * g).mul_add(g, beta2 * *v);
            let denominator = v.sqrt() * root + eps;
            *p -= decay.mul_add(*p, rate * (*m / denominator));
        }
    }
}

/// One AdamW step.
pub(crate) fn adamw(
    isa: Isa,
    parameter: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    step: &AdamW,
) {
    let (lr, beta1, beta2) = (f64::from(step.lr), f64::from(step.beta1), f64::from(step.beta2));
    let factors = Factors {
        decay: (lr * f64::from(step.weight_decay)) as f32,
        rate: (lr / (1.0 - maths::power(beta1, step.step))) as f32,
        root: (1.0 / (1.0 - maths::power(beta2, step.step)).sqrt()) as f32,
        step: *step,
    };
    if parameter.len() <= PIECE {
        return adamw_piece(isa, parameter, gradient, first, second, factors);
    }
    parameter
        .par_chunks_mut(PIECE)
        .zip(gradient.par_chunks(PIECE))
        .zip(first.par_chunks_mut(PIECE))
        .zip(second.par_chunks_mut(PIECE))
        .for_each(|(((p, g), m), v)| adamw_piece(isa, p, g, m, v, factors));
}
