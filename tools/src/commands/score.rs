//! `ragen score`: log-probability and entropy of every token.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use clap::Args;
use ragen::model::{ModelError, Network, RowOutputs, ScoreRow, Weights};
use ragen::record::Message;
use ragen_kernels::cpu::Cpu;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::model_directory::{LoadedModel, ModelArguments, Texts};
use crate::output::print_json;

/// Score every token of texts: log-probability and entropy, in nats.
///
/// Each line of the input is an object with one of `ids` (a list of token ids), `text` or `messages` (a chat of roles and
/// contents). Each gives one line of output: {"line": 1, "logprob": sum, "tokens": [{"id", "text", "logprob", "entropy"}, ...]}.
/// Nothing precedes the first token, so its numbers are null.
#[derive(Args, Debug)]
#[command(after_help = help!("echo '{\"text\": \"Up || Left\"}' | ragen score --model configs/models/tiny"))]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Divides the logits
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = positive)]
    temperature: f32,
    /// JSON lines; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
}

/// A number above 0.
pub fn positive(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("expected a number above 0".to_owned()),
    }
}

/// A line of input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    ids: Option<Vec<u32>>,
    text: Option<String>,
    messages: Option<Vec<Message>>,
}

#[derive(Serialize)]
struct Scored {
    line: usize,
    logprob: f64,
    tokens: Vec<Token>,
}

#[derive(Serialize)]
struct Token {
    id: u32,
    text: String,
    logprob: Option<f32>,
    entropy: Option<f32>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let (name, reader): (String, Box<dyn BufRead>) = if path.as_os_str() == "-" {
        ("standard input".to_owned(), Box::new(io::stdin().lock()))
    } else {
        let file = File::open(path).map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
        (path.display().to_string(), Box::new(BufReader::new(file)))
    };
    let LoadedModel { weights, texts } = arguments.model.load()?;
    let mut network = Network::frozen(weights);
    for (index, line) in reader.lines().enumerate() {
        let number = index + 1;
        let at_line = |reason: String| Failure::input(format!("{name}, line {number}: {reason}"));
        let line = line.map_err(|error| at_line(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let ids = read_ids(&line, &texts, network.weights()).map_err(at_line)?;
        let tokens = score(&mut network, &texts, &ids, arguments.temperature)?;
        let logprob = tokens.iter().filter_map(|token| token.logprob).map(f64::from).sum();
        print_json(&Scored { line: number, logprob, tokens })?;
    }
    Ok(())
}

/// The ids that a line asks about.
fn read_ids(line: &str, texts: &Texts, weights: &Weights<Cpu>) -> Result<Vec<u32>, String> {
    let found: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let ids = match found {
        Line { ids: Some(ids), text: None, messages: None } => ids,
        Line { ids: None, text: Some(text), messages: None } => {
            texts.tokenizer.encode_text(&text).map_err(|error| error.to_string())?
        }
        Line { ids: None, text: None, messages: Some(messages) } => {
            texts.encode_chat(&messages, false).map_err(|error| error.to_string())?
        }
        _ => return Err("expected exactly one of `ids`, `text` and `messages`".to_owned()),
    };
    if ids.is_empty() {
        return Err("there are no tokens in it".to_owned());
    }
    if ids.len() > weights.context() {
        return Err(format!("{} tokens are more than the model's {} positions", ids.len(), weights.context()));
    }
    match ids.iter().find(|&&id| id as usize >= weights.vocabulary()) {
        Some(id) => Err(format!("token id {id} is not below {}", weights.vocabulary())),
        None => Ok(ids),
    }
}

fn score(network: &mut Network<Cpu>, texts: &Texts, ids: &[u32], temperature: f32) -> Result<Vec<Token>, ModelError> {
    let positions: Vec<u32> = (1..ids.len() as u32).collect();
    let rows = [ScoreRow { tokens: ids, positions: &positions }];
    let outputs =
        if positions.is_empty() { RowOutputs::default() } else { network.score(&rows, temperature, ids.len())? };
    let after_first = |values: &[f32], place: usize| place.checked_sub(1).and_then(|place| values.get(place).copied());
    let token = |(place, &id)| Token {
        id,
        text: texts.tokenizer.decode(&[id]),
        logprob: after_first(&outputs.logprobs, place),
        entropy: after_first(&outputs.entropies, place),
    };
    Ok(ids.iter().enumerate().map(token).collect())
}
