//! Gradients against differences of the loss, and against themselves under every way to cut and share the work.

use ragen::model::{AdamWSettings, Architecture, Network, PackedBatch, Step, pack};
use ragen::random::{Purpose, Stream};
use ragen_kernels::cpu::Cpu;

use crate::common::{ARCHITECTURES, tokens, weights};

const TEMPERATURE: f32 = 0.8;

/// Fixed weights of every row's log-probability, entropy and value in the loss.
fn slopes(rows: usize) -> [Vec<f32>; 3] {
    let mut stream = Stream::new(11, Purpose::Test, &[]);
    [(); 3].map(|()| (0..rows).map(|_| stream.normal() as f32).collect())
}

/// Rows that predict tokens 2.. of every sequence, and these tokens.
fn rows(batch: &PackedBatch, sequences: &[&[u32]]) -> (Vec<u32>, Vec<u32>) {
    let all = sequences.iter().enumerate().flat_map(|(sequence, tokens)| {
        (2..tokens.len()).map(move |position| (batch.row(sequence, position - 1), tokens[position]))
    });
    all.unzip()
}

fn loss(network: &mut Network<Cpu>, sequences: &[&[u32]]) -> f64 {
    let batch = pack(sequences, false).unwrap();
    let (selected, targets) = rows(&batch, sequences);
    let outputs = network.score_rows(&batch, &selected, Some(&targets), TEMPERATURE).unwrap();
    let lists = [&outputs.logprobs, &outputs.entropies, &outputs.values];
    let products = lists.into_iter().zip(slopes(selected.len())).flat_map(|(list, slopes)| {
        list.iter().zip(slopes).map(|(x, slope)| f64::from(*x) * f64::from(slope)).collect::<Vec<_>>()
    });
    products.sum()
}

/// Adds the gradient of [`loss`] for sequences whose slopes begin at `first`.
fn accumulate(
    network: &mut Network<Cpu>,
    sequences: &[&[u32]],
    share: bool,
    slopes: &[Vec<f32>; 3],
    first: usize,
) -> usize {
    let batch = pack(sequences, share).unwrap();
    let (selected, targets) = rows(&batch, sequences);
    network.forward_rows(&batch, &selected, Some(&targets), TEMPERATURE).unwrap();
    let range = first..first + selected.len();
    let [a, b, c] = slopes;
    let values = c.get(range.clone()).unwrap_or_default();
    network.backward_rows(&batch, &a[range.clone()], &b[range], values).unwrap();
    selected.len()
}

fn gradients(network: &Network<Cpu>) -> Vec<Vec<f32>> {
    (0..network.weights().parameters().len()).map(|place| network.gradient(place).unwrap()).collect()
}

/// Largest difference as a share of the tensor's largest entry.
fn apart(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    let share = |(a, b): (&Vec<f32>, &Vec<f32>)| {
        let largest = a.iter().fold(1e-30_f64, |most, x| most.max(f64::from(x.abs())));
        a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max) / largest
    };
    a.iter().zip(b).map(share).fold(0.0, f64::max)
}

fn four_sequences() -> Vec<Vec<u32>> {
    let trunk = tokens(1, 37);
    (0..4).map(|n| [&trunk[..], &tokens(10 + n, 9 + 7 * n as usize)].concat()).collect()
}

/// A central difference with step `h` has an error of `h²/6 · f‴` from the curve and of `ε·|f|/h` from rounding, where `ε|f|`
/// is the error of a loss of some hundred f32 terms of size 1: about 1e-5. With h = 2e-3 both stay under 1e-2, so gradients are
/// compared within 1 % of the tensor's largest entry plus 1e-2.
#[test]
fn gradients_are_differences_of_the_loss() {
    for (architecture, tied) in
        [(Architecture::Qwen2, true), (Architecture::Qwen3, false), (Architecture::Llama, false)]
    {
        let mut network = Network::trained(weights(architecture, tied, true), false).unwrap();
        let sequences = [tokens(3, 21), tokens(4, 6)];
        let views: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
        let slopes = slopes(23);
        accumulate(&mut network, &views, false, &slopes, 0);
        let gradients = gradients(&network);
        let mut stream = Stream::new(6, Purpose::Test, &[]);
        let mut checked = 0;
        for (place, gradient) in gradients.iter().enumerate() {
            let values = network.weights().read(place).unwrap();
            let largest = gradient.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            for _ in 0..12 {
                let index = stream.below(values.len());
                let mut at = |step: f32| {
                    let mut moved = values.clone();
                    moved[index] += step;
                    network.weights_mut().write(place, &moved).unwrap();
                    (f64::from(moved[index]), loss(&mut network, &views))
                };
                let ((high, above), (low, below)) = (at(2e-3), at(-2e-3));
                network.weights_mut().write(place, &values).unwrap();
                let difference = (above - below) / (high - low);
                let error = (difference - f64::from(gradient[index])).abs();
                let name = &network.weights().parameters().get(place).name;
                let bound = 1e-2 + 1e-2 * f64::from(largest);
                assert!(error < bound, "{architecture:?} {name}[{index}]: {difference} against {}", gradient[index]);
                checked += 1;
            }
        }
        assert!(checked > 200);
    }
}

#[test]
fn recomputation_changes_no_bit() {
    for architecture in ARCHITECTURES {
        let sequences = four_sequences();
        let views: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
        let slopes = slopes(500);
        let run = |recompute| {
            let mut network = Network::trained(weights(architecture, true, true), recompute).unwrap();
            accumulate(&mut network, &views, true, &slopes, 0);
            gradients(&network)
        };
        assert_eq!(run(false), run(true), "{architecture:?}");
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let sequences = four_sequences();
    let views: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
    let slopes = slopes(500);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut network = Network::trained(weights(Architecture::Qwen2, true, true), false).unwrap();
            for _ in 0..2 {
                accumulate(&mut network, &views, true, &slopes, 0);
                network.step(&AdamWSettings::default()).unwrap();
            }
            network.weights().hash().unwrap()
        })
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn a_shared_beginning_changes_gradients_by_rounding_only() {
    for architecture in ARCHITECTURES {
        let sequences = four_sequences();
        let views: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
        let slopes = slopes(500);
        let mut network = Network::trained(weights(architecture, false, true), false).unwrap();
        let mut run = |share| {
            let batch = pack(&views, share).unwrap();
            let (selected, targets) = rows(&batch, &views);
            let outputs = network.score_rows(&batch, &selected, Some(&targets), 1.0).unwrap().clone();
            network.zero_gradients().unwrap();
            accumulate(&mut network, &views, share, &slopes, 0);
            (batch.rows(), outputs, gradients(&network))
        };
        let (alone, shared) = (run(false), run(true));
        assert_eq!(alone.0 - shared.0, 3 * 32, "two blocks of 16 are shared by three more sequences");
        assert_eq!(alone.1, shared.1);
        let error = apart(&alone.2, &shared.2);
        assert!(error < 1e-5, "{architecture:?}: {error}");
    }
}

#[test]
fn the_cut_into_micro_batches_changes_gradients_by_rounding_only() {
    let sequences = four_sequences();
    let views: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
    let slopes = slopes(500);
    let mut network = Network::trained(weights(Architecture::Qwen2, true, true), false).unwrap();
    let mut run = |size| {
        network.zero_gradients().unwrap();
        let mut first = 0;
        for part in views.chunks(size) {
            first += accumulate(&mut network, part, false, &slopes, first);
        }
        gradients(&network)
    };
    let whole = run(4);
    for size in [1, 2, 3] {
        let error = apart(&whole, &run(size));
        assert!(error < 1e-6, "{size}: {error}");
    }
}

#[test]
fn a_gradient_that_is_not_finite_leaves_the_weights_alone() {
    let mut network = Network::trained(weights(Architecture::Llama, false, false), false).unwrap();
    let sequence = tokens(3, 8);
    let views: [&[u32]; 1] = [&sequence];
    let batch = pack(&views, false).unwrap();
    let (selected, targets) = rows(&batch, &views);
    let hash = network.weights().hash().unwrap();
    network.forward_rows(&batch, &selected, Some(&targets), 1.0).unwrap();
    let mut slopes = vec![1.0; selected.len()];
    slopes[2] = f32::NAN;
    network.backward_rows(&batch, &slopes, &[], &[]).unwrap();
    let step = network.step(&AdamWSettings::default()).unwrap();
    let Step::Skipped(found) = step else { panic!("{step:?}") };
    assert_eq!(found.to_string(), "the gradient of `model.embed_tokens.weight` is not finite");
    assert_eq!(network.weights().hash().unwrap(), hash);
    assert_eq!(network.optimizer().unwrap().steps(), 0);
    // The broken gradients are gone, so the next step succeeds.
    accumulate(&mut network, &views, false, &[vec![1.0; 6], vec![0.0; 6], vec![]], 0);
    assert!(matches!(network.step(&AdamWSettings::default()).unwrap(), Step::Applied { .. }));
    assert_ne!(network.weights().hash().unwrap(), hash);
}

#[test]
fn a_broken_weight_is_named_with_its_layer() {
    let mut network = Network::trained(weights(Architecture::Llama, false, false), false).unwrap();
    let list = network.weights().parameters().clone();
    let place = list.iter().position(|parameter| parameter.name == "model.layers.1.mlp.up_proj.weight").unwrap();
    let mut values = network.weights().read(place).unwrap();
    values[7] = f32::NAN;
    network.weights_mut().write(place, &values).unwrap();
    let sequence = tokens(3, 8);
    let batch = pack(&[&sequence], false).unwrap();
    let error = network.forward_rows(&batch, &[1], Some(&[2]), 1.0).unwrap_err().to_string();
    assert_eq!(error, "the weight `model.layers.1.mlp.up_proj.weight` in layer 1 is not finite");
}

#[test]
fn calls_that_do_not_fit_are_errors() {
    let mut network = Network::trained(weights(Architecture::Llama, false, false), false).unwrap();
    let sequence = tokens(3, 8);
    let batch = pack(&[&sequence], false).unwrap();
    let message = |result: Result<(), ragen::model::ModelError>| result.unwrap_err().to_string();
    assert!(message(network.backward_rows(&batch, &[1.0], &[], &[])).contains("no forward pass precedes it"));
    network.forward_rows(&batch, &[1, 2], Some(&[1, 2]), 1.0).unwrap();
    assert!(
        message(network.backward_rows(&batch, &[1.0], &[], &[])).contains("1 gradients of log-probability for 2 rows")
    );
    network.forward_rows(&batch, &[1, 2], None, 1.0).unwrap();
    assert!(message(network.backward_rows(&batch, &[1.0, 1.0], &[], &[])).contains("not computed"));
    for (selected, targets, temperature, text) in [
        (vec![8], vec![1], 1.0, "row 8 is not below 8"),
        (vec![1], vec![97], 1.0, "target 97 is not below"),
        (vec![1], vec![1, 2], 1.0, "2 targets for 1 rows"),
        (vec![1], vec![1], 0.0, "temperature 0"),
    ] {
        let error = network.forward_rows(&batch, &selected, Some(&targets), temperature).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    let long = vec![1; 257];
    let batch = pack(&[&long], false).unwrap();
    let error = network.forward_rows(&batch, &[0], Some(&[0]), 1.0).unwrap_err().to_string();
    assert!(error.contains("position 256 is not below the context 256"), "{error}");
    let mut frozen = Network::frozen(weights(Architecture::Llama, false, false));
    assert!(message(frozen.zero_gradients()).contains("frozen"));
}
