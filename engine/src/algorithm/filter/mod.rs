//! Which prompt groups carry signal: scores, selection and the metrics that explain it.

pub mod metrics;
pub mod score;
pub mod selection;

use serde::{Deserialize, Serialize};

use super::error::{AlgorithmError, check_setting};
pub use score::{Metric, Spread};

/// A group whose score is at most this far from 0 counts as carrying no signal.
pub const ZERO_SCORE: f64 = 1e-10;

/// How groups are chosen by their scores.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub enum Strategy {
    /// The best groups that hold the share `value` of the mass; from 1 on, every candidate.
    TopP {
        /// What the mass is.
        #[serde(default)]
        mass: Mass,
        /// The share, above 0.
        value: f64,
        /// Subtracted from the threshold of the linear mass: a batch with less than this to gain is rejected.
        #[serde(default = "default_slack")]
        slack: f64,
    },
    /// The best `floor(fraction * groups)`, at least one; the fraction counts all groups, not only candidates.
    TopK {
        /// Share of all groups.
        fraction: f64,
    },
    /// The best `count`, at least one.
    TopKAbsolute {
        /// Number of groups.
        count: usize,
    },
    /// Groups with a score of at least `value` times the best; when keeping the smallest, at most `best / value`.
    MinP {
        /// The factor.
        value: f64,
    },
    /// Ranks `floor(low * n)` to `floor(high * n) - 1` of the `n` candidates, best first.
    PercentileRange {
        /// Lower end, 0 to 1.
        low: f64,
        /// Upper end, 0 to 1.
        high: f64,
    },
    /// Every candidate group, but of each only the members that together have the largest variance.
    WithinGroup {
        /// Share of the members to keep, at least one.
        keep_ratio: f64,
    },
}

fn default_slack() -> f64 {
    0.01
}

/// The mass that [`Strategy::TopP`] accumulates.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Mass {
    /// The score itself. Can reject a whole batch.
    #[default]
    Linear,
    /// The softmax over scores. Depends on the scale of rewards and never rejects a batch.
    Softmax,
}

/// Which end of the scores is best.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Keep {
    /// The largest.
    #[default]
    Largest,
    /// The smallest.
    Smallest,
}

/// Settings of the rollout filter. The default keeps every group.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutFilter {
    /// How groups are chosen.
    pub strategy: Strategy,
    /// Which end is best.
    pub keep: Keep,
    /// Whether groups with score 0 are candidates.
    pub include_zero: bool,
    /// What a group's score measures.
    pub metric: Metric,
    /// Whether a spread is the sample deviation or the sample variance.
    pub spread: Spread,
}

impl Default for RolloutFilter {
    fn default() -> Self {
        Self {
            strategy: Strategy::TopP { mass: Mass::Linear, value: 1.0, slack: default_slack() },
            keep: Keep::Largest,
            include_zero: true,
            metric: Metric::RewardVariance,
            spread: Spread::Deviation,
        }
    }
}

impl RolloutFilter {
    /// Whether every group passes whatever its score.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.include_zero && matches!(self.strategy, Strategy::TopP { value, .. } if value >= 1.0)
    }

    /// Checks ranges and combinations that can only fail.
    ///
    /// # Errors
    /// [`AlgorithmError::Setting`] names the first setting that cannot work.
    pub fn check(&self, group_size: usize) -> Result<(), AlgorithmError> {
        let share = |name, value: f64| {
            check_setting(value > 0.0 && value <= 1.0, name, value, "expected more than 0, at most 1")
        };
        match self.strategy {
            Strategy::TopP { value, slack, .. } => {
                check_setting(value > 0.0 && value.is_finite(), "value", value, "expected a positive number")?;
                check_setting(slack >= 0.0 && slack.is_finite(), "slack", slack, "expected a number of at least 0")?;
            }
            Strategy::TopK { fraction } => share("fraction", fraction)?,
            Strategy::TopKAbsolute { count } => check_setting(count > 0, "count", count, "expected at least 1")?,
            Strategy::MinP { value } => share("value", value)?,
            Strategy::PercentileRange { low, high } => {
                check_setting((0.0..=1.0).contains(&low), "low", low, "expected 0 to 1")?;
                check_setting(high > low && high <= 1.0, "high", high, "expected more than `low`, at most 1")?;
            }
            Strategy::WithinGroup { keep_ratio } => share("keep_ratio", keep_ratio)?,
        }
        let sums_scores = matches!(self.strategy, Strategy::TopP { mass: Mass::Linear, .. } | Strategy::MinP { .. });
        let signed = sums_scores && !self.is_off() && self.metric.can_be_negative();
        check_setting(
            !signed,
            "metric",
            self.metric,
            "this strategy compares shares of scores, which must not be negative",
        )?;
        let single = group_size < 2 && self.metric.is_spread() && !self.is_off();
        check_setting(!single, "group_size", group_size, "a spread needs at least 2 members per group")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_refused() {
        let text = "(strategy: TopP(mass: Softmax, value: 0.9), include_zero: false)";
        let filter: RolloutFilter = ron::from_str(text).expect("valid settings");
        assert_eq!(filter.strategy, Strategy::TopP { mass: Mass::Softmax, value: 0.9, slack: 0.01 });
        assert!(ron::from_str::<RolloutFilter>("(strategie: TopK(fraction: 0.5))").is_err());
        assert!(ron::from_str::<RolloutFilter>("(strategy: TopK(fraktion: 0.5))").is_err());
        assert_eq!(filter.check(8), Ok(()));
        assert!(filter.check(1).is_err_and(|error| error.to_string().contains("group_size")));
        let signed = RolloutFilter { metric: Metric::Reward, strategy: Strategy::MinP { value: 0.5 }, ..filter };
        assert!(signed.check(8).is_err_and(|error| error.to_string().contains("metric")));
    }
}
