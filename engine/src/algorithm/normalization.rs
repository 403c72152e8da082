//! Normalisation of episode scores before the filter and the advantages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    error::{AlgorithmError, check_finite, check_length},
    statistics::Sample,
};

/// Deviations up to this count as none.
pub const DEVIATION_FLOOR: f64 = 1e-6;

/// Which episodes share statistics.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Pool {
    /// Those of one prompt group.
    #[default]
    #[serde(alias = "state")]
    State,
    /// Those of one environment tag.
    #[serde(alias = "inductive")]
    Inductive,
    /// All.
    #[serde(alias = "batch")]
    Batch,
}

/// What is done inside a pool.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Method {
    /// `x`.
    #[default]
    #[serde(alias = "identity")]
    Identity,
    /// `x - mean`.
    #[serde(alias = "mean")]
    Mean,
    /// `(x - mean) / (deviation + 1e-6)` if the deviation exceeds `1e-6`, else 0.
    #[serde(alias = "mean_std")]
    MeanStd,
    /// [`Self::MeanStd`] clamped to -1 and 3.
    #[serde(alias = "asym_clip")]
    AsymClip,
}

impl Method {
    /// Whether in-group spreads still differ afterwards. A filter by spread needs that.
    #[must_use]
    pub fn keeps_spread(self) -> bool {
        matches!(self, Self::Identity | Self::Mean)
    }
}

/// Settings of the normalisation.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RewardNormalization {
    /// Which episodes share statistics.
    pub pool: Pool,
    /// What is done inside a pool.
    pub method: Method,
}

impl RewardNormalization {
    /// Normalises `scores`, which already contain the penalties. Nothing changes unless there are fewer pools than episodes.
    ///
    /// # Shapes
    /// `scores`, `groups`, `tags`: one entry per episode; `tags` are indices of environment tags.
    ///
    /// # Errors
    /// [`AlgorithmError::Length`]; [`AlgorithmError::NotFinite`] names the episode.
    pub fn normalize(&self, scores: &[f64], groups: &[usize], tags: &[usize]) -> Result<Vec<f64>, AlgorithmError> {
        check_length("groups", scores.len(), groups.len())?;
        check_length("tags", scores.len(), tags.len())?;
        let mut pools = BTreeMap::<usize, Vec<f64>>::new();
        let key = |episode: usize| match self.pool {
            Pool::State => groups[episode],
            Pool::Inductive => tags[episode],
            Pool::Batch => 0,
        };
        for (episode, &score) in scores.iter().enumerate() {
            check_finite("score", "episode", episode, score)?;
            pools.entry(key(episode)).or_default().push(score);
        }
        if pools.len() >= scores.len() {
            return Ok(scores.to_vec());
        }
        let samples: BTreeMap<usize, Sample> =
            pools.into_iter().map(|(pool, scores)| (pool, Sample::of(&scores))).collect();
        let apply = |(episode, &score): (usize, &f64)| {
            let sample = samples.get(&key(episode)).copied().unwrap_or_default();
            let standard = || {
                let deviation = sample.deviation();
                let usable = deviation > DEVIATION_FLOOR;
                if usable { (score - sample.mean) / (deviation + DEVIATION_FLOOR) } else { 0.0 }
            };
            match self.method {
                Method::Identity => score,
                Method::Mean => score - sample.mean,
                Method::MeanStd => standard(),
                Method::AsymClip => standard().clamp(-1.0, 3.0),
            }
        };
        Ok(scores.iter().enumerate().map(apply).collect())
    }
}

/// `reward + penalty` of every episode.
///
/// # Errors
/// [`AlgorithmError::Length`] if the slices differ in length.
pub fn penalised_scores(rewards: &[f64], penalties: &[f64]) -> Result<Vec<f64>, AlgorithmError> {
    check_length("penalties", rewards.len(), penalties.len())?;
    Ok(rewards.iter().zip(penalties).map(|(reward, penalty)| reward + penalty).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_episode_per_group_is_left_alone() {
        let settings = RewardNormalization { pool: Pool::State, method: Method::MeanStd };
        assert_eq!(settings.normalize(&[1.0, 5.0], &[0, 1], &[0, 0]), Ok(vec![1.0, 5.0]));
        let settings = RewardNormalization { pool: Pool::Batch, ..settings };
        assert_ne!(settings.normalize(&[1.0, 5.0], &[0, 1], &[0, 0]), Ok(vec![1.0, 5.0]));
    }
}
