//! The safetensors format: one file of named tensors.
//!
//! A file is read tensor by tensor with ordinary reads, so no more than one tensor is held twice, and a file that shrinks
//! under the reader is an error rather than a crash.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use serde::Deserialize;
use serde_json::Value;

use super::ModelError;

/// Largest header accepted, as in the reference implementation.
const HEADER_LIMIT: u64 = 100_000_000;

/// Storage type of numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Precision {
    /// 32-bit floating point.
    F32,
    /// 16-bit floating point with 5 exponent bits; read only.
    F16,
    /// 16-bit floating point with 8 exponent bits.
    Bf16,
}

impl Precision {
    pub(crate) fn bytes(self) -> u64 {
        if self == Self::F32 { 4 } else { 2 }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
        }
    }
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

struct Tensor {
    precision: Option<Precision>,
    dtype: String,
    shape: Vec<u64>,
    start: u64,
    bytes: u64,
}

/// An open safetensors file.
pub struct TensorFile {
    path: PathBuf,
    file: File,
    tensors: BTreeMap<String, Tensor>,
    metadata: BTreeMap<String, String>,
}

impl std::fmt::Debug for TensorFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TensorFile").field("path", &self.path).field("tensors", &self.tensors.len()).finish()
    }
}

impl TensorFile {
    /// Opens a file and checks its header against its length.
    ///
    /// # Errors
    /// Names the file, and the tensor where one is at fault: missing file, cut header or data, duplicate names, ranges that
    /// overlap, leave gaps or do not fit the shape.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let failed = |source| ModelError::File { path: path.to_owned(), source };
        let broken = |reason: String| ModelError::Format { path: path.to_owned(), reason };
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length < 8 {
            return Err(broken(format!("cut short: {length} bytes, a header needs 8")));
        }
        let mut word = [0; 8];
        file.read_exact(&mut word).map_err(failed)?;
        let header = u64::from_le_bytes(word);
        if header > HEADER_LIMIT || header > length - 8 {
            return Err(broken(format!(
                "cut short or no safetensors file: header of {header} bytes in {length} bytes"
            )));
        }
        let mut text = vec![0; header as usize];
        file.read_exact(&mut text).map_err(failed)?;
        let entries: Entries = serde_json::from_slice(&text).map_err(|error| broken(format!("header: {error}")))?;

        let (start, room) = (8 + header, length - 8 - header);
        let mut opened = Self { path: path.to_owned(), file, tensors: BTreeMap::new(), metadata: BTreeMap::new() };
        for (name, raw) in entries.0 {
            if name == "__metadata__" {
                opened.metadata =
                    serde_json::from_value(raw).map_err(|error| broken(format!("__metadata__: {error}")))?;
                continue;
            }
            let entry: Entry =
                serde_json::from_value(raw).map_err(|error| opened.error(&name, format!("header: {error}")))?;
            let tensor = opened.check(&name, entry, start, room)?;
            if opened.tensors.insert(name.clone(), tensor).is_some() {
                return Err(opened.error(&name, "named twice in the header".into()));
            }
        }
        opened.check_ranges(start, room)?;
        Ok(opened)
    }

    fn error(&self, name: &str, reason: String) -> ModelError {
        ModelError::Tensor { path: self.path.clone(), tensor: name.to_owned(), reason }
    }

    fn check(&self, name: &str, entry: Entry, start: u64, room: u64) -> Result<Tensor, ModelError> {
        let (from, to) = entry.data_offsets;
        if from > to || to > room {
            return Err(self.error(name, format!("cut short: bytes {from}..{to} of {room}")));
        }
        let precision = match entry.dtype.as_str() {
            "F32" => Some(Precision::F32),
            "F16" => Some(Precision::F16),
            "BF16" => Some(Precision::Bf16),
            _ => None,
        };
        if let Some(precision) = precision {
            let elements = entry.shape.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
            let expected = elements.and_then(|count| count.checked_mul(precision.bytes()));
            if expected != Some(to - from) {
                let (shape, dtype) = (&entry.shape, &entry.dtype);
                return Err(self.error(name, format!("{} bytes do not hold {shape:?} of {dtype}", to - from)));
            }
        }
        Ok(Tensor { precision, dtype: entry.dtype, shape: entry.shape, start: start + from, bytes: to - from })
    }

    /// Tensors must fill the data part without overlap or gap.
    fn check_ranges(&self, start: u64, room: u64) -> Result<(), ModelError> {
        let mut order: Vec<_> = self.tensors.iter().collect();
        order.sort_by_key(|(_, tensor)| (tensor.start, tensor.bytes));
        let mut end = start;
        for (name, tensor) in order {
            if tensor.start < end {
                return Err(self.error(name, format!("overlaps another tensor by {} bytes", end - tensor.start)));
            }
            if tensor.start > end {
                return Err(self.error(name, format!("{} unused bytes before it", tensor.start - end)));
            }
            end += tensor.bytes;
        }
        if end != start + room {
            let reason = format!("{} unused bytes at the end", start + room - end);
            return Err(ModelError::Format { path: self.path.clone(), reason });
        }
        Ok(())
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A value of the file's own metadata.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// Shape of a tensor.
    #[must_use]
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.tensors.get(name)?.shape.iter().map(|&size| size as usize).collect())
    }

    /// Reads a tensor as f32.
    ///
    /// # Errors
    /// Names file and tensor: missing, wrong shape, integers, cut data, or a number that is not finite.
    pub fn read(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let Some(tensor) = self.tensors.get(name) else { return Err(self.error(name, "missing".into())) };
        if !tensor.shape.iter().map(|&size| size as usize).eq(shape.iter().copied()) {
            return Err(self.error(name, format!("shape {:?}, expected {shape:?}", tensor.shape)));
        }
        let Some(precision) = tensor.precision else {
            return Err(self.error(name, format!("type {}, expected F32, F16 or BF16", tensor.dtype)));
        };
        let (start, length) = (tensor.start, tensor.bytes as usize);
        let mut bytes = vec![0; length];
        let read = self.file.seek(SeekFrom::Start(start)).and_then(|_| self.file.read_exact(&mut bytes));
        read.map_err(|source| self.error(name, source.to_string()))?;
        let values: Vec<f32> = match precision {
            Precision::F32 => bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect(),
            Precision::F16 => bytes.as_chunks().0.iter().map(|&word| f16::from_le_bytes(word).to_f32()).collect(),
            Precision::Bf16 => bytes.as_chunks().0.iter().map(|&word| bf16::from_le_bytes(word).to_f32()).collect(),
        };
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(index) => Err(self.error(name, format!("element {index} is {}", values[index]))),
        }
    }
}

/// The header's entries in file order, duplicates kept.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Entries;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object of tensors")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}
