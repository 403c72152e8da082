//! The actor's loss that the trainer differentiates: surrogate, entropy and divergence together.

use serde::{Deserialize, Serialize};

use super::{
    Real,
    aggregation::Aggregation,
    error::{AlgorithmError, check_finite, check_length, check_setting},
    kl::KlEstimator,
    policy_loss::Clip,
    statistics::COUNT_EPSILON,
};

/// A divergence term in the loss.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct KlTerm {
    /// The estimator.
    pub estimator: KlEstimator,
    /// Its weight.
    pub weight: f64,
}

impl Default for KlTerm {
    fn default() -> Self {
        Self { estimator: KlEstimator::K2, weight: 0.001 }
    }
}

/// The actor's loss: `policy - entropy_weight * entropy + kl.weight * divergence`, each term aggregated alike.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyLoss {
    /// The ratio is clipped below `1 - clip_low`.
    pub clip_low: f64,
    /// The ratio is clipped above `1 + clip_high`.
    pub clip_high: f64,
    /// Bound of the loss for negative advantages; more than 1, or off.
    pub dual_clip: Option<f64>,
    /// Bound of the log-ratio, at most 80.
    pub log_ratio_bound: f64,
    /// Weight of the entropy bonus.
    pub entropy_weight: f64,
    /// Divergence from the reference policy.
    pub kl: Option<KlTerm>,
    /// How token losses become one number; it decides the weights in [`PolicyTokens`].
    pub aggregation: Aggregation,
}

impl Default for PolicyLoss {
    fn default() -> Self {
        let Clip { clip_low, clip_high, dual_clip, log_ratio_bound } = Clip::default();
        let aggregation = Aggregation::TokenMean;
        Self { clip_low, clip_high, dual_clip, log_ratio_bound, entropy_weight: 0.001, kl: None, aggregation }
    }
}

/// What the actor's loss reads, one entry per slot of a micro-batch.
#[derive(Clone, Copy, Debug)]
pub struct PolicyTokens<'a, F> {
    /// Log-probability under the current policy.
    pub logprob: &'a [F],
    /// Log-probability at rollout time.
    pub old_logprob: &'a [F],
    /// Log-probability under the reference policy; needed with a divergence term.
    pub reference_logprob: Option<&'a [F]>,
    /// Advantage.
    pub advantage: &'a [F],
    /// Entropy of the current policy.
    pub entropy: &'a [F],
    /// Weights of [`Aggregation::weights`], computed over the whole optimiser step.
    pub weight: &'a [f64],
    /// Trained slots.
    pub mask: &'a [bool],
}

/// Sums over trained tokens. Merge micro-batches in row order and the result is the same in every run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicySums {
    /// Aggregated surrogate loss.
    pub policy: f64,
    /// Aggregated entropy.
    pub entropy: f64,
    /// Aggregated divergence.
    pub kl: f64,
    /// Loss that was differentiated.
    pub total: f64,
    /// Trained tokens.
    pub tokens: u64,
    /// Tokens on the clipped branch.
    pub clipped: u64,
    /// Tokens held by the dual clip.
    pub clipped_lower: u64,
    /// Tokens whose log-ratio, or divergence, reached its bound.
    pub bounded: u64,
    /// Sum of the negated log-ratios.
    pub negative_log_ratio: f64,
    /// Smallest ratio; infinity without tokens.
    pub ratio_minimum: f64,
    /// Largest ratio; minus infinity without tokens.
    pub ratio_maximum: f64,
}

impl Default for PolicySums {
    fn default() -> Self {
        Self {
            policy: 0.0,
            entropy: 0.0,
            kl: 0.0,
            total: 0.0,
            tokens: 0,
            clipped: 0,
            clipped_lower: 0,
            bounded: 0,
            negative_log_ratio: 0.0,
            ratio_minimum: f64::INFINITY,
            ratio_maximum: f64::NEG_INFINITY,
        }
    }
}

impl PolicySums {
    /// Adds the sums of the micro-batch that follows.
    pub fn merge(&mut self, next: &Self) {
        self.policy += next.policy;
        self.entropy += next.entropy;
        self.kl += next.kl;
        self.total += next.total;
        self.tokens += next.tokens;
        self.clipped += next.clipped;
        self.clipped_lower += next.clipped_lower;
        self.bounded += next.bounded;
        self.negative_log_ratio += next.negative_log_ratio;
        self.ratio_minimum = self.ratio_minimum.min(next.ratio_minimum);
        self.ratio_maximum = self.ratio_maximum.max(next.ratio_maximum);
    }

    /// Share of tokens on the clipped branch.
    #[must_use]
    pub fn clip_fraction(&self) -> f64 {
        share(self.clipped as f64, self.tokens)
    }

    /// Share of tokens held by the dual clip.
    #[must_use]
    pub fn lower_clip_fraction(&self) -> f64 {
        share(self.clipped_lower as f64, self.tokens)
    }

    /// Share of tokens whose log-ratio, or divergence, reached its bound.
    #[must_use]
    pub fn bounded_fraction(&self) -> f64 {
        share(self.bounded as f64, self.tokens)
    }

    /// Mean of `logp_old - logp`: how far the policy moved since the rollout.
    #[must_use]
    pub fn mean_divergence(&self) -> f64 {
        share(self.negative_log_ratio, self.tokens)
    }
}

/// `part / (tokens + 1e-8)`.
pub(crate) fn share(part: f64, tokens: u64) -> f64 {
    part / (tokens as f64 + COUNT_EPSILON)
}

impl PolicyLoss {
    /// The ratio's clipping.
    #[must_use]
    pub fn clip(&self) -> Clip {
        let Self { clip_low, clip_high, dual_clip, log_ratio_bound, .. } = *self;
        Clip { clip_low, clip_high, dual_clip, log_ratio_bound }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`AlgorithmError::Setting`] names the first setting out of range.
    pub fn check(&self) -> Result<(), AlgorithmError> {
        self.clip().check()?;
        check_setting(
            self.entropy_weight.is_finite(),
            "entropy_weight",
            self.entropy_weight,
            "expected a finite number",
        )?;
        let weight = self.kl.map_or(0.0, |term| term.weight);
        check_setting(
            weight.is_finite() && weight >= 0.0,
            "kl.weight",
            weight,
            "expected a finite number of at least 0",
        )
    }

    /// Writes the derivatives of the step's loss and returns the sums of this micro-batch.
    ///
    /// `d_logprob[t] = w[t] * (d policy + kl.weight * d divergence)`, `d_entropy[t] = -w[t] * entropy_weight`, and 0 on
    /// masked slots, whose contents are not read.
    ///
    /// # Shapes
    /// All slices `[slots]`.
    ///
    /// # Errors
    /// [`AlgorithmError::Length`]; [`AlgorithmError::Setting`] if a divergence term lacks the reference;
    /// [`AlgorithmError::NotFinite`] names the first trained slot with a number that is not finite.
    pub fn backward<F: Real>(
        &self,
        tokens: &PolicyTokens<'_, F>,
        d_logprob: &mut [F],
        d_entropy: &mut [F],
    ) -> Result<PolicySums, AlgorithmError> {
        let slots = tokens.mask.len();
        check_length("logprob", slots, tokens.logprob.len())?;
        check_length("old_logprob", slots, tokens.old_logprob.len())?;
        check_length("advantage", slots, tokens.advantage.len())?;
        check_length("entropy", slots, tokens.entropy.len())?;
        check_length("weight", slots, tokens.weight.len())?;
        check_length("d_logprob", slots, d_logprob.len())?;
        check_length("d_entropy", slots, d_entropy.len())?;
        let divergence = match (self.kl, tokens.reference_logprob) {
            (Some(term), Some(reference)) => {
                check_length("reference_logprob", slots, reference.len())?;
                Some((term, reference))
            }
            (None, _) => None,
            (Some(term), None) => {
                let reason = "a divergence term needs the log-probabilities of the reference policy";
                return Err(AlgorithmError::Setting { name: "kl.weight", value: term.weight.to_string(), reason });
            }
        };
        let clip = self.clip();
        let mut sums = PolicySums::default();
        for slot in 0..slots {
            (d_logprob[slot], d_entropy[slot]) = (F::from_f64(0.0), F::from_f64(0.0));
            if !tokens.mask[slot] {
                continue;
            }
            let read = |what, values: &[F]| {
                let value = values[slot].into();
                check_finite(what, "token", slot, value).map(|()| value)
            };
            let logprob = read("logprob", tokens.logprob)?;
            let old_logprob = read("old_logprob", tokens.old_logprob)?;
            let advantage = read("advantage", tokens.advantage)?;
            let entropy = read("entropy", tokens.entropy)?;
            let token = clip.token(logprob, old_logprob, advantage);
            let mut derivative = token.derivative;
            let mut bounded = token.bounded;
            let mut kl = (0.0, 0.0);
            if let Some((term, reference)) = divergence {
                let token = term.estimator.token(logprob, read("reference_logprob", reference)?);
                derivative += term.weight * token.derivative;
                bounded |= token.bounded;
                kl = (token.value, term.weight);
            }
            let weight = tokens.weight[slot];
            d_logprob[slot] = F::from_f64(weight * derivative);
            d_entropy[slot] = F::from_f64(-weight * self.entropy_weight);
            sums.policy += weight * token.loss;
            sums.entropy += weight * entropy;
            sums.kl += weight * kl.0;
            sums.total += weight * (token.loss - self.entropy_weight * entropy + kl.1 * kl.0);
            sums.tokens += 1;
            sums.clipped += u64::from(token.clipped);
            sums.clipped_lower += u64::from(token.clipped_lower);
            sums.bounded += u64::from(bounded);
            sums.negative_log_ratio -= token.log_ratio;
            sums.ratio_minimum = sums.ratio_minimum.min(token.ratio);
            sums.ratio_maximum = sums.ratio_maximum.max(token.ratio);
        }
        Ok(sums)
    }
}
