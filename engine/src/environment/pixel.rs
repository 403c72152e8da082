//! Pixel art: 16 x 16 sprites drawn in code and put into pictures.

use image::{Rgb, RgbImage};

/// Side of a sprite in pixels.
pub(crate) const SIDE: usize = 16;

/// A red, green and blue value.
pub(crate) type Colour = [u8; 3];

/// A square of 16 x 16 pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sprite([[Colour; SIDE]; SIDE]);

impl Sprite {
    /// Colours every pixel by its row and column.
    pub(crate) fn paint(colour: impl Fn(usize, usize) -> Colour) -> Self {
        Self(std::array::from_fn(|row| std::array::from_fn(|column| colour(row, column))))
    }

    /// Lays `art` over the sprite: each character is looked up in `palette`; others leave the pixel as it is.
    pub(crate) fn with(mut self, art: &[&str; SIDE], palette: &[(u8, Colour)]) -> Self {
        for (pixels, line) in self.0.iter_mut().zip(art) {
            for (pixel, character) in pixels.iter_mut().zip(line.bytes()) {
                if let Some((_, colour)) = palette.iter().find(|(key, _)| *key == character) {
                    *pixel = *colour;
                }
            }
        }
        self
    }

    /// The sprite with its columns in reverse order.
    pub(crate) fn mirrored(mut self) -> Self {
        for pixels in &mut self.0 {
            pixels.reverse();
        }
        self
    }

    /// Colour of a pixel.
    pub(crate) fn at(&self, row: usize, column: usize) -> Colour {
        self.0[row % SIDE][column % SIDE]
    }

    /// Draws the sprite as a square of `side` pixels whose top left corner is `(x, y)`, taking the nearest pixel.
    pub(crate) fn draw(&self, image: &mut RgbImage, x: u32, y: u32, side: u32) {
        for down in 0..side {
            for right in 0..side {
                let row = (down * SIDE as u32 / side) as usize;
                let column = (right * SIDE as u32 / side) as usize;
                if x + right < image.width() && y + down < image.height() {
                    image.put_pixel(x + right, y + down, Rgb(self.at(row, column)));
                }
            }
        }
    }
}

/// Four times the squared distance of a pixel's centre from the sprite's centre.
pub(crate) const fn distance_from_centre(row: usize, column: usize) -> usize {
    let (down, right) = ((2 * row + 1).abs_diff(SIDE), (2 * column + 1).abs_diff(SIDE));
    down * down + right * right
}
