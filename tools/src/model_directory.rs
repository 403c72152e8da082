//! A model directory as `score` and `generate` use it: weights, tokenizer and chat template.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use ragen::model::{CONFIG, ChatTemplate, ModelConfig, ModelError, Tokenizer, WeightOptions, Weights, encode_segments};
use ragen::record::Message;
use ragen_kernels::cpu::Cpu;

use crate::compute::DeviceArguments;
use crate::failure::Failure;

/// Which model, and where it computes.
#[derive(Args, Clone, Debug)]
pub struct ModelArguments {
    /// Model directory; a checkpoint of a run is one
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    #[command(flatten)]
    device: DeviceArguments,
}

/// A loaded model.
pub struct LoadedModel {
    /// The weights.
    pub weights: Weights<Cpu>,
    /// What turns text into ids and back.
    pub texts: Texts,
}

/// Tokenizer and chat template of a model directory.
pub struct Texts {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    directory: PathBuf,
}

impl ModelArguments {
    /// Loads the directory.
    pub fn load(&self) -> Result<LoadedModel, Failure> {
        self.device.check()?;
        if !self.model.is_dir() {
            return Err(Failure::input(format!("{}: there is no such model directory", self.model.display())));
        }
        Ok(load(&self.model)?)
    }
}

fn load(directory: &Path) -> Result<LoadedModel, ModelError> {
    let config = ModelConfig::read(&directory.join(CONFIG))?;
    let tokenizer = Tokenizer::load(directory, &config.eos_ids)?;
    let options = WeightOptions { context: config.max_positions, value_head: false };
    let mut weights = Weights::load(Arc::new(Cpu::new()), directory, options)?;
    weights.set_vocabulary(tokenizer.vocabulary().min(config.vocab_size))?;
    Ok(LoadedModel { weights, texts: Texts { tokenizer, directory: directory.to_owned() } })
}

impl Texts {
    /// Ids of a chat in the model's template, with the prompt for an answer at the end if asked for.
    pub fn encode_chat(&self, messages: &[Message], answer: bool) -> Result<Vec<u32>, ModelError> {
        let pieces = ChatTemplate::load(&self.directory)?.pieces()?;
        let messages: Vec<(&str, &str)> =
            messages.iter().map(|message| (message.role.as_str(), message.content.as_str())).collect();
        encode_segments(&self.tokenizer, &pieces.segments(&messages, answer)?)
    }
}
