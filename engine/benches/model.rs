//! The built-in model at work: a training step of 32 x 256 tokens, and generation for 32 prompts of 200 tokens.
//!
//! `cargo bench -p ragen --bench model` measures this engine alone. With `RAGEN_PEER_PYTHON` set to a Python that has `torch` and
//! `transformers`, the same model does the same work there (`torch_peer.py`), in turn with ours, and the ratio is printed. Run it
//! on an otherwise idle machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use ragen::model::{
    AdamWSettings, Generator, GeneratorOptions, Network, PackedBatch, Request, Sampling, StopRules, WeightOptions,
    Weights, pack,
};
use ragen_kernels::KEY_BLOCK;
use ragen_kernels::cpu::Cpu;

const BATCH: usize = 32;
const LENGTH: usize = 256;
const PROMPT: usize = 200;
const NEW: usize = 32;
const ROUNDS: usize = 3;
const RUNS: usize = 5;

fn main() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/models/tiny");
    let python = std::env::var_os("RAGEN_PEER_PYTHON").map(PathBuf::from);
    let mut ours = [Vec::new(), Vec::new()];
    let mut theirs = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        ours[0].push(training(&directory));
        ours[1].push(generation(&directory));
        if let Some(python) = &python {
            theirs[0].push(peer(python, &directory, "train"));
            theirs[1].push(peer(python, &directory, "generate"));
        }
    }
    println!("{:<44} {:>12} {:>12} {:>7}", "tokens per second, median", "ragen", "PyTorch f32", "ratio");
    let names =
        [format!("training step, {BATCH} x {LENGTH}"), format!("generation, {BATCH} x {NEW} after {PROMPT}, greedy")];
    for ((name, ours), theirs) in names.iter().zip(&mut ours).zip(&mut theirs) {
        let ours = median(ours);
        match theirs.is_empty() {
            true => println!("{name:<44} {ours:>12.0} {:>12} {:>7}", "-", "-"),
            false => {
                let theirs = median(theirs);
                println!("{name:<44} {ours:>12.0} {theirs:>12.0} {:>7.2}", ours / theirs);
            }
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn weights(directory: &Path) -> Weights<Cpu> {
    let options = WeightOptions { context: LENGTH, value_head: false };
    Weights::load(Arc::new(Cpu::new()), directory, options).expect("the built-in model loads")
}

/// Sequences of equal length that share no prefix: sharing would be an advantage that the peer does not have.
fn sequences(length: usize, vocabulary: usize) -> Vec<Vec<u32>> {
    let token = |row: usize, place: usize| ((row * 7919 + place * 104_729 + row * place) % vocabulary) as u32;
    (0..BATCH).map(|row| (0..length).map(|place| token(row, place)).collect()).collect()
}

/// Median tokens per second of forward, backward and AdamW over all parameters.
fn training(directory: &Path) -> f64 {
    let mut network = Network::trained(weights(directory), false).expect("there is memory");
    let sequences = sequences(LENGTH, network.weights().vocabulary());
    let rows: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
    let batch: PackedBatch = pack(&rows, true).expect("the sequences are sound");
    let places = (0..BATCH).flat_map(|row| (1..LENGTH).map(move |place| (row, place)));
    let (selected, targets): (Vec<u32>, Vec<u32>) =
        places.map(|(row, place)| (batch.row(row, place - 1), sequences[row][place])).unzip();
    let slopes = vec![-1.0 / targets.len() as f32; targets.len()];
    let mut step = || {
        let start = Instant::now();
        network.forward_rows(&batch, &selected, Some(&targets), 1.0).expect("a forward pass");
        network.backward_rows(&batch, &slopes, &[], &[]).expect("a backward pass");
        network.step(&AdamWSettings::default()).expect("an optimiser step");
        (BATCH * LENGTH) as f64 / start.elapsed().as_secs_f64()
    };
    rayon::scope(|_| {
        step();
        median(&mut (0..RUNS).map(|_| step()).collect::<Vec<f64>>())
    })
}

/// Median new tokens per second, reading of the prompts included.
fn generation(directory: &Path) -> f64 {
    let weights = weights(directory);
    let options = GeneratorOptions {
        blocks: BATCH * LENGTH.div_ceil(KEY_BLOCK),
        running: BATCH,
        pass_tokens: 8192,
        reuse: false,
        banned: Vec::new(),
    };
    let mut generator = Generator::new(&weights, options, None).expect("there is memory");
    let mut run = || {
        let start = Instant::now();
        for (id, tokens) in sequences(PROMPT, weights.vocabulary()).into_iter().enumerate() {
            let request = Request {
                id: id as u64,
                tokens,
                max_new_tokens: NEW,
                sampling: Sampling { greedy: true, ..Sampling::default() },
                stop: StopRules::default(),
                seed: 1,
                coordinates: Vec::new(),
            };
            generator.submit(&weights, request).expect("the request is sound");
        }
        while generator.pending() > 0 {
            generator.advance(&weights).expect("a pass");
        }
        (BATCH * NEW) as f64 / start.elapsed().as_secs_f64()
    };
    rayon::scope(|_| {
        run();
        median(&mut (0..RUNS).map(|_| run()).collect::<Vec<f64>>())
    })
}

/// What the peer's script prints: median tokens per second.
fn peer(python: &Path, directory: &Path, task: &str) -> f64 {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/torch_peer.py");
    let numbers = [BATCH, if task == "train" { LENGTH } else { PROMPT }, NEW, RUNS].map(|number| number.to_string());
    let output = Command::new(python)
        .arg(script)
        .arg(task)
        .arg(directory)
        .args(numbers)
        .env("HF_HUB_OFFLINE", "1")
        .env("TRANSFORMERS_VERBOSITY", "error")
        .output()
        .expect("RAGEN_PEER_PYTHON runs");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().and_then(|line| line.parse().ok()).unwrap_or_else(|| {
        panic!("the peer failed: {}{}", text, String::from_utf8_lossy(&output.stderr));
    })
}
