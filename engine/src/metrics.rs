//! Numbers that a run reports, each with a name, a unit and a definition.

use std::collections::BTreeMap;

use bevy_ecs::resource::Resource;
use serde_json::{Map, Value};

/// What a metric means. `<Tag>` and `<key>` in a name stand for any tag and any number an environment reports.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Name, with place holders.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Definition.
    pub meaning: &'static str,
}

/// The values of one step.
#[derive(Clone, Debug, Default, PartialEq, Resource)]
pub struct Metrics {
    values: BTreeMap<String, f64>,
    timings: BTreeMap<String, f64>,
}

impl Metrics {
    /// Sets a value that depends on the seed alone.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.values.insert(name.into(), value);
    }

    /// Sets a value that depends on the machine. Such values go to a file of their own, so that runs can be compared byte by byte.
    pub fn set_timing(&mut self, name: impl Into<String>, value: f64) {
        self.timings.insert(name.into(), value);
    }

    /// A value of this step.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).or_else(|| self.timings.get(name)).copied()
    }

    /// All seed-dependent values, by name.
    pub fn values(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values.iter().map(|(name, &value)| (name.as_str(), value))
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        self.values.clear();
        self.timings.clear();
    }

    /// One line of `metrics.jsonl`.
    #[must_use]
    pub fn line(&self, step: u64) -> String {
        line(step, &self.values)
    }

    /// One line of `timings.jsonl`.
    #[must_use]
    pub fn timing_line(&self, step: u64) -> String {
        line(step, &self.timings)
    }

    /// Names that the registry does not define.
    #[must_use]
    pub fn undefined(&self) -> Vec<String> {
        self.values.keys().chain(self.timings.keys()).filter(|name| define(name).is_none()).cloned().collect()
    }
}

fn line(step: u64, values: &BTreeMap<String, f64>) -> String {
    let mut object = Map::new();
    object.insert("step".into(), step.into());
    for (name, &value) in values {
        // JSON has no NaN or infinity; null says that the value does not exist.
        object.insert(name.clone(), if value.is_finite() { value.into() } else { Value::Null });
    }
    let mut text = Value::Object(object).to_string();
    text.push('\n');
    text
}

/// The definition of a metric's name.
#[must_use]
pub fn define(name: &str) -> Option<&'static Definition> {
    let parts: Vec<&str> = name.split('/').collect();
    REGISTRY.iter().find(|definition| {
        let pattern: Vec<&str> = definition.name.split('/').collect();
        pattern.len() == parts.len()
            && pattern.iter().zip(&parts).all(|(pattern, part)| match pattern.split_once('<') {
                Some((before, after)) => {
                    let after = after.split_once('>').map_or("", |(_, after)| after);
                    part.len() >= before.len() + after.len() && part.starts_with(before) && part.ends_with(after)
                }
                None => pattern == part,
            })
    })
}

const fn metric(name: &'static str, unit: &'static str, meaning: &'static str) -> Definition {
    Definition { name, unit, meaning }
}

/// Every metric of the engine. Specific names stand before patterns.
pub const REGISTRY: &[Definition] = &[
    metric("train/batch_size", "rows", "Rows that the update used, after the filter."),
    metric("train/num_mini_batches", "steps", "Optimiser steps in one pass over the rows."),
    metric("train/response_length", "tokens", "Sampled tokens per trajectory, mean."),
    metric("train/turns", "turns", "Turns per trajectory, mean."),
    metric("train/truncated_rate", "share", "Turns whose response hit the token limit."),
    metric("train/impersonation", "count", "Responses that spell control tokens or the environment's own lines."),
    metric("train/rollout_attempts", "count", "Rollouts made for this iteration: 1."),
    metric("train/trained_tokens", "tokens", "Tokens under the loss."),
    metric("train/skipped_update", "0 or 1", "1 if the batch held no token to train on."),
    metric("train/<Tag>/success", "share", "Episodes solved, of those not aborted."),
    metric("train/<Tag>/return", "reward", "Sum of rewards per episode, without penalties, mean."),
    metric("train/<Tag>/score", "reward", "Sum of rewards and penalties per episode, mean."),
    metric("train/<Tag>/pass@<k>", "share", "Groups in which at least one member solved the task."),
    metric("train/<Tag>/aborted", "share", "Episodes ended by an outage; they count nowhere else."),
    metric(
        "train/<Tag>/<key>",
        "as reported",
        "Mean over episodes of the per-turn mean of a number the environment reports.",
    ),
    metric("val/<Tag>/success", "share", "Validation episodes solved, of those not aborted."),
    metric("val/<Tag>/success_low", "share", "Lower end of the 95 % Wilson interval of the success."),
    metric("val/<Tag>/success_high", "share", "Upper end of the 95 % Wilson interval of the success."),
    metric("val/<Tag>/return", "reward", "Sum of rewards per validation episode, mean."),
    metric("val/<Tag>/score", "reward", "Sum of rewards and penalties per validation episode, mean."),
    metric("val/<Tag>/pass@<k>", "share", "Validation groups in which at least one member solved the task."),
    metric("val/<Tag>/aborted", "share", "Validation episodes ended by an outage."),
    metric("val/<Tag>/<key>", "as reported", "As `train/<Tag>/<key>`, on validation episodes."),
    metric(
        "rollout/logp_diff_max",
        "nats",
        "Largest difference between sampled and recomputed log-probability; 0 by construction.",
    ),
    metric("rollout/logp_diff_mean", "nats", "Mean of the same difference."),
    metric("rollout/ref_log_prob", "nats", "Mean log-probability of sampled tokens under the reference policy."),
    metric(
        "rollout/rv_heterogeneity",
        "ratio",
        "Deviation of the groups' reward spreads over their mean; below 0.5 filtering rarely helps.",
    ),
    metric("rollout/empty_after_filter", "0 or 1", "1 if the filter kept no group."),
    metric(
        "rollout/consecutive_empty_after_filter_steps",
        "iterations",
        "Iterations in a row whose filter kept no group.",
    ),
    metric(
        "rollout/filter_<key>",
        "as named",
        "Kept groups (`kept_count`, `kept_ratio`), groups without spread (`zero_count`) and the threshold.",
    ),
    metric("rollout/in_group_<key>", "as named", "Mean over all groups of the in-group statistic."),
    metric("rollout/chosen_in_group_<key>", "as named", "Mean over kept groups of the in-group statistic."),
    metric("actor/entropy", "nats", "Mean entropy of sampled tokens before the update."),
    metric("actor/pg_loss", "loss", "Policy loss, mean over optimiser steps."),
    metric("actor/entropy_loss", "nats", "Entropy during the update, aggregated like the loss."),
    metric("actor/kl_loss", "nats", "KL divergence to the reference policy in the loss."),
    metric("actor/pg_clipfrac", "share", "Tokens whose clipped term is the larger."),
    metric("actor/pg_clipfrac_lower", "share", "Tokens with negative advantage at the dual clip."),
    metric("actor/ppo_kl", "nats", "Mean of old minus new log-probability."),
    metric("actor/ratio_max", "ratio", "Largest importance ratio of the update."),
    metric("actor/ratio_min", "ratio", "Smallest importance ratio of the update."),
    metric(
        "actor/first_ratio_deviation",
        "ratio",
        "Largest distance of an importance ratio from 1 before the first step; 0 by construction.",
    ),
    metric("actor/bounded_share", "share", "Tokens whose log-ratio was bounded before the exponential."),
    metric("actor/grad_norm", "norm", "Gradient norm before clipping, mean over optimiser steps."),
    metric("actor/grad_clip_coef", "factor", "Factor that clipping applied, mean over optimiser steps."),
    metric("actor/lr", "rate", "Learning rate of the policy."),
    metric("actor/reward_kl_penalty", "nats", "KL divergence taken off the reward, mean over rows."),
    metric("actor/reward_kl_penalty_coeff", "factor", "Weight of that penalty."),
    metric(
        "critic/vf_loss",
        "loss",
        "Value loss in units of the first batch's deviation of returns, mean over optimiser steps.",
    ),
    metric("critic/vf_clipfrac", "share", "Tokens whose clipped value loss is the larger."),
    metric(
        "critic/vf_explained_var",
        "share",
        "1 - Var(return - value) / Var(return) over trained tokens, before the update.",
    ),
    metric("critic/vpred_mean", "reward", "Mean value during the update."),
    metric("critic/grad_norm", "norm", "Gradient norm of a separate critic before clipping."),
    metric("critic/lr", "rate", "Learning rate of a separate critic."),
    metric("critic/<key>/mean", "reward", "Mean of scores, advantages, returns or values over what was trained."),
    metric("critic/<key>/max", "reward", "Largest of the same."),
    metric("critic/<key>/min", "reward", "Smallest of the same."),
    metric("weights/hash", "-", "Hash of the policy's weights after the update, reduced to 52 bits."),
    metric("early_stopped/<key>", "0 or 1", "1 in the step at which the named rule ended the run."),
    metric("warmup/loss", "nats", "Cross entropy per trained token."),
    metric(
        "warmup/value_error",
        "variances",
        "Squared error of the value head, in variances of the teacher's returns.",
    ),
    metric("warmup/lr", "rate", "Learning rate."),
    metric("warmup/grad_norm", "norm", "Gradient norm before clipping."),
    metric("timing_s/<key>", "seconds", "Wall time of a phase."),
    metric("perf/generated_tokens_per_s", "tokens/s", "Sampled tokens over the rollout's wall time."),
    metric("perf/trained_tokens_per_s", "tokens/s", "Tokens of all passes of the update over its wall time."),
    metric("perf/episodes_per_s", "episodes/s", "Episodes over the rollout's wall time."),
    metric("perf/peak_memory_mb", "MB", "Largest resident memory of the process so far."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_definitions() {
        for (name, pattern) in [
            ("train/SimpleSokoban/success", "train/<Tag>/success"),
            ("train/SimpleSokoban/action_is_valid", "train/<Tag>/<key>"),
            ("train/Bandit/pass@16", "train/<Tag>/pass@<k>"),
            ("rollout/in_group_reward_std", "rollout/in_group_<key>"),
            ("critic/returns/max", "critic/<key>/max"),
        ] {
            assert_eq!(define(name).map(|found| found.name), Some(pattern), "{name}");
        }
        assert!(define("nobody/knows").is_none());
    }

    #[test]
    fn a_line_has_no_invalid_json() {
        let mut metrics = Metrics::default();
        metrics.set("actor/entropy", f64::NAN);
        metrics.set("actor/lr", 1e-6);
        assert_eq!(metrics.line(3), "{\"step\":3,\"actor/entropy\":null,\"actor/lr\":1e-6}\n");
    }
}
