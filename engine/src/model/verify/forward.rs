//! Logits, log-probabilities, entropies, activations, packed rows and greedy continuations.

use std::path::Path;

use ragen_kernels::{Backend, KEY_BLOCK};

use super::super::files::{CONFIG, WeightFiles};
use super::super::{
    Generator, GeneratorOptions, ModelConfig, ModelError, Network, PackedBatch, Request, Sampling, StopRules,
    WeightOptions, Weights, pack,
};
use super::vectors::{Folder, difference, tensor};
use super::{Report, TOLERANCE};

type Load<'a, B> = &'a dyn Fn(bool) -> Result<Weights<B>, ModelError>;

pub(super) fn compare<B: Backend>(folder: &Folder, load: Load<'_, B>, report: &mut Report) -> Result<(), ModelError> {
    let mut network = Network::trained(load(false)?, false)?;
    batches(folder, &mut network, report)?;
    trace(folder, &mut network, report)?;
    packed(folder, &mut network, report)?;
    greedy(folder, network.weights(), report)?;
    if folder.cases.bf16_weights.is_some() {
        rounded(folder, network.weights(), report)?;
    }
    Ok(())
}

/// All rows of all sequences in order.
fn all_rows(batch: &PackedBatch) -> Vec<u32> {
    let rows = |sequence| (0..batch.length(sequence)).map(move |position| batch.row(sequence, position));
    (0..batch.sequences()).flat_map(rows).collect()
}

fn batches<B: Backend>(folder: &Folder, network: &mut Network<B>, report: &mut Report) -> Result<(), ModelError> {
    let mut file = folder.file("forward")?;
    let mut logit_error: f64 = 0.0;
    let mut errors = vec![[0.0_f64; 2]; folder.cases.temperatures.len()];
    for (number, cases) in folder.cases.batches.iter().enumerate() {
        let views: Vec<&[u32]> = cases.tokens.iter().map(Vec::as_slice).collect();
        let batch = pack(&views, true)?;
        let rows = all_rows(&batch);
        let logits = network.logits(&batch, &rows)?;
        let (shape, expected) = tensor(&mut file, &format!("batch{number}.logits"))?;
        logit_error = logit_error.max(padded(&logits, &expected, &views, shape.get(1), logits.len() / rows.len(), 0));
        // The last row of a sequence has no target; any will do for its entropy.
        let targets: Vec<u32> =
            views.iter().flat_map(|tokens| tokens[1..].iter().copied().chain([tokens[0]])).collect();
        for (index, temperature) in folder.cases.temperatures.iter().enumerate() {
            let outputs = network.score_rows(&batch, &rows, Some(&targets), *temperature)?;
            let name = |what: &str| format!("batch{number}.{what}_t{temperature:?}");
            let (shape, expected) = tensor(&mut file, &name("entropies"))?;
            let error = padded(&outputs.entropies, &expected, &views, shape.get(1), 1, 0);
            errors[index][1] = errors[index][1].max(error);
            if views.iter().any(|tokens| tokens.len() > 1) {
                let (shape, expected) = tensor(&mut file, &name("log_probs"))?;
                let error = padded(&outputs.logprobs, &expected, &views, shape.get(1), 1, 1);
                errors[index][0] = errors[index][0].max(error);
            }
        }
    }
    report.add(&folder.name, "logits", logit_error, TOLERANCE);
    for (temperature, [logprob, entropy]) in folder.cases.temperatures.iter().zip(errors) {
        report.add(&folder.name, format!("log-probabilities at {temperature}"), logprob, TOLERANCE);
        report.add(&folder.name, format!("entropies at {temperature}"), entropy, TOLERANCE);
    }
    Ok(())
}

/// Difference of packed values from rows filled up to equal length; the last `cut` positions of a row are not compared.
fn padded(found: &[f32], expected: &[f32], rows: &[&[u32]], columns: Option<&usize>, width: usize, cut: usize) -> f64 {
    let Some(&columns) = columns else { return f64::INFINITY };
    let (mut worst, mut start) = (0.0_f64, 0);
    for (row, tokens) in rows.iter().enumerate() {
        let count = (tokens.len() - cut) * width;
        let from = row * columns * width;
        let Some(expected) = expected.get(from..from + count) else { return f64::INFINITY };
        worst = worst.max(difference(&found[start..start + count], expected));
        start += tokens.len() * width;
    }
    worst
}

fn trace<B: Backend>(folder: &Folder, network: &mut Network<B>, report: &mut Report) -> Result<(), ModelError> {
    let tokens = folder.cases.trace_tokens.as_slice();
    if tokens.is_empty() || !folder.path.join("trace.safetensors").exists() {
        return Ok(());
    }
    let mut file = folder.file("trace")?;
    let batch = pack(&[tokens], false)?;
    let rows = all_rows(&batch);
    network.forward_rows(&batch, &rows, None, 1.0)?;
    let (config, count) = (network.weights.config().clone(), tokens.len());
    let backend = network.weights.backend().clone();
    let mut worst: f64 = 0.0;
    let mut check = |buffer: &B::Buffer, width: usize, name: &str, heads: usize| -> Result<(), ModelError> {
        let mut found = vec![0.0; count * width];
        backend.read(buffer, 0, &mut found)?;
        let (_, mut expected) = tensor(&mut file, name)?;
        if heads > 1 && expected.len() == found.len() {
            // The file has heads outermost.
            let size = width / heads;
            let at = |index: usize| {
                let (row, column) = (index / width, index % width);
                expected[(column / size * count + row) * size + column % size]
            };
            expected = (0..found.len()).map(at).collect();
        }
        worst = worst.max(difference(&found, &expected));
        Ok(())
    };
    let room = &network.workspace;
    check(&room.inputs[0], config.hidden_size, "embed", 1)?;
    for (layer, slot) in room.slots.iter().enumerate() {
        check(&slot.query, config.query_width(), &format!("layers.{layer}.q"), config.heads)?;
        check(&slot.attended, config.query_width(), &format!("layers.{layer}.attn_heads"), 1)?;
        // All rows were selected, so the last layer's output is what the head picked.
        let picked = room.head.as_ref().map(|head| &head.picked).filter(|_| layer + 1 == config.layers);
        let out = picked.unwrap_or(&room.inputs[layer + 1]);
        check(out, config.hidden_size, &format!("layers.{layer}.out"), 1)?;
    }
    if let Some(head) = &room.head {
        check(&head.normed, config.hidden_size, "final_norm", 1)?;
    }
    report.add(&folder.name, "activations", worst, TOLERANCE);
    Ok(())
}

fn packed<B: Backend>(folder: &Folder, network: &mut Network<B>, report: &mut Report) -> Result<(), ModelError> {
    let case = &folder.cases.packed;
    let views: Vec<&[u32]> = case.cu_seqlens.windows(2).map(|pair| &case.tokens[pair[0]..pair[1]]).collect();
    let batch = pack(&views, true)?;
    let logits = network.logits(&batch, &all_rows(&batch))?;
    let (_, expected) = tensor(&mut folder.file("packed")?, "logits")?;
    report.add(&folder.name, "packed: logits", difference(&logits, &expected), TOLERANCE);
    Ok(())
}

/// Greedy continuations of all rows at once; the error counts tokens that differ.
fn greedy<B: Backend>(folder: &Folder, weights: &Weights<B>, report: &mut Report) -> Result<(), ModelError> {
    let rows: Vec<_> = folder.cases.batches.iter().flat_map(|batch| batch.tokens.iter().zip(&batch.greedy)).collect();
    let blocks = rows.iter().map(|(prompt, more)| (prompt.len() + more.len()).div_ceil(KEY_BLOCK)).sum();
    let options = GeneratorOptions { blocks, running: 8, pass_tokens: 64, reuse: true, banned: Vec::new() };
    let mut generator = Generator::new(weights, options, None)?;
    for (id, (prompt, more)) in rows.iter().enumerate() {
        generator.submit(
            weights,
            Request {
                id: id as u64,
                tokens: (*prompt).clone(),
                max_new_tokens: more.len(),
                sampling: Sampling { greedy: true, ..Sampling::default() },
                stop: StopRules::default(),
                seed: 0,
                coordinates: Vec::new(),
            },
        )?;
    }
    let mut wrong = 0;
    while generator.pending() > 0 {
        for completion in generator.advance(weights)? {
            let expected = rows[completion.id as usize].1;
            wrong += completion.tokens.iter().zip(expected).filter(|(found, expected)| found != expected).count();
        }
    }
    report.add(&folder.name, "greedy tokens that differ", wrong as f64, 0.0);
    Ok(())
}

/// The same weights rounded to bfloat16: the reader's conversion is exact, so the tolerance stays.
fn rounded<B: Backend>(folder: &Folder, weights: &Weights<B>, report: &mut Report) -> Result<(), ModelError> {
    let Some(case) = &folder.cases.bf16_weights else { return Ok(()) };
    let path = folder.path.join("model_bf16.safetensors");
    if !Path::new(&path).exists() {
        return Ok(());
    }
    let config = ModelConfig::read(&folder.path.join(CONFIG))?;
    let options = WeightOptions { context: config.max_positions, value_head: false };
    let weights = Weights::load_files(weights.backend().clone(), config, options, WeightFiles::single(&path)?)?;
    let batch = pack(&[&case.tokens], false)?;
    let logits = Network::frozen(weights).logits(&batch, &all_rows(&batch))?;
    let (_, expected) = tensor(&mut folder.file("bf16_weights")?, "logits")?;
    report.add(&folder.name, "bfloat16 weights: logits", difference(&logits, &expected), TOLERANCE);
    Ok(())
}
