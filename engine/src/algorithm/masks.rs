//! Which predictions are trained, and where rewards lie.
//!
//! Slot `t` of a row concerns the prediction of token `t + 1`, so a row of `L` tokens has `L - 1` slots.

use super::error::{AlgorithmError, check_length};
use crate::record::TokenKind;

/// Trained slots: `mask[t]` iff token `t + 1` was sampled from the policy. `[tokens - 1]`.
#[must_use]
pub fn sampled_mask(kinds: &[TokenKind]) -> Vec<bool> {
    kinds.iter().skip(1).map(|kind| *kind == TokenKind::Sampled).collect()
}

/// Slots where turns end: the last sampled token of each turn. `[tokens - 1]`.
///
/// # Shapes
/// `kinds`, `turns`: `[tokens]`; `turns` is the turn each token belongs to.
///
/// # Errors
/// [`AlgorithmError::Length`] if the slices differ in length.
pub fn turn_end_mask(kinds: &[TokenKind], turns: &[u16]) -> Result<Vec<bool>, AlgorithmError> {
    check_length("turns", kinds.len(), turns.len())?;
    let sampled: Vec<usize> = (0..kinds.len()).filter(|&token| kinds[token] == TokenKind::Sampled).collect();
    let mut ends = vec![false; kinds.len().saturating_sub(1)];
    for (place, &token) in sampled.iter().enumerate() {
        let last = sampled.get(place + 1).is_none_or(|&next| turns[next] != turns[token]);
        // A sampled first token has no slot: nothing predicts it.
        if let (true, Some(slot)) = (last, token.checked_sub(1)) {
            ends[slot] = true;
        }
    }
    Ok(ends)
}

/// Puts one reward per turn on the slots where turns end, 0 elsewhere. Turns beyond the last end lose their reward, so the
/// counts must agree.
///
/// # Errors
/// [`AlgorithmError::Length`] if there are not as many rewards as turn ends.
pub fn turn_rewards(turn_ends: &[bool], rewards: &[f64]) -> Result<Vec<f64>, AlgorithmError> {
    let slots: Vec<usize> = (0..turn_ends.len()).filter(|&slot| turn_ends[slot]).collect();
    check_length("turn rewards", slots.len(), rewards.len())?;
    let mut placed = vec![0.0; turn_ends.len()];
    for (slot, reward) in slots.into_iter().zip(rewards) {
        placed[slot] = *reward;
    }
    Ok(placed)
}

/// Masks as trainers compute them that count message starts instead of recording where tokens came from. A message that
/// is dropped, or a start token written by the policy, inverts them. For reproduction only.
pub mod parity {
    /// Message number of every token, from 1; 0 before the first message. `[tokens]`.
    #[must_use]
    pub fn message_numbers(starts: &[bool]) -> Vec<usize> {
        let mut number = 0;
        let count = |&start: &bool| {
            number += usize::from(start);
            number
        };
        starts.iter().map(count).collect()
    }

    /// Slots of odd messages after the first: `[tokens - 1]`.
    #[must_use]
    pub fn response_mask(starts: &[bool]) -> Vec<bool> {
        without_last(message_numbers(starts).into_iter().map(|number| number > 1 && number % 2 == 1))
    }

    /// Slots of all messages after the first: `[tokens - 1]`.
    #[must_use]
    pub fn all_but_first_mask(starts: &[bool]) -> Vec<bool> {
        without_last(message_numbers(starts).into_iter().map(|number| number > 1))
    }

    /// The episode's reward on the last slot: `[tokens - 1]`.
    #[must_use]
    pub fn score_on_last(tokens: usize, rewards: &[f64]) -> Vec<f64> {
        let mut scores = vec![0.0; tokens.saturating_sub(1)];
        if let Some(last) = scores.last_mut() {
            *last = rewards.iter().sum();
        }
        scores
    }

    /// Each turn's reward on the slot of the token after the end marker of its odd message (`3 + 2 * turn`); without such a
    /// message, on the last token. `[tokens - 1]`.
    #[must_use]
    pub fn score_per_turn(starts: &[bool], ends: &[bool], rewards: &[f64]) -> Vec<f64> {
        let numbers = message_numbers(starts);
        let count = numbers.len();
        let mut scores = vec![0.0; count];
        for (turn, &reward) in rewards.iter().enumerate() {
            let wanted = 3 + 2 * turn;
            let marker = numbers.iter().zip(ends).position(|(&number, &end)| end && number == wanted);
            if let Some(token) = marker.or(count.checked_sub(1)) {
                scores[token] = reward;
            }
        }
        // Rolled right by one and without its first column, every entry keeps its index and the last one is lost.
        scores.truncate(count.saturating_sub(1));
        scores
    }

    fn without_last(mask: impl Iterator<Item = bool>) -> Vec<bool> {
        let mut mask: Vec<bool> = mask.collect();
        mask.pop();
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TokenKind::{Forced, Observation, Prompt, Sampled};

    #[test]
    fn a_forced_token_is_not_trained_and_does_not_end_a_turn() {
        let kinds = [Prompt, Forced, Sampled, Sampled, Forced, Observation, Sampled];
        assert_eq!(sampled_mask(&kinds), [false, true, true, false, false, true]);
        let ends = turn_end_mask(&kinds, &[0, 0, 0, 0, 0, 1, 1]).expect("equal lengths");
        assert_eq!(ends, [false, false, true, false, false, true]);
        assert_eq!(turn_rewards(&ends, &[0.5, 2.0]), Ok(vec![0.0, 0.0, 0.5, 0.0, 0.0, 2.0]));
    }
}
