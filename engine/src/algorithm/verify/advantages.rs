//! Cases of advantage estimation.

use super::{CaseError, Comparison, Inputs, single_precision};
use crate::algorithm::{
    bi_level::{Discounts, bi_level},
    gae,
    group::{GroupRelative, Singleton, first_of_each_episode, group_advantages},
    modifiers::{self, FilterScaling},
    reinforce,
    rows::Rows,
    statistics,
};

pub(super) fn gae(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let bounds = inputs.bounds("token_level_rewards")?;
    let rewards = inputs.numbers("token_level_rewards")?;
    let (values, mask) = (inputs.numbers("values")?, inputs.mask("response_mask")?);
    let (gamma, lambda) = (inputs.number("gamma")?, inputs.number("lam")?);
    let estimates = gae::gae(Rows::new(&bounds)?, &rewards, &values, &mask, gamma, lambda)?;
    comparison.numbers("advantages_raw", &estimates.advantages);
    comparison.numbers("returns", &estimates.returns);
    let mut whitened = estimates.advantages;
    let whitening = statistics::whiten(&mut whitened, &mask)?;
    comparison.number("whiten_mean", whitening.mean);
    comparison.number("whiten_var_unbiased", whitening.variance);
    comparison.numbers("advantages_whitened", &whitened);
    Ok(())
}

pub(super) fn bi_level_gae(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let bounds = inputs.bounds("token_level_rewards")?;
    let rewards = inputs.numbers("token_level_rewards")?;
    let (values, mask) = (inputs.numbers("values")?, inputs.mask("response_mask")?);
    let ends = inputs.mask("turn_end_mask")?;
    let discounts = Discounts {
        gamma: inputs.number("gamma")?,
        turn_gamma: inputs.number("high_level_gamma")?,
        lambda: inputs.number("lam")?,
    };
    let estimates = bi_level(Rows::new(&bounds)?, &rewards, &values, &mask, &ends, discounts)?;
    comparison.numbers("turn_level_advantages", &estimates.turn_advantages);
    comparison.numbers("advantages_raw", &estimates.advantages);
    comparison.numbers("returns", &estimates.returns);
    let mut whitened = estimates.advantages;
    statistics::whiten(&mut whitened, &mask)?;
    comparison.numbers("advantages_whitened", &whitened);
    Ok(())
}

pub(super) fn grpo(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let groups = inputs.indices("group_ids")?;
    let counted = match inputs.has("episode_ids") {
        true => first_of_each_episode(&groups, &inputs.indices("episode_ids")?)?,
        false => vec![true; groups.len()],
    };
    let settings = GroupRelative {
        divide_by_deviation: inputs.number("norm_adv_by_std")? > 0.0,
        epsilon: inputs.number("epsilon")?,
        singleton: Singleton::Score,
    };
    let dense = inputs.has("token_level_rewards");
    let scores = if dense {
        let bounds = inputs.bounds("token_level_rewards")?;
        let mask = inputs.mask("response_mask")?;
        let scores = Rows::new(&bounds)?.sums(&inputs.numbers("token_level_rewards")?, &mask)?;
        comparison.numbers("sequence_scores", &scores);
        scores
    } else {
        inputs.numbers("sequence_scores")?
    };
    let estimates = group_advantages(&scores, &groups, &counted, settings)?;
    comparison.numbers("advantage_per_sequence", &estimates.advantages);
    comparison.numbers("group_std_per_sequence", &estimates.deviations);
    if dense {
        let bounds = inputs.bounds("response_mask")?;
        let mask = inputs.mask("response_mask")?;
        comparison.numbers("advantages", &Rows::new(&bounds)?.spread(&estimates.advantages, &mask)?);
    } else if let Some(&score) = scores.first() {
        let sequential = single_precision::sequential(score as f32, scores.len());
        comparison.number("naive_sequential_float32_advantage", f64::from(sequential));
        let in_lanes = single_precision::in_lanes(score as f32, scores.len());
        comparison.number("reference_cpu_float32_advantage", f64::from(in_lanes));
    }
    Ok(())
}

pub(super) fn modifiers(name: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    match name {
        "soft_advantage_reweight" => {
            let weights = modifiers::soft_weights(&inputs.numbers("group_std")?);
            let mut advantages = inputs.numbers("sequence_advantages")?;
            modifiers::reweight(&mut advantages, &inputs.indices("group_ids")?, &weights)?;
            let sample = statistics::Sample::of(&weights);
            comparison.numbers("group_weight", &weights);
            comparison.numbers("advantage_per_sequence", &advantages);
            comparison.number("train/soft_reweight_min", sample.minimum);
            comparison.number("train/soft_reweight_max", sample.maximum);
            comparison.number("train/soft_reweight_mean", sample.mean);
        }
        "grpo_advantage_length_weight" => {
            let bounds = inputs.bounds("advantages")?;
            let mut advantages = inputs.numbers("advantages")?;
            let mask = inputs.mask("response_mask")?;
            let lengths = modifiers::weigh_by_length(Rows::new(&bounds)?, &mut advantages, &mask)?;
            comparison.numbers("relative_length", &lengths);
            comparison.numbers("advantages", &advantages);
        }
        "zero_task_advantage" => {
            let mut advantages = inputs.numbers("advantages")?;
            modifiers::scale(&mut advantages, 0.0);
            comparison.numbers("advantages", &advantages);
        }
        "rloo" => {
            let (scores, groups) = (inputs.numbers("sequence_scores")?, inputs.indices("group_ids")?);
            let advantages = reinforce::leave_one_out(&scores, &groups, &vec![true; scores.len()])?;
            comparison.numbers("advantage_per_sequence", &advantages);
        }
        "reinforce_plus_plus_baseline" => {
            let (scores, groups) = (inputs.numbers("sequence_scores")?, inputs.indices("group_ids")?);
            let (bounds, mask) = (inputs.bounds("response_mask")?, inputs.mask("response_mask")?);
            let counted = vec![true; scores.len()];
            let rows = Rows::new(&bounds)?;
            let advantages = reinforce::reinforce_plus_plus_baseline(rows, &scores, &groups, &counted, &mask, &mask)?;
            comparison.numbers("advantages", &advantages);
        }
        "reinforce_plus_plus" => {
            let bounds = inputs.bounds("token_level_rewards")?;
            let rewards = inputs.numbers("token_level_rewards")?;
            let (mask, gamma) = (inputs.mask("response_mask")?, inputs.number("gamma")?);
            let estimates = reinforce::reinforce_plus_plus(Rows::new(&bounds)?, &rewards, &mask, &mask, gamma)?;
            comparison.numbers("returns", &estimates.returns);
            comparison.numbers("advantages", &estimates.advantages);
        }
        _ if inputs.has("kept_groups") => {
            let scaling = match inputs.text("mode")? {
                "none" => FilterScaling::None,
                "linear" => FilterScaling::Linear,
                "sqrt" => FilterScaling::Sqrt,
                other => return Err(CaseError::Format(format!("unknown mode `{other}`"))),
            };
            let factor = scaling.factor(inputs.count("kept_groups")?, inputs.count("total_groups")?);
            let mut advantages = inputs.numbers("advantages")?;
            modifiers::scale(&mut advantages, factor);
            comparison.number("factor", factor);
            comparison.numbers("advantages", &advantages);
        }
        _ => return Err(CaseError::Format("unknown modifier".to_owned())),
    }
    Ok(())
}
