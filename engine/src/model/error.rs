//! Errors of the model runtime.

use std::path::PathBuf;

use ragen_kernels::KernelError;

use super::NonFinite;

/// A model, tokenizer, template or request that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// `RG0501`: a file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// `RG0502`: a key of a JSON file is missing, has a wrong value or is not supported.
    #[error("{}: `{key}`: {reason}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The key within it.
        key: String,
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// `RG0503`: a file does not have the format that it must have.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// `RG0504`: a tensor of a weight file cannot be used.
    #[error("{}: tensor `{tensor}`: {reason}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// What is wrong, expected and found.
        reason: String,
    },
    /// `RG0505`: a call's arguments contradict each other or the model.
    #[error("{call}: {reason}")]
    Argument {
        /// The function that was called.
        call: &'static str,
        /// What is wrong, expected and found.
        reason: String,
    },
    /// `RG0506`: the chat template cannot be used.
    #[error("chat template: {reason}")]
    Template {
        /// What the template does.
        reason: String,
    },
    /// `RG0507`: text cannot be turned into ids.
    #[error("tokenizer: {reason}")]
    Tokenizer {
        /// What is wrong.
        reason: String,
    },
    /// `RG0508`: a weight that is not finite made a result that is not.
    #[error("{0}")]
    NonFinite(NonFinite),
    /// `RG0509`: an operation on the device failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl ModelError {
    pub(crate) fn argument(call: &'static str, reason: impl Into<String>) -> Self {
        Self::Argument { call, reason: reason.into() }
    }
}
