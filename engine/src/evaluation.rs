//! What a set of trajectories amounts to: success with its uncertainty, statuses, rewards, tokens.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::metrics::Metrics;
use crate::record::{EpisodeStatus, Finish, TrajectoryRecord, Verdict};

/// Results of all episodes of one tag, or of all tags.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Episodes played, aborted ones included.
    pub episodes: usize,
    /// Share solved, of those not aborted.
    pub success: f64,
    /// Lower end of its 95 % Wilson interval.
    pub success_low: f64,
    /// Upper end of its 95 % Wilson interval.
    pub success_high: f64,
    /// Mean sum of rewards, without penalties, of those not aborted.
    pub mean_return: f64,
    /// Mean sum of rewards and penalties.
    pub mean_score: f64,
    /// Unbiased pass@k for each k up to the group size: the chance that one of k members solves the task.
    pub pass_at: BTreeMap<usize, f64>,
    /// Episodes per final status.
    pub statuses: BTreeMap<String, usize>,
    /// Share of turns whose answer was out of form or held an unknown action.
    pub invalid_turns: f64,
    /// Share of turns whose response hit the token limit.
    pub truncated_turns: f64,
    /// Turns per episode, mean.
    pub turns: f64,
    /// Sampled tokens per episode, mean.
    pub response_length: f64,
    /// Sampled tokens in all.
    pub tokens: u64,
    /// Success by length of the shortest solution, where known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub success_by_difficulty: BTreeMap<u32, f64>,
    /// Mean over episodes of the numbers that environments report.
    pub numbers: BTreeMap<String, f64>,
}

/// The 95 % Wilson score interval of `successes` among `count` (Wilson 1927). Without episodes it is `(0, 1)`.
#[must_use]
pub fn wilson(successes: usize, count: usize) -> (f64, f64) {
    const Z: f64 = 1.959_963_984_540_054;
    if count == 0 {
        return (0.0, 1.0);
    }
    let (n, p) = (count as f64, successes as f64 / count as f64);
    let centre = p + Z * Z / (2.0 * n);
    let spread = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    (((centre - spread) / scale).max(0.0), ((centre + spread) / scale).min(1.0))
}

/// The chance that at least one of `k` draws without replacement from `n` members, `c` of whom succeeded, succeeds:
/// `1 - C(n-c, k) / C(n, k)`.
#[must_use]
pub fn pass_at(n: usize, c: usize, k: usize) -> f64 {
    if k > n - c.min(n) {
        return 1.0;
    }
    1.0 - (0..k).map(|i| (n - c - i) as f64 / (n - i) as f64).product::<f64>()
}

/// Summarises trajectories.
#[must_use]
pub fn summarise<'a>(records: impl IntoIterator<Item = &'a TrajectoryRecord>) -> Summary {
    let all: Vec<&TrajectoryRecord> = records.into_iter().collect();
    let counted: Vec<&TrajectoryRecord> =
        all.iter().filter(|record| record.metadata.status != EpisodeStatus::Aborted).copied().collect();
    let mean = |value: &dyn Fn(&TrajectoryRecord) -> f64| {
        let sum: f64 = counted.iter().map(|record| value(record)).sum();
        sum / counted.len().max(1) as f64
    };
    let successes = counted.iter().filter(|record| record.metadata.success).count();
    let (success_low, success_high) = wilson(successes, counted.len());
    let mut statuses = BTreeMap::new();
    for record in &all {
        *statuses.entry(format!("{:?}", record.metadata.status)).or_insert(0) += 1;
    }
    let turns: Vec<_> = counted.iter().flat_map(|record| &record.turns).collect();
    let share = |test: &dyn Fn(&&crate::record::TurnRecord) -> bool| {
        turns.iter().filter(|turn| test(turn)).count() as f64 / turns.len().max(1) as f64
    };
    let mut difficulties: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    let mut groups: BTreeMap<(&str, u32), (usize, usize)> = BTreeMap::new();
    for record in &counted {
        let won = usize::from(record.metadata.success);
        if let Some(difficulty) = record.metadata.difficulty {
            let entry = difficulties.entry(difficulty).or_default();
            *entry = (entry.0 + won, entry.1 + 1);
        }
        let entry = groups.entry((&record.metadata.tag, record.metadata.group_id)).or_default();
        *entry = (entry.0 + won, entry.1 + 1);
    }
    let largest = groups.values().map(|&(_, members)| members).max().unwrap_or(0);
    let pass_at = (1..=largest).map(|k| {
        let able: Vec<f64> = groups.values().filter(|(_, n)| *n >= k).map(|&(c, n)| pass_at(n, c, k)).collect();
        (k, able.iter().sum::<f64>() / able.len().max(1) as f64)
    });
    let mut numbers: BTreeMap<String, f64> = BTreeMap::new();
    for record in &counted {
        for (name, value) in &record.metadata.metrics {
            let name = name.split_once('/').map_or(name.as_str(), |(_, key)| key);
            *numbers.entry(name.to_owned()).or_default() += value.as_f64().unwrap_or(0.0);
        }
    }
    numbers.values_mut().for_each(|sum| *sum /= counted.len().max(1) as f64);
    Summary {
        episodes: all.len(),
        success: successes as f64 / counted.len().max(1) as f64,
        success_low,
        success_high,
        mean_return: mean(&|record| f64::from(record.metadata.episode_return)),
        mean_score: mean(&|record| f64::from(record.metadata.total_reward)),
        pass_at: pass_at.collect(),
        statuses,
        invalid_turns: share(&|turn| turn.verdict != Verdict::Actions || turn.penalty < 0.0),
        truncated_turns: share(&|turn| turn.finish == Finish::Length),
        turns: mean(&|record| record.turns.len() as f64),
        response_length: mean(&|record| f64::from(record.metadata.token_count)),
        tokens: all.iter().map(|record| u64::from(record.metadata.token_count)).sum(),
        success_by_difficulty: difficulties
            .into_iter()
            .map(|(length, (won, n))| (length, won as f64 / n as f64))
            .collect(),
        numbers,
    }
}

/// Summaries per tag, by name.
#[must_use]
pub fn by_tag<'a>(records: impl IntoIterator<Item = &'a TrajectoryRecord>) -> BTreeMap<String, Summary> {
    let mut tags: BTreeMap<String, Vec<&TrajectoryRecord>> = BTreeMap::new();
    for record in records {
        tags.entry(record.metadata.tag.clone()).or_default().push(record);
    }
    tags.into_iter().map(|(tag, records)| (tag, summarise(records))).collect()
}

impl Summary {
    /// Writes the summary of `tag` into the metrics under `train` or `val`.
    pub fn write(&self, prefix: &str, tag: &str, metrics: &mut Metrics) {
        let mut set = |key: &str, value: f64| metrics.set(format!("{prefix}/{tag}/{key}"), value);
        for (key, &value) in &self.numbers {
            set(key, value);
        }
        set("success", self.success);
        set("return", self.mean_return);
        set("score", self.mean_score);
        let aborted = self.statuses.get("Aborted").copied().unwrap_or(0);
        set("aborted", aborted as f64 / self.episodes.max(1) as f64);
        if let Some((k, &value)) = self.pass_at.last_key_value() {
            set(&format!("pass@{k}"), value);
        }
        if prefix == "val" {
            set("success_low", self.success_low);
            set("success_high", self.success_high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 7 of 10: centre (0.7 + 0.19207) / 1.38415 = 0.64449, spread 0.24765, by hand.
    #[test]
    fn the_interval_of_seven_in_ten() {
        let (low, high) = wilson(7, 10);
        assert!((low - 0.396_778).abs() < 1e-5 && (high - 0.892_209).abs() < 1e-5, "{low} {high}");
        assert_eq!(wilson(0, 0), (0.0, 1.0));
    }

    /// 4 members of whom 1 succeeds: two draws hold it with chance 1/2.
    #[test]
    fn pass_at_k_counts_draws_without_replacement() {
        assert!((pass_at(4, 1, 2) - 0.5).abs() < 1e-12);
        assert_eq!((pass_at(4, 0, 4), pass_at(4, 4, 1), pass_at(4, 1, 4)), (0.0, 1.0, 1.0));
    }
}
