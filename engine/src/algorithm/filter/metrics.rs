//! What a filter did, in numbers.

use super::{ZERO_SCORE, score::Metric};
use crate::algorithm::statistics::{Sample, mean};

/// Means over groups of in-group statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InGroup {
    /// Sample deviation.
    pub deviation: f64,
    /// Largest value.
    pub maximum: f64,
    /// Mean.
    pub mean: f64,
    /// Sum.
    pub sum: f64,
}

impl InGroup {
    fn over(samples: &[Sample]) -> Self {
        let over = |measure: fn(&Sample) -> f64| mean(&samples.iter().map(measure).collect::<Vec<_>>());
        Self {
            deviation: over(Sample::deviation),
            maximum: over(|sample| sample.maximum),
            mean: over(|sample| sample.mean),
            sum: over(|sample| sample.sum),
        }
    }
}

/// Numbers about one filtering.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FilterMetrics {
    /// Over all groups.
    pub in_group: InGroup,
    /// Over kept groups; 0 if none was kept.
    pub chosen: InGroup,
    /// Groups kept.
    pub kept_count: usize,
    /// Share of groups kept.
    pub kept_ratio: f64,
    /// Groups whose score is 0.
    pub zero_count: usize,
    /// See [`heterogeneity`], over the in-group deviations.
    pub heterogeneity: f64,
}

impl FilterMetrics {
    /// Measures a selection. Kept indices outside the groups are ignored.
    #[must_use]
    pub fn of(samples: &[Sample], scores: &[f64], kept: &[usize]) -> Self {
        let chosen: Vec<Sample> = kept.iter().filter_map(|&group| samples.get(group).copied()).collect();
        let deviations: Vec<f64> = samples.iter().map(Sample::deviation).collect();
        Self {
            in_group: InGroup::over(samples),
            chosen: InGroup::over(&chosen),
            kept_count: kept.len(),
            kept_ratio: kept.len() as f64 / samples.len().max(1) as f64,
            zero_count: scores.iter().filter(|score| score.abs() <= ZERO_SCORE).count(),
            heterogeneity: heterogeneity(&deviations),
        }
    }

    /// The metrics under their published names, in a fixed order.
    #[must_use]
    pub fn named(&self, metric: Metric) -> Vec<(String, f64)> {
        let family = metric.family();
        let mut named = vec![
            ("rollout/filter_kept_count".to_owned(), self.kept_count as f64),
            ("rollout/filter_kept_ratio".to_owned(), self.kept_ratio),
            ("rollout/filter_zero_count".to_owned(), self.zero_count as f64),
            ("rollout/rv_heterogeneity".to_owned(), self.heterogeneity),
        ];
        for (prefix, group) in [("in_group", self.in_group), ("chosen_in_group", self.chosen)] {
            for (name, value) in [("std", group.deviation), ("max", group.maximum), ("mean", group.mean)] {
                named.push((format!("rollout/{prefix}_{name}"), value));
                named.push((format!("rollout/{prefix}_{family}_{name}"), value));
            }
            if family == "reward" {
                named.push((format!("rollout/{prefix}_reward_sum"), group.sum));
            }
        }
        named
    }
}

/// `deviation / mean` of the groups' spreads: about 1 or more predicts that filtering helps; 0 when the mean is 0.
#[must_use]
pub fn heterogeneity(spreads: &[f64]) -> f64 {
    let sample = Sample::of(spreads);
    if sample.mean == 0.0 { 0.0 } else { sample.deviation() / sample.mean }
}
