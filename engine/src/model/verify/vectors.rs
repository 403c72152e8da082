//! The files of a folder of reference vectors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::super::{ModelError, TensorFile};

#[derive(Deserialize)]
pub(super) struct Cases {
    pub(super) temperatures: Vec<f32>,
    pub(super) batches: Vec<Batch>,
    pub(super) trace_tokens: Vec<u32>,
    pub(super) train: Train,
    pub(super) ppo: Constants,
    pub(super) ppo_full: Constants,
    pub(super) losses: BTreeMap<String, Loss>,
    pub(super) adamw: BTreeMap<String, AdamWCase>,
    pub(super) packed: Packed,
    pub(super) sampling: Sampling,
    pub(super) bf16_weights: Option<Row>,
}

#[derive(Deserialize)]
pub(super) struct Batch {
    pub(super) tokens: Vec<Vec<u32>>,
    pub(super) greedy: Vec<Vec<u32>>,
}

#[derive(Deserialize)]
pub(super) struct Row {
    pub(super) tokens: Vec<u32>,
}

#[derive(Deserialize)]
pub(super) struct Train {
    pub(super) tokens: Vec<Vec<u32>>,
    pub(super) mask: Vec<Vec<u8>>,
}

/// Constants of a policy loss; what a loss does not use is absent.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct Constants {
    pub(super) temperature: f32,
    pub(super) clip_low: f64,
    pub(super) clip_high: f64,
    pub(super) dual_clip: Option<f64>,
    #[serde(default)]
    pub(super) entropy_coef: f64,
    #[serde(default)]
    pub(super) kl_coef: f64,
}

#[derive(Deserialize)]
pub(super) struct Loss {
    pub(super) value: f64,
    pub(super) grad_norm: f64,
}

#[derive(Deserialize)]
pub(super) struct AdamWCase {
    pub(super) losses: Vec<String>,
    pub(super) max_grad_norm: Option<f64>,
    pub(super) grad_norms: Option<Vec<f64>>,
    pub(super) lr: f32,
    pub(super) beta1: f32,
    pub(super) beta2: f32,
    pub(super) eps: f32,
    pub(super) weight_decay: f32,
}

#[derive(Deserialize)]
pub(super) struct Packed {
    pub(super) tokens: Vec<u32>,
    pub(super) cu_seqlens: Vec<usize>,
    pub(super) mean_nll: f64,
    pub(super) grad_norm: f64,
    pub(super) grad_norm_by_parameter: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
pub(super) struct Sampling {
    pub(super) tokens: Vec<u32>,
    pub(super) cases: Vec<SamplingCase>,
}

#[derive(Deserialize)]
pub(super) struct SamplingCase {
    pub(super) position: usize,
    pub(super) temperature: f32,
    pub(super) top_k: u32,
    pub(super) top_p: f32,
    pub(super) ids: Vec<u32>,
    pub(super) probs: Vec<f64>,
}

/// One model's folder.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) cases: Cases,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, ModelError> {
        let file = path.join("cases.json");
        let bytes = std::fs::read(&file).map_err(|source| ModelError::File { path: file.clone(), source })?;
        let cases: Cases = serde_json::from_slice(&bytes)
            .map_err(|error| ModelError::Format { path: file.clone(), reason: error.to_string() })?;
        let folder = Self {
            path: path.to_owned(),
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            cases,
        };
        folder.check()?;
        Ok(folder)
    }

    /// Checks what the comparisons take for granted.
    fn check(&self) -> Result<(), ModelError> {
        let cases = &self.cases;
        let train = cases.train.tokens.iter().zip(&cases.train.mask);
        let borders = cases.packed.cu_seqlens.windows(2).all(|pair| pair[0] < pair[1]);
        let span = (cases.packed.cu_seqlens.first(), cases.packed.cu_seqlens.last());
        for (holds, what) in [
            (train.clone().all(|(row, mask)| row.len() == mask.len() + 1), "train: a mask does not fit its row"),
            (cases.train.tokens.len() == cases.train.mask.len(), "train: rows and masks differ in number"),
            (
                borders && span == (Some(&0), Some(&cases.packed.tokens.len())),
                "packed: cu_seqlens do not fit the tokens",
            ),
            (
                cases
                    .sampling
                    .cases
                    .iter()
                    .all(|case| case.position < cases.sampling.tokens.len() && case.ids.len() == case.probs.len()),
                "sampling: a case does not fit the tokens",
            ),
            (
                cases.batches.iter().all(|batch| batch.tokens.len() == batch.greedy.len()),
                "batches: rows and continuations differ in number",
            ),
        ] {
            if !holds {
                return Err(ModelError::Format { path: self.path.join("cases.json"), reason: what.into() });
            }
        }
        Ok(())
    }

    pub(super) fn file(&self, name: &str) -> Result<TensorFile, ModelError> {
        TensorFile::open(&self.path.join(format!("{name}.safetensors")))
    }
}

/// A tensor of whatever shape the file gives it.
pub(super) fn tensor(file: &mut TensorFile, name: &str) -> Result<(Vec<usize>, Vec<f32>), ModelError> {
    let shape = file.shape(name).unwrap_or_default();
    let values = file.read(name, &shape)?;
    Ok((shape, values))
}

/// Largest absolute difference; lists of different length differ without bound.
pub(super) fn difference(found: &[f32], expected: &[f32]) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let apart = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs();
    found.iter().zip(expected).map(apart).fold(0.0, |worst, next| if next <= worst { worst } else { next })
}
