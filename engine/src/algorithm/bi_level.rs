//! Advantages on two levels: between turns, then between the tokens of a turn.

use super::{Real, error::AlgorithmError, rows::Rows};

/// Discounts of the two levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Discounts {
    /// Discount between tokens of a turn.
    pub gamma: f64,
    /// Discount between turns.
    pub turn_gamma: f64,
    /// Decay of the estimator on both levels.
    pub lambda: f64,
}

/// What [`bi_level`] computes, before whitening.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BiLevelEstimates {
    /// Advantage of each turn on the slot where it ends, 0 elsewhere: `[slots]`.
    pub turn_advantages: Vec<f64>,
    /// Token advantages, 0 on masked slots: `[slots]`.
    pub advantages: Vec<f64>,
    /// `A[t] + V[t]` on trained slots, 0 elsewhere: `[slots]`.
    pub returns: Vec<f64>,
}

/// Turn-level estimation whose results become the targets of token-level estimation.
///
/// With turn ends `e_1 < ... < e_K` of a row, from the last turn backwards:
/// ```text
/// run  = r[e_k] + turn_gamma * V[e_{k+1}] - V[e_k] + turn_gamma * lambda * run        V[e_{K+1}] = 0
/// A_turn[k] = run;   target[e_k] = run + V[e_k];   target[t] = r[t] elsewhere
/// ```
/// then over trained slots from the last backwards, with `run = next = 0` at the start and again at every turn end:
/// ```text
/// run  = target[t] + gamma * next - V[t] + gamma * lambda * run
/// A[t] = run;   R[t] = run + V[t];   next = V[t]
/// ```
/// Nothing leaks from a turn into the tokens before its predecessor's end. With one turn it equals
/// [`gae`](super::gae::gae). A turn with reward 0 is still a turn.
///
/// # Shapes
/// All slices `[slots]`. `turn_ends` is true on the last trained token of every turn.
///
/// # Errors
/// [`AlgorithmError::Length`]; [`AlgorithmError::TurnEnd`] if a turn ends on a masked slot.
pub fn bi_level<F: Real>(
    rows: Rows<'_>,
    rewards: &[F],
    values: &[F],
    mask: &[bool],
    turn_ends: &[bool],
    discounts: Discounts,
) -> Result<BiLevelEstimates, AlgorithmError> {
    rows.check("rewards", rewards)?;
    rows.check("values", values)?;
    rows.check("mask", mask)?;
    rows.check("turn ends", turn_ends)?;
    let Discounts { gamma, turn_gamma, lambda } = discounts;
    let slots = rows.slots();
    let mut turn_advantages = vec![0.0; slots];
    let mut advantages = vec![0.0; slots];
    let mut returns = vec![0.0; slots];
    for (index, row) in rows.iter().enumerate() {
        let start = row.start;
        let (mut next, mut run) = (0.0, 0.0);
        for slot in row.clone().rev().filter(|&slot| turn_ends[slot]) {
            if !mask[slot] {
                return Err(AlgorithmError::TurnEnd { row: index, slot: slot - start });
            }
            let (reward, value): (f64, f64) = (rewards[slot].into(), values[slot].into());
            run = reward + turn_gamma * next - value + turn_gamma * lambda * run;
            turn_advantages[slot] = run;
            next = value;
        }
        (next, run) = (0.0, 0.0);
        for slot in row.rev().filter(|&slot| mask[slot]) {
            let value: f64 = values[slot].into();
            let target = if turn_ends[slot] {
                (next, run) = (0.0, 0.0);
                turn_advantages[slot] + value
            } else {
                rewards[slot].into()
            };
            run = target + gamma * next - value + gamma * lambda * run;
            advantages[slot] = run;
            returns[slot] = run + value;
            next = value;
        }
    }
    Ok(BiLevelEstimates { turn_advantages, advantages, returns })
}
