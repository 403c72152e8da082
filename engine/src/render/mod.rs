//! Pictures of trajectories: one PNG strip or one HTML page each.
//!
//! [`draw_trajectory`] draws what a person wants to see at a glance: each state, what the model thought and answered, what it
//! got for it. [`write_html`] writes the same as pages whose text can be searched and copied. Both need nothing from the system:
//! the fonts are part of the program and cover all of Unicode that [GNU Unifont](https://unifoundry.com/unifont/) does.

mod canvas;
mod font;
mod html;
mod palette;
mod picture;
mod strip;
mod text;

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use image::{
    ExtendedColorType, ImageEncoder as _, ImageError, RgbImage,
    codecs::png::{CompressionType, FilterType, PngEncoder},
};

pub use self::{html::write_html, strip::draw_trajectory};

/// A picture or page that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The image has no PNG form, for example because it is empty.
    #[error("an image of {width} x {height} pixels cannot be a PNG: {source}")]
    Encode {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// What the encoder says.
        source: ImageError,
    },
    /// The file system refused.
    #[error("{source}: {}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Writes `image` as a PNG under a temporary name, syncs it, and renames it to `path`.
///
/// # Errors
/// [`RenderError::Encode`] before anything is written; [`RenderError::Write`] from the file system.
pub fn save_png(image: &RgbImage, path: &Path) -> Result<(), RenderError> {
    write_file(path, &encode_png(image)?)
}

fn encode_png(image: &RgbImage) -> Result<Vec<u8>, RenderError> {
    let (width, height) = image.dimensions();
    // Flat areas repeat whole rows, which row filters would only disturb.
    let mut bytes = Vec::new();
    PngEncoder::new_with_quality(&mut bytes, CompressionType::Level(3), FilterType::NoFilter)
        .write_image(image, width, height, ExtendedColorType::Rgb8)
        .map_err(|source| RenderError::Encode { width, height, source })?;
    Ok(bytes)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), RenderError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|source| {
        // Best effort: the error to report is the one that stopped the writing.
        let _ = fs::remove_file(&temporary);
        RenderError::Write { path: path.to_owned(), source }
    })
}

#[cfg(test)]
mod tests;
