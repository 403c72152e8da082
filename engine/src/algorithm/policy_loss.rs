//! The clipped surrogate loss of one token.

use serde::{Deserialize, Serialize};

use super::error::{AlgorithmError, check_setting};

/// Clipping of the importance ratio.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clip {
    /// The ratio is clipped below `1 - clip_low`.
    pub clip_low: f64,
    /// The ratio is clipped above `1 + clip_high`.
    pub clip_high: f64,
    /// For negative advantages the loss is at most `-A * dual_clip`; more than 1, or off.
    pub dual_clip: Option<f64>,
    /// The log-ratio is bounded to plus or minus this before it is exponentiated.
    pub log_ratio_bound: f64,
}

impl Default for Clip {
    fn default() -> Self {
        Self { clip_low: 0.2, clip_high: 0.28, dual_clip: Some(3.0), log_ratio_bound: 20.0 }
    }
}

/// The loss of one token with everything that is reported about it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolicyToken {
    /// Bounded `logp - logp_old`.
    pub log_ratio: f64,
    /// `exp(log_ratio)`.
    pub ratio: f64,
    /// The loss.
    pub loss: f64,
    /// Derivative of the loss with respect to `logp`.
    pub derivative: f64,
    /// The clipped branch wins.
    pub clipped: bool,
    /// The dual clip binds.
    pub clipped_lower: bool,
    /// The log-ratio reached its bound.
    pub bounded: bool,
}

impl Clip {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`AlgorithmError::Setting`] names the first setting out of range.
    pub fn check(&self) -> Result<(), AlgorithmError> {
        let low = (0.0..=1.0).contains(&self.clip_low);
        check_setting(low, "clip_low", self.clip_low, "expected 0 to 1")?;
        let high = self.clip_high >= 0.0 && self.clip_high.is_finite();
        check_setting(high, "clip_high", self.clip_high, "expected a finite number of at least 0")?;
        let dual = self.dual_clip.unwrap_or(2.0);
        check_setting(dual > 1.0 && dual.is_finite(), "dual_clip", dual, "expected more than 1, or None")?;
        let bound = self.log_ratio_bound;
        // exp(80) is the last round number whose product with a large advantage still fits f32.
        check_setting(bound > 0.0 && bound <= 80.0, "log_ratio_bound", bound, "expected more than 0, at most 80")
    }

    /// The clipped surrogate:
    /// ```text
    /// d    = clamp(logp - logp_old, -bound, bound);   rho = exp(d)
    /// l1   = -A * rho;   l2 = -A * clamp(rho, 1 - clip_low, 1 + clip_high)
    /// lmax = max(l1, l2)
    /// l    = A < 0 ? min(lmax, -A * dual_clip) : lmax
    /// ```
    /// with derivative `-A * rho` where the unclipped branch is active and `|logp - logp_old| < bound`, else 0. The inputs must
    /// be finite, which [`PolicyLoss::backward`](super::loss::PolicyLoss::backward) checks.
    ///
    /// # Source
    /// Schulman et al. 2017, eq. 7; Yu et al. 2025 for two clip widths; Ye et al. 2020, eq. 5 for the dual clip.
    #[must_use]
    pub fn token(&self, logprob: f64, old_logprob: f64, advantage: f64) -> PolicyToken {
        let difference = logprob - old_logprob;
        let log_ratio = difference.max(-self.log_ratio_bound).min(self.log_ratio_bound);
        let ratio = log_ratio.exp();
        let plain = -advantage * ratio;
        let clip = -advantage * ratio.max(1.0 - self.clip_low).min(1.0 + self.clip_high);
        let upper = plain.max(clip);
        let ceiling = self.dual_clip.map(|dual| -advantage * dual).filter(|_| advantage < 0.0);
        let clipped = clip > plain;
        let clipped_lower = ceiling.is_some_and(|ceiling| upper > ceiling);
        let bounded = difference.abs() >= self.log_ratio_bound;
        let loss = ceiling.map_or(upper, |ceiling| upper.min(ceiling));
        let derivative = if bounded || clipped || clipped_lower { 0.0 } else { plain };
        PolicyToken { log_ratio, ratio, loss, derivative, clipped, clipped_lower, bounded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_log_ratios_stay_finite() {
        for difference in [-1e9, -100.0, 0.0, 20.0, 100.0] {
            for advantage in [-10.9, 0.0, 10.9] {
                let token = Clip::default().token(difference, 0.0, advantage);
                assert!(token.loss.is_finite() && token.derivative.is_finite());
                assert!((token.loss as f32).is_finite() && (token.derivative as f32).is_finite());
            }
        }
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let clip = Clip { dual_clip: Some(1.0), ..Clip::default() };
        assert!(clip.check().is_err_and(|error| error.to_string().contains("dual_clip")));
        assert_eq!(Clip::default().check(), Ok(()));
    }
}
