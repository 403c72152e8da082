//! Weight files of a model directory: `model.safetensors`, or shards named by `model.safetensors.index.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::ModelError;
use super::tensor_file::TensorFile;

/// Name of a weight file that is not sharded.
pub const WEIGHTS: &str = "model.safetensors";
/// Name of the index over shards.
pub const INDEX: &str = "model.safetensors.index.json";
/// Name of the configuration.
pub const CONFIG: &str = "config.json";

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// All weight files of one model.
#[derive(Debug)]
pub struct WeightFiles {
    files: Vec<TensorFile>,
    owners: BTreeMap<String, usize>,
    label: PathBuf,
}

impl WeightFiles {
    /// Opens the weight files of a directory.
    ///
    /// # Errors
    /// Names the file and, where one is at fault, the tensor: no weight file, an index that names a missing or unsafe shard, a
    /// tensor that is not in the shard it is said to be in, or in two shards; and all errors of [`TensorFile::open`].
    pub fn open(directory: &Path) -> Result<Self, ModelError> {
        let index = directory.join(INDEX);
        let whole = directory.join(WEIGHTS);
        if !index.exists() || whole.exists() {
            return Self::single(&whole);
        }
        let broken = |reason: String| ModelError::Format { path: index.clone(), reason };
        let bytes = std::fs::read(&index).map_err(|source| ModelError::File { path: index.clone(), source })?;
        let parsed: Index = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
        let shards: BTreeSet<&String> = parsed.weight_map.values().collect();
        let mut opened = Self { files: Vec::new(), owners: BTreeMap::new(), label: index.clone() };
        for shard in shards {
            if shard.contains(['/', '\\']) || shard.starts_with('.') {
                return Err(broken(format!("shard `{shard}` is not a plain file name")));
            }
            let path = directory.join(shard);
            if !path.exists() {
                return Err(broken(format!("names the shard `{shard}`, which does not exist")));
            }
            let file = TensorFile::open(&path)?;
            for name in file.names() {
                match parsed.weight_map.get(name) {
                    Some(owner) if owner == shard => {}
                    owner => {
                        let reason = match owner {
                            None => "not named by the index".to_owned(),
                            Some(owner) => format!("the index places it in `{owner}`"),
                        };
                        return Err(ModelError::Tensor { path, tensor: name.to_owned(), reason });
                    }
                }
                opened.owners.insert(name.to_owned(), opened.files.len());
            }
            opened.files.push(file);
        }
        if let Some((name, shard)) = parsed.weight_map.iter().find(|(name, _)| !opened.owners.contains_key(*name)) {
            let reason = "missing, though the index places it here".to_owned();
            return Err(ModelError::Tensor { path: directory.join(shard), tensor: name.clone(), reason });
        }
        Ok(opened)
    }

    /// Opens one weight file.
    ///
    /// # Errors
    /// As [`TensorFile::open`].
    pub fn single(path: &Path) -> Result<Self, ModelError> {
        let file = TensorFile::open(path)?;
        let owners = file.names().map(|name| (name.to_owned(), 0)).collect();
        Ok(Self { files: vec![file], owners, label: path.to_owned() })
    }

    /// Whether a tensor exists.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.owners.contains_key(name)
    }

    /// Reads a tensor as f32.
    ///
    /// # Errors
    /// As [`TensorFile::read`].
    pub fn read(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        match self.owners.get(name) {
            Some(&owner) => self.files[owner].read(name, shape),
            None => Err(self.error(name, "missing".into())),
        }
    }

    /// Refuses tensors that the model does not have, listing them.
    ///
    /// # Errors
    /// [`ModelError::Format`] with all names that `known` rejects.
    pub fn refuse_unknown(&self, known: impl Fn(&str) -> bool) -> Result<(), ModelError> {
        let extra: Vec<_> = self.owners.keys().map(String::as_str).filter(|name| !known(name)).collect();
        if extra.is_empty() {
            return Ok(());
        }
        let reason = format!("tensors that this architecture does not have: {}", extra.join(", "));
        Err(ModelError::Format { path: self.label.clone(), reason })
    }

    pub(crate) fn error(&self, name: &str, reason: String) -> ModelError {
        ModelError::Tensor { path: self.label.clone(), tensor: name.to_owned(), reason }
    }
}
