//! What an optimiser remembers, on disk.

use std::path::Path;

use ragen_kernels::Backend;

use super::files::WeightFiles;
use super::network::{Network, not_trained};
use super::tensors::{Precision, TensorFile, TensorSpec, write_tensors};
use super::{ModelError, Weights};

/// Names of the two moments in the file, before the parameter's name.
const MOMENTS: [&str; 2] = ["first.", "second."];

impl<B: Backend> Network<B> {
    /// Writes moments and step count.
    ///
    /// # Errors
    /// A frozen network, or what the device or the file system reports.
    pub fn save_training(&self, path: &Path) -> Result<(), ModelError> {
        let optimizer = self.optimizer.as_ref().ok_or_else(|| not_trained("save_training"))?;
        let list = self.weights.parameters();
        let specs: Vec<TensorSpec> = MOMENTS
            .iter()
            .flat_map(|moment| {
                list.iter().map(move |entry| TensorSpec {
                    name: format!("{moment}{}", entry.name),
                    shape: entry.shape.clone(),
                })
            })
            .collect();
        let steps = [("steps", optimizer.steps.to_string())];
        write_tensors(path, &specs, &steps, Precision::F32, |index, values| {
            let moments = if index < list.len() { &optimizer.first } else { &optimizer.second };
            let moment = &moments[index % list.len()];
            let backend = self.weights.backend();
            values.resize(backend.length(moment), 0.0);
            Ok(backend.read(moment, 0, values)?)
        })
    }

    /// Restores moments and step count.
    ///
    /// # Errors
    /// A frozen network, or a file that does not fit; it is named with the tensor.
    pub fn load_training(&mut self, path: &Path) -> Result<(), ModelError> {
        let Self { weights, optimizer, .. } = self;
        let optimizer = optimizer.as_mut().ok_or_else(|| not_trained("load_training"))?;
        let mut file = TensorFile::open(path)?;
        let steps = file.metadata("steps").and_then(|steps| steps.parse().ok()).ok_or_else(|| ModelError::Format {
            path: path.to_owned(),
            reason: "its metadata names no number of steps".into(),
        })?;
        let backend = weights.backend().clone();
        for (moment, buffers) in MOMENTS.iter().zip([&mut optimizer.first, &mut optimizer.second]) {
            for (entry, buffer) in weights.parameters().iter().zip(buffers) {
                backend.write(buffer, 0, &file.read(&format!("{moment}{}", entry.name), &entry.shape)?)?;
            }
        }
        optimizer.steps = steps;
        Ok(())
    }
}

impl<B: Backend> Weights<B> {
    /// Replaces all parameters by those of a model directory of the same shape.
    ///
    /// # Errors
    /// Names file and tensor.
    pub fn restore(&mut self, directory: &Path) -> Result<(), ModelError> {
        let mut files = WeightFiles::open(directory)?;
        for place in 0..self.parameters().len() {
            let entry = self.parameters().get(place).clone();
            self.write(place, &files.read(&entry.name, &entry.shape)?)?;
        }
        Ok(())
    }
}
