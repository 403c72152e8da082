//! Cases of losses, divergences and log-probabilities.

use serde_json::Value;

use super::{
    CaseError, Comparison, Inputs,
    compare::{elements, number_in},
};
use crate::algorithm::{
    aggregation::{Aggregation, aggregate},
    kl::{KlController, KlEstimator, penalise_rewards},
    logprob::{token_gradient, token_probability},
    loss::{PolicyLoss, PolicyTokens},
    rows::Rows,
    value_loss::{ValueLoss, ValueTokens, explained_variance, value_token},
};

/// The aggregation mode under `key`; a width is that of the matrix under `matrix`.
pub(super) fn aggregation_mode(inputs: &Inputs<'_>, key: &str, matrix: &str) -> Result<Aggregation, CaseError> {
    let name = inputs.text(key)?;
    let mode = Aggregation::named(name, inputs.width(matrix)? as f64);
    mode.ok_or_else(|| CaseError::Format(format!("unknown aggregation `{name}`")))
}

pub(super) fn aggregation(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let mode = aggregation_mode(inputs, "mode", "mask")?;
    let (bounds, losses, mask) = (inputs.bounds("loss")?, inputs.numbers("loss")?, inputs.mask("mask")?);
    let rows = Rows::new(&bounds)?;
    let weights = mode.weights(rows, &mask)?;
    let value = aggregate(&losses, &weights)?;
    comparison.number("value", value);
    comparison.numbers("dvalue_dloss", &weights);
    comparison.number("exact_mini_batch_value", value);
    if inputs.has("micro_batch_size") {
        let weights = mode.micro_mean_weights(rows, &mask, inputs.count("micro_batch_size")?)?;
        comparison.number("reference_sum_of_micro_losses", aggregate(&losses, &weights)?);
    }
    Ok(())
}

pub(super) fn policy(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let (bounds, mask) = (inputs.bounds("response_mask")?, inputs.mask("response_mask")?);
    let (logprob, old_logprob) = (inputs.numbers("log_prob")?, inputs.numbers("old_log_prob")?);
    let advantage = inputs.numbers("advantages")?;
    let loss = PolicyLoss {
        clip_low: inputs.number("clip_ratio_low")?,
        clip_high: inputs.number("clip_ratio_high")?,
        dual_clip: Some(inputs.number("clip_ratio_c")?),
        entropy_weight: 0.0,
        aggregation: aggregation_mode(inputs, "loss_agg_mode", "response_mask")?,
        ..PolicyLoss::default()
    };
    loss.check()?;
    let weight = loss.aggregation.weights(Rows::new(&bounds)?, &mask)?;
    let tokens = PolicyTokens {
        logprob: &logprob,
        old_logprob: &old_logprob,
        reference_logprob: None,
        advantage: &advantage,
        entropy: &vec![0.0; mask.len()],
        weight: &weight,
        mask: &mask,
    };
    let (mut d_logprob, mut d_entropy) = (vec![0.0; mask.len()], vec![0.0; mask.len()]);
    let sums = loss.backward(&tokens, &mut d_logprob, &mut d_entropy)?;
    let clip = loss.clip();
    let slots = (0..mask.len()).map(|slot| clip.token(logprob[slot], old_logprob[slot], advantage[slot]));
    let (ratios, losses): (Vec<f64>, Vec<f64>) = slots.map(|token| (token.ratio, token.loss)).unzip();
    comparison.numbers("ratio", &ratios);
    comparison.numbers("token_loss", &losses);
    comparison.number("loss", sums.policy);
    comparison.number("pg_clipfrac", sums.clip_fraction());
    comparison.number("pg_clipfrac_lower", sums.lower_clip_fraction());
    comparison.number("ppo_kl", sums.mean_divergence());
    comparison.numbers("dloss_dlogprob", &d_logprob);
    Ok(())
}

pub(super) fn value(name: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let (bounds, mask) = (inputs.bounds("response_mask")?, inputs.mask("response_mask")?);
    let target = inputs.numbers("returns")?;
    if name == "explained_variance" {
        let explained = explained_variance(&target, &inputs.numbers("values")?, &mask)?;
        comparison.number("critic/vf_explained_var", explained);
        return Ok(());
    }
    let (value, old_value) = (inputs.numbers("vpreds")?, inputs.numbers("values_old")?);
    let clip = inputs.number("cliprange_value")?;
    let aggregation = aggregation_mode(inputs, "loss_agg_mode", "response_mask")?;
    let loss = ValueLoss { value_clip: Some(clip), aggregation };
    loss.check()?;
    let weight = aggregation.weights(Rows::new(&bounds)?, &mask)?;
    let tokens = ValueTokens { value: &value, old_value: &old_value, target: &target, weight: &weight, mask: &mask };
    let mut d_value = vec![0.0; mask.len()];
    let sums = loss.backward(&tokens, &mut d_value)?;
    let slots = (0..mask.len()).map(|slot| value_token(value[slot], old_value[slot], target[slot], loss.value_clip));
    let (clipped, losses): (Vec<f64>, Vec<f64>) = slots.map(|token| (token.clipped_value, token.loss)).unzip();
    comparison.number("vf_loss", sums.loss);
    comparison.numbers("token_loss", &losses);
    comparison.numbers("clipped_values", &clipped);
    comparison.number("vf_clipfrac", sums.clip_fraction());
    comparison.number("vpred_mean", sums.mean_value());
    comparison.numbers("dloss_dvpred", &d_value);
    Ok(())
}

pub(super) fn kl(name: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    if inputs.has("policy_logits") {
        return expected_gradients(inputs, comparison);
    }
    if inputs.has("beta") {
        let bounds = inputs.bounds("token_level_scores")?;
        let penalised = penalise_rewards(
            Rows::new(&bounds)?,
            &inputs.numbers("token_level_scores")?,
            &inputs.numbers("old_log_probs")?,
            &inputs.numbers("ref_log_prob")?,
            &inputs.mask("response_mask")?,
            KlEstimator::K1,
            inputs.number("beta")?,
        )?;
        comparison.numbers("token_level_rewards", &penalised.rewards);
        comparison.number("actor/reward_kl_penalty", penalised.divergence);
        comparison.number("actor/reward_kl_penalty_coeff", inputs.number("beta")?);
        return Ok(());
    }
    if inputs.has("target_kl") {
        let controller =
            KlController::Adaptive { target: inputs.number("target_kl")?, horizon: inputs.number("horizon")? };
        let mut coefficient = inputs.number("init")?;
        for (index, step) in elements(comparison, "trace").iter().enumerate() {
            let (divergence, rows) = (number_in(step, "current_kl"), number_in(step, "n_steps"));
            coefficient = controller.update(coefficient, divergence, rows as usize)?;
            comparison.within(&format!("trace[{index}]"), step, |inner| {
                inner.number("current_kl", divergence);
                inner.number("n_steps", rows);
                inner.number("coef_after", coefficient);
            });
        }
        return Ok(());
    }
    let (logprob, reference) = (inputs.numbers("log_prob")?, inputs.numbers("ref_log_prob")?);
    let names = inputs.case.get("aliases").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
    let mut estimators = names.iter().map(|name| name.parse::<KlEstimator>());
    let estimator = estimators.next().unwrap_or_else(|| name.parse())?;
    for other in estimators {
        if other? != estimator {
            comparison.fail(format!("{names:?} are read as different estimators"));
        }
    }
    let tokens = logprob.iter().zip(&reference).map(|(&logprob, &reference)| estimator.token(logprob, reference));
    let (values, derivatives): (Vec<f64>, Vec<f64>) = tokens.map(|token| (token.value, token.derivative)).unzip();
    comparison.numbers("value", &values);
    comparison.numbers("dvalue_dlogprob", &derivatives);
    Ok(())
}

fn expected_gradients(inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let (policy, reference) = (inputs.numbers("policy_logits")?, inputs.numbers("ref_logits")?);
    let symbols = policy.len();
    let logprobs = |logits: &[f64]| -> Result<Vec<f64>, CaseError> {
        (0..symbols).map(|symbol| Ok(token_probability(logits, symbol, 1.0)?.logprob)).collect()
    };
    let (logprob, reference) = (logprobs(&policy)?, logprobs(&reference)?);
    let divergence: f64 =
        logprob.iter().zip(&reference).map(|(logprob, reference)| logprob.exp() * (logprob - reference)).sum();
    // d KL / d z_i = p_i * (ln(p_i / q_i) - KL)
    let truth = logprob.iter().zip(&reference).map(|(p, q)| p.exp() * (p - q - divergence));
    comparison.number("kl_pi_ref", divergence);
    comparison.numbers("true_gradient", &truth.collect::<Vec<_>>());
    let estimators = [
        ("k1_loss_gradient", KlEstimator::K1),
        ("k2_loss_gradient", KlEstimator::K2),
        ("k3_loss_gradient", KlEstimator::K3),
    ];
    for (key, estimator) in estimators {
        let mut gradient = vec![0.0; symbols];
        for symbol in 0..symbols {
            let derivative = estimator.token(logprob[symbol], reference[symbol]).derivative;
            let weight = logprob[symbol].exp() * derivative;
            token_gradient(&policy, symbol, 1.0, weight, 0.0, &mut gradient)?;
        }
        comparison.numbers(key, &gradient);
    }
    Ok(())
}

pub(super) fn logprob_entropy(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let (bounds, logits) = (inputs.bounds("logits")?, inputs.numbers("logits")?);
    let (labels, temperature) = (inputs.indices("labels")?, inputs.number("temperature")?);
    let (mut logprobs, mut entropies) = (Vec::new(), Vec::new());
    let (mut d_logprob, mut d_entropy) = (vec![0.0; logits.len()], vec![0.0; logits.len()]);
    for (row, &label) in Rows::new(&bounds)?.iter().zip(&labels) {
        let position = &logits[row.clone()];
        let token = token_probability(position, label, temperature)?;
        logprobs.push(token.logprob);
        entropies.push(token.entropy);
        token_gradient(position, label, temperature, 1.0, 0.0, &mut d_logprob[row.clone()])?;
        token_gradient(position, label, temperature, 0.0, 1.0, &mut d_entropy[row])?;
    }
    comparison.numbers("log_prob", &logprobs);
    comparison.numbers("entropy", &entropies);
    comparison.numbers("dlogprob_dlogits", &d_logprob);
    comparison.numbers("dentropy_dlogits", &d_entropy);
    Ok(())
}
