//! Gradients of three losses and the optimiser steps that they drive.

use ragen_kernels::Backend;

use super::super::{AdamWSettings, ModelError, Network, PackedBatch, Step, Weights, pack};
use super::vectors::{Constants, Folder, difference, tensor};
use super::{Report, TOLERANCE};

type Load<'a, B> = &'a dyn Fn(bool) -> Result<Weights<B>, ModelError>;

/// Largest error of an optimiser's change, where the gradient exceeds [`CLEAR`].
const STEP_TOLERANCE: f64 = 1e-6;
/// Gradients below this, as the optimiser sees them after clipping, leave the direction of a step to rounding.
const CLEAR: f32 = 1e-5;

pub(super) fn compare<B: Backend>(folder: &Folder, load: Load<'_, B>, report: &mut Report) -> Result<(), ModelError> {
    let mut network = Network::trained(load(false)?, false)?;
    for (name, loss) in &folder.cases.losses {
        network.zero_gradients()?;
        let value = accumulate(folder, &mut network, name)?;
        report.add(&folder.name, format!("{name}: value"), (value - loss.value).abs(), TOLERANCE);
        let norm = network.gradient_norms()?.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
        let error = (norm / loss.grad_norm - 1.0).abs();
        report.add(&folder.name, format!("{name}: gradient norm (relative)"), error, TOLERANCE);
        let mut file = folder.file(&format!("grad_{name}"))?;
        let mut worst: f64 = 0.0;
        for (place, parameter) in network.weights().parameters().iter().enumerate() {
            let expected = file.read(&parameter.name, &parameter.shape)?;
            let largest = expected.iter().fold(f64::MIN_POSITIVE, |most, value| most.max(f64::from(value.abs())));
            worst = worst.max(difference(&network.gradient(place)?, &expected) / largest);
        }
        report.add(&folder.name, format!("{name}: gradient (share of largest)"), worst, TOLERANCE);
    }
    packed(folder, &mut network, report)?;
    for (name, case) in &folder.cases.adamw {
        let mut network = Network::trained(load(false)?, true)?;
        let before = values(network.weights())?;
        let settings = AdamWSettings {
            lr: case.lr,
            beta1: case.beta1,
            beta2: case.beta2,
            eps: case.eps,
            weight_decay: case.weight_decay,
            max_norm: case.max_grad_norm,
        };
        let mut norm_error: f64 = 0.0;
        // Whether every step's gradient was clear.
        let mut clear: Vec<Vec<bool>> = before.iter().map(|values| vec![true; values.len()]).collect();
        for (index, loss) in case.losses.iter().enumerate() {
            accumulate(folder, &mut network, loss)?;
            let norm = network.gradient_norms()?.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
            let scale = case.max_grad_norm.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0)) as f32;
            for (place, clear) in clear.iter_mut().enumerate() {
                let gradient = network.gradient(place)?;
                clear.iter_mut().zip(gradient).for_each(|(clear, value)| *clear &= value.abs() * scale > CLEAR);
            }
            let step = network.step(&settings)?;
            if let Some(expected) = case.grad_norms.as_ref().and_then(|norms| norms.get(index)) {
                let error = match step {
                    Step::Applied { gradient_norm } => (gradient_norm / expected - 1.0).abs(),
                    Step::Skipped(_) => f64::INFINITY,
                };
                norm_error = norm_error.max(error);
            }
        }
        if case.grad_norms.is_some() {
            report.add(&folder.name, format!("{name}: gradient norms (relative)"), norm_error, TOLERANCE);
        }
        let after = values(network.weights())?;
        let mut file = folder.file(name)?;
        let mut worst: f64 = 0.0;
        for (place, parameter) in network.weights().parameters().iter().enumerate() {
            let expected = file.read(&parameter.name, &parameter.shape)?;
            let changes =
                after[place].iter().zip(&before[place]).map(|(after, before)| f64::from(*after) - f64::from(*before));
            for ((change, expected), &clear) in changes.zip(expected).zip(&clear[place]) {
                if clear {
                    worst = worst.max((change - f64::from(expected)).abs());
                }
            }
        }
        report.add(&folder.name, format!("{name}: change"), worst, STEP_TOLERANCE);
    }
    Ok(())
}

fn values<B: Backend>(weights: &Weights<B>) -> Result<Vec<Vec<f32>>, ModelError> {
    (0..weights.parameters().len()).map(|place| weights.read(place)).collect()
}

/// The row that predicts each token but the first of every sequence, and these tokens.
fn predictions(batch: &PackedBatch, rows: &[&[u32]]) -> (Vec<u32>, Vec<u32>) {
    let mut pairs = (Vec::new(), Vec::new());
    for (sequence, tokens) in rows.iter().enumerate() {
        for (position, &token) in tokens.iter().enumerate().skip(1) {
            pairs.0.push(batch.row(sequence, position - 1));
            pairs.1.push(token);
        }
    }
    pairs
}

/// Adds the gradient of a named loss over the training rows, each row a micro-batch of its own; returns the loss.
fn accumulate<B: Backend>(folder: &Folder, network: &mut Network<B>, name: &str) -> Result<f64, ModelError> {
    let train = &folder.cases.train;
    let count: f64 = train.mask.iter().flatten().map(|&on| f64::from(on)).sum();
    let constants = match name {
        "ce" => None,
        "ppo" => Some(folder.cases.ppo),
        "ppo_full" => Some(folder.cases.ppo_full),
        _ => {
            let reason = format!("unknown loss `{name}`");
            return Err(ModelError::Format { path: folder.path.join("cases.json"), reason });
        }
    };
    let mut arrays = [Vec::new(), Vec::new(), Vec::new()];
    if constants.is_some() {
        let mut file = folder.file("train")?;
        for (array, part) in arrays.iter_mut().zip(["old_log_probs", "advantages", "ref_log_probs"]) {
            if name == "ppo_full" || part != "ref_log_probs" {
                *array = tensor(&mut file, &format!("{name}.{part}"))?.1;
            }
        }
    }
    let (mut loss, mut start) = (0.0, 0);
    for (row, mask) in train.tokens.iter().zip(&train.mask) {
        let batch = pack(&[row], false)?;
        let (rows, targets) = predictions(&batch, &[row]);
        let outputs = network.forward_rows(&batch, &rows, Some(&targets), constants.map_or(1.0, |c| c.temperature))?;
        let (mut d_logprobs, mut d_entropies) = (vec![0.0; rows.len()], vec![0.0; rows.len()]);
        for index in (0..rows.len()).filter(|&index| mask[index] > 0) {
            let logprob = f64::from(outputs.logprobs[index]);
            let (term, slope) = match constants {
                None => (-logprob, -1.0),
                Some(constants) => {
                    let at = |array: &Vec<f32>| array.get(start + index).map_or(f64::NAN, |&value| f64::from(value));
                    let (term, slope) = policy_term(constants, logprob, at(&arrays[0]), at(&arrays[1]));
                    d_entropies[index] = (-constants.entropy_coef / count) as f32;
                    let entropy = f64::from(outputs.entropies[index]);
                    let apart = if constants.kl_coef > 0.0 { at(&arrays[2]) - logprob } else { 0.0 };
                    let kl = apart.exp() - apart - 1.0;
                    (
                        term - constants.entropy_coef * entropy + constants.kl_coef * kl,
                        slope + constants.kl_coef * (1.0 - apart.exp()),
                    )
                }
            };
            loss += term / count;
            d_logprobs[index] = (slope / count) as f32;
        }
        start += rows.len();
        network.backward_rows(&batch, &d_logprobs, &d_entropies, &[])?;
    }
    Ok(loss)
}

/// Clipped policy loss of a token and its derivative with respect to the log-probability.
fn policy_term(constants: Constants, logprob: f64, old: f64, advantage: f64) -> (f64, f64) {
    let ratio = (logprob - old).exp();
    let plain = -advantage * ratio;
    let clipped = -advantage * ratio.clamp(1.0 - constants.clip_low, 1.0 + constants.clip_high);
    let (term, slope) = if clipped > plain { (clipped, 0.0) } else { (plain, plain) };
    match constants.dual_clip {
        Some(limit) if advantage < 0.0 && term > -advantage * limit => (-advantage * limit, 0.0),
        _ => (term, slope),
    }
}

fn packed<B: Backend>(folder: &Folder, network: &mut Network<B>, report: &mut Report) -> Result<(), ModelError> {
    let case = &folder.cases.packed;
    let views: Vec<&[u32]> = case.cu_seqlens.windows(2).map(|pair| &case.tokens[pair[0]..pair[1]]).collect();
    let batch = pack(&views, true)?;
    let (rows, targets) = predictions(&batch, &views);
    network.zero_gradients()?;
    let outputs = network.forward_rows(&batch, &rows, Some(&targets), 1.0)?;
    let mean = outputs.logprobs.iter().map(|&logprob| -f64::from(logprob)).sum::<f64>() / rows.len() as f64;
    report.add(&folder.name, "packed: mean loss", (mean - case.mean_nll).abs(), TOLERANCE);
    network.backward_rows(&batch, &vec![-1.0 / rows.len() as f32; rows.len()], &[], &[])?;
    let norms = network.gradient_norms()?;
    let total = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
    report.add(&folder.name, "packed: gradient norm (relative)", (total / case.grad_norm - 1.0).abs(), TOLERANCE);
    let mut worst: f64 = 0.0;
    for (parameter, norm) in network.weights().parameters().iter().zip(norms) {
        let expected = case.grad_norm_by_parameter.get(&parameter.name).copied().unwrap_or(f64::NAN);
        let error = (norm / expected - 1.0).abs();
        worst = if error <= worst { worst } else { error };
    }
    report.add(&folder.name, "packed: gradient norm by parameter (relative)", worst, TOLERANCE);
    Ok(())
}
