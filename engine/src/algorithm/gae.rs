//! Generalised advantage estimation over trained tokens.

use super::{Real, error::AlgorithmError, rows::Rows};

/// Advantages and the returns that a critic is fitted to, before whitening.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates {
    /// `A[t]`, `[slots]`.
    pub advantages: Vec<f64>,
    /// `A[t] + V[t]`, `[slots]`.
    pub returns: Vec<f64>,
}

/// Token-level advantages that skip masked slots.
///
/// For each row from the last slot backwards, starting with `next = run = 0`:
/// ```text
/// candidate = r[t] + gamma * next - V[t] + gamma * lambda * run
/// if m[t]:  next = V[t];  run = candidate
/// A[t] = run
/// ```
/// The last token of a turn bootstraps from the first trained token of the next turn. A reward on a masked slot is lost.
/// On masked slots `A` repeats the advantage that follows and means nothing.
///
/// # Shapes
/// `rewards`, `values`, `mask`: `[slots]`, row after row.
///
/// # Errors
/// [`AlgorithmError::Length`] if a slice does not cover the rows.
///
/// # Source
/// Schulman et al. 2016, eq. 16, over the subsequence of trained tokens.
pub fn gae<F: Real>(
    rows: Rows<'_>,
    rewards: &[F],
    values: &[F],
    mask: &[bool],
    gamma: f64,
    lambda: f64,
) -> Result<Estimates, AlgorithmError> {
    rows.check("rewards", rewards)?;
    rows.check("values", values)?;
    rows.check("mask", mask)?;
    let mut advantages = vec![0.0; rows.slots()];
    let mut returns = vec![0.0; rows.slots()];
    for row in rows.iter() {
        let (mut next, mut run) = (0.0, 0.0);
        for slot in row.rev() {
            let value: f64 = values[slot].into();
            if mask[slot] {
                let reward: f64 = rewards[slot].into();
                run = reward + gamma * next - value + gamma * lambda * run;
                next = value;
            }
            advantages[slot] = run;
            returns[slot] = run + value;
        }
    }
    Ok(Estimates { advantages, returns })
}
