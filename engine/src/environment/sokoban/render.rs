//! Pictures of a room.

use std::sync::LazyLock;

use image::{Rgb, RgbImage, imageops};

use super::{
    PictureStyle, Sokoban, SokobanConfig,
    board::{CODES, Code},
};
use crate::environment::pixel::{Colour, SIDE, Sprite, distance_from_centre};

/// Colours of the tiny style, in the order of [`Code`].
const TINY: [Colour; CODES] =
    [[0, 0, 0], [243, 248, 238], [254, 126, 125], [254, 95, 56], [142, 121, 56], [160, 212, 56], [219, 212, 56]];

/// Draws the room in the configured style.
pub(super) fn render(level: &Sokoban, config: &SokobanConfig) -> RgbImage {
    let shape = level.shape();
    let side = match config.picture {
        PictureStyle::Sprites => SIDE as u32,
        PictureStyle::Tiny => 1,
    };
    let mut image = RgbImage::new(shape.columns as u32 * side, shape.rows as u32 * side);
    for cell in 0..shape.area() {
        let (row, column) = shape.place(cell);
        let (x, y) = (column as u32 * side, row as u32 * side);
        let code = level.code(cell) as usize;
        match config.picture {
            PictureStyle::Sprites => SPRITES[code].draw(&mut image, x, y, side),
            PictureStyle::Tiny => image.put_pixel(x, y, Rgb(TINY[code])),
        }
    }
    match config.picture_scale.clamp(1, 64) {
        1 => image,
        scale => imageops::resize(&image, image.width() * scale, image.height() * scale, imageops::FilterType::Nearest),
    }
}

/// The sprites in the order of [`Code`].
static SPRITES: LazyLock<[Sprite; CODES]> = LazyLock::new(|| {
    let floor = Sprite::paint(floor);
    let target = Sprite::paint(target);
    let mut sprites = [floor; CODES];
    sprites[Code::Wall as usize] = Sprite::paint(brick);
    sprites[Code::Target as usize] = target;
    sprites[Code::Box as usize] = floor.with(&CRATE, &WOOD);
    sprites[Code::BoxOnTarget as usize] = target.with(&CRATE, &PAINTED);
    sprites[Code::Player as usize] = floor.with(&PLAYER, &CLOTHES);
    sprites[Code::PlayerOnTarget as usize] = target.with(&PLAYER, &CLOTHES);
    sprites
});

/// Bricks of 8 x 4 pixels in running bond, lit from above.
fn brick(row: usize, column: usize) -> Colour {
    let course = row / 4;
    let along = (column + 4 * (course % 2)) % 8;
    let worn = (course * 5 + (column + 4 * (course % 2)) / 8 * 3).is_multiple_of(4);
    match (row % 4, along) {
        (3, _) | (_, 7) => [84, 62, 58],
        (0, _) => [206, 122, 92],
        (2, _) => [150, 74, 58],
        _ if worn => [166, 86, 68],
        _ => [182, 94, 70],
    }
}

/// Stone tiles with faint seams and grains.
fn floor(row: usize, column: usize) -> Colour {
    match (row, column) {
        (15, _) | (_, 15) => [214, 206, 186],
        (0, _) | (_, 0) => [242, 236, 220],
        _ if (row * row * 3 + column * 7).is_multiple_of(31) => [222, 214, 196],
        _ => [232, 225, 207],
    }
}

/// A red ring with a dot, painted on the floor.
fn target(row: usize, column: usize) -> Colour {
    match distance_from_centre(row, column) {
        0..=10 => [206, 58, 54],
        66..=125 => [206, 58, 54],
        126..=150 => [226, 150, 136],
        _ => floor(row, column),
    }
}

const WOOD: [(u8, Colour); 5] = [
    (b'k', [78, 48, 24]),
    (b'f', [168, 108, 54]),
    (b'l', [204, 146, 84]),
    (b'p', [186, 126, 68]),
    (b's', [138, 86, 42]),
];

const PAINTED: [(u8, Colour); 5] = [
    (b'k', [26, 70, 40]),
    (b'f', [66, 142, 80]),
    (b'l', [134, 204, 132]),
    (b'p', [96, 176, 104]),
    (b's', [48, 112, 64]),
];

/// A crate: outline k, frame f, lit edge l, planks p, shadow s.
const CRATE: [&str; SIDE] = [
    "                ",
    " kkkkkkkkkkkkkk ",
    " kllllllllllllk ",
    " klffffffffffsk ",
    " klfkkkkkkkkfsk ",
    " klfkllkpppkfsk ",
    " klfklllkppkfsk ",
    " klfkklllkpkfsk ",
    " klfkpklllkkfsk ",
    " klfkppklllkfsk ",
    " klfkpppkllkfsk ",
    " klfkkkkkkkkfsk ",
    " klffffffffffsk ",
    " kssssssssssssk ",
    " kkkkkkkkkkkkkk ",
    "                ",
];

const CLOTHES: [(u8, Colour); 8] = [
    (b'k', [44, 36, 48]),
    (b'y', [246, 190, 54]),
    (b'Y', [214, 150, 32]),
    (b'f', [250, 208, 168]),
    (b'b', [52, 104, 196]),
    (b'B', [36, 74, 150]),
    (b'w', [252, 252, 252]),
    (b's', [110, 70, 44]),
];

/// A worker: helmet y Y, face f, overalls b B, shoes s, outline k.
const PLAYER: [&str; SIDE] = [
    "     kkkkkk     ",
    "    kyywyyyk    ",
    "   kyywyyyyYk   ",
    "   kyyyyyyYYk   ",
    "  kkkkkkkkkkkk  ",
    "   kffkffkffk   ",
    "   kffkffkffk   ",
    "    kffffffk    ",
    "   kkkffffkkk   ",
    "  kwwkbkkbkwwk  ",
    "  kwwkbbbbkwwk  ",
    "  kffkbbbBkffk  ",
    "   kkbbbbBBkk   ",
    "    kbbkkBBk    ",
    "    ksskkssk    ",
    "    kkkkkkkk    ",
];
