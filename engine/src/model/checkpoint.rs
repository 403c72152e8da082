//! Saving and loading of the state that training needs to go on.

use std::path::Path;

use ragen_kernels::Backend;

use super::files::WeightFiles;
use super::network::{Network, not_trained};
use super::tensor_file::{Precision, TensorFile};
use super::tensor_writer::{TensorSpec, write_tensors};
use super::{ModelError, Weights};

const STEPS: &str = "steps";

impl<B: Backend> Network<B> {
    /// Saves AdamW's moments and step count. The weights are saved apart, with [`Weights::save`] in f32.
    ///
    /// # Errors
    /// A frozen network, or what the device or the file system reports; `path` is then as it was.
    pub fn save_optimizer(&self, path: &Path) -> Result<(), ModelError> {
        let optimizer = self.optimizer.as_ref().ok_or_else(|| not_trained("save_optimizer"))?;
        let list = self.weights.parameters();
        let specs: Vec<TensorSpec> = names(&self.weights).map(|(name, shape)| TensorSpec { name, shape }).collect();
        let steps = [(STEPS, optimizer.steps.to_string())];
        write_tensors(path, &specs, &steps, Precision::F32, |index, values| {
            let (place, first) = (index / 2, index % 2 == 0);
            let buffer = if first { &optimizer.first[place] } else { &optimizer.second[place] };
            values.resize(list.get(place).length(), 0.0);
            self.weights.backend().read(buffer, 0, values)?;
            Ok(())
        })
    }

    /// Restores what [`Network::save_optimizer`] wrote; training then goes on bit for bit. Accumulated gradients are dropped.
    ///
    /// # Errors
    /// A frozen network, a file that is broken or of another model, or what the device reports. After an error the state is
    /// not usable.
    pub fn load_optimizer(&mut self, path: &Path) -> Result<(), ModelError> {
        let mut file = TensorFile::open(path)?;
        let broken = |reason: String| ModelError::Format { path: path.to_owned(), reason };
        let steps = file.metadata(STEPS).and_then(|text| text.parse().ok());
        let steps = steps.ok_or_else(|| broken(format!("metadata `{STEPS}` is missing or no number")))?;
        let expected: Vec<_> = names(&self.weights).collect();
        let extra: Vec<&str> = file.names().filter(|name| expected.iter().all(|(known, _)| known != name)).collect();
        if !extra.is_empty() {
            return Err(broken(format!("tensors of another model: {}", extra.join(", "))));
        }
        let optimizer = self.optimizer.as_mut().ok_or_else(|| not_trained("load_optimizer"))?;
        for (index, (name, shape)) in expected.iter().enumerate() {
            let values = file.read(name, shape)?;
            let list = if index % 2 == 0 { &mut optimizer.first } else { &mut optimizer.second };
            self.weights.backend().write(&mut list[index / 2], 0, &values)?;
        }
        optimizer.steps = steps;
        self.zero_gradients()
    }
}

/// Names and shapes of both moments of every parameter, in turn.
fn names<B: Backend>(weights: &Weights<B>) -> impl Iterator<Item = (String, Vec<usize>)> + '_ {
    weights.parameters().iter().flat_map(|parameter| {
        ["first", "second"].map(|moment| (format!("{moment}.{}", parameter.name), parameter.shape.clone()))
    })
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
