//! Properties over random inputs that hold for every batch.

use super::{
    advantage::{AdvantageBatch, AdvantageSettings, Estimator},
    aggregation::Aggregation,
    collapse::{CrossScores, MarginalAverages, Smoothing, collapse},
    filter::{Keep, Mass, RolloutFilter, Strategy},
    gae::gae,
    kl::KlEstimator,
    logprob::{token_gradient, token_probability},
    loss::{KlTerm, PolicyLoss, PolicySums, PolicyTokens},
    policy_loss::Clip,
    rows::Rows,
    value_loss::value_token,
};
use crate::random::{Purpose, Stream};

const ROUNDS: u64 = 200;

fn stream(property: u64, round: u64) -> Stream {
    Stream::new(7, Purpose::Test, &[property, round])
}

fn uniform(stream: &mut Stream, low: f64, high: f64) -> f64 {
    low + (high - low) * stream.unit()
}

fn numbers(stream: &mut Stream, count: usize, low: f64, high: f64) -> Vec<f64> {
    (0..count).map(|_| uniform(stream, low, high)).collect()
}

fn modes() -> [Aggregation; 4] {
    use Aggregation::{SequenceMeanTokenMean, SequenceMeanTokenSum, SequenceMeanTokenSumNorm, TokenMean};
    [TokenMean, SequenceMeanTokenSum, SequenceMeanTokenMean, SequenceMeanTokenSumNorm { width: 37.0 }]
}

fn estimators() -> [Estimator; 7] {
    [
        Estimator::Gae,
        Estimator::BiLevel { turn_gamma: 0.9 },
        Estimator::Group { divide_by_deviation: true },
        Estimator::Group { divide_by_deviation: false },
        Estimator::LeaveOneOut,
        Estimator::ReinforcePlusPlus,
        Estimator::ReinforcePlusPlusBaseline,
    ]
}

/// A batch of rows with everything that estimators read.
#[derive(Clone, Debug)]
struct Batch {
    lengths: Vec<usize>,
    rewards: Vec<f32>,
    values: Vec<f32>,
    mask: Vec<bool>,
    ends: Vec<bool>,
    scores: Vec<f64>,
    groups: Vec<usize>,
    real: Vec<bool>,
}

impl Batch {
    fn random(stream: &mut Stream) -> Self {
        let rows = 2 * (1 + stream.below(4));
        let mut batch = Self {
            lengths: (0..rows).map(|_| 2 + stream.below(12)).collect(),
            rewards: vec![],
            values: vec![],
            mask: vec![],
            ends: vec![],
            scores: numbers(stream, rows, -1.0, 11.0),
            groups: (0..rows).map(|row| row / 2).collect(),
            real: vec![true; rows],
        };
        for &length in &batch.lengths {
            let mask: Vec<bool> = (0..length).map(|slot| slot + 1 == length || stream.chance(0.6)).collect();
            batch.ends.extend(mask.iter().enumerate().map(|(slot, trained)| *trained && slot % 3 == 2));
            batch.mask.extend(mask);
            batch.rewards.extend((0..length).map(|_| uniform(stream, -1.0, 1.0) as f32));
            batch.values.extend((0..length).map(|_| uniform(stream, -1.0, 1.0) as f32));
        }
        batch
    }

    fn insert_padding(&mut self, row: usize, slot: usize) {
        let at = self.lengths[..row].iter().sum::<usize>() + slot;
        self.lengths[row] += 1;
        self.rewards.insert(at, 1e6);
        self.values.insert(at, 1e6);
        self.mask.insert(at, false);
        self.ends.insert(at, false);
    }

    fn bounds(&self) -> Vec<usize> {
        let mut end = 0;
        let ends = self.lengths.iter().map(|length| {
            end += length;
            end
        });
        std::iter::once(0).chain(ends).collect()
    }

    /// Advantages and returns of trained slots, as bits.
    fn estimate(&self, estimator: Estimator) -> Vec<(u64, u64)> {
        let group = matches!(estimator, Estimator::Group { .. });
        let settings = AdvantageSettings {
            estimator,
            gamma: 0.97,
            lambda: 0.9,
            soft_reweight: group,
            length_weight: group,
            ..AdvantageSettings::default()
        };
        let bounds = self.bounds();
        let batch = AdvantageBatch {
            rows: Rows::new(&bounds).expect("ascending bounds"),
            rewards: &self.rewards,
            values: Some(&self.values),
            mask: &self.mask,
            turn_ends: Some(&self.ends),
            scores: &self.scores,
            groups: &self.groups,
            counted: &self.real,
            original: &self.real,
            kept: (3, 4),
        };
        let estimates = settings.estimate(&batch).expect("a complete batch");
        let slots = (0..self.mask.len()).filter(|&slot| self.mask[slot]);
        slots.map(|slot| (estimates.advantages[slot].to_bits(), estimates.returns[slot].to_bits())).collect()
    }
}

#[test]
fn padding_and_masked_rows_change_nothing_to_the_bit() {
    for round in 0..ROUNDS / 4 {
        let mut stream = stream(1, round);
        let plain = Batch::random(&mut stream);
        let mut padded = plain.clone();
        for _ in 0..1000 {
            let row = stream.below(padded.lengths.len());
            let slot = stream.below(padded.lengths[row] + 1);
            padded.insert_padding(row, slot);
        }
        padded.lengths.push(0);
        padded.scores.push(1e6);
        padded.groups.push(0);
        padded.real.push(false);
        for _ in 0..5 {
            padded.insert_padding(plain.lengths.len(), 0);
        }
        for estimator in estimators() {
            // REINFORCE++ restarts its return after a masked slot, so only padding around a row is neutral there.
            if estimator != Estimator::ReinforcePlusPlus {
                assert_eq!(plain.estimate(estimator), padded.estimate(estimator), "{estimator:?}, round {round}");
            }
        }
        let mut appended = plain.clone();
        for _ in 0..1000 {
            appended.insert_padding(0, appended.lengths[0]);
        }
        for estimator in estimators() {
            assert_eq!(plain.estimate(estimator), appended.estimate(estimator), "{estimator:?}, round {round}");
        }
    }
}

#[test]
fn a_copied_row_changes_no_other_row() {
    for round in 0..ROUNDS {
        let plain = Batch::random(&mut stream(2, round));
        let mut copied = plain.clone();
        let length = plain.lengths[0];
        copied.lengths.push(length);
        copied.rewards.extend_from_slice(&plain.rewards[..length]);
        copied.values.extend_from_slice(&plain.values[..length]);
        copied.mask.extend_from_slice(&plain.mask[..length]);
        copied.ends.extend_from_slice(&plain.ends[..length]);
        copied.scores.push(plain.scores[0]);
        copied.groups.push(plain.groups[0]);
        copied.real.push(false);
        for estimator in estimators() {
            // A copy lengthens the batch, so weights by relative length are the one thing that moves.
            if !matches!(estimator, Estimator::Group { .. }) {
                let expected = plain.estimate(estimator);
                assert_eq!(expected, copied.estimate(estimator)[..expected.len()], "{estimator:?}, round {round}");
            }
        }
    }
}

/// `A[t] = sum_k (gamma * lambda)^k * delta[t + k]`, `delta[t] = r[t] + gamma * V[t + 1] - V[t]`.
#[test]
fn with_every_slot_trained_gae_is_the_textbook_sum() {
    for round in 0..ROUNDS {
        let mut stream = stream(3, round);
        let count = 1 + stream.below(20);
        let (rewards, values) = (numbers(&mut stream, count, -1.0, 1.0), numbers(&mut stream, count, -1.0, 1.0));
        let (gamma, lambda) = (stream.unit(), stream.unit());
        let bounds = [0, count];
        let rows = Rows::new(&bounds).expect("ascending bounds");
        let found = gae(rows, &rewards, &values, &vec![true; count], gamma, lambda).expect("equal lengths");
        for start in 0..count {
            let delta =
                |slot: usize| rewards[slot] + gamma * values.get(slot + 1).copied().unwrap_or(0.0) - values[slot];
            let sum: f64 = (start..count).map(|slot| (gamma * lambda).powi((slot - start) as i32) * delta(slot)).sum();
            assert!((found.advantages[start] - sum).abs() < 1e-12);
        }
    }
}

struct Losses {
    bounds: Vec<usize>,
    logprob: Vec<f64>,
    old_logprob: Vec<f64>,
    reference: Vec<f64>,
    advantage: Vec<f64>,
    entropy: Vec<f64>,
    mask: Vec<bool>,
}

impl Losses {
    fn random(stream: &mut Stream) -> Self {
        let bounds = Batch::random(stream).bounds();
        let count = bounds[bounds.len() - 1];
        Self {
            bounds,
            logprob: numbers(stream, count, -3.0, 0.0),
            old_logprob: numbers(stream, count, -3.0, 0.0),
            reference: numbers(stream, count, -3.0, 0.0),
            advantage: numbers(stream, count, -2.0, 2.0),
            entropy: numbers(stream, count, 0.0, 3.0),
            mask: (0..count).map(|_| stream.chance(0.7)).collect(),
        }
    }

    fn weights(&self, mode: Aggregation) -> Vec<f64> {
        mode.weights(Rows::new(&self.bounds).expect("ascending bounds"), &self.mask).expect("equal lengths")
    }

    fn backward(&self, loss: &PolicyLoss, weight: &[f64], cut: usize) -> (PolicySums, Vec<f64>, Vec<f64>) {
        let count = self.mask.len();
        let (mut d_logprob, mut d_entropy) = (vec![f64::NAN; count], vec![f64::NAN; count]);
        let mut sums = PolicySums::default();
        for start in (0..count).step_by(cut) {
            let part = start..(start + cut).min(count);
            let tokens = PolicyTokens {
                logprob: &self.logprob[part.clone()],
                old_logprob: &self.old_logprob[part.clone()],
                reference_logprob: Some(&self.reference[part.clone()]),
                advantage: &self.advantage[part.clone()],
                entropy: &self.entropy[part.clone()],
                weight: &weight[part.clone()],
                mask: &self.mask[part.clone()],
            };
            let result = loss.backward(&tokens, &mut d_logprob[part.clone()], &mut d_entropy[part]);
            sums.merge(&result.expect("finite tokens"));
        }
        (sums, d_logprob, d_entropy)
    }
}

fn with_divergence(estimator: KlEstimator) -> PolicyLoss {
    PolicyLoss { kl: Some(KlTerm { estimator, weight: 0.1 }), entropy_weight: 0.01, ..PolicyLoss::default() }
}

#[test]
fn the_cut_into_micro_batches_changes_no_gradient() {
    for round in 0..ROUNDS {
        let losses = Losses::random(&mut stream(4, round));
        for mode in modes() {
            let (weight, loss) = (losses.weights(mode), with_divergence(KlEstimator::K3));
            let (whole, d_logprob, d_entropy) = losses.backward(&loss, &weight, losses.mask.len());
            for cut in [1, 3, 7] {
                let (sums, cut_logprob, cut_entropy) = losses.backward(&loss, &weight, cut);
                assert_eq!((&d_logprob, &d_entropy), (&cut_logprob, &cut_entropy), "{mode:?}, cut {cut}");
                assert_eq!((sums.tokens, sums.clipped), (whole.tokens, whole.clipped));
                assert!((sums.total - whole.total).abs() < 1e-12 * (1.0 + whole.total.abs()));
            }
        }
    }
}

#[test]
fn masked_slots_are_not_read() {
    let mut losses = Losses::random(&mut stream(5, 0));
    let weight = losses.weights(Aggregation::TokenMean);
    let loss = with_divergence(KlEstimator::K2);
    let clean = losses.backward(&loss, &weight, 1000);
    for slot in (0..losses.mask.len()).filter(|&slot| !losses.mask[slot]) {
        losses.logprob[slot] = f64::NAN;
        losses.advantage[slot] = f64::INFINITY;
        losses.entropy[slot] = 1e6;
    }
    assert_eq!(losses.backward(&loss, &weight, 1000), clean);
    let slot = losses.mask.iter().position(|trained| *trained).expect("a trained slot");
    losses.logprob[slot] = f64::NAN;
    let tokens = PolicyTokens {
        logprob: &losses.logprob,
        old_logprob: &losses.old_logprob,
        reference_logprob: Some(&losses.reference),
        advantage: &losses.advantage,
        entropy: &losses.entropy,
        weight: &weight,
        mask: &losses.mask,
    };
    let (mut d_logprob, mut d_entropy) = (weight.clone(), weight.clone());
    let error = loss.backward(&tokens, &mut d_logprob, &mut d_entropy).expect_err("a number is missing");
    assert!(error.to_string().contains(&format!("token {slot}")), "{error}");
}

#[test]
fn at_ratio_one_nothing_is_clipped_and_the_loss_is_the_negative_mean_advantage() {
    for round in 0..ROUNDS {
        let mut losses = Losses::random(&mut stream(6, round));
        losses.old_logprob = losses.logprob.clone();
        let weight = losses.weights(Aggregation::TokenMean);
        let (sums, d_logprob, _) = losses.backward(&PolicyLoss::default(), &weight, 5);
        if sums.tokens == 0 {
            continue;
        }
        let trained = (0..losses.mask.len()).filter(|&slot| losses.mask[slot]);
        let mean = trained.clone().map(|slot| losses.advantage[slot]).sum::<f64>() / sums.tokens as f64;
        assert!((sums.policy + mean).abs() < 1e-7, "{} {mean}", sums.policy);
        assert_eq!((sums.clipped, sums.clipped_lower, sums.bounded), (0, 0, 0));
        assert_eq!((sums.ratio_minimum, sums.ratio_maximum, sums.mean_divergence()), (1.0, 1.0, 0.0));
        for slot in trained {
            assert_eq!(d_logprob[slot], -losses.advantage[slot] * weight[slot]);
        }
    }
}

/// Central differences; skips points within a step of a kink, where there is no derivative.
fn agrees(derivative: f64, function: impl Fn(f64) -> f64, at: f64) -> bool {
    const STEP: f64 = 1e-6;
    let (left, right) = (function(at) - function(at - STEP), function(at + STEP) - function(at));
    let kink = (left - right).abs() / STEP > 1e-4 * (1.0 + (left + right).abs() / STEP);
    kink || ((left + right) / (2.0 * STEP) - derivative).abs() < 1e-5 * (1.0 + derivative.abs())
}

#[test]
fn derivatives_agree_with_finite_differences() {
    let (mut kinks, clip) = (0, Clip::default());
    for round in 0..ROUNDS * 10 {
        let mut stream = stream(7, round);
        let (logprob, old, advantage) =
            (uniform(&mut stream, -4.0, 0.0), uniform(&mut stream, -4.0, 0.0), uniform(&mut stream, -3.0, 3.0));
        let policy = |logprob: f64| clip.token(logprob, old, advantage).loss;
        assert!(agrees(clip.token(logprob, old, advantage).derivative, policy, logprob), "{logprob} {old} {advantage}");
        for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3, KlEstimator::Absolute] {
            let token = estimator.token(logprob, old);
            assert!(agrees(token.derivative, |logprob| estimator.token(logprob, old).value, logprob), "{estimator:?}");
        }
        let value_clip = stream.chance(0.5).then_some(0.5);
        let value = |value: f64| value_token(value, old, advantage, value_clip).loss / 2.0;
        assert!(agrees(value_token(logprob, old, advantage, value_clip).derivative, value, logprob));
        let logits = numbers(&mut stream, 6, -3.0, 3.0);
        let (label, temperature) = (stream.below(6), uniform(&mut stream, 0.5, 2.0));
        let mut gradient = vec![0.0; 6];
        token_gradient(&logits, label, temperature, 0.7, -0.3, &mut gradient).expect("a valid label");
        for (index, &derivative) in gradient.iter().enumerate() {
            let function = |logit: f64| {
                let mut logits = logits.clone();
                logits[index] = logit;
                let token = token_probability(&logits, label, temperature).expect("a valid label");
                0.7 * token.logprob - 0.3 * token.entropy
            };
            assert!(agrees(derivative, function, logits[index]));
        }
        kinks += usize::from(clip.token(logprob, old, advantage).derivative == 0.0);
    }
    assert!(kinks > 100, "clipped branches were visited {kinks} times");
}

#[test]
fn filters_follow_a_relabelling_of_groups() {
    let strategies = [
        Strategy::TopP { mass: Mass::Linear, value: 0.8, slack: 0.01 },
        Strategy::TopP { mass: Mass::Softmax, value: 0.8, slack: 0.01 },
        Strategy::TopK { fraction: 0.4 },
        Strategy::TopKAbsolute { count: 3 },
        Strategy::MinP { value: 0.4 },
        Strategy::PercentileRange { low: 0.25, high: 0.75 },
        Strategy::WithinGroup { keep_ratio: 0.5 },
    ];
    for round in 0..ROUNDS {
        let mut stream = stream(8, round);
        let count = 1 + stream.below(12);
        let mut scores = numbers(&mut stream, count, 0.0, 6.0);
        scores[0] = 0.0;
        let mut order: Vec<usize> = (0..count).collect();
        stream.shuffle(&mut order);
        let relabelled: Vec<f64> = order.iter().map(|&group| scores[group]).collect();
        for strategy in strategies {
            for (keep, include_zero) in [(Keep::Largest, true), (Keep::Largest, false), (Keep::Smallest, false)] {
                let filter = RolloutFilter { strategy, keep, include_zero, ..RolloutFilter::default() };
                let mut expected = filter.select(&scores).expect("finite scores").groups;
                let found = filter.select(&relabelled).expect("finite scores").groups;
                let mut found: Vec<usize> = found.into_iter().map(|group| order[group]).collect();
                expected.sort_unstable();
                found.sort_unstable();
                assert_eq!(expected, found, "{filter:?}");
            }
        }
    }
}

#[test]
fn mutual_information_is_bounded_and_blind_to_the_order_of_columns() {
    for round in 0..ROUNDS {
        let mut stream = stream(9, round);
        let (samples, columns) = (1 + stream.below(6), 2 + stream.below(5));
        let sums = numbers(&mut stream, samples * columns, -40.0, 0.0);
        let lengths: Vec<usize> = (0..samples).map(|_| 1 + stream.below(20)).collect();
        let own: Vec<usize> = (0..samples).map(|_| stream.below(columns)).collect();
        let prompts: Vec<usize> = (0..columns).collect();
        let evaluate = |sums: &[f64], own: &[usize], prompts: &[usize]| {
            let scores = CrossScores { sums, lengths: &lengths, own, prompts };
            let metrics = collapse(scores, Smoothing::default(), &mut MarginalAverages::default());
            metrics.expect("a full matrix").expect("two columns")
        };
        let plain = evaluate(&sums, &own, &prompts);
        for level in [plain.token, plain.sequence] {
            assert!(level.mutual_information <= plain.upper_bound + 1e-12);
            let difference = level.reasoning_entropy() - level.conditional_entropy();
            assert!((difference - level.mutual_information).abs() < 1e-9);
        }
        let mut order = prompts.clone();
        stream.shuffle(&mut order);
        let moved: Vec<f64> =
            sums.chunks(columns).flat_map(|row| order.iter().map(|&column| row[column]).collect::<Vec<_>>()).collect();
        let place = |column: &usize| order.iter().position(|other| other == column).unwrap_or(0);
        let permuted = evaluate(&moved, &own.iter().map(place).collect::<Vec<_>>(), &order);
        for ((name, left), (_, right)) in plain.named().iter().zip(permuted.named()) {
            assert!((left - right).abs() <= 1e-9 * (1.0 + left.abs()), "{name}: {left} {right}");
        }
    }
}
