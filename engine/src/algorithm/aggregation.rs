//! How token losses become one number: as weights, fixed for a whole optimiser step before the first backward pass.
//!
//! The loss of a step is `sum_t w[t] * l[t]`. Since the weights know every row of the step, cutting the step into
//! micro-batches, reordering rows or spreading them over devices cannot change the objective.

use serde::{Deserialize, Serialize};

use super::{
    Real,
    error::{AlgorithmError, check_length, check_setting},
    rows::Rows,
    statistics::COUNT_EPSILON,
};

/// Aggregation of token losses.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub enum Aggregation {
    /// `sum(l * m) / (sum(m) + 1e-8)` over all tokens of the step.
    #[default]
    TokenMean,
    /// Mean over rows with a trained token of `sum_t l * m`.
    SequenceMeanTokenSum,
    /// Mean over rows with a trained token of `sum_t l * m / (sum_t m + 1e-8)`.
    SequenceMeanTokenMean,
    /// `sum(l * m) / width` with a constant chosen by the user, e.g. the longest possible row.
    SequenceMeanTokenSumNorm {
        /// The constant, in tokens.
        width: f64,
    },
}

impl Aggregation {
    /// The mode that published configurations call `token-mean`, `seq-mean-token-sum`, `seq-mean-token-mean` or
    /// `seq-mean-token-sum-norm`; only the last uses `width`.
    #[must_use]
    pub fn named(name: &str, width: f64) -> Option<Self> {
        match name {
            "token-mean" => Some(Self::TokenMean),
            "seq-mean-token-sum" => Some(Self::SequenceMeanTokenSum),
            "seq-mean-token-mean" => Some(Self::SequenceMeanTokenMean),
            "seq-mean-token-sum-norm" => Some(Self::SequenceMeanTokenSumNorm { width }),
            _ => None,
        }
    }

    /// Weight of every slot in the loss of the step; 0 on masked slots, all 0 when nothing is trained.
    ///
    /// # Shapes
    /// `mask` and the result: `[slots]` over **all** rows of the optimiser step.
    ///
    /// # Errors
    /// [`AlgorithmError::Length`]; [`AlgorithmError::Setting`] if `width` is not positive.
    pub fn weights(self, rows: Rows<'_>, mask: &[bool]) -> Result<Vec<f64>, AlgorithmError> {
        let counts = rows.trained_counts(mask)?;
        let tokens = counts.iter().sum::<usize>() as f64;
        let live = counts.iter().filter(|&&count| count > 0).count() as f64;
        if let Self::SequenceMeanTokenSumNorm { width } = self {
            check_setting(width > 0.0 && width.is_finite(), "width", width, "expected a positive number of tokens")?;
        }
        let weight = |&count: &usize| match self {
            Self::TokenMean => 1.0 / (tokens + COUNT_EPSILON),
            Self::SequenceMeanTokenSum => 1.0 / (live + COUNT_EPSILON),
            Self::SequenceMeanTokenMean => 1.0 / ((count as f64 + COUNT_EPSILON) * (live + COUNT_EPSILON)),
            Self::SequenceMeanTokenSumNorm { width } => 1.0 / width,
        };
        rows.spread(&counts.iter().map(weight).collect::<Vec<_>>(), mask)
    }

    /// Weights as published trainers use them: each micro-batch of `micro_rows` rows is aggregated on its own and the
    /// micro-batches are averaged, so the objective depends on how the step is cut. For reproduction only.
    ///
    /// # Errors
    /// As [`Self::weights`]; [`AlgorithmError::Setting`] if `micro_rows` is 0.
    pub fn micro_mean_weights(
        self,
        rows: Rows<'_>,
        mask: &[bool],
        micro_rows: usize,
    ) -> Result<Vec<f64>, AlgorithmError> {
        check_setting(micro_rows > 0, "micro_rows", micro_rows, "expected at least one row")?;
        rows.check("mask", mask)?;
        let ranges: Vec<_> = rows.iter().collect();
        let micro_batches = ranges.chunks(micro_rows);
        let share = 1.0 / micro_batches.len().max(1) as f64;
        let mut weights = Vec::with_capacity(mask.len());
        for ranges in micro_batches {
            let (first, last) = (ranges[0].start, ranges[ranges.len() - 1].end);
            let bounds: Vec<usize> = std::iter::once(0).chain(ranges.iter().map(|range| range.end - first)).collect();
            let own = self.weights(Rows::new(&bounds)?, &mask[first..last])?;
            weights.extend(own.into_iter().map(|weight| weight * share));
        }
        Ok(weights)
    }
}

/// `sum_t w[t] * l[t]`, skipping slots of weight 0.
///
/// # Errors
/// [`AlgorithmError::Length`] if the slices differ in length.
pub fn aggregate<F: Real>(losses: &[F], weights: &[f64]) -> Result<f64, AlgorithmError> {
    check_length("weights", losses.len(), weights.len())?;
    Ok(losses
        .iter()
        .zip(weights)
        .filter(|(_, weight)| **weight != 0.0)
        .map(|(loss, weight)| weight * (*loss).into())
        .sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 tokens at loss 2.0 and 900 at 0.5: the token mean is `(200 + 450) / 1000`.
    #[test]
    fn the_token_mean_does_not_depend_on_the_cut() {
        let losses = [vec![2.0_f32; 100], vec![0.5; 900]].concat();
        let weights = Aggregation::TokenMean
            .weights(Rows::new(&[0, 100, 1000]).expect("ascending"), &[true; 1000])
            .expect("equal lengths");
        for cut in [1, 7, 100, 1000] {
            let parts = losses.chunks(cut).zip(weights.chunks(cut));
            let mean: f64 = parts.map(|(losses, weights)| aggregate(losses, weights).expect("equal lengths")).sum();
            assert!((mean - 0.65).abs() < 1e-6, "cut {cut}: {mean}");
        }
    }

    #[test]
    fn a_step_without_trained_tokens_weighs_nothing() {
        for name in ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"] {
            let mode = Aggregation::named(name, 4.0).expect("a known mode");
            let rows = Rows::new(&[0, 2, 4]).expect("ascending");
            assert_eq!(mode.weights(rows, &[false; 4]), Ok(vec![0.0; 4]), "{name}");
        }
    }
}
