//! From rewards to advantages: settings, and the whole computation for one batch.

use serde::{Deserialize, Serialize};

use super::{
    Real,
    bi_level::{Discounts, bi_level},
    error::{AlgorithmError, check_setting},
    gae::{Estimates, gae},
    group::{GroupRelative, group_advantages},
    modifiers::{FilterScaling, scale, soft_weights, weigh_by_length},
    reinforce::{leave_one_out, reinforce_plus_plus, reinforce_plus_plus_baseline},
    rows::Rows,
    statistics::whiten,
};

/// How advantages are estimated.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub enum Estimator {
    /// Generalised advantage estimation with a critic, whitened.
    #[default]
    Gae,
    /// Turns first, then tokens; with a critic and rewards per turn, whitened.
    BiLevel {
        /// Discount between turns.
        #[serde(default = "default_turn_gamma")]
        turn_gamma: f64,
    },
    /// Relative to the group: GRPO, or Dr. GRPO without division.
    Group {
        /// Divide by the group's deviation.
        #[serde(default = "default_division")]
        divide_by_deviation: bool,
    },
    /// Relative to the mean of the other members.
    LeaveOneOut,
    /// Discounted return-to-go, whitened.
    ReinforcePlusPlus,
    /// Score minus the group's mean, whitened.
    ReinforcePlusPlusBaseline,
}

fn default_turn_gamma() -> f64 {
    0.95
}

fn default_division() -> bool {
    true
}

impl Estimator {
    /// Whether it needs a critic.
    #[must_use]
    pub fn needs_values(self) -> bool {
        matches!(self, Self::Gae | Self::BiLevel { .. })
    }

    /// Whether one member per group leaves nothing to learn from.
    #[must_use]
    pub fn needs_group(self) -> bool {
        matches!(self, Self::Group { .. } | Self::LeaveOneOut)
    }
}

/// Settings of advantage estimation.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdvantageSettings {
    /// The estimator.
    pub estimator: Estimator,
    /// Discount between tokens.
    pub gamma: f64,
    /// Decay of generalised advantage estimation.
    pub lambda: f64,
    /// Weigh groups by their deviation; [`Estimator::Group`] only.
    pub soft_reweight: bool,
    /// Shrink with the share of groups that the filter kept.
    pub filter_scaling: FilterScaling,
    /// Divide by the relative length of the row; [`Estimator::Group`] only.
    pub length_weight: bool,
    /// Set every advantage to 0, which leaves the entropy and divergence terms alone: an ablation.
    pub zero_task: bool,
}

impl Default for AdvantageSettings {
    fn default() -> Self {
        Self {
            estimator: Estimator::Gae,
            gamma: 1.0,
            lambda: 1.0,
            soft_reweight: false,
            filter_scaling: FilterScaling::None,
            length_weight: false,
            zero_task: false,
        }
    }
}

/// What estimators read.
#[derive(Clone, Copy, Debug)]
pub struct AdvantageBatch<'a, F> {
    /// Row boundaries.
    pub rows: Rows<'a>,
    /// Token rewards: `[slots]`.
    pub rewards: &'a [F],
    /// Values of the critic: `[slots]`; needed by [`Estimator::needs_values`].
    pub values: Option<&'a [F]>,
    /// Trained slots: `[slots]`.
    pub mask: &'a [bool],
    /// Last trained slot of every turn: `[slots]`; needed by [`Estimator::BiLevel`].
    pub turn_ends: Option<&'a [bool]>,
    /// Episode score of every row: `[rows]`.
    pub scores: &'a [f64],
    /// Group key of every row: `[rows]`.
    pub groups: &'a [usize],
    /// Rows that shape group statistics: the first of each episode, see
    /// [`first_of_each_episode`](super::group::first_of_each_episode); `[rows]`.
    pub counted: &'a [bool],
    /// Rows that shape whitening: all but copies that fill a batch; `[rows]`.
    pub original: &'a [bool],
    /// Groups kept by the filter, and groups before it.
    pub kept: (usize, usize),
}

impl AdvantageSettings {
    /// Checks ranges and combinations that can only yield zeros or be ignored.
    ///
    /// # Errors
    /// [`AlgorithmError::Setting`] names the first setting that cannot work.
    pub fn check(&self, group_size: usize) -> Result<(), AlgorithmError> {
        let unit = 0.0..=1.0;
        check_setting(unit.contains(&self.gamma), "gamma", self.gamma, "expected 0 to 1")?;
        check_setting(unit.contains(&self.lambda), "lambda", self.lambda, "expected 0 to 1")?;
        if let Estimator::BiLevel { turn_gamma } = self.estimator {
            check_setting(unit.contains(&turn_gamma), "turn_gamma", turn_gamma, "expected 0 to 1")?;
        }
        let comparable = group_size > 1 || !self.estimator.needs_group();
        check_setting(
            comparable,
            "group_size",
            group_size,
            "this estimator compares members of a group, so it needs 2",
        )?;
        let group = matches!(self.estimator, Estimator::Group { .. });
        let reason = "only the estimator `Group` uses it";
        check_setting(group || !self.soft_reweight, "soft_reweight", self.soft_reweight, reason)?;
        check_setting(group || !self.length_weight, "length_weight", self.length_weight, reason)
    }

    /// Estimates and modifies the advantages of a batch; whitened where the estimator says so, 0 on masked slots.
    ///
    /// # Errors
    /// [`AlgorithmError::Setting`] if the estimator lacks an input; otherwise as the estimators.
    pub fn estimate<F: Real>(&self, batch: &AdvantageBatch<'_, F>) -> Result<Estimates, AlgorithmError> {
        let mut estimates = self.raw(batch)?;
        scale(&mut estimates.advantages, self.filter_scaling.factor(batch.kept.0, batch.kept.1));
        if self.length_weight && batch.mask.contains(&true) {
            weigh_by_length(batch.rows, &mut estimates.advantages, batch.mask)?;
        }
        for (slot, trained) in batch.mask.iter().enumerate() {
            if self.zero_task || !trained {
                estimates.advantages[slot] = 0.0;
            }
        }
        Ok(estimates)
    }

    fn raw<F: Real>(&self, batch: &AdvantageBatch<'_, F>) -> Result<Estimates, AlgorithmError> {
        let AdvantageBatch { rows, rewards, mask, scores, groups, counted, .. } = *batch;
        let (gamma, lambda) = (self.gamma, self.lambda);
        let missing =
            |reason| AlgorithmError::Setting { name: "estimator", value: format!("{:?}", self.estimator), reason };
        let values = || batch.values.ok_or_else(|| missing("it needs the values of a critic"));
        let outcome = |per_row: &[f64]| {
            let advantages = rows.spread(per_row, mask)?;
            Ok(Estimates { returns: advantages.clone(), advantages })
        };
        match self.estimator {
            Estimator::Gae => {
                let mut estimates = gae(rows, rewards, values()?, mask, gamma, lambda)?;
                whiten(&mut estimates.advantages, &original_mask(batch)?)?;
                Ok(estimates)
            }
            Estimator::BiLevel { turn_gamma } => {
                let ends = batch.turn_ends.ok_or_else(|| missing("it needs the ends of turns"))?;
                let discounts = Discounts { gamma, turn_gamma, lambda };
                let estimates = bi_level(rows, rewards, values()?, mask, ends, discounts)?;
                let mut advantages = estimates.advantages;
                whiten(&mut advantages, &original_mask(batch)?)?;
                Ok(Estimates { advantages, returns: estimates.returns })
            }
            Estimator::Group { divide_by_deviation } => {
                let settings = GroupRelative { divide_by_deviation, ..GroupRelative::default() };
                let mut estimates = group_advantages(scores, groups, counted, settings)?;
                if self.soft_reweight {
                    let weights = soft_weights(&estimates.deviations);
                    for (advantage, weight) in estimates.advantages.iter_mut().zip(weights) {
                        *advantage *= weight;
                    }
                }
                outcome(&estimates.advantages)
            }
            Estimator::LeaveOneOut => outcome(&leave_one_out(scores, groups, counted)?),
            Estimator::ReinforcePlusPlus => reinforce_plus_plus(rows, rewards, mask, &original_mask(batch)?, gamma),
            Estimator::ReinforcePlusPlusBaseline => {
                let original = original_mask(batch)?;
                let advantages = reinforce_plus_plus_baseline(rows, scores, groups, counted, mask, &original)?;
                Ok(Estimates { returns: advantages.clone(), advantages })
            }
        }
    }
}

fn original_mask<F>(batch: &AdvantageBatch<'_, F>) -> Result<Vec<bool>, AlgorithmError> {
    super::error::check_length("original", batch.rows.len(), batch.original.len())?;
    batch.rows.check("mask", batch.mask)?;
    let mut mask = batch.mask.to_vec();
    for (row, _) in batch.rows.iter().zip(batch.original).filter(|(_, original)| !**original) {
        mask[row].fill(false);
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_can_only_yield_zeros_or_be_ignored_is_refused() {
        let group = Estimator::Group { divide_by_deviation: true };
        let settings = AdvantageSettings { estimator: group, ..AdvantageSettings::default() };
        assert!(settings.check(1).is_err_and(|error| error.to_string().contains("group_size")));
        assert_eq!(settings.check(2), Ok(()));
        let ignored = AdvantageSettings { soft_reweight: true, ..AdvantageSettings::default() };
        assert!(ignored.check(8).is_err_and(|error| error.to_string().contains("soft_reweight")));
        let read: AdvantageSettings = ron::from_str("(estimator: BiLevel(), lambda: 0.9)").expect("valid settings");
        assert_eq!(read.estimator, Estimator::BiLevel { turn_gamma: 0.95 });
    }
}
