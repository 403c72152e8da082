//! Cases of collapse diagnostics and gradient analysis.

use serde_json::Value;

use super::{
    CaseError, Comparison, Inputs,
    compare::elements,
    inputs::{enumerate_distinct, flatten, format_error},
};
use crate::algorithm::{
    aggregation::Aggregation,
    collapse::{CrossScores, MarginalAverages, Smoothing, collapse},
    gradient_analysis::{Buckets, ComponentNorms, bucket_factors},
    kl::KlEstimator,
    logprob::{token_gradient, token_probability},
    loss::{KlTerm, PolicyLoss, PolicySums, PolicyTokens},
    rows::Rows,
    statistics::mean,
};

pub(super) fn collapse_metrics(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let (lengths, own) = (inputs.indices("reasoning_lengths")?, inputs.indices("true_column")?);
    let default = Smoothing::default();
    let smoothing = Smoothing {
        deviation_floor: inputs.number_or("std_eps", default.deviation_floor)?,
        decay: inputs.number_or("ema_decay", inputs.number_or("decay", default.decay)?)?,
    };
    let mut averages = MarginalAverages::default();
    let mut evaluate = |sums: &[f64], prompts: &[usize], comparison: &mut Comparison<'_>| {
        let scores = CrossScores { sums, lengths: &lengths, own: &own, prompts };
        if let Some(metrics) = collapse(scores, smoothing, &mut averages)? {
            for (name, value) in metrics.named() {
                comparison.number(&name, value);
            }
            comparison.number("paper_mi_est", metrics.information_per_token);
            comparison.number("paper_mi_zscore", metrics.z_score_per_token);
        }
        Ok::<(), CaseError>(())
    };
    if inputs.has("cross_log_prob_sum") {
        let sums = inputs.numbers("cross_log_prob_sum")?;
        let columns = inputs.width("cross_log_prob_sum")?;
        let signatures = inputs.values.get("prompt_signatures").and_then(Value::as_array);
        let prompts = signatures.map_or_else(|| (0..columns).collect(), |prompts| enumerate_distinct(prompts));
        return evaluate(&sums, &prompts, comparison);
    }
    for (index, step) in elements(comparison, "trace").iter().enumerate() {
        let mut sums = Vec::new();
        let key = "cross_log_prob_sum";
        let matrix = step.get(key).ok_or_else(|| format_error(key, "a matrix"))?;
        flatten(matrix, &mut sums).ok_or_else(|| format_error(key, "a matrix"))?;
        let prompts: Vec<usize> = (0..sums.len() / lengths.len().max(1)).collect();
        let mut result = Ok(());
        comparison.within(&format!("trace[{index}]"), step, |inner| {
            inner.take(key);
            result = evaluate(&sums, &prompts, inner);
        });
        result?;
    }
    Ok(())
}

pub(super) fn gradient_analysis(
    _: &str,
    inputs: &Inputs<'_>,
    comparison: &mut Comparison<'_>,
) -> Result<(), CaseError> {
    if inputs.has("theta") {
        return component_gradients(inputs, comparison);
    }
    if inputs.has("bucket_samples") {
        let (norm, mini_batch) = (inputs.number("true_norm")?, inputs.count("ppo_mini_batch_size")?);
        for rows in inputs.indices("bucket_samples")? {
            let factors = bucket_factors(rows, mini_batch)?;
            comparison.number(&format!("reported_norm_{rows}"), norm * mean(&factors));
            comparison.numbers(&format!("factors_{rows}"), &factors);
        }
        comparison.take("comment");
        return Ok(());
    }
    let spreads = inputs.numbers("group_reward_std")?;
    let buckets = match inputs.has("edges") {
        true => Buckets::Edges(inputs.numbers("edges")?),
        false => Buckets::Quantile(inputs.count("num_buckets")?),
    };
    for bucket in buckets.assign(&spreads)? {
        let key = format!("bucket_{}", bucket.number);
        if comparison.expected().get(&key).is_some_and(Value::is_array) {
            comparison.indices(&key, &bucket.groups);
            continue;
        }
        comparison.object(&key, |inner| {
            inner.indices("groups", &bucket.groups);
            inner.number("mean", bucket.mean);
            inner.number("min", bucket.minimum);
            inner.number("max", bucket.maximum);
        });
    }
    Ok(())
}

/// A policy that is a table of logits, `[prompts, steps, symbols]`, so that gradients can be computed without a model.
struct Table {
    policy: Vec<f64>,
    symbols: usize,
    /// First logit and symbol of every token.
    tokens: Vec<(usize, usize)>,
    /// Log-probability, reference log-probability and entropy of every token.
    logprob: Vec<f64>,
    reference: Vec<f64>,
    entropy: Vec<f64>,
    advantage: Vec<f64>,
    mask: Vec<bool>,
    weight: Vec<f64>,
}

impl Table {
    fn read(inputs: &Inputs<'_>) -> Result<Self, CaseError> {
        let (policy, reference_logits) = (inputs.numbers("theta")?, inputs.numbers("ref_theta")?);
        let (prompts, symbols) = (inputs.indices("prompt_of_row")?, inputs.indices("tokens")?);
        let (masks, advantages) = (inputs.mask("mask")?, inputs.numbers("advantages")?);
        let steps = inputs.width("tokens")?;
        let prompt_count = inputs.bounds("theta")?.len() - 1;
        let width = policy.len() / (prompt_count * steps).max(1);
        let malformed = || CaseError::Format("the tables of the policy do not fit together".to_owned());
        let mut table = Self {
            symbols: width,
            tokens: Vec::new(),
            logprob: Vec::new(),
            reference: Vec::new(),
            entropy: Vec::new(),
            advantage: Vec::new(),
            mask: Vec::new(),
            weight: Vec::new(),
            policy,
        };
        let mut bounds = vec![0];
        for row in inputs.indices("rows")? {
            let prompt = *prompts.get(row).ok_or_else(malformed)?;
            for step in 0..steps {
                let (cell, start) = (row * steps + step, (prompt * steps + step) * width);
                let symbol = *symbols.get(cell).ok_or_else(malformed)?;
                let logits = table.policy.get(start..start + width).ok_or_else(malformed)?;
                let reference = reference_logits.get(start..start + width).ok_or_else(malformed)?;
                let token = token_probability(logits, symbol, 1.0)?;
                table.tokens.push((start, symbol));
                table.logprob.push(token.logprob);
                table.entropy.push(token.entropy);
                table.reference.push(token_probability(reference, symbol, 1.0)?.logprob);
                table.advantage.push(*advantages.get(cell).ok_or_else(malformed)?);
                table.mask.push(*masks.get(cell).ok_or_else(malformed)?);
            }
            bounds.push(table.tokens.len());
        }
        let name = inputs.text("agg")?;
        let mode = Aggregation::named(name, steps as f64);
        let mode = mode.ok_or_else(|| CaseError::Format(format!("unknown aggregation `{name}`")))?;
        table.weight = mode.weights(Rows::new(&bounds)?, &table.mask)?;
        Ok(table)
    }

    /// Gradient of `loss` with respect to the logits, through the trainer's backward pass.
    fn gradient(&self, loss: &PolicyLoss, advantage: &[f64]) -> Result<(PolicySums, Vec<f64>), CaseError> {
        let tokens = PolicyTokens {
            logprob: &self.logprob,
            old_logprob: &self.logprob,
            reference_logprob: Some(&self.reference),
            advantage,
            entropy: &self.entropy,
            weight: &self.weight,
            mask: &self.mask,
        };
        let count = self.tokens.len();
        let (mut d_logprob, mut d_entropy) = (vec![0.0; count], vec![0.0; count]);
        let sums = loss.backward(&tokens, &mut d_logprob, &mut d_entropy)?;
        let mut gradient = vec![0.0; self.policy.len()];
        for (slot, &(start, symbol)) in self.tokens.iter().enumerate() {
            let cell = start..start + self.symbols;
            let logits = &self.policy[cell.clone()];
            token_gradient(logits, symbol, 1.0, d_logprob[slot], d_entropy[slot], &mut gradient[cell])?;
        }
        Ok((sums, gradient))
    }
}

fn component_gradients(inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let table = Table::read(inputs)?;
    let estimator: KlEstimator = inputs.text("kl_type")?.parse()?;
    let entropy_weight = inputs.number("entropy_coeff")?;
    let term = KlTerm { estimator, weight: inputs.number("kl_coef")? };
    let task = PolicyLoss {
        clip_low: inputs.number("clip_low")?,
        clip_high: inputs.number("clip_high")?,
        entropy_weight: 0.0,
        kl: None,
        ..PolicyLoss::default()
    };
    let none = vec![0.0; table.advantage.len()];
    let all = PolicyLoss { entropy_weight, kl: Some(term), ..task };
    let (_, task_gradient) = table.gradient(&task, &table.advantage)?;
    let (_, entropy_gradient) = table.gradient(&PolicyLoss { entropy_weight, ..task }, &none)?;
    let (_, kl_gradient) = table.gradient(&PolicyLoss { kl: Some(term), ..task }, &none)?;
    let (sums, total_gradient) = table.gradient(&all, &table.advantage)?;
    let norms = ComponentNorms::of(&task_gradient, &entropy_gradient, &kl_gradient)?;
    let together = crate::algorithm::adamw::global_norm(&[&total_gradient]);
    if (together - norms.total).abs() > 1e-12 {
        comparison.fail(format!("the norm of the sum is {}, that of the whole loss {together}", norms.total));
    }
    comparison.number("loss/policy", sums.policy);
    comparison.number("loss/entropy", -entropy_weight * sums.entropy);
    comparison.number("loss/kl", term.weight * sums.kl);
    comparison.number("loss/total", sums.total);
    comparison.number("grad_norm/task", norms.task);
    comparison.number("grad_norm/entropy", norms.entropy);
    comparison.number("grad_norm/kl", norms.kl);
    comparison.number("grad_norm/total", norms.total);
    comparison.number("per_sample/task", norms.task / inputs.indices("rows")?.len() as f64);
    comparison.number("per_token/task", norms.task / sums.tokens as f64);
    comparison.numbers("grad_task", &task_gradient);
    comparison.numbers("grad_entropy", &entropy_gradient);
    comparison.numbers("grad_kl", &kl_gradient);
    Ok(())
}
