//! A scene's choices as the mathematics takes them.

use crate::algorithm::advantage::{AdvantageSettings, Estimator};
use crate::algorithm::aggregation::Aggregation;
use crate::algorithm::batch_fit::Fit;
use crate::algorithm::filter::{Keep, Mass, Metric, RolloutFilter, Spread, Strategy};
use crate::algorithm::kl::{KlController, KlEstimator};
use crate::algorithm::loss::{KlTerm, PolicyLoss};
use crate::algorithm::modifiers::FilterScaling;
use crate::algorithm::normalization::{Method, Pool, RewardNormalization};
use crate::algorithm::schedule::{Schedule, Shape};
use crate::algorithm::value_loss::ValueLoss;
use crate::runtime::StepSettings;
use crate::scene::{self, Scene};

/// The reward normalisation.
pub(super) fn normalization(scene: &Scene) -> RewardNormalization {
    let settings = &scene.reward.normalization;
    RewardNormalization {
        pool: match settings.pool {
            scene::NormalizationPool::State => Pool::State,
            scene::NormalizationPool::Inductive => Pool::Inductive,
            scene::NormalizationPool::Batch => Pool::Batch,
        },
        method: match settings.method {
            scene::NormalizationMethod::Identity => Method::Identity,
            scene::NormalizationMethod::Mean => Method::Mean,
            scene::NormalizationMethod::MeanStd => Method::MeanStd,
            scene::NormalizationMethod::AsymClip => Method::AsymClip,
        },
    }
}

/// The rollout filter; no strategy keeps every group.
pub(super) fn filter(scene: &Scene) -> RolloutFilter {
    use crate::scene::FilterStrategy as Wanted;
    let settings = &scene.filter;
    let strategy = match settings.strategy {
        Wanted::None => RolloutFilter::default().strategy,
        Wanted::TopP { value, mass, slack } => {
            let mass = match mass {
                scene::FilterMass::Linear => Mass::Linear,
                scene::FilterMass::Softmax => Mass::Softmax,
            };
            Strategy::TopP { mass, value, slack }
        }
        Wanted::TopK { fraction } => Strategy::TopK { fraction },
        Wanted::TopKAbsolute { count } => Strategy::TopKAbsolute { count: count as usize },
        Wanted::MinP { value } => Strategy::MinP { value },
        Wanted::PercentileRange { low, high } => Strategy::PercentileRange { low, high },
        Wanted::WithinGroup { keep } => Strategy::WithinGroup { keep_ratio: keep },
    };
    RolloutFilter {
        strategy,
        keep: match settings.keep {
            scene::FilterKeep::Largest => Keep::Largest,
            scene::FilterKeep::Smallest => Keep::Smallest,
        },
        include_zero: settings.include_zero || matches!(settings.strategy, Wanted::None),
        metric: match settings.metric {
            scene::FilterMetric::RewardVariance => Metric::RewardVariance,
            scene::FilterMetric::Reward => Metric::Reward,
            scene::FilterMetric::RewardSum => Metric::RewardSum,
            scene::FilterMetric::Entropy => Metric::Entropy,
            scene::FilterMetric::EntropyVariance => Metric::EntropyVariance,
            scene::FilterMetric::Length => Metric::Length,
        },
        spread: match settings.spread {
            scene::Spread::Deviation => Spread::Deviation,
            scene::Spread::Variance => Spread::Variance,
        },
    }
}

/// The estimator and its modifiers.
pub(super) fn advantage(scene: &Scene) -> AdvantageSettings {
    use crate::scene::Estimator as Wanted;
    let settings = &scene.advantage;
    AdvantageSettings {
        estimator: match settings.estimator {
            Wanted::Gae => Estimator::Gae,
            Wanted::BiLevel { turn_gamma } => Estimator::BiLevel { turn_gamma },
            Wanted::Group { divide_by_deviation } => Estimator::Group { divide_by_deviation },
            Wanted::Rloo => Estimator::LeaveOneOut,
            Wanted::ReinforcePlusPlus => Estimator::ReinforcePlusPlus,
            Wanted::ReinforcePlusPlusBaseline => Estimator::ReinforcePlusPlusBaseline,
        },
        gamma: settings.gamma,
        lambda: settings.lambda,
        soft_reweight: settings.soft_reweight,
        filter_scaling: match settings.filter_scaling {
            scene::FilterScaling::None => FilterScaling::None,
            scene::FilterScaling::Linear => FilterScaling::Linear,
            scene::FilterScaling::Sqrt => FilterScaling::Sqrt,
        },
        length_weight: settings.length_weight,
        zero_task: settings.zero_task,
    }
}

/// Estimator of a divergence.
pub(super) fn kl_estimator(estimator: scene::KlEstimator) -> KlEstimator {
    match estimator {
        scene::KlEstimator::K1 => KlEstimator::K1,
        scene::KlEstimator::K2 => KlEstimator::K2,
        scene::KlEstimator::K3 => KlEstimator::K3,
        scene::KlEstimator::Abs => KlEstimator::Absolute,
        scene::KlEstimator::K1Plus => KlEstimator::K1Plus,
        scene::KlEstimator::K3Plus => KlEstimator::K3Plus,
    }
}

/// Controller of the divergence's weight in the reward.
pub(super) fn kl_controller(controller: scene::KlController) -> KlController {
    match controller {
        scene::KlController::Fixed => KlController::Fixed,
        scene::KlController::Adaptive { target, horizon } => KlController::Adaptive { target, horizon },
    }
}

fn aggregation(scene: &Scene) -> Aggregation {
    match scene.policy.aggregation {
        scene::Aggregation::TokenMean => Aggregation::TokenMean,
        scene::Aggregation::SeqMeanTokenSum => Aggregation::SequenceMeanTokenSum,
        scene::Aggregation::SeqMeanTokenMean => Aggregation::SequenceMeanTokenMean,
        scene::Aggregation::SeqMeanTokenSumNorm => {
            Aggregation::SequenceMeanTokenSumNorm { width: f64::from(scene.agent.max_context_tokens) }
        }
    }
}

/// The policy's loss.
pub(super) fn policy_loss(scene: &Scene) -> PolicyLoss {
    let settings = &scene.policy;
    PolicyLoss {
        clip_low: settings.clip_low,
        clip_high: settings.clip_high,
        dual_clip: settings.dual_clip,
        entropy_weight: settings.entropy_weight,
        kl: scene
            .kl
            .in_loss
            .as_ref()
            .map(|term| KlTerm { estimator: kl_estimator(term.estimator), weight: term.weight }),
        aggregation: aggregation(scene),
        ..PolicyLoss::default()
    }
}

/// The critic's loss.
pub(super) fn value_loss(scene: &Scene) -> ValueLoss {
    ValueLoss { value_clip: scene.critic.value_clip, aggregation: aggregation(scene) }
}

/// What happens to row counts that the mini-batch does not divide.
pub(super) fn fit(scene: &Scene) -> Fit {
    match scene.update.fit {
        scene::BatchFit::Exact => Fit::Exact,
        scene::BatchFit::Copy => Fit::Copy,
        scene::BatchFit::Delete => Fit::Delete,
        scene::BatchFit::Pad => Fit::Pad,
    }
}

fn schedule(settings: &scene::ScheduleSettings) -> Schedule {
    let base = Schedule { warmup: u64::from(settings.warmup_steps), ..Schedule::default() };
    match settings.kind {
        scene::ScheduleKind::Constant => base,
        scene::ScheduleKind::Cosine { min_ratio, cycles } => {
            Schedule { shape: Shape::Cosine, minimum: min_ratio, cycles, ..base }
        }
    }
}

/// Constants of the policy's optimiser step in an iteration, counted from 0.
pub(super) fn actor_step(scene: &Scene, iteration: u64) -> StepSettings {
    let settings = &scene.actor.optimizer;
    let factor = schedule(&settings.schedule).factor(iteration, u64::from(scene.run.iterations));
    StepSettings {
        lr: (settings.lr * factor) as f32,
        betas: (settings.betas.0 as f32, settings.betas.1 as f32),
        eps: settings.eps as f32,
        weight_decay: settings.weight_decay as f32,
        clip_norm: Some(settings.clip_norm as f32),
    }
}

/// Constants of a separate critic's optimiser step.
pub(super) fn critic_step(scene: &Scene, iteration: u64) -> StepSettings {
    let settings = &scene.critic.optimizer;
    let factor = schedule(&settings.schedule).factor(iteration, u64::from(scene.run.iterations));
    StepSettings {
        lr: (settings.lr * factor) as f32,
        betas: (settings.betas.0 as f32, settings.betas.1 as f32),
        eps: settings.eps as f32,
        weight_decay: settings.weight_decay as f32,
        clip_norm: Some(settings.clip_norm as f32),
    }
}
