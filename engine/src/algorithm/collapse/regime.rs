//! Classifies reasoning by its diversity and its dependence on the input.

use serde::{Deserialize, Serialize};

use super::{CollapseMetrics, Retrieval};

impl CollapseMetrics {
    /// `(accuracy - chance) / (1 - chance)` of the best column: 0 is chance, 1 is perfect; 0 if chance is 1.
    #[must_use]
    pub fn retrieval_gain(&self) -> f64 {
        let Retrieval { accuracy, chance, .. } = self.retrieval[0];
        if chance < 1.0 { (accuracy - chance) / (1.0 - chance) } else { 0.0 }
    }
}

/// Where a policy stands between diversity and dependence on the input.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[repr(i8)]
pub enum Regime {
    /// Too few valid reasonings to say.
    Invalid = -1,
    /// Varied and specific.
    Diverse = 0,
    /// Terse and specific.
    Compressed = 1,
    /// Varied and generic.
    Template = 2,
    /// One text for everything.
    LowEntropy = 3,
}

/// What the regime is judged against: the first evaluation of the run.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Baseline {
    /// Conditional entropy per token.
    pub conditional_entropy: f64,
    /// [`CollapseMetrics::retrieval_gain`].
    pub retrieval_gain: f64,
}

impl Baseline {
    /// The baseline that these metrics set.
    #[must_use]
    pub fn of(metrics: &CollapseMetrics) -> Self {
        Self { conditional_entropy: metrics.token.conditional_entropy(), retrieval_gain: metrics.retrieval_gain() }
    }

    /// The regime: dependence is high iff the gain is at least `0.5 * max(baseline gain, 0.2)`, diversity iff the
    /// conditional entropy is at least `0.35` of the baseline's.
    #[must_use]
    pub fn regime(&self, metrics: &CollapseMetrics) -> Regime {
        let specific = metrics.retrieval_gain() >= 0.5 * self.retrieval_gain.max(0.2);
        let varied = metrics.token.conditional_entropy() >= 0.35 * self.conditional_entropy;
        match (varied, specific) {
            (true, true) => Regime::Diverse,
            (false, true) => Regime::Compressed,
            (true, false) => Regime::Template,
            (false, false) => Regime::LowEntropy,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::algorithm::collapse::{CrossScores, MarginalAverages, Smoothing, collapse};

    use super::*;

    /// Two reasonings of ten tokens under two prompts: the own score, then the other's.
    fn metrics(own: f64, other: f64) -> CollapseMetrics {
        let sums = [own, other, other, own];
        let scores = CrossScores { sums: &sums, lengths: &[10; 2], own: &[0, 1], prompts: &[0, 1] };
        let metrics = collapse(scores, Smoothing::default(), &mut MarginalAverages::default());
        metrics.expect("a full matrix").expect("two columns")
    }

    #[test]
    fn each_regime_is_told_from_the_first_evaluation() {
        let baseline = Baseline::of(&metrics(-10.0, -30.0));
        assert_eq!(baseline.regime(&metrics(-10.0, -30.0)), Regime::Diverse);
        assert_eq!(baseline.regime(&metrics(-1.0, -30.0)), Regime::Compressed);
        assert_eq!(baseline.regime(&metrics(-10.0, -10.0)), Regime::Template);
        assert_eq!(baseline.regime(&metrics(-1.0, -1.0)), Regime::LowEntropy);
    }
}
