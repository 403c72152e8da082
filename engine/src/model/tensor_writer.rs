//! Writing of safetensors files, so that a file is either complete or as it was.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use half::{bf16, f16};
use serde_json::{Map, Value, json};

use super::ModelError;
use super::tensor_file::Precision;

/// Name and shape of a tensor to write.
pub struct TensorSpec {
    /// Name within the file.
    pub name: String,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
}

/// Writes tensors to a temporary file beside `path`, syncs it and renames it to `path`.
///
/// `read` fills the buffer with the numbers of the tensor with the given index; it is called in order, once per tensor.
///
/// # Errors
/// What `read` or the file system reports; `path` is then as it was.
pub fn write_tensors(
    path: &Path,
    specs: &[TensorSpec],
    metadata: &[(&str, String)],
    precision: Precision,
    mut read: impl FnMut(usize, &mut Vec<f32>) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let mut header = Map::new();
    let mut notes = Map::from_iter([("format".to_owned(), json!("pt"))]);
    notes.extend(metadata.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
    header.insert("__metadata__".to_owned(), Value::Object(notes));
    let mut end = 0;
    for spec in specs {
        let start = end;
        end += spec.shape.iter().product::<usize>() as u64 * precision.bytes();
        let entry = json!({ "dtype": precision.name(), "shape": spec.shape, "data_offsets": [start, end] });
        header.insert(spec.name.clone(), entry);
    }
    let mut header = Value::Object(header).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    replace_file(path, |file| {
        let failed = |source| ModelError::File { path: path.to_owned(), source };
        file.write_all(&(header.len() as u64).to_le_bytes()).map_err(failed)?;
        file.write_all(header.as_bytes()).map_err(failed)?;
        let mut values = Vec::new();
        for index in 0..specs.len() {
            read(index, &mut values)?;
            for value in &values {
                let written = match precision {
                    Precision::F32 => file.write_all(&value.to_le_bytes()),
                    Precision::F16 => file.write_all(&f16::from_f32(*value).to_le_bytes()),
                    Precision::Bf16 => file.write_all(&bf16::from_f32(*value).to_le_bytes()),
                };
                written.map_err(failed)?;
            }
        }
        Ok(())
    })
}

/// Writes a file under a temporary name, syncs it, renames it and syncs the folder.
pub(crate) fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let failed = |source| ModelError::File { path: path.to_owned(), source };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let temporary = path.with_file_name(name);
    let attempt = || {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&temporary).map_err(failed)?);
        write(&mut file)?;
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&temporary, path).map_err(failed)
    };
    let result = attempt();
    if result.is_err() {
        // The error of the attempt is the one to report; a leftover temporary file does no harm.
        let _ = std::fs::remove_file(&temporary);
        return result;
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
    }
    Ok(())
}
