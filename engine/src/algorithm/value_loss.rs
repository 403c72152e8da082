//! The clipped value loss of one token, and the explained variance.

use super::{
    Real,
    error::{AlgorithmError, check_length},
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
    let clipped_value = clip.map_or(value, |clip| {
        value.max(old_value - clip).min(old_value + clip)
    });
    let error = value - target;
    let plain = error * error;
    let other = (clipped_value - target) * (clipped_value - target);
    let clipped = other > plain;
    ValueToken {
        clipped_value,
        loss: plain.max(other),
        derivative: if clipped { 0.0 } else { error },
        clipped,
    }
}

/// `1 - var(R - V) / (var(R) + 1e-5)` with sample variances over trained slots; 1 is a perfect critic, below 0 a harmful one.
///
/// # Errors
/// [`AlgorithmError::Length`] if the slices differ in length.
pub fn explained_variance<F: Real>(
    returns: &[F],
    values: &[F],
    mask: &[bool],
) -> Result<f64, AlgorithmError> {
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
