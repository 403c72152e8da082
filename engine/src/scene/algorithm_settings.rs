//! The choices of the mathematics: filter, advantage, policy loss, divergence, aggregation.

use super::macros::{choices, settings};

choices! {
    /// Which groups an update learns from.
    pub enum FilterStrategy {
        /// All groups are kept.
        None,
        /// The best groups until they hold a share of the total score.
        TopP {
            /// Share of the total score.
            value: f64 = 0.9; above_to(0.0, 1.0),
            /// How scores become shares.
            mass: FilterMass = FilterMass::Linear,
            /// Subtracted from the threshold of `Linear`; a batch whose score is below it is dropped whole.
            slack: f64 = 0.01; at_least(0.0),
        },
        /// A fraction of all groups.
        TopK {
            /// Fraction of all groups, rounded down, at least one group.
            fraction: f64 = 0.25; above_to(0.0, 1.0),
        },
        /// A number of groups.
        TopKAbsolute {
            /// Groups kept.
            count: u32 = 4; at_least(1.0),
        },
        /// Groups that reach a share of the best score.
        MinP {
            /// Share of the best score.
            value: f64 = 0.5; above_to(0.0, 1.0),
        },
        /// Groups between two ranks, the largest score first.
        PercentileRange {
            /// First rank as a fraction of the groups.
            low: f64 = 0.0; between(0.0, 1.0),
            /// One past the last rank as a fraction of the groups.
            high: f64 = 0.25; between(0.0, 1.0),
        },
        /// Every group, but only those of its episodes that differ most.
        WithinGroup {
            /// Fraction of the episodes kept, at least one.
            keep: f64 = 0.5; above_to(0.0, 1.0),
        },
    }

    /// How `TopP` turns scores into shares.
    pub enum FilterMass {
        /// Score over the sum of scores; can drop a whole batch that carries no signal.
        Linear,
        /// Softmax of the scores; always keeps a group, and depends on the scale of the rewards.
        Softmax,
    }

    /// Which end of the scores is kept.
    pub enum FilterKeep {
        /// High scores.
        Largest,
        /// Low scores.
        Smallest,
    }

    /// What a group is scored by.
    pub enum FilterMetric {
        /// Spread of the episode scores within the group.
        RewardVariance,
        /// Mean episode score.
        Reward,
        /// Sum of the episode scores.
        RewardSum,
        /// Mean token entropy.
        Entropy,
        /// Spread of the episodes' mean token entropy.
        EntropyVariance,
        /// Mean number of sampled tokens.
        Length,
    }

    /// How spread is measured.
    pub enum Spread {
        /// Sample standard deviation.
        Deviation,
        /// Sample variance.
        Variance,
    }

    /// How rewards become advantages.
    pub enum Estimator {
        /// Generalised advantage estimation over tokens; needs a critic.
        Gae,
        /// GAE over turns, then over the tokens of each turn; needs a critic and `reward.per_turn`.
        BiLevel {
            /// Discount from turn to turn.
            turn_gamma: f64 = 0.95; between(0.0, 1.0),
        },
        /// Score relative to the group's mean (GRPO).
        Group {
            /// Divide by the group's standard deviation; `false` is Dr. GRPO.
            divide_by_deviation: bool = true,
        },
        /// Score relative to the mean of the other episodes of the group.
        Rloo,
        /// Discounted return, whitened over the batch.
        ReinforcePlusPlus,
        /// Score relative to the group's mean, whitened over the batch.
        ReinforcePlusPlusBaseline,
    }

    /// How advantages shrink with the share of groups that the filter kept.
    pub enum FilterScaling {
        /// Not at all.
        None,
        /// By the kept share.
        Linear,
        /// By the square root of the kept share.
        Sqrt,
    }

    /// How token losses become one number; normalisers count the whole mini-batch.
    pub enum Aggregation {
        /// Mean over all tokens.
        TokenMean,
        /// Sum per row, mean over rows.
        SeqMeanTokenSum,
        /// Mean per row, mean over rows.
        SeqMeanTokenMean,
        /// Sum over all tokens divided by the longest row.
        SeqMeanTokenSumNorm,
    }

    /// How the divergence from the reference is estimated from sampled tokens, with `d = logp - logp_reference`.
    pub enum KlEstimator {
        /// `d`.
        K1,
        /// `d^2 / 2`.
        K2,
        /// `exp(-d) + d - 1`.
        K3,
        /// `|d|`.
        Abs,
        /// Value of `K1`, gradient of `K2`.
        K1Plus,
        /// Value of `K3`, gradient of `K2`.
        K3Plus,
    }

    /// How the weight of the divergence in the reward moves.
    pub enum KlController {
        /// Not at all.
        Fixed,
        /// Towards a target divergence.
        Adaptive {
            /// Divergence aimed for, in nats per token.
            target: f64 = 0.1; above(0.0),
            /// Rows after which a full correction has been made.
            horizon: f64 = 10000.0; above(0.0),
        },
    }

    /// Which episodes share a mean and a deviation.
    pub enum NormalizationPool {
        /// Those of one group: the same instance.
        State,
        /// Those of one environment tag.
        Inductive,
        /// All of the batch.
        Batch,
    }

    /// How episode scores are normalised within their pool.
    pub enum NormalizationMethod {
        /// Not at all.
        Identity,
        /// Less the mean.
        Mean,
        /// Less the mean, over the deviation.
        MeanStd,
        /// As `MeanStd`, then clamped to -1 … 3.
        AsymClip,
    }
}

settings! {
    /// What an episode is worth.
    pub struct RewardSettings {
        /// Added for every turn without a usable action.
        format_penalty: f64 = -0.1; at_most(0.0),
        /// Give every turn its own reward instead of the episode's at the end.
        per_turn: bool = false,
        /// Normalisation of the episode scores.
        normalization: NormalizationSettings = NormalizationSettings::default(),
    }

    /// Normalisation of the episode scores before the filter and the advantages.
    pub struct NormalizationSettings {
        /// Episodes that are compared.
        pool: NormalizationPool = NormalizationPool::State,
        /// What is done with their scores.
        method: NormalizationMethod = NormalizationMethod::Identity,
    }

    /// Which groups of a rollout an update learns from.
    pub struct FilterSettings {
        /// How groups are chosen.
        strategy: FilterStrategy = FilterStrategy::None,
        /// Which end of the scores is kept.
        keep: FilterKeep = FilterKeep::Largest,
        /// Whether groups with score 0 are candidates.
        include_zero: bool = true,
        /// What groups are scored by.
        metric: FilterMetric = FilterMetric::RewardVariance,
        /// How the spread of the variance metrics is measured.
        spread: Spread = Spread::Deviation,
    }

    /// How rewards become advantages of tokens.
    pub struct AdvantageSettings {
        /// The estimator.
        estimator: Estimator = Estimator::Gae,
        /// Discount from token to token.
        gamma: f64 = 1.0; between(0.0, 1.0),
        /// Trace decay of GAE: 0 trusts the critic, 1 the return.
        lambda: f64 = 1.0; between(0.0, 1.0),
        /// Weight groups by their spread over the largest spread; `Group` only.
        soft_reweight: bool = false,
        /// Divide by the row's length over the mean length; `Group` only.
        length_weight: bool = false,
        /// Set all advantages to 0, leaving entropy and divergence alone: an ablation.
        zero_task: bool = false,
        /// Shrink advantages with the share of groups kept by the filter.
        filter_scaling: FilterScaling = FilterScaling::None,
    }

    /// The policy loss.
    pub struct PolicySettings {
        /// The ratio counts down to `1 - clip_low`.
        clip_low: f64 = 0.2; between(0.0, 1.0),
        /// The ratio counts up to `1 + clip_high`.
        clip_high: f64 = 0.28; at_least(0.0),
        /// Bound of the loss, as a multiple of the advantage, where the advantage is negative.
        dual_clip: Option<f64> = Some(3.0); above(1.0),
        /// How token losses become one number.
        aggregation: Aggregation = Aggregation::TokenMean,
        /// Weight of the entropy bonus.
        entropy_weight: f64 = 0.001,
    }

    /// Staying near the reference policy, the model as it was loaded. Without either the reference is not kept in memory.
    pub struct KlSettings {
        /// As a term of the loss.
        in_loss: Option<KlLossSettings> = None,
        /// As a penalty in the reward of every token.
        in_reward: Option<KlRewardSettings> = None,
    }

    /// Divergence as a term of the loss.
    pub struct KlLossSettings {
        /// Weight of the term.
        weight: f64 = 0.001; at_least(0.0),
        /// The estimator.
        estimator: KlEstimator = KlEstimator::K2,
    }

    /// Divergence as a penalty in the reward.
    pub struct KlRewardSettings {
        /// Weight at the start.
        weight: f64 = 0.001; at_least(0.0),
        /// The estimator.
        estimator: KlEstimator = KlEstimator::K1,
        /// How the weight moves.
        controller: KlController = KlController::Fixed,
    }
}
