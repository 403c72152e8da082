//! One score per prompt group.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::algorithm::{
    Real,
    error::{AlgorithmError, check_finite, check_length},
    rows::Rows,
    statistics::Sample,
};

/// What a group's score measures, over a quantity of its episodes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Metric {
    /// Spread of the episode scores.
    #[default]
    #[serde(alias = "reward_variance", alias = "reward_std")]
    RewardVariance,
    /// Mean of the episode scores.
    #[serde(alias = "reward")]
    Reward,
    /// Sum of the episode scores.
    #[serde(alias = "reward_sum")]
    RewardSum,
    /// Mean over episodes of the mean entropy of trained tokens.
    #[serde(alias = "entropy")]
    Entropy,
    /// Spread over episodes of the mean entropy of trained tokens.
    #[serde(alias = "entropy_variance", alias = "entropy_std")]
    EntropyVariance,
    /// Mean number of trained tokens per episode.
    #[serde(alias = "length")]
    Length,
}

impl fmt::Display for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

/// What the spread of a group is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Spread {
    /// Sample standard deviation.
    #[default]
    Deviation,
    /// Sample variance.
    Variance,
}

impl Metric {
    /// Whether the score is a spread, which one member cannot have.
    #[must_use]
    pub fn is_spread(self) -> bool {
        matches!(self, Self::RewardVariance | Self::EntropyVariance)
    }

    /// Whether a score can be below 0.
    #[must_use]
    pub fn can_be_negative(self) -> bool {
        matches!(self, Self::Reward | Self::RewardSum)
    }

    /// `reward`, `entropy` or `length`: the quantity of an episode that is measured.
    #[must_use]
    pub fn family(self) -> &'static str {
        match self {
            Self::RewardVariance | Self::Reward | Self::RewardSum => "reward",
            Self::Entropy | Self::EntropyVariance => "entropy",
            Self::Length => "length",
        }
    }

    /// The score of a group with these statistics. The spread of equal values, or of one, is exactly 0.
    #[must_use]
    pub fn score(self, sample: &Sample, spread: Spread) -> f64 {
        match (self, spread) {
            (Self::RewardVariance | Self::EntropyVariance, Spread::Deviation) => sample.deviation(),
            (Self::RewardVariance | Self::EntropyVariance, Spread::Variance) => sample.variance,
            (Self::RewardSum, _) => sample.sum,
            (Self::Reward | Self::Entropy | Self::Length, _) => sample.mean,
        }
    }
}

/// Statistics of every group: `[group_count]`.
///
/// # Shapes
/// `values`, `groups`: one entry per episode, the group being an index below `group_count`.
///
/// # Errors
/// [`AlgorithmError::Length`]; [`AlgorithmError::Index`]; [`AlgorithmError::NotFinite`] names the episode.
pub fn group_samples(values: &[f64], groups: &[usize], group_count: usize) -> Result<Vec<Sample>, AlgorithmError> {
    check_length("groups", values.len(), groups.len())?;
    let mut members = vec![Vec::new(); group_count];
    for (index, (&value, &group)) in values.iter().zip(groups).enumerate() {
        check_finite("score", "episode", index, value)?;
        let limit = group_count.saturating_sub(1);
        let outside = AlgorithmError::Index { what: "groups", index, found: group, limit };
        members.get_mut(group).ok_or(outside)?.push(value);
    }
    Ok(members.iter().map(|values| Sample::of(values)).collect())
}

/// Mean over the trained tokens of each row, 0 for a row without any: `[rows]`.
///
/// # Errors
/// [`AlgorithmError::Length`] if a slice does not cover the rows.
pub fn row_means<F: Real>(rows: Rows<'_>, values: &[F], mask: &[bool]) -> Result<Vec<f64>, AlgorithmError> {
    let counts = rows.trained_counts(mask)?;
    let sums = rows.sums(values, mask)?;
    Ok(sums.into_iter().zip(counts).map(|(sum, count)| sum / count.max(1) as f64).collect())
}
