//! Rules that end a run before its last iteration.

use serde::{Deserialize, Serialize};

use crate::algorithm::early_stop::{EmptyFilter, LowSuccess, SuccessRule, VarianceCollapse, VarianceRule};
use crate::metrics::Metrics;
use crate::scene::StopSettings;

/// What the rules remember; part of every checkpoint.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Monitors {
    variance: VarianceCollapse,
    success: LowSuccess,
    empty: EmptyFilter,
}

impl Monitors {
    /// Shows the rules an iteration's metrics. Returns why the run should end, if one of them says so, and marks it in the
    /// metrics.
    pub fn observe(&mut self, settings: &StopSettings, metrics: &mut Metrics) -> Option<String> {
        let mut reason = None;
        let kept = metrics.get("rollout/filter_kept_count");
        if let Some(kept) = kept
            && self.empty.observe(settings.empty_after_filter as usize, kept as usize)
        {
            metrics.set("early_stopped/empty_filtered_steps", 1.0);
            reason = Some(format!("the filter kept no group in {} iterations in a row", settings.empty_after_filter));
        }
        let rule = VarianceRule {
            window: settings.variance_window as usize,
            share: settings.variance_ratio,
            ..VarianceRule::default()
        };
        if let (true, Some(deviation)) = (settings.variance, metrics.get("rollout/in_group_reward_std"))
            && kept.is_some_and(|kept| kept > 0.0)
            && self.variance.observe(rule, deviation)
        {
            metrics.set("early_stopped/reward_variance_collapse", 1.0);
            reason = Some(format!(
                "the reward spread within groups stayed below {} of its first value for {} iterations",
                settings.variance_ratio, settings.variance_window
            ));
        }
        let lowest = metrics
            .values()
            .filter(|(name, _)| name.starts_with("val/") && name.ends_with("/success"))
            .map(|(_, value)| value)
            .reduce(f64::min);
        let rule =
            SuccessRule { below: settings.low_success_threshold, validations: settings.low_success_window as usize };
        if let (true, Some(success)) = (settings.low_success, lowest)
            && self.success.observe(rule, success)
        {
            metrics.set("early_stopped/low_validation_success", 1.0);
            reason = Some(format!(
                "validation success stayed below {} for {} validations",
                settings.low_success_threshold, settings.low_success_window
            ));
        }
        reason
    }
}
