//! Cases of the rollout filter.

use serde_json::{Map, Value};

use super::{
    CaseError, Comparison, Inputs,
    inputs::{format_error, number_of},
};
use crate::algorithm::{
    filter::{
        Keep, Mass, RolloutFilter, Strategy,
        metrics::{FilterMetrics, heterogeneity},
        score::{Metric, Spread, group_samples, row_means},
        selection::{Selection, population_variance},
    },
    rows::Rows,
    statistics::Sample,
};

pub(super) fn rollout_filter(
    name: &str,
    inputs: &Inputs<'_>,
    comparison: &mut Comparison<'_>,
) -> Result<(), CaseError> {
    if inputs.has("keep_ratio") {
        let rewards = inputs.numbers("rewards")?;
        let strategy = Strategy::WithinGroup { keep_ratio: inputs.number("keep_ratio")? };
        let kept = RolloutFilter { strategy, ..RolloutFilter::default() }.members(&rewards);
        comparison.indices("kept", &kept);
        comparison.number("population_variance", population_variance(&rewards, &kept));
    } else if inputs.has("low") {
        let strategy = Strategy::PercentileRange { low: inputs.number("low")?, high: inputs.number("high")? };
        let filter = RolloutFilter { strategy, ..RolloutFilter::default() };
        comparison.indices("selected", &filter.select(&inputs.numbers("scores")?)?.groups);
    } else if inputs.has("group_rv") {
        let spreads = inputs.numbers("group_rv")?;
        let sample = Sample::of(&spreads);
        comparison.number("mean", sample.mean);
        comparison.number("std_ddof1", sample.deviation());
        comparison.number("ratio", heterogeneity(&spreads));
    } else if inputs.has("token_entropy") {
        token_scores(inputs, comparison)?;
    } else if inputs.has("group_std") {
        masses(inputs, comparison)?;
    } else if inputs.has("rewards") {
        matrix(name, inputs, comparison)?;
    } else {
        let scores = inputs.numbers("scores")?;
        let selection = filter(inputs)?.select(&scores)?;
        compare_selection(comparison, &selection);
        comparison.index("kept_count", selection.groups.len());
        comparison.number("kept_ratio", selection.groups.len() as f64 / scores.len().max(1) as f64);
    }
    Ok(())
}

fn matrix(name: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let (bounds, rewards) = (inputs.bounds("rewards")?, inputs.numbers("rewards")?);
    let groups: Vec<usize> =
        Rows::new(&bounds)?.iter().enumerate().flat_map(|(group, row)| row.map(move |_| group)).collect();
    let samples = group_samples(&rewards, &groups, bounds.len() - 1)?;
    let metric = inputs.values.get("metric").cloned().unwrap_or_default();
    let metric: Metric =
        serde_json::from_value(metric).map_err(|error| CaseError::Format(format!("{name}: {error}")))?;
    let scores: Vec<f64> = samples.iter().map(|sample| metric.score(sample, Spread::Deviation)).collect();
    let selection = RolloutFilter { metric, ..filter(inputs)? }.select(&scores)?;
    comparison.numbers("scores", &scores);
    compare_selection(comparison, &selection);
    let metrics = FilterMetrics::of(&samples, &scores, &selection.groups);
    comparison.object("metrics", |inner| {
        for (name, value) in metrics.named(metric) {
            inner.number(&name, value);
        }
    });
    Ok(())
}

fn masses(inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let deviations = inputs.numbers("group_std")?;
    let (value, slack) = (inputs.number("value")?, inputs.number("eps")?);
    let keys = [
        (Spread::Deviation, "selected_by_std", "debug_std"),
        (Spread::Variance, "selected_by_variance", "debug_variance"),
    ];
    for (spread, selected, debug) in keys {
        let score = |&deviation: &f64| {
            let sample = Sample { variance: deviation * deviation, ..Sample::default() };
            Metric::RewardVariance.score(&sample, spread)
        };
        let scores: Vec<f64> = deviations.iter().map(score).collect();
        let strategy = Strategy::TopP { mass: Mass::Linear, value, slack };
        let selection = RolloutFilter { strategy, spread, ..RolloutFilter::default() }.select(&scores)?;
        comparison.indices(selected, &selection.groups);
        comparison.object(debug, |inner| compare_reasons(inner, &selection));
    }
    Ok(())
}

fn token_scores(inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let (bounds, mask) = (inputs.bounds("token_entropy")?, inputs.mask("loss_mask")?);
    let rows = Rows::new(&bounds)?;
    let entropies = row_means(rows, &inputs.numbers("token_entropy")?, &mask)?;
    let lengths: Vec<f64> = rows.trained_counts(&mask)?.into_iter().map(|count| count as f64).collect();
    let group_count = inputs.count("num_groups")?.max(1);
    let groups: Vec<usize> = (0..rows.len()).map(|row| row * group_count / rows.len().max(1)).collect();
    let scores = |metric: Metric, values: &[f64]| -> Result<Vec<f64>, CaseError> {
        let samples = group_samples(values, &groups, group_count)?;
        Ok(samples.iter().map(|sample| metric.score(sample, Spread::Deviation)).collect())
    };
    comparison.numbers("entropy_per_trajectory", &entropies);
    comparison.numbers("metric_entropy", &scores(Metric::Entropy, &entropies)?);
    comparison.numbers("metric_entropy_variance", &scores(Metric::EntropyVariance, &entropies)?);
    comparison.numbers("length_per_trajectory", &lengths);
    comparison.numbers("metric_length", &scores(Metric::Length, &lengths)?);
    Ok(())
}

fn compare_selection(comparison: &mut Comparison<'_>, selection: &Selection) {
    let mut sorted = selection.groups.clone();
    sorted.sort_unstable();
    comparison.indices("selected", &selection.groups);
    comparison.indices("selected_sorted", &sorted);
    comparison.object("debug", |inner| compare_reasons(inner, selection));
}

fn compare_reasons(comparison: &mut Comparison<'_>, selection: &Selection) {
    comparison.optional("threshold", selection.threshold);
    comparison.optional("accumulated", selection.accumulated);
    comparison.optional("k", selection.requested.map(|count| count as f64));
    comparison.numbers("probs", &selection.probabilities);
    comparison.numbers("cumulative_sorted", &selection.cumulative);
}

/// Settings of the case, completed by the document's defaults.
fn filter(inputs: &Inputs<'_>) -> Result<RolloutFilter, CaseError> {
    let config = inputs.values.get("config").and_then(Value::as_object);
    let config = config.ok_or_else(|| format_error("config", "an object"))?;
    let empty = Map::new();
    let defaults = inputs.document.get("config_defaults").and_then(Value::as_object).unwrap_or(&empty);
    let get = |key: &str| config.get(key).or_else(|| defaults.get(key));
    let text = |key: &str, otherwise| get(key).and_then(Value::as_str).unwrap_or(otherwise);
    let number = |key: &str, otherwise| get(key).and_then(number_of).unwrap_or(otherwise);
    let value = number("value", 1.0);
    let strategy = match (text("strategy", "top_p"), text("prob_mode", "linear")) {
        ("top_p", "linear") => Strategy::TopP { mass: Mass::Linear, value, slack: number("eps", 0.01) },
        ("top_p", "softmax") => Strategy::TopP { mass: Mass::Softmax, value, slack: number("eps", 0.01) },
        ("top_k", _) => Strategy::TopK { fraction: value },
        ("top_k_abs", _) => Strategy::TopKAbsolute { count: value as usize },
        ("min_p", _) => Strategy::MinP { value },
        (strategy, mass) => {
            return Err(CaseError::Format(format!("unknown strategy `{strategy}` / `{mass}`")));
        }
    };
    let keep = match text("kind", "largest") {
        "largest" => Keep::Largest,
        "smallest" => Keep::Smallest,
        other => return Err(CaseError::Format(format!("unknown kind `{other}`"))),
    };
    let include_zero = get("include_zero").and_then(Value::as_bool).unwrap_or(true);
    Ok(RolloutFilter { strategy, keep, include_zero, ..RolloutFilter::default() })
}
