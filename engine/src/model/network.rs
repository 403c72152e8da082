//! A model with the memory to run and train it.

use ragen_kernels::Backend;

use super::optimizer::Optimizer;
use super::workspace::{Purpose, Workspace};
use super::{ModelError, Weights};

/// Results for the rows that were asked for, in their order. What was not asked for stays empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowOutputs {
    /// Log-probability of each row's target at the temperature.
    pub logprobs: Vec<f32>,
    /// Entropy of each row's distribution at the temperature, in nats.
    pub entropies: Vec<f32>,
    /// Output of the value head.
    pub values: Vec<f32>,
}

/// The rows of the last forward pass that can still be followed by a backward pass.
#[derive(Default)]
pub(crate) struct Followed {
    pub(crate) rows: usize,
    pub(crate) version: u64,
    pub(crate) selected: Vec<u32>,
    pub(crate) targets: Vec<u32>,
    pub(crate) temperature: f32,
}

/// A model that scores and, if asked to, trains.
pub struct Network<B: Backend> {
    pub(crate) weights: Weights<B>,
    pub(crate) workspace: Workspace<B>,
    pub(crate) optimizer: Option<Optimizer<B>>,
    pub(crate) outputs: RowOutputs,
    pub(crate) followed: Option<Followed>,
    /// The record of an earlier pass, kept for its memory.
    pub(crate) spare: Followed,
}

impl<B: Backend> std::fmt::Debug for Network<B> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Network").field("weights", &self.weights).finish_non_exhaustive()
    }
}

impl<B: Backend> Network<B> {
    /// A network that only scores, such as a frozen reference.
    #[must_use]
    pub fn frozen(weights: Weights<B>) -> Self {
        Self {
            weights,
            workspace: Workspace::new(Purpose::Inference),
            optimizer: None,
            outputs: RowOutputs::default(),
            followed: None,
            spare: Followed::default(),
        }
    }

    /// A network that trains. Gradients and AdamW's moments take three times the memory of the parameters.
    ///
    /// # Errors
    /// What the device reports.
    pub fn trained(weights: Weights<B>, recompute: bool) -> Result<Self, ModelError> {
        let optimizer = Optimizer::new(&weights)?;
        let purpose = if recompute { Purpose::Recompute } else { Purpose::Training };
        Ok(Self { workspace: Workspace::new(purpose), optimizer: Some(optimizer), ..Self::frozen(weights) })
    }

    /// Makes room for passes of `tokens` rows, of which `selected` go through the head, in `blocks` blocks of keys.
    ///
    /// Passes make room by themselves; doing it beforehand shows early whether the memory suffices.
    ///
    /// # Errors
    /// What the device reports.
    pub fn reserve(&mut self, tokens: usize, selected: usize, blocks: usize) -> Result<(), ModelError> {
        self.workspace.reserve(&self.weights, tokens, selected, blocks)
    }

    /// The weights.
    #[must_use]
    pub fn weights(&self) -> &Weights<B> {
        &self.weights
    }

    /// The weights, for changing them from outside.
    pub fn weights_mut(&mut self) -> &mut Weights<B> {
        &mut self.weights
    }

    /// Gradients, moments and step count, if the network trains.
    #[must_use]
    pub fn optimizer(&self) -> Option<&Optimizer<B>> {
        self.optimizer.as_ref()
    }

    /// A gradient's values, in the order of the parameters.
    ///
    /// # Errors
    /// A network that does not train, no such parameter, or what the device reports.
    pub fn gradient(&self, place: usize) -> Result<Vec<f32>, ModelError> {
        let optimizer = self.optimizer.as_ref().ok_or_else(|| not_trained("gradient"))?;
        let Some(gradient) = optimizer.gradients.get(place) else {
            return Err(ModelError::argument("gradient", format!("there is no parameter {place}")));
        };
        let backend = self.weights.backend();
        let mut values = vec![0.0; backend.length(gradient)];
        backend.read(gradient, 0, &mut values)?;
        Ok(values)
    }

    /// Replaces a gradient, as when gradients of several processes were added up.
    ///
    /// # Errors
    /// A network that does not train, no such parameter, a wrong number of values, or what the device reports.
    pub fn set_gradient(&mut self, place: usize, values: &[f32]) -> Result<(), ModelError> {
        let optimizer = self.optimizer.as_mut().ok_or_else(|| not_trained("set_gradient"))?;
        let backend = self.weights.backend();
        match optimizer.gradients.get_mut(place) {
            Some(gradient) if backend.length(gradient) == values.len() => Ok(backend.write(gradient, 0, values)?),
            Some(_) => {
                Err(ModelError::argument("set_gradient", format!("{} values for parameter {place}", values.len())))
            }
            None => Err(ModelError::argument("set_gradient", format!("there is no parameter {place}"))),
        }
    }
}

pub(crate) fn not_trained(call: &'static str) -> ModelError {
    ModelError::argument(call, "the network is frozen: it has no gradients")
}
