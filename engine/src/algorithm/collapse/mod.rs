//! Does reasoning still depend on its input? Arithmetic over a matrix of cross-scored log-probabilities.

mod naming;
pub mod regime;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    error::{AlgorithmError, check_length},
    statistics::{log_sum_exp, mean, population_deviation},
};

/// Columns among which a prompt may be found, at most.
const RETRIEVAL_DEPTHS: [usize; 3] = [2, 4, 8];

/// `n` reasonings scored under `N` prompts.
#[derive(Clone, Copy, Debug)]
pub struct CrossScores<'a> {
    /// `S[i, j] = ln p(reasoning i | prompt j)`, `[n, N]` row-major. Minus infinity leaves a column out for a sample,
    /// e.g. a later turn of the same episode, whose prompt quotes the reasoning.
    pub sums: &'a [f64],
    /// Tokens of each reasoning: `[n]`.
    pub lengths: &'a [usize],
    /// Own column of each reasoning: `[n]`.
    pub own: &'a [usize],
    /// Identity of each column's prompt; equal prompts have equal numbers: `[N]`.
    pub prompts: &'a [usize],
}

/// Settings of the z-scores.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Smoothing {
    /// Added to deviations.
    pub deviation_floor: f64,
    /// Weight of the past in the moving average.
    pub decay: f64,
}

impl Default for Smoothing {
    fn default() -> Self {
        Self { deviation_floor: 1e-3, decay: 0.9 }
    }
}

/// Moving averages of the marginal deviations: one per kind of sampling, saved in every checkpoint.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct MarginalAverages {
    /// Per token.
    pub token: Option<f64>,
    /// Per sequence.
    pub sequence: Option<f64>,
}

/// One of the two levels: per token (`S / length`) or per sequence (`S`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Level {
    /// Mean of `M_i`, the score under the own prompt.
    pub matched: f64,
    /// Mean of `Q_i = ln(mean_j exp(score_ij))`.
    pub marginal: f64,
    /// `mean(M - Q)`, at most `ln N`.
    pub mutual_information: f64,
    /// Population deviation of `Q`.
    pub marginal_deviation: f64,
    /// Its moving average.
    pub marginal_average: f64,
    /// `mean(M - Q) / (deviation + floor)`.
    pub z_score: f64,
    /// `mean(M - Q) / (average + floor)`.
    pub z_score_average: f64,
}

impl Level {
    /// `H(Z|X) = -mean(M)`.
    #[must_use]
    pub fn conditional_entropy(&self) -> f64 {
        -self.matched
    }

    /// `H(Z) = -mean(Q)`.
    #[must_use]
    pub fn reasoning_entropy(&self) -> f64 {
        -self.marginal
    }
}

/// How often the own prompt is among the best columns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Retrieval {
    /// Columns looked at.
    pub depth: usize,
    /// Share of samples.
    pub accuracy: f64,
    /// Share expected from random columns.
    pub chance: f64,
}

/// Diagnostics of one matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollapseMetrics {
    /// Per token, with the mixture of per-token means.
    pub token: Level,
    /// Per sequence.
    pub sequence: Level,
    /// `ln N`.
    pub upper_bound: f64,
    /// Entropy of the distribution of distinct prompts over columns: the bound that can be reached.
    pub prompt_entropy: f64,
    /// Best column, then the best 2, 4 and 8; the depth in the name stays when there are fewer columns.
    pub retrieval: [Retrieval; 4],
    /// `mean((S_own - ln(mean_j exp(S_ij))) / length)`: the true mixture, per token.
    pub information_per_token: f64,
    /// The same over the deviation of its marginal.
    pub z_score_per_token: f64,
}

/// Computes the diagnostics; `None` with fewer than two columns or no sample.
///
/// With `c_i` the own column, `M_i = x[i, c_i]` and `Q_i = ln(sum_j exp x[i, j]) - ln N_i` over the `N_i` columns that are
/// not left out, for `x = S / length` and for `x = S`. The moving averages start with their first value. Ties between
/// columns go to the lower index.
///
/// # Errors
/// [`AlgorithmError::Length`] if the shapes disagree; [`AlgorithmError::Index`] for an own column outside the matrix;
/// [`AlgorithmError::NotFinite`] for a sample whose own score is not finite.
pub fn collapse(
    scores: CrossScores<'_>,
    smoothing: Smoothing,
    averages: &mut MarginalAverages,
) -> Result<Option<CollapseMetrics>, AlgorithmError> {
    let CrossScores { sums, lengths, own, prompts } = scores;
    let (samples, columns) = (lengths.len(), prompts.len());
    check_length("own", samples, own.len())?;
    check_length("sums", samples * columns, sums.len())?;
    for (index, &column) in own.iter().enumerate() {
        if column >= columns {
            let limit = columns.saturating_sub(1);
            return Err(AlgorithmError::Index { what: "own", index, found: column, limit });
        }
        super::error::check_finite("score under its own prompt", "sample", index, sums[index * columns + column])?;
    }
    if columns < 2 || samples == 0 {
        return Ok(None);
    }
    let rows: Vec<&[f64]> = sums.chunks_exact(columns).collect();
    let length = |sample: usize| lengths[sample].max(1) as f64;
    let means: Vec<Vec<f64>> =
        (0..samples).map(|sample| rows[sample].iter().map(|sum| sum / length(sample)).collect()).collect();
    let means: Vec<&[f64]> = means.iter().map(Vec::as_slice).collect();

    let matched: Vec<f64> = (0..samples).map(|sample| means[sample][own[sample]]).collect();
    let sequence_marginal: Vec<f64> = rows.iter().map(|row| log_mean_exp(row)).collect();
    let paper: Vec<f64> = (0..samples).map(|sample| sequence_marginal[sample] / length(sample)).collect();
    let information_per_token = mean(&differences(&matched, &paper));

    let mut multiplicity = BTreeMap::<usize, usize>::new();
    for &prompt in prompts {
        *multiplicity.entry(prompt).or_default() += 1;
    }
    let shares = multiplicity.values().map(|&count| count as f64 / columns as f64);
    Ok(Some(CollapseMetrics {
        token: level(&means, own, smoothing, &mut averages.token),
        sequence: level(&rows, own, smoothing, &mut averages.sequence),
        upper_bound: (columns as f64).ln(),
        prompt_entropy: -shares.map(|share| share * share.ln()).sum::<f64>(),
        retrieval: retrieval(&means, own, prompts, &multiplicity),
        information_per_token,
        z_score_per_token: information_per_token / (population_deviation(&paper) + smoothing.deviation_floor),
    }))
}

fn level(rows: &[&[f64]], own: &[usize], smoothing: Smoothing, average: &mut Option<f64>) -> Level {
    let matched: Vec<f64> = rows.iter().zip(own).map(|(row, &column)| row[column]).collect();
    let marginal: Vec<f64> = rows.iter().map(|row| log_mean_exp(row)).collect();
    let mutual_information = mean(&differences(&matched, &marginal));
    let marginal_deviation = population_deviation(&marginal);
    let marginal_average = match *average {
        Some(past) => smoothing.decay * past + (1.0 - smoothing.decay) * marginal_deviation,
        None => marginal_deviation,
    };
    *average = Some(marginal_average);
    Level {
        matched: mean(&matched),
        marginal: mean(&marginal),
        mutual_information,
        marginal_deviation,
        marginal_average,
        z_score: mutual_information / (marginal_deviation + smoothing.deviation_floor),
        z_score_average: mutual_information / (marginal_average + smoothing.deviation_floor),
    }
}

fn retrieval(
    rows: &[&[f64]],
    own: &[usize],
    prompts: &[usize],
    multiplicity: &BTreeMap<usize, usize>,
) -> [Retrieval; 4] {
    let columns = prompts.len();
    let ranks: Vec<usize> = rows.iter().zip(own).map(|(row, &column)| rank(row, prompts, prompts[column])).collect();
    let chances: Vec<f64> = own
        .iter()
        .map(|&column| multiplicity.get(&prompts[column]).copied().unwrap_or(0) as f64 / columns as f64)
        .collect();
    let chance = mean(&chances);
    let at = |depth: usize| {
        let looked = depth.min(columns);
        let hits = ranks.iter().filter(|&&rank| rank < looked).count();
        let accuracy = hits as f64 / rows.len() as f64;
        Retrieval { depth, accuracy, chance: (chance * looked as f64).min(1.0) }
    };
    [at(1), at(RETRIEVAL_DEPTHS[0]), at(RETRIEVAL_DEPTHS[1]), at(RETRIEVAL_DEPTHS[2])]
}

// Place of the best column with the wanted prompt, best first, ties to the lower column.
fn rank(row: &[f64], prompts: &[usize], wanted: usize) -> usize {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| row[b].partial_cmp(&row[a]).unwrap_or(std::cmp::Ordering::Equal));
    order.iter().position(|&column| prompts[column] == wanted).unwrap_or(row.len())
}

fn log_mean_exp(row: &[f64]) -> f64 {
    let present = row.iter().filter(|score| **score > f64::NEG_INFINITY).count();
    log_sum_exp(row) - (present.max(1) as f64).ln()
}

fn differences(left: &[f64], right: &[f64]) -> Vec<f64> {
    left.iter().zip(right).map(|(left, right)| left - right).collect()
}
