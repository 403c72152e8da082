//! Which groups push the weights, and with what: buckets by reward spread and the size of each term's gradient.

use serde::{Deserialize, Serialize};

use super::{
    adamw::global_norm,
    error::{AlgorithmError, check_finite, check_setting},
};

/// How groups are put into buckets.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Buckets {
    /// This many buckets of equal size by rank; the remainder is in the last.
    Quantile(usize),
    /// Half-open intervals between these ascending edges, the last one unbounded.
    Edges(Vec<f64>),
}

impl Default for Buckets {
    fn default() -> Self {
        Self::Quantile(6)
    }
}

/// The groups of one bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bucket {
    /// Number of the bucket from 1, the lowest spread first.
    pub number: usize,
    /// Groups: by ascending spread for quantiles, by index for edges.
    pub groups: Vec<usize>,
    /// Mean of the spreads.
    pub mean: f64,
    /// Smallest spread.
    pub minimum: f64,
    /// Largest spread.
    pub maximum: f64,
}

impl Buckets {
    /// Puts every group into its bucket; empty buckets are left out, as are groups below the first edge.
    ///
    /// # Errors
    /// [`AlgorithmError::NotFinite`] names the group; [`AlgorithmError::Setting`] for 0 buckets or edges that do not ascend.
    pub fn assign(&self, spreads: &[f64]) -> Result<Vec<Bucket>, AlgorithmError> {
        for (group, &spread) in spreads.iter().enumerate() {
            check_finite("spread", "group", group, spread)?;
        }
        match self {
            Self::Quantile(count) => {
                check_setting(*count > 0, "buckets", count, "expected at least 1")?;
                let mut order: Vec<usize> = (0..spreads.len()).collect();
                order.sort_by(|&a, &b| spreads[a].partial_cmp(&spreads[b]).unwrap_or(std::cmp::Ordering::Equal));
                let count = (*count).min(order.len());
                let size = order.len().checked_div(count).unwrap_or(0);
                let end = |bucket: usize| {
                    if bucket + 1 == count { order.len() } else { (bucket + 1) * size }
                };
                let slice = |bucket: usize| bucket_of(bucket, order[bucket * size..end(bucket)].to_vec(), spreads);
                Ok((0..count).map(slice).collect())
            }
            Self::Edges(edges) => {
                let ascending = edges.windows(2).all(|pair| pair[0] < pair[1]);
                check_setting(
                    ascending && !edges.is_empty(),
                    "buckets",
                    format!("{edges:?}"),
                    "expected ascending edges",
                )?;
                let inside = |(bucket, &low): (usize, &f64)| {
                    let high = edges.get(bucket + 1).copied().unwrap_or(f64::INFINITY);
                    let groups = (0..spreads.len()).filter(|&group| (low..high).contains(&spreads[group]));
                    bucket_of(bucket, groups.collect(), spreads)
                };
                let buckets = edges.iter().enumerate().map(inside);
                Ok(buckets.filter(|bucket| !bucket.groups.is_empty()).collect())
            }
        }
    }
}

fn bucket_of(index: usize, groups: Vec<usize>, spreads: &[f64]) -> Bucket {
    let own: Vec<f64> = groups.iter().map(|&group| spreads[group]).collect();
    let sample = super::statistics::Sample::of(&own);
    Bucket { number: index + 1, groups, mean: sample.mean, minimum: sample.minimum, maximum: sample.maximum }
}

/// Norms of the gradients of the loss terms over one bucket, normalised by the bucket's own counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ComponentNorms {
    /// Surrogate loss.
    pub task: f64,
    /// Entropy bonus.
    pub entropy: f64,
    /// Divergence.
    pub kl: f64,
    /// Their sum.
    pub total: f64,
    /// Cosine between task and entropy gradients; 0 if one vanishes.
    pub cosine_task_entropy: f64,
    /// Cosine between task and divergence gradients; 0 if one vanishes.
    pub cosine_task_kl: f64,
}

impl ComponentNorms {
    /// Measures the gradients of the three terms, each `[parameters]`.
    ///
    /// # Errors
    /// [`AlgorithmError::Length`] if they differ in size.
    pub fn of(task: &[f64], entropy: &[f64], kl: &[f64]) -> Result<Self, AlgorithmError> {
        super::error::check_length("entropy gradient", task.len(), entropy.len())?;
        super::error::check_length("divergence gradient", task.len(), kl.len())?;
        let total: Vec<f64> = (0..task.len()).map(|index| task[index] + entropy[index] + kl[index]).collect();
        Ok(Self {
            task: global_norm(&[task]),
            entropy: global_norm(&[entropy]),
            kl: global_norm(&[kl]),
            total: global_norm(&[&total]),
            cosine_task_entropy: cosine(task, entropy),
            cosine_task_kl: cosine(task, kl),
        })
    }
}

/// Cosine of the angle between two gradients; 0 if one vanishes.
#[must_use]
pub fn cosine(left: &[f64], right: &[f64]) -> f64 {
    let norms = global_norm(&[left]) * global_norm(&[right]);
    let product: f64 = left.iter().zip(right).map(|(left, right)| left * right).sum();
    if norms > 0.0 { product / norms } else { 0.0 }
}

/// Factors by which published trainers scale the gradients of a bucket, one per mini-batch: `rows / mini_batch`, since they
/// divide by the configured accumulation count even when there are fewer rows. They report the mean over mini-batches.
/// For reproduction only.
///
/// # Errors
/// [`AlgorithmError::Setting`] if `mini_batch` is 0.
pub fn bucket_factors(rows: usize, mini_batch: usize) -> Result<Vec<f64>, AlgorithmError> {
    check_setting(mini_batch > 0, "mini_batch", mini_batch, "expected at least 1")?;
    let cut = |start: usize| (start.min(rows)..(start + mini_batch).min(rows)).len() as f64 / mini_batch as f64;
    Ok((0..rows).step_by(mini_batch).map(cut).collect())
}
