//! The transformer: configuration, weights, passes, optimiser, tokens and generation.
//!
//! Everything is written once against [`ragen_kernels::Backend`]. A [`Weights`] holds what a model is; a [`Network`] adds the
//! memory to score and to train it; a [`Generator`] samples from it. Log-probabilities and entropies that the generator
//! reports are the bits that [`Network::forward_rows`] computes for the same tokens.

mod backward;
mod chat;
mod checkpoint;
mod config;
mod error;
mod files;
mod forward;
mod generate;
mod keys;
mod layer;
mod network;
mod optimizer;
mod pack;
mod parameters;
mod rope;
mod score;
mod template;
mod tensor_file;
mod tensor_writer;
mod token_bytes;
mod tokenizer;
mod verify;
mod weights;
mod workspace;

pub use chat::{ChatPieces, ChatTokens, Segment, encode_segments};
pub use config::{Architecture, Llama3Scaling, ModelConfig};
pub use error::ModelError;
pub use files::{CONFIG, INDEX, WEIGHTS, WeightFiles};
pub use generate::{Completion, Generator, GeneratorCounts, GeneratorOptions, Request, Sampling, StopRules};
pub use network::{Network, RowOutputs};
pub use optimizer::{AdamWSettings, NonFinite, Optimizer, Step};
pub use pack::{PackedBatch, pack};
pub use parameters::{Parameter, ParameterList};
pub use rope::rope_table;
pub use score::{ScoreRow, micro_batches};
pub use template::ChatTemplate;
pub use tensor_file::{Precision, TensorFile};
pub use tensor_writer::{TensorSpec, write_tensors};
pub use token_bytes::{StreamDecoder, TokenBytes};
pub use tokenizer::{TOKENIZER, TOKENIZER_CONFIG, Tokenizer};
pub use verify::{Case, Report, verify_model, verify_model_on};
pub use weights::{WeightOptions, Weights};
pub use workspace::{Purpose as WorkspacePurpose, workspace_bytes};
