//! What may happen to advantages after the estimator, in the order of this file.

use serde::{Deserialize, Serialize};

use super::{
    error::{AlgorithmError, check_length, check_setting},
    rows::Rows,
};

/// How advantages shrink with the share of kept groups.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum FilterScaling {
    /// Not at all.
    #[default]
    None,
    /// By `kept / total`.
    Linear,
    /// By `sqrt(kept / total)`.
    Sqrt,
}

impl FilterScaling {
    /// The factor; 1 when there are no groups.
    #[must_use]
    pub fn factor(self, kept_groups: usize, total_groups: usize) -> f64 {
        if total_groups == 0 {
            return 1.0;
        }
        let share = kept_groups as f64 / total_groups as f64;
        match self {
            Self::None => 1.0,
            Self::Linear => share,
            Self::Sqrt => share.sqrt(),
        }
    }
}

/// Group weights `w_g = deviation_g / (max_g deviation_g + 1e-6)`: `[groups]`.
///
/// `deviations` are those of the groups present after filtering.
#[must_use]
pub fn soft_weights(deviations: &[f64]) -> Vec<f64> {
    let maximum = deviations.iter().copied().fold(0.0, f64::max);
    deviations.iter().map(|deviation| deviation / (maximum + 1e-6)).collect()
}

/// Multiplies each row's advantage by the weight of its group.
///
/// # Shapes
/// `advantages`, `groups`: `[rows]`, with `groups` indexing `weights`: `[groups]`.
///
/// # Errors
/// [`AlgorithmError::Length`]; [`AlgorithmError::Index`] for a group without weight.
pub fn reweight(advantages: &mut [f64], groups: &[usize], weights: &[f64]) -> Result<(), AlgorithmError> {
    check_length("groups", advantages.len(), groups.len())?;
    for (index, (advantage, &group)) in advantages.iter_mut().zip(groups).enumerate() {
        let limit = weights.len().saturating_sub(1);
        let outside = AlgorithmError::Index { what: "groups", index, found: group, limit };
        *advantage *= weights.get(group).ok_or(outside)?;
    }
    Ok(())
}

/// Multiplies every advantage by `factor`.
pub fn scale(advantages: &mut [f64], factor: f64) {
    advantages.iter_mut().for_each(|advantage| *advantage *= factor);
}

/// Relative lengths `(n_b + 1e-6) / mean(n)` with `n_b` the trained tokens of row `b` and the mean over rows that have any:
/// `[rows]`.
///
/// # Errors
/// [`AlgorithmError::Length`]; [`AlgorithmError::Setting`] if nothing is trained.
pub fn relative_lengths(rows: Rows<'_>, mask: &[bool]) -> Result<Vec<f64>, AlgorithmError> {
    let counts = rows.trained_counts(mask)?;
    let live = counts.iter().filter(|&&count| count > 0).count();
    check_setting(live > 0, "length_weight", live, "no row has a trained token, so lengths cannot be compared")?;
    let mean = counts.iter().sum::<usize>() as f64 / live as f64;
    Ok(counts.into_iter().map(|count| (count as f64 + 1e-6) / mean).collect())
}

/// Divides the advantages of each row by its relative length: short rows get larger ones of either sign.
///
/// # Errors
/// As [`relative_lengths`]; [`AlgorithmError::Length`] if `advantages` does not cover the rows.
pub fn weigh_by_length(rows: Rows<'_>, advantages: &mut [f64], mask: &[bool]) -> Result<Vec<f64>, AlgorithmError> {
    rows.check("advantages", advantages)?;
    let lengths = relative_lengths(rows, mask)?;
    for (row, length) in rows.iter().zip(&lengths) {
        scale_down(&mut advantages[row], *length);
    }
    Ok(lengths)
}

fn scale_down(advantages: &mut [f64], divisor: f64) {
    advantages.iter_mut().for_each(|advantage| *advantage /= divisor);
}
