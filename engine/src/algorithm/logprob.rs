//! Log-probability and entropy of one token from its logits, in `f64`: what the fused kernels are compared with.

use super::{
    Real,
    error::{AlgorithmError, check_length, check_setting},
    statistics::log_sum_exp,
};

/// What one position yields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenProbability {
    /// Log-probability of the label.
    pub logprob: f64,
    /// Entropy of the distribution, in nats.
    pub entropy: f64,
    /// `ln(sum exp)` of the logits after division by the temperature.
    pub log_sum_exp: f64,
}

fn scaled<F: Real>(logits: &[F], label: usize, temperature: f64) -> Result<Vec<f64>, AlgorithmError> {
    let positive = temperature > 0.0 && temperature.is_finite();
    check_setting(positive, "temperature", temperature, "expected a positive number")?;
    if label >= logits.len() {
        let limit = logits.len().saturating_sub(1);
        return Err(AlgorithmError::Index { what: "labels", index: 0, found: label, limit });
    }
    Ok(logits.iter().map(|&logit| logit.into() / temperature).collect())
}

/// With `z` the logits over the temperature: `logp = z_y - lse(z)`, `H = lse(z) - sum_i p_i z_i`.
///
/// # Errors
/// [`AlgorithmError::Setting`] for a temperature that is not positive; [`AlgorithmError::Index`] for a label outside the logits.
pub fn token_probability<F: Real>(
    logits: &[F],
    label: usize,
    temperature: f64,
) -> Result<TokenProbability, AlgorithmError> {
    let scaled = scaled(logits, label, temperature)?;
    let normaliser = log_sum_exp(&scaled);
    // A logit of minus infinity has probability 0 and contributes nothing.
    let finite = scaled.iter().filter(|logit| **logit > f64::NEG_INFINITY);
    let expected: f64 = finite.map(|logit| (logit - normaliser).exp() * logit).sum();
    Ok(TokenProbability {
        logprob: scaled[label] - normaliser,
        entropy: normaliser - expected,
        log_sum_exp: normaliser,
    })
}

/// Derivative of `d_logprob * logp + d_entropy * H` with respect to the undivided logits, added to `d_logits`:
/// `(d_logprob * (1[i = y] - p_i) - d_entropy * p_i * (z_i - lse + H)) / temperature`.
///
/// # Errors
/// As [`token_probability`]; [`AlgorithmError::Length`] if `d_logits` does not match.
pub fn token_gradient<F: Real>(
    logits: &[F],
    label: usize,
    temperature: f64,
    d_logprob: f64,
    d_entropy: f64,
    d_logits: &mut [f64],
) -> Result<(), AlgorithmError> {
    check_length("d_logits", logits.len(), d_logits.len())?;
    let scaled = scaled(logits, label, temperature)?;
    let TokenProbability { entropy, log_sum_exp, .. } = token_probability(logits, label, temperature)?;
    for (index, (logit, gradient)) in scaled.iter().zip(d_logits).enumerate() {
        let log_probability = logit - log_sum_exp;
        let probability = log_probability.exp();
        let hit = if index == label { 1.0 } else { 0.0 };
        let from_entropy = if probability > 0.0 { probability * (log_probability + entropy) } else { 0.0 };
        *gradient += (d_logprob * (hit - probability) - d_entropy * from_entropy) / temperature;
    }
    Ok(())
}
