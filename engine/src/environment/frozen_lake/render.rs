//! Pictures of a lake.

use std::sync::LazyLock;

use image::{Rgb, RgbImage};

use super::{FrozenLake, lake::Code};
use crate::environment::pixel::{Colour, SIDE, Sprite, distance_from_centre};

/// Colour of the lines between cells.
const BORDER: Colour = [180, 200, 230];

/// Draws the lake in cells of 64 pixels, or smaller ones where the picture would exceed 512.
pub(super) fn render(lake: &FrozenLake) -> RgbImage {
    let shape = lake.shape();
    let count = shape.rows as u32;
    let side = (64 * count).min(512) / count.max(1);
    let sprites = &*SPRITES;
    let mut image = RgbImage::new(side * count, side * count);
    for cell in 0..shape.area() {
        let (row, column) = shape.place(cell);
        let walker = &sprites.walker[usize::from(lake.facing) % 4];
        let base = match lake.code(cell) {
            Code::Hole => sprites.hole,
            Code::PlayerInHole => sprites.cracked,
            Code::Goal => sprites.goal,
            Code::PlayerOnGoal => walker.over(sprites.goal),
            Code::Frozen if cell == lake.start() => sprites.stool,
            Code::Player if cell == lake.start() => walker.over(sprites.stool),
            Code::Frozen => sprites.ice,
            Code::Player => walker.over(sprites.ice),
        };
        let (x, y) = (column as u32 * side, row as u32 * side);
        base.draw(&mut image, x, y, side);
        for along in 0..side {
            for (x, y) in [(x + along, y), (x + along, y + side - 1), (x, y + along), (x + side - 1, y + along)] {
                image.put_pixel(x, y, Rgb(BORDER));
            }
        }
    }
    image
}

/// A figure that leaves the ground visible around it.
struct Figure {
    art: &'static [&'static str; SIDE],
    mirrored: bool,
}

impl Figure {
    fn over(&self, ground: Sprite) -> Sprite {
        if self.mirrored { ground.mirrored().with(self.art, &ELF).mirrored() } else { ground.with(self.art, &ELF) }
    }
}

struct Sprites {
    ice: Sprite,
    hole: Sprite,
    cracked: Sprite,
    goal: Sprite,
    stool: Sprite,
    /// In the order of the actions: left, down, right, up.
    walker: [Figure; 4],
}

static SPRITES: LazyLock<Sprites> = LazyLock::new(|| {
    let ice = Sprite::paint(ice);
    let hole = Sprite::paint(hole);
    let figure = |art, mirrored| Figure { art, mirrored };
    Sprites {
        ice,
        hole,
        cracked: hole.with(&CRACKS, &[(b'w', [238, 248, 255]), (b'h', [250, 208, 168])]),
        goal: ice.with(&PRESENT, &WRAPPING),
        stool: ice.with(&STOOL, &WOOD),
        walker: [
            figure(&ELF_SIDE, true),
            figure(&ELF_FRONT, false),
            figure(&ELF_SIDE, false),
            figure(&ELF_BACK, false),
        ],
    }
});

/// Pale ice with two slanting glints.
fn ice(row: usize, column: usize) -> Colour {
    match row + column {
        9 | 10 if (2..9).contains(&row) => [236, 247, 255],
        21 if (9..14).contains(&row) => [236, 247, 255],
        _ if (row * 5 + column * 3).is_multiple_of(23) => [204, 228, 246],
        _ => [216, 236, 250],
    }
}

/// Dark water with a bright rim.
fn hole(row: usize, column: usize) -> Colour {
    match distance_from_centre(row, column) {
        0..=60 => [22, 52, 104],
        61..=120 => [32, 74, 138],
        121..=160 => [56, 110, 176],
        161..=190 => [248, 253, 255],
        _ => ice(row, column),
    }
}

/// Splashes and a waving hand for a hole with the player in it.
const CRACKS: [&str; SIDE] = [
    " w            w ",
    "  w    w     w  ",
    "   ww  w   ww   ",
    "     w    w     ",
    "                ",
    "      h h       ",
    "     hhhh   w   ",
    " ww  hhhh  www  ",
    "w     hh      w ",
    "      hh        ",
    "    w hh  w     ",
    "     wwwwww     ",
    "   w        w   ",
    "  w   w      w  ",
    " w    w       w ",
    "                ",
];

const WRAPPING: [(u8, Colour); 5] = [
    (b'k', [70, 30, 44]),
    (b'r', [214, 58, 72]),
    (b'R', [168, 36, 56]),
    (b'g', [252, 206, 84]),
    (b'G', [220, 160, 44]),
];

/// A present with a bow.
const PRESENT: [&str; SIDE] = [
    "                ",
    "    kk    kk    ",
    "   kggk  kggk   ",
    "   kgGgkkgGgk   ",
    "    kggggggk    ",
    "  kkkkkggkkkkk  ",
    "  krrrrggrrrRk  ",
    "  krrrrggrrrRk  ",
    "  kkkkkGGkkkkk  ",
    "   krrrggrrRk   ",
    "   krrrggrrRk   ",
    "   krrrggrrRk   ",
    "   krrrggrrRk   ",
    "   kRRRGGRRRk   ",
    "   kkkkkkkkkk   ",
    "                ",
];

const WOOD: [(u8, Colour); 3] = [(b'k', [88, 56, 30]), (b'l', [206, 152, 92]), (b'p', [170, 114, 60])];

/// A three-legged stool.
const STOOL: [&str; SIDE] = [
    "                ",
    "                ",
    "                ",
    "                ",
    "                ",
    "                ",
    "                ",
    "                ",
    "    kkkkkkkk    ",
    "   kllllllllk   ",
    "   kppppppppk   ",
    "    kkkkkkkk    ",
    "    kpk kk kpk  ",
    "   kpk kpk kpk  ",
    "   kk  kk   kk  ",
    "                ",
];

const ELF: [(u8, Colour); 7] = [
    (b'k', [38, 44, 52]),
    (b'g', [64, 156, 84]),
    (b'G', [42, 116, 64]),
    (b'r', [214, 58, 72]),
    (b'f', [250, 208, 168]),
    (b'w', [250, 250, 250]),
    (b's', [112, 70, 42]),
];

const ELF_FRONT: [&str; SIDE] = [
    "       kk       ",
    "      kwwk      ",
    "      kggk      ",
    "     kgggGk     ",
    "    kggggGGk    ",
    "   kwwwwwwwwk   ",
    "  kkffkffkffkk  ",
    "  kffffffffffk  ",
    "   kkffffffkk   ",
    "    kkkffkkk    ",
    "   kgggggGGGk   ",
    "   kfkrrrrkfk   ",
    "    kgggGGGk    ",
    "    kgGkkgGk    ",
    "    kssk ssk    ",
    "    kkkk kkk    ",
];

const ELF_BACK: [&str; SIDE] = [
    "       kk       ",
    "      kwwk      ",
    "      kggk      ",
    "     kgggGk     ",
    "    kggggGGk    ",
    "   kggggggGGk   ",
    "  kkgggggGGGkk  ",
    "  kfkwwwwwwkfk  ",
    "   kksssssskk   ",
    "    kkkkkkkk    ",
    "   kgggggGGGk   ",
    "   kfkrrrrkfk   ",
    "    kgggGGGk    ",
    "    kgGkkgGk    ",
    "    kssk ssk    ",
    "    kkkk kkk    ",
];

const ELF_SIDE: [&str; SIDE] = [
    "    kkk         ",
    "   kwwgkk       ",
    "   kkkggGk      ",
    "     kgggGk     ",
    "    kggggGGk    ",
    "   kwwwwwwwwk   ",
    "   ksskffkffk   ",
    "   ksfffffffkk  ",
    "   kkffffffkk   ",
    "    kkkffkk     ",
    "    kggggGGk    ",
    "    kgffkrrk    ",
    "    kggggGGk    ",
    "    kgGkgGk     ",
    "    ksskssskk   ",
    "    kkkkkkkkk   ",
];
