//! AdamW and global-norm clipping in `f64`: the reference that the tensor kernels are compared with.

use serde::{Deserialize, Serialize};

use super::{
    Real,
    error::{AlgorithmError, check_length, check_setting},
    schedule::Schedule,
};

/// Settings of an optimiser.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first and of the second moment.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, on every parameter.
    pub weight_decay: f64,
    /// Largest global norm of the gradient.
    pub clip_norm: f64,
    /// Learning-rate factor per iteration.
    pub schedule: Schedule,
}

impl Default for AdamW {
    fn default() -> Self {
        Self {
            lr: 1e-6,
            betas: (0.9, 0.999),
            epsilon: 1e-8,
            weight_decay: 0.01,
            clip_norm: 1.0,
            schedule: Schedule::default(),
        }
    }
}

/// Moments of a parameter tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// Steps taken.
    pub step: u64,
    /// Mean of the gradients: `[parameters]`.
    pub first: Vec<f64>,
    /// Mean of the squared gradients: `[parameters]`.
    pub second: Vec<f64>,
}

impl Moments {
    /// Moments of `count` parameters before the first step.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { step: 0, first: vec![0.0; count], second: vec![0.0; count] }
    }
}

impl AdamW {
    /// The defaults of a critic: ten times the learning rate.
    #[must_use]
    pub fn critic() -> Self {
        Self { lr: 1e-5, ..Self::default() }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`AlgorithmError::Setting`] names the first setting out of range.
    pub fn check(&self) -> Result<(), AlgorithmError> {
        let not_negative = |value: f64| value >= 0.0 && value.is_finite();
        check_setting(not_negative(self.lr), "lr", self.lr, "expected a finite number of at least 0")?;
        for beta in [self.betas.0, self.betas.1] {
            check_setting((0.0..1.0).contains(&beta), "betas", beta, "expected at least 0, less than 1")?;
        }
        check_setting(self.epsilon > 0.0, "epsilon", self.epsilon, "expected a positive number")?;
        check_setting(not_negative(self.weight_decay), "weight_decay", self.weight_decay, "expected at least 0")?;
        check_setting(self.clip_norm > 0.0, "clip_norm", self.clip_norm, "expected a positive number")?;
        self.schedule.check()
    }

    /// One step at learning rate `lr`:
    /// ```text
    /// p <- p * (1 - lr * weight_decay)
    /// m <- b1 * m + (1 - b1) * g;   v <- b2 * v + (1 - b2) * g^2
    /// p <- p - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
    /// ```
    ///
    /// # Errors
    /// [`AlgorithmError::Length`] if the tensors differ in size.
    ///
    /// # Source
    /// Loshchilov and Hutter 2019, algorithm 2.
    pub fn step(
        &self,
        parameters: &mut [f64],
        gradients: &[f64],
        moments: &mut Moments,
        lr: f64,
    ) -> Result<(), AlgorithmError> {
        check_length("gradients", parameters.len(), gradients.len())?;
        check_length("first moments", parameters.len(), moments.first.len())?;
        check_length("second moments", parameters.len(), moments.second.len())?;
        moments.step += 1;
        let step = moments.step.min(i32::MAX as u64) as i32;
        let (beta1, beta2) = self.betas;
        let rate = lr / (1.0 - beta1.powi(step));
        let root = (1.0 - beta2.powi(step)).sqrt();
        for (index, &gradient) in gradients.iter().enumerate() {
            let (first, second) = (&mut moments.first[index], &mut moments.second[index]);
            *first = beta1 * *first + (1.0 - beta1) * gradient;
            *second = beta2 * *second + (1.0 - beta2) * gradient * gradient;
            let decayed = parameters[index] * (1.0 - lr * self.weight_decay);
            parameters[index] = decayed - rate * *first / (second.sqrt() / root + self.epsilon);
        }
        Ok(())
    }
}

/// Euclidean norm over all tensors, summed in `f64` in the given order.
#[must_use]
pub fn global_norm<F: Real>(tensors: &[&[F]]) -> f64 {
    let squares = tensors.iter().flat_map(|tensor| tensor.iter()).map(|&gradient| {
        let gradient: f64 = gradient.into();
        gradient * gradient
    });
    squares.sum::<f64>().sqrt()
}

/// `min(1, max_norm / (norm + 1e-6))`, or `None` when the norm is not finite and the step must be skipped.
#[must_use]
pub fn clip_coefficient(norm: f64, max_norm: f64) -> Option<f64> {
    norm.is_finite().then(|| (max_norm / (norm + 1e-6)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_that_is_not_finite_skips_the_step() {
        assert_eq!(clip_coefficient(global_norm(&[&[1.0, f64::NAN]]), 1.0), None);
        assert_eq!(clip_coefficient(global_norm(&[&[3.0_f32], &[4.0]]), 10.0), Some(1.0));
    }
}
