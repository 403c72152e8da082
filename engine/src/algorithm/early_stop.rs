//! Rules that end a run early. Their state belongs in every checkpoint.

use serde::{Deserialize, Serialize};

/// Settings of [`VarianceCollapse`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct VarianceRule {
    /// Iterations whose mean is the base.
    pub base: usize,
    /// Iterations that must all be low.
    pub window: usize,
    /// Low means below this share of the base.
    pub share: f64,
}

impl Default for VarianceRule {
    fn default() -> Self {
        Self { base: 10, window: 10, share: 0.1 }
    }
}

/// Stops when the in-group reward deviation has stayed below a share of its first values.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct VarianceCollapse {
    /// Values of the base so far.
    first: Vec<f64>,
    /// Low values in a row since the base is known.
    low: usize,
}

impl VarianceCollapse {
    /// Mean of the first values, once there are enough.
    #[must_use]
    pub fn base(&self, rule: VarianceRule) -> Option<f64> {
        let enough = self.first.len() >= rule.base.max(1);
        enough.then(|| self.first.iter().sum::<f64>() / self.first.len() as f64)
    }

    /// Records the mean in-group deviation before filtering of an iteration that was not empty after filtering, and says
    /// whether to stop: the last `window` values are all strictly below `share * base`. A window of 0 never stops.
    pub fn observe(&mut self, rule: VarianceRule, deviation: f64) -> bool {
        let Some(base) = self.base(rule) else {
            self.first.push(deviation);
            return false;
        };
        self.low = if deviation < rule.share * base { self.low + 1 } else { 0 };
        rule.window > 0 && self.low >= rule.window
    }
}

/// Settings of [`LowSuccess`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SuccessRule {
    /// Low means below this success rate.
    pub below: f64,
    /// Validations in a row; 0 never stops.
    pub validations: usize,
}

impl Default for SuccessRule {
    fn default() -> Self {
        Self { below: 0.01, validations: 5 }
    }
}

/// Stops when validation success has been low several times in a row. One per environment tag.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct LowSuccess {
    /// Low validations in a row.
    low: usize,
}

impl LowSuccess {
    /// Records a validation (not the one before training) and says whether to stop.
    pub fn observe(&mut self, rule: SuccessRule, success: f64) -> bool {
        self.low = if success < rule.below { self.low + 1 } else { 0 };
        rule.validations > 0 && self.low >= rule.validations
    }
}

/// Stops when the filter has rejected every group several times in a row.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct EmptyFilter {
    /// Empty iterations in a row.
    empty: usize,
}

impl EmptyFilter {
    /// Empty iterations in a row.
    #[must_use]
    pub fn consecutive(&self) -> usize {
        self.empty
    }

    /// Records how many groups were kept and says whether to stop; a `limit` of 0 never stops.
    pub fn observe(&mut self, limit: usize, kept_groups: usize) -> bool {
        self.empty = if kept_groups == 0 { self.empty + 1 } else { 0 };
        limit > 0 && self.empty >= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_rule_continues() {
        let values = [[3.0; 10].as_slice(), &[0.2; 10]].concat();
        let mut rule = VarianceCollapse::default();
        for (step, &value) in values.iter().enumerate() {
            let text = serde_json::to_string(&rule).expect("plain data");
            rule = serde_json::from_str(&text).expect("what was written");
            assert_eq!(rule.observe(VarianceRule::default(), value), step == 19);
        }
    }
}
