//! The published names of the diagnostics.

use super::{CollapseMetrics, Retrieval};

impl CollapseMetrics {
    /// The metrics under their published names, in a fixed order.
    #[must_use]
    pub fn named(&self) -> Vec<(String, f64)> {
        let Self { token, sequence, retrieval, .. } = self;
        let plain = [
            ("mi_estimate", token.mutual_information),
            ("mi_upper_bound", self.upper_bound),
            ("matched_log_prob_mean", token.matched),
            ("marginal_log_prob_mean", token.marginal),
            ("mi_seq_estimate", sequence.mutual_information),
            ("conditional_entropy_est", token.conditional_entropy()),
            ("reasoning_entropy_est", token.reasoning_entropy()),
            ("conditional_entropy_seq_est", sequence.conditional_entropy()),
            ("reasoning_entropy_seq_est", sequence.reasoning_entropy()),
            ("marginal_std", token.marginal_deviation),
            ("marginal_std_seq", sequence.marginal_deviation),
            ("mi_zscore", token.z_score),
            ("mi_zscore_seq", sequence.z_score),
            ("marginal_std_ema", token.marginal_average),
            ("marginal_std_ema_seq", sequence.marginal_average),
            ("mi_zscore_ema", token.z_score_average),
            ("mi_zscore_ema_seq", sequence.z_score_average),
            ("mi_per_token", self.information_per_token),
            ("mi_per_token_zscore", self.z_score_per_token),
            ("prompt_entropy", self.prompt_entropy),
        ];
        let mut named: Vec<(String, f64)> = plain.map(|(name, value)| (name.to_owned(), value)).into();
        for Retrieval { depth, accuracy, chance } in retrieval {
            let suffix = if *depth == 1 { String::new() } else { format!("@{depth}") };
            named.push((format!("retrieval_accuracy{suffix}"), *accuracy));
            named.push((format!("retrieval_chance_level{suffix}"), *chance));
            named.push((format!("retrieval_above_chance{suffix}"), accuracy - chance));
        }
        named
    }
}
