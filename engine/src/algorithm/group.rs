//! Group-relative outcome advantages (GRPO, Dr. GRPO).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    error::{AlgorithmError, check_finite, check_length},
    statistics::Sample,
};

/// What a group of one counted row yields.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Singleton {
    /// 0: one episode cannot be compared with anything.
    #[default]
    Zero,
    /// The score itself (mean 0, deviation 1), as some published implementations do.
    Score,
}

/// Settings of [`group_advantages`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupRelative {
    /// Divide by the group's deviation (GRPO) or not (Dr. GRPO).
    pub divide_by_deviation: bool,
    /// Added to the deviation.
    pub epsilon: f64,
    /// What a group of one yields.
    pub singleton: Singleton,
}

impl Default for GroupRelative {
    fn default() -> Self {
        Self { divide_by_deviation: true, epsilon: 1e-6, singleton: Singleton::Zero }
    }
}

/// What [`group_advantages`] computes: `[rows]` each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupEstimates {
    /// One advantage per row.
    pub advantages: Vec<f64>,
    /// Sample deviation (`n - 1`) of the row's group.
    pub deviations: Vec<f64>,
}

/// Marks the rows that statistics count: the first row of each `(group, episode)`.
///
/// Rows of the same episode (one per turn) and copies that fill a batch are counted once.
///
/// # Errors
/// [`AlgorithmError::Length`] if the slices differ in length.
pub fn first_of_each_episode(groups: &[usize], episodes: &[usize]) -> Result<Vec<bool>, AlgorithmError> {
    check_length("episodes", groups.len(), episodes.len())?;
    let mut seen = std::collections::BTreeSet::new();
    Ok(groups.iter().zip(episodes).map(|(&group, &episode)| seen.insert((group, episode))).collect())
}

/// Statistics of every group over its counted rows, by group key.
///
/// # Errors
/// [`AlgorithmError::Length`]; [`AlgorithmError::NotFinite`] names the row whose score is not a finite number.
pub fn group_samples(
    scores: &[f64],
    groups: &[usize],
    counted: &[bool],
) -> Result<BTreeMap<usize, Sample>, AlgorithmError> {
    check_length("groups", scores.len(), groups.len())?;
    check_length("counted", scores.len(), counted.len())?;
    let mut members = BTreeMap::<usize, Vec<f64>>::new();
    for (row, (&score, &group)) in scores.iter().zip(groups).enumerate() {
        check_finite("score", "row", row, score)?;
        let members = members.entry(group).or_default();
        if counted[row] {
            members.push(score);
        }
    }
    Ok(members.into_iter().map(|(group, scores)| (group, Sample::of(&scores))).collect())
}

/// `A_b = (s_b - mean_g) / (deviation_g + epsilon)`, or `s_b - mean_g` without division.
///
/// The group key is explicit; the deviation is the sample deviation (`n - 1`); normalisation happens once. A group whose
/// counted scores are all equal yields exactly 0, so rounding noise is never amplified; a group of one counted row follows
/// [`Singleton`]. Spread the result over trained slots with [`Rows::spread`](super::rows::Rows::spread).
///
/// # Shapes
/// `scores`, `groups`, `counted`: `[rows]`. Rows that are not counted receive an advantage but do not shape it.
///
/// # Errors
/// As [`group_samples`].
///
/// # Source
/// Shao et al. 2024, section 4.1.2; Liu et al. 2025 without the division.
pub fn group_advantages(
    scores: &[f64],
    groups: &[usize],
    counted: &[bool],
    settings: GroupRelative,
) -> Result<GroupEstimates, AlgorithmError> {
    let samples = group_samples(scores, groups, counted)?;
    let mut estimates = GroupEstimates::default();
    for (&score, group) in scores.iter().zip(groups) {
        let sample = samples.get(group).copied().unwrap_or_default();
        let (mean, deviation) = match (sample.count, settings.singleton) {
            (0 | 1, Singleton::Score) => (0.0, 1.0),
            (0 | 1, Singleton::Zero) => (score, 0.0),
            _ => (sample.mean, sample.deviation()),
        };
        let centred = score - mean;
        let advantage = match settings.divide_by_deviation {
            _ if deviation == 0.0 => 0.0,
            true => centred / (deviation + settings.epsilon),
            false => centred,
        };
        estimates.advantages.push(advantage);
        estimates.deviations.push(deviation);
    }
    Ok(estimates)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(1e-5 / 2) / (1e-5 / sqrt(2) + 1e-6) = 0.6195`.
    #[test]
    fn a_tiny_spread_is_scaled_and_no_spread_is_zero() {
        let advantages = |scores: &[f64]| {
            let groups = vec![0; scores.len()];
            group_advantages(scores, &groups, &vec![true; scores.len()], GroupRelative::default())
        };
        let tiny = advantages(&[1.0, 1.00001]).expect("finite scores").advantages;
        assert!((tiny[0] + 0.6195).abs() < 1e-4 && (tiny[1] - 0.6195).abs() < 1e-4, "{tiny:?}");
        assert_eq!(advantages(&[1.0; 4]).expect("finite scores").advantages, [0.0; 4]);
        assert_eq!(advantages(&[3.0]).expect("finite scores").advantages, [0.0]);
        let error = advantages(&[f64::NAN, 1.0, 1.0]).expect_err("a score is not a number");
        assert!(error.to_string().contains("row 0"), "{error}");
    }

    #[test]
    fn copies_do_not_shape_the_statistics() {
        let settings = GroupRelative::default();
        let three = group_advantages(&[1.0, 0.0, 0.5], &[0; 3], &[true; 3], settings).expect("finite scores");
        let counted = first_of_each_episode(&[0; 4], &[0, 1, 2, 0]).expect("equal lengths");
        let four = group_advantages(&[1.0, 0.0, 0.5, 1.0], &[0; 4], &counted, settings).expect("finite scores");
        assert_eq!(three.advantages, four.advantages[..3]);
    }
}
