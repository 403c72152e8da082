//! Gradients, clipping and AdamW.

use std::fmt;

use ragen_kernels::{AdamW, Backend};

use super::network::{Network, not_trained};
use super::{ModelError, Weights};

/// Constants of the optimiser; see Loshchilov and Hutter 2019. Decay acts on every parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWSettings {
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
    /// Gradients are scaled down to this 2-norm over all parameters; `None` leaves them as they are.
    pub max_norm: Option<f64>,
}

impl Default for AdamWSettings {
    fn default() -> Self {
        Self { lr: 1e-6, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, max_norm: Some(1.0) }
    }
}

/// What an optimiser step did.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The weights changed.
    Applied {
        /// 2-norm of all gradients before clipping.
        gradient_norm: f64,
    },
    /// A gradient was not finite: weights, moments and step count are as they were, the gradients are dropped.
    Skipped(NonFinite),
}

/// Where a number that is not finite was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NonFinite {
    /// The first parameter that is not finite itself, or else the first whose gradient is not.
    pub parameter: String,
    /// Whether the parameter itself holds such a number.
    pub weight: bool,
}

impl fmt::Display for NonFinite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.weight { "the weight" } else { "the gradient of" };
        let layer = self.parameter.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next());
        match layer {
            Some(layer) => write!(formatter, "{what} `{}` in layer {layer} is not finite", self.parameter),
            None => write!(formatter, "{what} `{}` is not finite", self.parameter),
        }
    }
}

/// Gradients and AdamW's moments of all parameters.
pub struct Optimizer<B: Backend> {
    pub(crate) gradients: Vec<B::Buffer>,
    pub(crate) first: Vec<B::Buffer>,
    pub(crate) second: Vec<B::Buffer>,
    pub(crate) steps: u64,
}

impl<B: Backend> fmt::Debug for Optimizer<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Optimizer").field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl<B: Backend> Optimizer<B> {
    pub(crate) fn new(weights: &Weights<B>) -> Result<Self, ModelError> {
        let zeros = || -> Result<Vec<B::Buffer>, ModelError> {
            weights.parameters().iter().map(|entry| Ok(weights.backend().zeros(entry.length())?)).collect()
        };
        Ok(Self { gradients: zeros()?, first: zeros()?, second: zeros()?, steps: 0 })
    }

    /// Steps taken so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

impl<B: Backend> Network<B> {
    /// Drops the accumulated gradients.
    ///
    /// # Errors
    /// A frozen network, or what the device reports.
    pub fn zero_gradients(&mut self) -> Result<(), ModelError> {
        let optimizer = self.optimizer.as_mut().ok_or_else(|| not_trained("zero_gradients"))?;
        for (gradient, parameter) in optimizer.gradients.iter_mut().zip(self.weights.parameters().iter()) {
            self.weights.backend().fill(gradient, parameter.length(), 0.0)?;
        }
        Ok(())
    }

    /// 2-norm of each parameter's gradient, in the order of the parameters.
    ///
    /// # Errors
    /// A frozen network, or what the device reports.
    pub fn gradient_norms(&self) -> Result<Vec<f64>, ModelError> {
        Ok(self.gradient_squares()?.into_iter().map(f64::sqrt).collect())
    }

    fn gradient_squares(&self) -> Result<Vec<f64>, ModelError> {
        let optimizer = self.optimizer.as_ref().ok_or_else(|| not_trained("gradient_norms"))?;
        let squares = |gradient| Ok(self.weights.backend().sum_squares(gradient)?);
        optimizer.gradients.iter().map(squares).collect()
    }

    /// One AdamW step with the accumulated gradients, which are dropped afterwards.
    ///
    /// # Errors
    /// A frozen network, or what the device reports.
    pub fn step(&mut self, settings: &AdamWSettings) -> Result<Step, ModelError> {
        let mut sum = 0.0;
        for (place, squares) in self.gradient_squares()?.into_iter().enumerate() {
            if !squares.is_finite() {
                let broken = self.weights.first_non_finite()?;
                let parameter = self.weights.parameters().get(broken.unwrap_or(place)).name.clone();
                self.zero_gradients()?;
                return Ok(Step::Skipped(NonFinite { parameter, weight: broken.is_some() }));
            }
            sum += squares;
        }
        let gradient_norm = sum.sqrt();
        let scale = settings.max_norm.map_or(1.0, |limit| (limit / (gradient_norm + 1e-6)).min(1.0));
        let optimizer = self.optimizer.as_mut().ok_or_else(|| not_trained("step"))?;
        let step = AdamW {
            lr: settings.lr,
            beta1: settings.beta1,
            beta2: settings.beta2,
            eps: settings.eps,
            weight_decay: settings.weight_decay,
            step: optimizer.steps + 1,
            gradient_scale: scale as f32,
        };
        let backend = self.weights.backend().clone();
        let Optimizer { gradients, first, second, .. } = optimizer;
        self.weights.update(|place, value| {
            Ok(backend.adamw(value, &gradients[place], &mut first[place], &mut second[place], &step)?)
        })?;
        optimizer.steps += 1;
        self.zero_gradients()?;
        Ok(Step::Applied { gradient_norm })
    }
}
