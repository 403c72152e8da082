//! Scoring of whole sequences, in as many passes as the token budget asks for.

use std::ops::Range;

use ragen_kernels::Backend;

use super::network::{Network, RowOutputs};
use super::{ModelError, pack};

/// A sequence and which of its tokens are wanted.
#[derive(Clone, Copy, Debug)]
pub struct ScoreRow<'a> {
    /// The whole sequence, not empty.
    pub tokens: &'a [u32],
    /// Positions of the tokens whose log-probabilities are wanted, each at least 1: what comes before predicts them.
    pub positions: &'a [u32],
}

/// Cuts sequences into runs of at most `budget` tokens; a longer sequence is a run of its own.
#[must_use]
pub fn micro_batches(lengths: &[usize], budget: usize) -> Vec<Range<usize>> {
    let (mut runs, mut start, mut tokens) = (Vec::new(), 0, 0);
    for (index, &length) in lengths.iter().enumerate() {
        if index > start && tokens + length > budget {
            runs.push(start..index);
            (start, tokens) = (index, 0);
        }
        tokens += length;
    }
    if start < lengths.len() {
        runs.push(start..lengths.len());
    }
    runs
}

impl<B: Backend> Network<B> {
    /// Log-probability, entropy and, with a value head, value at every wanted token, row after row.
    ///
    /// The value of a token is that of the text before it. Rows that begin alike and share a pass are computed once.
    ///
    /// # Errors
    /// An empty row, a position that is 0 or beyond its row, and all errors of [`Network::score_rows`].
    ///
    /// # Determinism
    /// The bits do not depend on the budget or on other rows; they are those that the generator reports when it samples.
    pub fn score(&mut self, rows: &[ScoreRow<'_>], temperature: f32, budget: usize) -> Result<RowOutputs, ModelError> {
        let mut scores = RowOutputs::default();
        let lengths: Vec<usize> = rows.iter().map(|row| row.tokens.len()).collect();
        for run in micro_batches(&lengths, budget) {
            let run = &rows[run];
            let views: Vec<&[u32]> = run.iter().map(|row| row.tokens).collect();
            let batch = pack(&views, true)?;
            let (mut selected, mut targets) = (Vec::new(), Vec::new());
            for (sequence, row) in run.iter().enumerate() {
                for &position in row.positions {
                    let position = position as usize;
                    if position == 0 || position >= row.tokens.len() {
                        let reason = format!("position {position} is not in 1..{}", row.tokens.len());
                        return Err(ModelError::argument("score", reason));
                    }
                    selected.push(batch.row(sequence, position - 1));
                    targets.push(row.tokens[position]);
                }
            }
            let outputs = self.score_rows(&batch, &selected, Some(&targets), temperature)?;
            scores.logprobs.extend_from_slice(&outputs.logprobs);
            scores.entropies.extend_from_slice(&outputs.entropies);
            scores.values.extend_from_slice(&outputs.values);
        }
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_keep_within_the_budget() {
        assert_eq!(micro_batches(&[3, 3, 3, 10, 1, 1], 6), [0..2, 2..3, 3..4, 4..6]);
        assert!(micro_batches(&[], 6).is_empty());
    }
}
