//! Comparison of the model with reference vectors.
//!
//! A folder of vectors holds a model, `cases.json` and tensor files: logits, log-probabilities, entropies, greedy
//! continuations, packed rows, gradients of three losses, optimiser steps and candidate sets of sampling.

mod forward;
mod gradients;
mod report;
mod sampling;
mod vectors;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ragen_kernels::Backend;
use ragen_kernels::cpu::Cpu;

pub use report::{Case, Report};

use super::files::{CONFIG, WeightFiles};
use super::{ModelConfig, ModelError, WeightOptions, Weights};
use vectors::Folder;

/// Largest difference of logits, log-probabilities and entropies, in nats, and of gradients as a share of the tensor's
/// largest entry.
const TOLERANCE: f64 = 1e-4;

/// Compares the CPU executor with a folder of reference vectors, or with every such folder within `directory`.
///
/// # Errors
/// No folder of vectors, or a file of one that is missing or broken; a wrong number is a failed case, not an error.
pub fn verify_model(directory: &Path) -> Result<Report, ModelError> {
    verify_model_on(&Arc::new(Cpu::new()), directory)
}

/// As [`verify_model`], on an executor of one's choice.
///
/// # Errors
/// As [`verify_model`].
pub fn verify_model_on<B: Backend>(backend: &Arc<B>, directory: &Path) -> Result<Report, ModelError> {
    let mut report = Report::default();
    for path in folders(directory)? {
        let folder = Folder::open(&path)?;
        let load = |value_head| {
            let config = ModelConfig::read(&folder.path.join(CONFIG))?;
            let options = WeightOptions { context: config.max_positions, value_head };
            Weights::load_files(backend.clone(), config, options, WeightFiles::open(&folder.path)?)
        };
        forward::compare(&folder, &load, &mut report)?;
        gradients::compare(&folder, &load, &mut report)?;
        sampling::compare(&folder, load(false)?, &mut report)?;
    }
    Ok(report)
}

/// `directory` itself if it holds a model, or all its folders that do, by name.
fn folders(directory: &Path) -> Result<Vec<PathBuf>, ModelError> {
    if directory.join(CONFIG).exists() {
        return Ok(vec![directory.to_owned()]);
    }
    let failed = |source| ModelError::File { path: directory.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.join(CONFIG).exists() {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        let reason = "holds no folder of reference vectors (with config.json and cases.json)".into();
        return Err(ModelError::Format { path: directory.to_owned(), reason });
    }
    Ok(found)
}
