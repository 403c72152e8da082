//! `ragen generate`: continues a text or answers a chat.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use ragen::model::{
    Completion, Generator, GeneratorOptions, Request, Sampling, StopRules, StreamDecoder, TokenBytes, Weights,
};
use ragen::record::{Finish, Message};
use ragen_kernels::KEY_BLOCK;
use ragen_kernels::cpu::Cpu;
use serde::{Deserialize, Serialize};

use crate::commands::score::positive;
use crate::failure::{Failure, Kind};
use crate::model_directory::{LoadedModel, ModelArguments};
use crate::output::{print, print_json};

/// Tokens of a prompt that are read in one pass.
const PASS_TOKENS: usize = 512;

/// Continue a text, or answer a chat, token by token.
///
/// The prompt is taken as text: what looks like a control token is not one. A chat goes through the model's own template.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen generate --model configs/models/tiny --messages chat.json --max-new-tokens 64 --stop '</answer>'"))]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    /// The text to continue [default: standard input]
    #[arg(conflicts_with = "messages")]
    prompt: Option<String>,
    /// A JSON file with a chat, [{"role": "user", "content": "..."}]; - is standard input
    #[arg(long, value_name = "FILE")]
    messages: Option<PathBuf>,
    /// Tokens to sample at most
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    max_new_tokens: u32,
    /// Divides the logits; above 1 is more random
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = positive)]
    temperature: f32,
    /// Only the most likely tokens that together reach this probability
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = share)]
    top_p: f32,
    /// Only this many of the most likely tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: u32,
    /// Only tokens of at least this share of the most likely one's probability; 0 keeps all
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = share_or_zero)]
    min_p: f32,
    /// Seed of the draws; equal seeds give equal texts
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Always takes the most likely token
    #[arg(long)]
    greedy: bool,
    /// Ends after this text; can be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Prints one JSON object with ids and log-probabilities instead of text
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value > 0.0 && value <= 1.0 => Ok(value),
        _ => Err("expected a number above 0 and at most 1".to_owned()),
    }
}

fn share_or_zero(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// A chat, bare or as in a line of records.
#[derive(Deserialize)]
#[serde(untagged)]
enum Chat {
    Bare(Vec<Message>),
    Within { messages: Vec<Message> },
}

#[derive(Serialize)]
struct Printed<'a> {
    text: &'a str,
    finish: Finish,
    prompt_tokens: usize,
    ids: &'a [u32],
    logprobs: &'a [f32],
    entropies: &'a [f32],
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.stop.iter().any(String::is_empty) {
        return Err(Failure::usage("--stop: an empty text would end at once"));
    }
    let LoadedModel { weights, texts } = arguments.model.load()?;
    let prompt = match &arguments.messages {
        Some(path) => {
            let name = path.display();
            let chat: Chat = serde_json::from_str(&read(path)?).map_err(|error| {
                Failure::input(format!("{name}: expected a list of messages with role and content: {error}"))
            })?;
            let (Chat::Bare(messages) | Chat::Within { messages }) = chat;
            texts.encode_chat(&messages, true).map_err(|error| Failure::input(format!("{name}: {error}")))?
        }
        None => {
            let text = arguments.prompt.clone().map_or_else(|| read(Path::new("-")), Ok)?;
            texts.tokenizer.encode_text(&text)?
        }
    };
    if prompt.is_empty() {
        return Err(Failure::input("the prompt is empty"));
    }
    let room = weights.context().saturating_sub(prompt.len());
    if room == 0 {
        let message = format!("the prompt has {} tokens, the model {} positions", prompt.len(), weights.context());
        return Err(Failure::input(message));
    }
    let prompt_tokens = prompt.len();
    let request = Request {
        id: 0,
        tokens: prompt,
        max_new_tokens: (arguments.max_new_tokens as usize).min(room),
        sampling: Sampling {
            temperature: arguments.temperature,
            top_k: arguments.top_k,
            top_p: arguments.top_p,
            min_p: arguments.min_p,
            greedy: arguments.greedy,
        },
        stop: StopRules { end_ids: texts.tokenizer.end_ids().to_vec(), strings: arguments.stop.clone() },
        seed: arguments.seed,
        coordinates: Vec::new(),
    };
    let options = GeneratorOptions {
        blocks: (prompt_tokens + request.max_new_tokens).div_ceil(KEY_BLOCK),
        running: 1,
        pass_tokens: PASS_TOKENS,
        reuse: false,
        banned: texts.tokenizer.banned_ids(),
    };
    let bytes = texts.tokenizer.token_bytes();
    let generator = Generator::new(&weights, options, Some(bytes.clone()))?;
    let mut text = String::new();
    let done = stream(generator, &weights, request, bytes, &mut |piece| {
        text.push_str(piece);
        if arguments.json { Ok(()) } else { print(piece) }
    })?;
    if !arguments.json {
        return print("\n");
    }
    print_json(&Printed {
        text: &text,
        finish: done.finish,
        prompt_tokens,
        ids: &done.tokens,
        logprobs: &done.logprobs,
        entropies: &done.entropies,
    })
}

/// Runs a request and hands out its text as it grows, without the end token and without what follows a stop text.
fn stream(
    mut generator: Generator<Cpu>,
    weights: &Weights<Cpu>,
    request: Request,
    bytes: &TokenBytes,
    each: &mut dyn FnMut(&str) -> Result<(), Failure>,
) -> Result<Completion, Failure> {
    let id = request.id;
    generator.submit(weights, request)?;
    let (mut decoder, mut shown) = (StreamDecoder::default(), 0);
    loop {
        let finished = generator.advance(weights)?.into_iter().next();
        let tokens = finished.as_ref().map(|done| done.tokens.as_slice()).or_else(|| generator.partial(id));
        let tokens = tokens.unwrap_or(&[]);
        let ended = finished.as_ref().is_some_and(|done| done.finish == Finish::EndOfTurn);
        let spoken = tokens.len() - usize::from(ended);
        let mut piece = String::new();
        for (place, &token) in tokens.iter().enumerate().take(spoken).skip(shown) {
            let text = bytes.get(token);
            let last = place + 1 == spoken;
            let beyond = finished.as_ref().filter(|_| last).map_or(0, |done| done.overshoot as usize);
            piece += &decoder.push(&text[..text.len().saturating_sub(beyond)]);
        }
        shown = spoken;
        if finished.is_some() {
            piece += &decoder.finish();
        }
        if !piece.is_empty() {
            each(&piece)?;
        }
        if let Some(done) = finished {
            return Ok(done);
        }
        if generator.pending() == 0 {
            return Err(Failure::new(Kind::Failed, "the generator ended without an answer"));
        }
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    if path.as_os_str() != "-" {
        return std::fs::read_to_string(path).map_err(|error| Failure::input(format!("{}: {error}", path.display())));
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|error| Failure::input(format!("standard input: {error}")))?;
    Ok(text)
}
