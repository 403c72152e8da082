//! Estimators of the divergence from a reference policy, as a loss and inside the reward.

use std::str::FromStr;

use serde::{
    Deserialize, Serialize,
    de::{IntoDeserializer, value::Error as ValueError},
};

use super::{
    Real,
    error::{AlgorithmError, check_setting},
    rows::Rows,
    statistics::COUNT_EPSILON,
};

/// Bound of the log-ratio before it is exponentiated.
pub const LOG_RATIO_BOUND: f64 = 20.0;
/// Bound of the value of [`KlEstimator::K3`].
pub const K3_BOUND: f64 = 10.0;

/// Estimator of `KL(policy || reference)` per sampled token, with `d = logp - logp_ref`.
///
/// Used as a loss they differ in kind: the expected gradient of `K1` is 0, that of `K2` is the gradient of
/// `KL(policy || reference)`, that of `K3` the gradient of `KL(reference || policy)`. The `Plus` variants have the value
/// of their base and the gradient of `K2`.
///
/// # Source
/// Schulman 2020, "Approximating KL divergence".
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum KlEstimator {
    /// `d`; derivative 1.
    #[serde(alias = "k1", alias = "kl")]
    K1,
    /// `d^2 / 2`; derivative `d`.
    #[default]
    #[serde(alias = "k2", alias = "mse", alias = "k2+", alias = "mse+")]
    K2,
    /// `clamp(exp(-c) + c - 1, -10, 10)` with `c = clamp(d, -20, 20)`; derivative `1 - exp(-d)` inside both, else 0.
    #[serde(alias = "k3", alias = "low_var_kl", alias = "low-var-kl")]
    K3,
    /// `|d|`; derivative `sign(d)`.
    #[serde(alias = "abs")]
    Absolute,
    /// Value of [`Self::K1`], derivative `d`.
    #[serde(alias = "k1+", alias = "kl+")]
    K1Plus,
    /// Value of [`Self::K3`], derivative `d`.
    #[serde(alias = "k3+", alias = "low_var_kl+", alias = "low-var-kl+")]
    K3Plus,
    /// Value of [`Self::Absolute`], derivative `d`.
    #[serde(alias = "abs+")]
    AbsolutePlus,
}

impl FromStr for KlEstimator {
    type Err = AlgorithmError;

    fn from_str(name: &str) -> Result<Self, AlgorithmError> {
        let parsed: Result<Self, ValueError> = Self::deserialize(name.into_deserializer());
        parsed.map_err(|_| AlgorithmError::Setting {
            name: "estimator",
            value: name.to_owned(),
            reason: "expected k1 (kl), k2 (mse), k3 (low_var_kl) or abs, each also with a plus sign",
        })
    }
}

/// The divergence of one token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KlToken {
    /// The estimate.
    pub value: f64,
    /// Derivative with respect to `logp`.
    pub derivative: f64,
    /// A bound of `K3` changed the value.
    pub bounded: bool,
}

impl KlEstimator {
    /// Evaluates the estimator.
    #[must_use]
    pub fn token(self, logprob: f64, reference_logprob: f64) -> KlToken {
        let difference = logprob - reference_logprob;
        let plain = |value, derivative| KlToken { value, derivative, bounded: false };
        match self {
            Self::K1 => plain(difference, 1.0),
            Self::K1Plus => plain(difference, difference),
            Self::K2 => plain(0.5 * difference * difference, difference),
            Self::Absolute if difference == 0.0 => plain(0.0, 0.0),
            Self::Absolute => plain(difference.abs(), difference.signum()),
            Self::AbsolutePlus => plain(difference.abs(), difference),
            Self::K3 => k3(difference),
            Self::K3Plus => KlToken { derivative: difference, ..k3(difference) },
        }
    }
}

fn k3(difference: f64) -> KlToken {
    let inner = difference.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    let raw = (-inner).exp() + inner - 1.0;
    let bounded = difference.abs() >= LOG_RATIO_BOUND || raw >= K3_BOUND;
    let derivative = if bounded { 0.0 } else { 1.0 - (-difference).exp() };
    KlToken { value: raw.clamp(-K3_BOUND, K3_BOUND), derivative, bounded }
}

/// Rewards after the divergence was subtracted, and the mean divergence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PenalisedRewards {
    /// `r[t] = score[t] - coefficient * kl[t]` on trained slots, the score elsewhere: `[slots]`.
    pub rewards: Vec<f64>,
    /// Mean over rows of the masked mean divergence of the row.
    pub divergence: f64,
}

/// Subtracts `coefficient * kl` from the token scores.
///
/// # Shapes
/// All slices `[slots]`. `old_logprob` are the log-probabilities at rollout time.
///
/// # Errors
/// [`AlgorithmError::Length`] if a slice does not cover the rows.
pub fn penalise_rewards<F: Real>(
    rows: Rows<'_>,
    scores: &[F],
    old_logprob: &[F],
    reference_logprob: &[F],
    mask: &[bool],
    estimator: KlEstimator,
    coefficient: f64,
) -> Result<PenalisedRewards, AlgorithmError> {
    rows.check("scores", scores)?;
    rows.check("old log-probabilities", old_logprob)?;
    rows.check("reference log-probabilities", reference_logprob)?;
    rows.check("mask", mask)?;
    let mut rewards: Vec<f64> = scores.iter().map(|&score| score.into()).collect();
    let mut total = 0.0;
    for row in rows.iter() {
        let (mut sum, mut count) = (0.0, 0_usize);
        for slot in row.filter(|&slot| mask[slot]) {
            let kl = estimator.token(old_logprob[slot].into(), reference_logprob[slot].into()).value;
            rewards[slot] -= coefficient * kl;
            sum += kl;
            count += 1;
        }
        total += sum / (count as f64 + COUNT_EPSILON);
    }
    Ok(PenalisedRewards { rewards, divergence: total / rows.len().max(1) as f64 })
}

/// How the weight of the divergence in the reward evolves.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub enum KlController {
    /// It stays.
    #[default]
    Fixed,
    /// It follows the measured divergence.
    Adaptive {
        /// Desired divergence per token.
        target: f64,
        /// Rows over which the weight may change by a fifth.
        horizon: f64,
    },
}

impl KlController {
    /// The weight for the next iteration:
    /// `coefficient * (1 + clamp(divergence / target - 1, -0.2, 0.2) * rows / horizon)`.
    ///
    /// # Errors
    /// [`AlgorithmError::Setting`] if target or horizon is not positive, or the divergence not finite.
    ///
    /// # Source
    /// Ziegler et al. 2019, section 2.2.
    pub fn update(self, coefficient: f64, divergence: f64, rows: usize) -> Result<f64, AlgorithmError> {
        let Self::Adaptive { target, horizon } = self else {
            return Ok(coefficient);
        };
        check_setting(target > 0.0, "target", target, "expected a positive divergence")?;
        check_setting(horizon > 0.0, "horizon", horizon, "expected a positive number of rows")?;
        check_setting(divergence.is_finite(), "divergence", divergence, "expected a finite number")?;
        let error = (divergence / target - 1.0).clamp(-0.2, 0.2);
        Ok(coefficient * (1.0 + error * rows as f64 / horizon))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_read() {
        for name in ["k3", "low_var_kl", "low-var-kl", "K3"] {
            assert_eq!(name.parse(), Ok(KlEstimator::K3), "{name}");
        }
        assert!("full".parse::<KlEstimator>().is_err());
    }

    #[test]
    fn extreme_log_ratios_stay_finite() {
        for name in ["k1", "k2", "k3", "abs", "k1+", "k3+", "abs+"] {
            let estimator: KlEstimator = name.parse().expect("a known name");
            for difference in [-100.0, 0.0, 20.0, 100.0] {
                let token = estimator.token(difference, 0.0);
                assert!((token.value as f32).is_finite() && (token.derivative as f32).is_finite(), "{name}");
            }
            assert_eq!(estimator.token(-1.0, -1.0).value, 0.0, "{name}");
        }
        assert_eq!(KlEstimator::K3.token(0.0, 0.0).derivative, 0.0);
    }
}
