//! A drawing surface: rectangles, pictures and text on a pixel grid.

use std::collections::HashMap;

use image::{Rgb, RgbImage};

use super::{
    font::{self, Face, Mask},
    palette,
    text::{Flow, Line, Style},
};

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Area {
    pub x: i32,
    pub y: i32,
    pub width: u32,
    pub height: u32,
}

impl Area {
    pub(crate) const fn new(x: i32, y: i32, width: u32, height: u32) -> Self {
        Self { x, y, width, height }
    }

    /// The rectangle `by` pixels smaller on every side.
    pub(crate) const fn inset(self, by: u32) -> Self {
        Self {
            x: self.x + by as i32,
            y: self.y + by as i32,
            width: self.width.saturating_sub(2 * by),
            height: self.height.saturating_sub(2 * by),
        }
    }
}

/// An image being drawn. Whatever lies outside is clipped.
pub(crate) struct Canvas {
    image: RgbImage,
    glyphs: HashMap<(char, Face), Mask>,
}

impl Canvas {
    pub(crate) fn new(width: u32, height: u32, background: Rgb<u8>) -> Self {
        Self { image: RgbImage::from_pixel(width, height, background), glyphs: HashMap::new() }
    }

    pub(crate) fn into_image(self) -> RgbImage {
        self.image
    }

    /// Mixes `colour` into one pixel; `strength` 255 replaces it.
    fn blend(&mut self, x: i32, y: i32, colour: Rgb<u8>, strength: u8) {
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else {
            return;
        };
        if let Some(Rgb(pixel)) = self.image.get_pixel_mut_checked(x, y) {
            let strength = u32::from(strength);
            for (old, new) in pixel.iter_mut().zip(colour.0) {
                let mixed = u32::from(*old) * (255 - strength) + u32::from(new) * strength;
                *old = ((mixed + 127) / 255) as u8;
            }
        }
    }

    pub(crate) fn fill(&mut self, area: Area, colour: Rgb<u8>) {
        let columns = clip(area.x, area.width, self.image.width());
        let rows = clip(area.y, area.height, self.image.height());
        let stride = self.image.width() as usize * 3;
        let samples: &mut [u8] = &mut self.image;
        for y in rows {
            let row = &mut samples[y * stride + columns.start * 3..y * stride + columns.end * 3];
            for pixel in row.chunks_exact_mut(3) {
                pixel.copy_from_slice(&colour.0);
            }
        }
    }

    /// Fills a rectangle with round, smooth corners.
    pub(crate) fn fill_round(&mut self, area: Area, radius: u32, colour: Rgb<u8>) {
        let radius = radius.min(area.width / 2).min(area.height / 2);
        let (width, height) = (area.width as i32, area.height as i32);
        let r = radius as i32;
        self.fill(Area::new(area.x, area.y + r, area.width, (height - 2 * r) as u32), colour);
        for y in (0..r).chain(height - r..height).map(|row| area.y + row) {
            self.fill(Area::new(area.x + r, y, (width - 2 * r) as u32, 1), colour);
        }
        for y in 0..r {
            for x in 0..r {
                let (dx, dy) = (r as f32 - x as f32 - 0.5, r as f32 - y as f32 - 0.5);
                let inside = (radius as f32 - (dx * dx + dy * dy).sqrt() + 0.5).clamp(0.0, 1.0);
                let strength = (inside * 255.0).round() as u8;
                let (left, right) = (area.x + x, area.x + width - 1 - x);
                let (top, bottom) = (area.y + y, area.y + height - 1 - y);
                for (x, y) in [(left, top), (right, top), (left, bottom), (right, bottom)] {
                    self.blend(x, y, colour, strength);
                }
            }
        }
    }

    /// A filled rectangle with round corners and a border.
    pub(crate) fn panel(&mut self, area: Area, radius: u32, border: u32, line: Rgb<u8>, paper: Rgb<u8>) {
        self.fill_round(area, radius, line);
        self.fill_round(area.inset(border), radius.saturating_sub(border), paper);
    }

    /// Copies a picture.
    pub(crate) fn place(&mut self, picture: &RgbImage, x: i32, y: i32) {
        image::imageops::replace(&mut self.image, picture, i64::from(x), i64::from(y));
    }

    /// Draws one glyph with the top of its line at `y`.
    fn glyph(&mut self, character: char, face: Face, x: i32, y: i32, colour: Rgb<u8>) {
        if character == ' ' {
            return;
        }
        let key = (character, face);
        let mask = self.glyphs.remove(&key).unwrap_or_else(|| font::rasterise(character, face));
        if mask.width > 0 {
            for (row, line) in (0..).zip(mask.coverage.chunks_exact(mask.width as usize)) {
                for (column, &strength) in (0..).zip(line) {
                    if strength > 0 {
                        let (x, y) = (x + mask.left + column, y + mask.top + row);
                        self.blend(x, y, colour, strength);
                    }
                }
            }
        }
        self.glyphs.insert(key, mask);
    }

    /// Draws one line of laid-out text, with the marks of tokens under the loss behind it.
    pub(crate) fn line(&mut self, line: &Line, face: Face, x: i32, y: i32) {
        let size = face.cell as i32;
        let height = face.line();
        for glyph in line.glyphs.iter().filter(|glyph| glyph.style.under_loss) {
            let (x, width) = (x + glyph.column as i32 * size, glyph.cells * face.cell);
            self.fill(Area::new(x, y + 1, width, height - 1), palette::LOSS_TINT);
            let rule = Area::new(x, y + height as i32 - 2, width, 2);
            self.fill(rule, palette::LOSS_LINE);
        }
        for glyph in &line.glyphs {
            let face = Face { bold: face.bold || glyph.style.bold, ..face };
            let x = x + glyph.column as i32 * size;
            self.glyph(glyph.character, face, x, y, glyph.style.colour);
        }
    }

    /// Draws laid-out text; returns the y below it.
    pub(crate) fn lines(&mut self, lines: &[Line], face: Face, x: i32, y: i32) -> i32 {
        let mut y = y;
        for line in lines {
            self.line(line, face, x, y);
            y += face.line() as i32;
        }
        y
    }

    /// Draws one unwrapped line of at most `columns` cells, with an ellipsis if it is longer; returns its width in pixels.
    pub(crate) fn label(&mut self, text: &str, face: Face, x: i32, y: i32, colour: Rgb<u8>, columns: u32) -> u32 {
        let line = Flow::single(text, Style::plain(colour), columns);
        self.line(&line, face, x, y);
        line.width * face.cell
    }
}

/// The part of `length` pixels from `start` that lies within `limit`.
fn clip(start: i32, length: u32, limit: u32) -> std::ops::Range<usize> {
    let bound = |value: i64| value.clamp(0, i64::from(limit)) as usize;
    bound(i64::from(start))..bound(i64::from(start) + i64::from(length))
}
