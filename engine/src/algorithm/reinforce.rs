//! REINFORCE-style estimators: leave-one-out, REINFORCE++ and its group baseline.

use super::{Real, error::AlgorithmError, gae::Estimates, group::group_samples, rows::Rows, statistics::whiten};

/// `A_b = n / (n - 1) * (s_b - mean_g)`: the score minus the mean of the others. A group of one yields 0.
///
/// # Shapes
/// `scores`, `groups`, `counted`: `[rows]`.
///
/// # Errors
/// As [`group_samples`].
///
/// # Source
/// Ahmadian et al. 2024, eq. 5.
pub fn leave_one_out(scores: &[f64], groups: &[usize], counted: &[bool]) -> Result<Vec<f64>, AlgorithmError> {
    let samples = group_samples(scores, groups, counted)?;
    let advantage = |(&score, group): (&f64, &usize)| {
        let sample = samples.get(group).copied().unwrap_or_default();
        if sample.count < 2 {
            return 0.0;
        }
        let count = sample.count as f64;
        (score - sample.mean) * count / (count - 1.0)
    };
    Ok(scores.iter().zip(groups).map(advantage).collect())
}

/// Discounted return-to-go along each row, whitened over trained slots, 0 on the others.
///
/// `run = r[t] + gamma * run`, and `run = 0` after a masked slot, so a return does not cross from one turn into the
/// previous one. Only trained slots contribute a reward; `measured` are the trained slots that shape the whitening.
///
/// # Errors
/// [`AlgorithmError::Length`] if a slice does not cover the rows.
///
/// # Source
/// Hu 2025, REINFORCE++, without the KL term.
pub fn reinforce_plus_plus<F: Real>(
    rows: Rows<'_>,
    rewards: &[F],
    mask: &[bool],
    measured: &[bool],
    gamma: f64,
) -> Result<Estimates, AlgorithmError> {
    rows.check("rewards", rewards)?;
    rows.check("mask", mask)?;
    let mut returns = vec![0.0; rows.slots()];
    for row in rows.iter() {
        let mut run = 0.0;
        for slot in row.rev() {
            run = if mask[slot] { rewards[slot].into() + gamma * run } else { 0.0 };
            returns[slot] = run;
        }
    }
    let advantages = whitened(returns.clone(), mask, measured)?;
    Ok(Estimates { advantages, returns })
}

/// `s_b - mean_g` on trained slots, whitened over the batch, 0 elsewhere. A group of one has mean 0.
///
/// # Shapes
/// `scores`, `groups`, `counted`: `[rows]`; `mask`, `measured`: `[slots]`, the latter shaping the whitening.
///
/// # Errors
/// As [`group_samples`] and [`Rows::spread`].
pub fn reinforce_plus_plus_baseline(
    rows: Rows<'_>,
    scores: &[f64],
    groups: &[usize],
    counted: &[bool],
    mask: &[bool],
    measured: &[bool],
) -> Result<Vec<f64>, AlgorithmError> {
    let samples = group_samples(scores, groups, counted)?;
    let centred = |(&score, group): (&f64, &usize)| {
        let sample = samples.get(group).copied().unwrap_or_default();
        if sample.count < 2 { score } else { score - sample.mean }
    };
    let centred: Vec<f64> = scores.iter().zip(groups).map(centred).collect();
    whitened(rows.spread(&centred, mask)?, mask, measured)
}

fn whitened(mut values: Vec<f64>, mask: &[bool], measured: &[bool]) -> Result<Vec<f64>, AlgorithmError> {
    whiten(&mut values, measured)?;
    for (value, trained) in values.iter_mut().zip(mask) {
        if !trained {
            *value = 0.0;
        }
    }
    Ok(values)
}
