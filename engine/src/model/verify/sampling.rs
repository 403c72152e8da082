//! Candidate sets and probabilities after temperature, top-k and top-p.
//!
//! A draw turns a uniform number into a token by intervals, so among `N` evenly spaced numbers a token of probability `p` comes
//! up `p · N` times, give or take one.

use ragen_kernels::{Backend, Choice};

use super::super::{ModelError, Network, Weights, pack};
use super::Report;
use super::vectors::Folder;

const DRAWS: usize = 2048;
const ROWS: usize = 256;

pub(super) fn compare<B: Backend>(folder: &Folder, weights: Weights<B>, report: &mut Report) -> Result<(), ModelError> {
    let case = &folder.cases.sampling;
    let backend = weights.backend().clone();
    let outputs = weights.config().vocab_size;
    let batch = pack(&[&case.tokens], false)?;
    let mut network = Network::frozen(weights);
    for (number, case) in case.cases.iter().enumerate() {
        let logits = backend.upload(&network.logits(&batch, &[batch.row(0, case.position); ROWS])?)?;
        let mut counts = vec![0_usize; outputs];
        for first in (0..DRAWS).step_by(ROWS) {
            let choices: Vec<Choice> = (first..first + ROWS)
                .map(|draw| Choice {
                    temperature: case.temperature,
                    top_k: case.top_k,
                    top_p: case.top_p,
                    min_p: 0.0,
                    greedy: false,
                    uniform: (draw as f64 + 0.5) / DRAWS as f64,
                })
                .collect();
            let (mut ids, mut logprobs, mut entropies) = ([0; ROWS], [0.0; ROWS], [0.0; ROWS]);
            backend.sample(&logits, ROWS, outputs, outputs, &[], &choices, &mut ids, &mut logprobs, &mut entropies)?;
            for id in ids {
                counts[id as usize] += 1;
            }
        }
        let mut expected = vec![0.0; outputs];
        for (&id, &probability) in case.ids.iter().zip(&case.probs) {
            match expected.get_mut(id as usize) {
                Some(slot) => *slot = probability,
                None => {
                    let reason = format!("sampling: id {id} is not below {outputs}");
                    return Err(ModelError::Format { path: folder.path.join("cases.json"), reason });
                }
            }
        }
        let apart = |(&count, probability): (&usize, &f64)| (count as f64 / DRAWS as f64 - probability).abs();
        let error = counts.iter().zip(&expected).map(apart).fold(0.0, f64::max);
        let stray = counts.iter().zip(&expected).any(|(&count, &probability)| count > 0 && probability == 0.0);
        let bound = 1.0 / DRAWS as f64 + 1e-5;
        report.add(&folder.name, format!("sampling {number}"), if stray { f64::INFINITY } else { error }, bound);
    }
    Ok(())
}
