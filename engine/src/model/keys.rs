//! Reading of a JSON object key by key, so that every error names file and key and no key goes unnoticed.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::ModelError;

/// Largest value accepted for a size: keeps products of two sizes within 64 bits.
const SIZE_LIMIT: u64 = 1 << 31;

/// The keys of an object that have not been read yet.
pub(crate) struct Keys<'a> {
    path: &'a Path,
    prefix: String,
    map: Map<String, Value>,
}

impl<'a> Keys<'a> {
    pub(crate) fn parse(path: &'a Path, bytes: &[u8]) -> Result<Self, ModelError> {
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(map)) => Ok(Self { path, prefix: String::new(), map }),
            Ok(_) => Err(ModelError::Format { path: path.to_owned(), reason: "expected a JSON object".into() }),
            Err(error) => Err(ModelError::Format { path: path.to_owned(), reason: error.to_string() }),
        }
    }

    pub(crate) fn error(&self, key: &str, reason: String) -> ModelError {
        ModelError::Key { path: PathBuf::from(self.path), key: format!("{}{key}", self.prefix), reason }
    }

    pub(crate) fn peek(&self, key: &str) -> Option<&Value> {
        self.map.get(key)
    }

    /// Takes a key; null counts as absent.
    pub(crate) fn optional<T>(
        &mut self,
        key: &str,
        read: impl Fn(&Value) -> Option<T>,
        expected: &str,
    ) -> Result<Option<T>, ModelError> {
        match self.map.shift_remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match read(&value) {
                Some(read) => Ok(Some(read)),
                None => Err(self.error(key, format!("expected {expected}, found {value}"))),
            },
        }
    }

    pub(crate) fn text(&mut self, key: &str) -> Result<Option<String>, ModelError> {
        self.optional(key, |value| value.as_str().map(str::to_owned), "a string")
    }

    pub(crate) fn flag(&mut self, key: &str) -> Result<Option<bool>, ModelError> {
        self.optional(key, Value::as_bool, "true or false")
    }

    pub(crate) fn number(&mut self, key: &str) -> Result<Option<f64>, ModelError> {
        self.optional(key, Value::as_f64, "a number")
    }

    pub(crate) fn optional_size(&mut self, key: &str) -> Result<Option<usize>, ModelError> {
        let read = |value: &Value| value.as_u64().filter(|size| (1..SIZE_LIMIT).contains(size));
        Ok(self.optional(key, read, "a whole number of at least 1")?.map(|size| size as usize))
    }

    pub(crate) fn size(&mut self, key: &str) -> Result<usize, ModelError> {
        self.optional_size(key)?.ok_or_else(|| self.error(key, "missing".into()))
    }

    /// One id or a list of ids.
    pub(crate) fn ids(&mut self, key: &str) -> Result<Vec<u32>, ModelError> {
        Ok(self.optional(key, read_ids, "a token id or a list of token ids")?.unwrap_or_default())
    }

    pub(crate) fn object(&mut self, key: &str) -> Result<Option<Self>, ModelError> {
        let map = self.optional(key, |value| value.as_object().cloned(), "an object")?;
        Ok(map.map(|map| Self { path: self.path, prefix: format!("{}{key}.", self.prefix), map }))
    }

    /// Takes a key that may be absent or null but has only one supported value.
    pub(crate) fn fixed(&mut self, key: &str, value: &Value) -> Result<(), ModelError> {
        match self.map.shift_remove(key) {
            None | Some(Value::Null) => Ok(()),
            Some(found) if found == *value => Ok(()),
            Some(found) => Err(self.error(key, format!("{found} is not supported; expected {value}"))),
        }
    }

    /// Takes a key that must be absent or null.
    pub(crate) fn refuse(&mut self, key: &str, reason: &str) -> Result<(), ModelError> {
        match self.map.shift_remove(key) {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(self.error(key, reason.into())),
        }
    }

    /// Refuses keys that nobody read and that are not in `ignored`.
    pub(crate) fn finish(self, ignored: &[&str]) -> Result<(), ModelError> {
        match self.map.keys().find(|key| !ignored.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let reason = "unknown key; it may change what the model computes".to_owned();
                Err(self.error(key, reason))
            }
        }
    }
}

/// One id or a list of ids.
pub(crate) fn read_ids(value: &Value) -> Option<Vec<u32>> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(list) => list.iter().map(one).collect(),
        value => one(value).map(|id| vec![id]),
    }
}
