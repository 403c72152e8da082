//! The critic's loss that the trainer differentiates, and the explained variance.

use serde::{Deserialize, Serialize};

use super::{
    Real,
    aggregation::Aggregation,
    error::{AlgorithmError, check_finite, check_length, check_setting},
    loss::share,
    statistics::Sample,
};

/// The value loss of one token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValueToken {
    /// The value, clipped around the old one.
    pub clipped_value: f64,
    /// `max((v - R)^2, (clipped - R)^2)`; the total takes half of it.
    pub loss: f64,
    /// Derivative of **half** the loss with respect to `v`.
    pub derivative: f64,
    /// The clipped branch wins.
    pub clipped: bool,
}

/// The clipped squared error:
/// ```text
/// clipped = clamp(v, v_old - clip, v_old + clip)
/// l       = max((v - R)^2, (clipped - R)^2)
/// ```
/// with derivative of `l / 2` equal to `v - R`, or 0 where the clipped branch wins. Without `clip` it is the squared error.
///
/// # Source
/// Schulman et al. 2017, as implemented with value clipping.
#[must_use]
pub fn value_token(value: f64, old_value: f64, target: f64, clip: Option<f64>) -> ValueToken {
    let clipped_value = clip.map_or(value, |clip| value.max(old_value - clip).min(old_value + clip));
    let error = value - target;
    let plain = error * error;
    let other = (clipped_value - target) * (clipped_value - target);
    let clipped = other > plain;
    ValueToken { clipped_value, loss: plain.max(other), derivative: if clipped { 0.0 } else { error }, clipped }
}

/// `1 - var(R - V) / (var(R) + 1e-5)` with sample variances over trained slots; 1 is a perfect critic, below 0 a harmful one.
///
/// # Errors
/// [`AlgorithmError::Length`] if the slices differ in length.
pub fn explained_variance<F: Real>(returns: &[F], values: &[F], mask: &[bool]) -> Result<f64, AlgorithmError> {
    check_length("values", returns.len(), values.len())?;
    check_length("mask", returns.len(), mask.len())?;
    let (mut residuals, mut targets) = (Vec::new(), Vec::new());
    for slot in (0..mask.len()).filter(|&slot| mask[slot]) {
        let (target, value): (f64, f64) = (returns[slot].into(), values[slot].into());
        residuals.push(target - value);
        targets.push(target);
    }
    let variance = |values: &[f64]| Sample::of(values).variance;
    Ok(1.0 - variance(&residuals) / (variance(&targets) + 1e-5))
}

/// The critic's loss: half the aggregated, possibly clipped, squared error.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValueLoss {
    /// Values may move this far from those of the rollout before the gradient stops; off by default.
    pub value_clip: Option<f64>,
    /// How token losses become one number; it decides the weights in [`ValueTokens`].
    pub aggregation: Aggregation,
}

/// What the critic's loss reads, one entry per slot of a micro-batch.
#[derive(Clone, Copy, Debug)]
pub struct ValueTokens<'a, F> {
    /// Value under the current critic.
    pub value: &'a [F],
    /// Value at rollout time.
    pub old_value: &'a [F],
    /// Return that the critic is fitted to.
    pub target: &'a [F],
    /// Weights of [`Aggregation::weights`], computed over the whole optimiser step.
    pub weight: &'a [f64],
    /// Trained slots.
    pub mask: &'a [bool],
}

/// Sums over trained tokens. Merge micro-batches in row order and the result is the same in every run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValueSums {
    /// Loss that was differentiated.
    pub loss: f64,
    /// Trained tokens.
    pub tokens: u64,
    /// Tokens on the clipped branch.
    pub clipped: u64,
    /// Sum of the values.
    pub value: f64,
}

impl ValueSums {
    /// Adds the sums of the micro-batch that follows.
    pub fn merge(&mut self, next: &Self) {
        self.loss += next.loss;
        self.tokens += next.tokens;
        self.clipped += next.clipped;
        self.value += next.value;
    }

    /// Share of tokens on the clipped branch.
    #[must_use]
    pub fn clip_fraction(&self) -> f64 {
        share(self.clipped as f64, self.tokens)
    }

    /// Mean value.
    #[must_use]
    pub fn mean_value(&self) -> f64 {
        share(self.value, self.tokens)
    }
}

impl ValueLoss {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`AlgorithmError::Setting`] if the clip is not positive.
    pub fn check(&self) -> Result<(), AlgorithmError> {
        let clip = self.value_clip.unwrap_or(1.0);
        check_setting(clip > 0.0 && clip.is_finite(), "value_clip", clip, "expected a positive number, or None")
    }

    /// Writes `d_value[t] = w[t] * (v - R)`, 0 where the clip holds and on masked slots, and returns the sums.
    ///
    /// # Shapes
    /// All slices `[slots]`.
    ///
    /// # Errors
    /// [`AlgorithmError::Length`]; [`AlgorithmError::NotFinite`] names the first trained slot with a number that is not finite.
    pub fn backward<F: Real>(
        &self,
        tokens: &ValueTokens<'_, F>,
        d_value: &mut [F],
    ) -> Result<ValueSums, AlgorithmError> {
        let slots = tokens.mask.len();
        check_length("value", slots, tokens.value.len())?;
        check_length("old_value", slots, tokens.old_value.len())?;
        check_length("target", slots, tokens.target.len())?;
        check_length("weight", slots, tokens.weight.len())?;
        check_length("d_value", slots, d_value.len())?;
        let mut sums = ValueSums::default();
        for slot in 0..slots {
            d_value[slot] = F::from_f64(0.0);
            if !tokens.mask[slot] {
                continue;
            }
            let read = |what, values: &[F]| {
                let value = values[slot].into();
                check_finite(what, "token", slot, value).map(|()| value)
            };
            let value = read("value", tokens.value)?;
            let old_value = read("old_value", tokens.old_value)?;
            let token = value_token(value, old_value, read("target", tokens.target)?, self.value_clip);
            let weight = tokens.weight[slot];
            d_value[slot] = F::from_f64(weight * token.derivative);
            sums.loss += 0.5 * weight * token.loss;
            sums.tokens += 1;
            sums.clipped += u64::from(token.clipped);
            sums.value += value;
        }
        Ok(sums)
    }
}
