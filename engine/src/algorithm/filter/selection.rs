//! Selection of groups, and of members inside groups.

use std::cmp::Ordering;

use super::{Keep, Mass, RolloutFilter, Strategy, ZERO_SCORE};
use crate::algorithm::{
    error::{AlgorithmError, check_finite},
    statistics::log_sum_exp,
};

/// Slack of the threshold of [`Strategy::MinP`].
const MIN_P_SLACK: f64 = 1e-10;

/// Which groups were kept, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Kept groups: best first for ranking strategies, ascending otherwise.
    pub groups: Vec<usize>,
    /// The score, or the mass, that had to be reached.
    pub threshold: Option<f64>,
    /// The mass that was accumulated.
    pub accumulated: Option<f64>,
    /// Number of groups that was asked for.
    pub requested: Option<usize>,
    /// Softmax probabilities of the candidates, in their order.
    pub probabilities: Vec<f64>,
    /// Running sums of the probabilities, best first.
    pub cumulative: Vec<f64>,
}

impl Selection {
    fn of(groups: Vec<usize>) -> Self {
        Self { groups, ..Self::default() }
    }
}

impl RolloutFilter {
    /// Chooses groups by their scores. Equal scores are ordered by ascending group index; nothing may be left.
    ///
    /// # Errors
    /// [`AlgorithmError::NotFinite`] names the group whose score is not a finite number.
    pub fn select(&self, scores: &[f64]) -> Result<Selection, AlgorithmError> {
        for (group, &score) in scores.iter().enumerate() {
            check_finite("score", "group", group, score)?;
        }
        let candidates: Vec<usize> =
            (0..scores.len()).filter(|&group| self.include_zero || scores[group].abs() > ZERO_SCORE).collect();
        if candidates.is_empty() {
            return Ok(Selection::default());
        }
        Ok(match self.strategy {
            Strategy::TopP { value, .. } if value >= 1.0 => Selection::of(candidates),
            Strategy::TopP { mass: Mass::Softmax, value, .. } => self.softmax(scores, &candidates, value),
            Strategy::TopP { mass: Mass::Linear, value, slack } => self.linear(scores, &candidates, value, slack),
            Strategy::TopK { fraction } => self.best(scores, &candidates, floor(fraction * scores.len() as f64)),
            Strategy::TopKAbsolute { count } => self.best(scores, &candidates, count),
            Strategy::MinP { value } => self.min_p(scores, &candidates, value),
            Strategy::PercentileRange { low, high } => {
                let ranked = self.ranked(scores, &candidates);
                let end = floor(high * ranked.len() as f64).min(ranked.len());
                let start = floor(low * ranked.len() as f64).min(end);
                Selection::of(ranked[start..end].to_vec())
            }
            Strategy::WithinGroup { .. } => Selection::of(candidates),
        })
    }

    /// Members of a kept group that stay, ascending: all, except with [`Strategy::WithinGroup`].
    #[must_use]
    pub fn members(&self, rewards: &[f64]) -> Vec<usize> {
        match self.strategy {
            Strategy::WithinGroup { keep_ratio } => widest_members(rewards, keep_ratio),
            _ => (0..rewards.len()).collect(),
        }
    }

    fn ranked(&self, scores: &[f64], candidates: &[usize]) -> Vec<usize> {
        let mut ranked = candidates.to_vec();
        ranked.sort_by(|&a, &b| {
            let ascending = compare(scores[a], scores[b]);
            match self.keep {
                Keep::Largest => ascending.reverse(),
                Keep::Smallest => ascending,
            }
        });
        ranked
    }

    fn best(&self, scores: &[f64], candidates: &[usize], count: usize) -> Selection {
        let count = count.min(candidates.len()).max(1);
        let mut groups = self.ranked(scores, candidates);
        groups.truncate(count);
        Selection { groups, requested: Some(count), ..Selection::default() }
    }

    fn softmax(&self, scores: &[f64], candidates: &[usize], value: f64) -> Selection {
        let sign = if self.keep == Keep::Largest { 1.0 } else { -1.0 };
        let mut groups = self.ranked(scores, candidates);
        let exponent = |&group: &usize| sign * scores[group];
        // In rank order, for the same reason as the linear threshold.
        let normaliser = log_sum_exp(&groups.iter().map(exponent).collect::<Vec<_>>());
        let probability = |group: &usize| (exponent(group) - normaliser).exp();
        let probabilities = candidates.iter().map(probability).collect();
        let mut running = 0.0;
        let cumulative: Vec<f64> = groups
            .iter()
            .map(|group| {
                running += probability(group);
                running
            })
            .collect();
        let reached = cumulative.iter().position(|&sum| sum >= value).unwrap_or(groups.len());
        groups.truncate(reached + 1);
        Selection { groups, probabilities, cumulative, ..Selection::default() }
    }

    fn linear(&self, scores: &[f64], candidates: &[usize], value: f64, slack: f64) -> Selection {
        let ranked = self.ranked(scores, candidates);
        // The sum runs in rank order: relabelling the groups cannot change the threshold by a rounding error.
        let threshold = value * ranked.iter().map(|&group| scores[group]).sum::<f64>() - slack;
        let mut accumulated = 0.0;
        let mut groups = Vec::new();
        for group in ranked {
            if accumulated >= threshold || scores[group] <= 0.0 {
                break;
            }
            accumulated += scores[group];
            groups.push(group);
        }
        if accumulated < threshold {
            groups.clear();
        }
        Selection { groups, threshold: Some(threshold), accumulated: Some(accumulated), ..Selection::default() }
    }

    fn min_p(&self, scores: &[f64], candidates: &[usize], value: f64) -> Selection {
        let ranked = self.ranked(scores, candidates);
        let best = scores[ranked[0]];
        let threshold = match self.keep {
            Keep::Largest => best * value,
            Keep::Smallest => best / (value + MIN_P_SLACK),
        };
        let passes = |&group: &usize| match self.keep {
            Keep::Largest => scores[group] >= threshold - MIN_P_SLACK,
            Keep::Smallest => scores[group] <= threshold + MIN_P_SLACK,
        };
        let groups = candidates.iter().copied().filter(passes).collect();
        Selection { groups, threshold: Some(threshold), ..Selection::default() }
    }
}

/// The `max(1, floor(keep_ratio * n))` members with the largest variance together, ascending.
///
/// The optimum is always the `j` lowest and the `k - j` highest for some `j`, so those `k + 1` choices are compared.
#[must_use]
pub fn widest_members(rewards: &[f64], keep_ratio: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rewards.len()).collect();
    order.sort_by(|&a, &b| compare(rewards[a], rewards[b]));
    let count = floor(keep_ratio * rewards.len() as f64).max(1).min(rewards.len());
    let mut best = (-1.0, Vec::new());
    for low in 0..=count {
        let mut members = order[..low].to_vec();
        members.extend_from_slice(&order[order.len() - (count - low)..]);
        let variance = population_variance(rewards, &members);
        if variance > best.0 + 1e-12 {
            best = (variance, members);
        }
    }
    best.1.sort_unstable();
    best.1
}

/// Population variance of the chosen members; 0 if there are none.
#[must_use]
pub fn population_variance(rewards: &[f64], members: &[usize]) -> f64 {
    let chosen: Vec<f64> = members.iter().filter_map(|&member| rewards.get(member).copied()).collect();
    let deviation = crate::algorithm::statistics::population_deviation(&chosen);
    deviation * deviation
}

// Treats -0 and 0 as equal, so that the sort, which is stable, leaves them in index order.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

fn floor(value: f64) -> usize {
    value.max(0.0) as usize
}
