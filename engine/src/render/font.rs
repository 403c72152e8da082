//! Glyphs: JetBrains Mono for what it covers, GNU Unifont for the rest of Unicode.
//!
//! Text stands on a grid of cells. A glyph is one cell wide, or two for CJK, kana, hangul and emoji, or none for combining marks,
//! so that columns of a board line up whatever is written beside it.

use std::sync::LazyLock;

use ab_glyph::{Font as _, FontRef, PxScale, point};

static REGULAR: LazyLock<FontRef<'static>> = LazyLock::new(|| {
    FontRef::try_from_slice(include_bytes!("../../assets/fonts/JetBrainsMono-Regular.ttf"))
        .expect("the bundled font is valid")
});
static BOLD: LazyLock<FontRef<'static>> = LazyLock::new(|| {
    FontRef::try_from_slice(include_bytes!("../../assets/fonts/JetBrainsMono-Bold.ttf"))
        .expect("the bundled font is valid")
});
static RUNS: LazyLock<Vec<Run>> = LazyLock::new(|| read_runs(include_bytes!("../../assets/fonts/unifont.index")));
static BITMAPS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let packed = include_bytes!("../../assets/fonts/unifont.png");
    image::load_from_memory_with_format(packed, image::ImageFormat::Png)
        .expect("the bundled table is valid")
        .into_luma8()
        .into_raw()
});

/// Bytes of one row of the bitmap table: 8 x 16 pixels.
const ROW: usize = 16;
/// Ascent and descent of JetBrains Mono as parts of its em; its advance is 0.6.
const ASCENT: f32 = 1.02;
const DESCENT: f32 = 0.3;

/// Neighbouring code points of one class in the bitmap table.
struct Run {
    first: u32,
    count: u32,
    wide: bool,
    combining: bool,
    /// First row of the first glyph.
    row: usize,
}

fn read_runs(bytes: &[u8]) -> Vec<Run> {
    let mut row = 0;
    let (entries, _) = bytes.as_chunks::<8>();
    entries
        .iter()
        .map(|&[a, b, c, class, counts @ ..]| {
            let run = Run {
                first: u32::from_le_bytes([a, b, c, 0]),
                count: u32::from_le_bytes(counts),
                wide: class & 1 != 0,
                combining: class & 2 != 0,
                row,
            };
            row += run.count as usize * if run.wide { 2 } else { 1 };
            run
        })
        .collect()
}

fn find_run(character: char) -> Option<&'static Run> {
    let code = u32::from(character);
    let after = RUNS.partition_point(|run| run.first <= code);
    let run = RUNS.get(after.checked_sub(1)?)?;
    (code - run.first < run.count).then_some(run)
}

fn in_vector_font(character: char) -> bool {
    REGULAR.glyph_id(character).0 != 0
}

/// Cells that `character` advances by: 0, 1 or 2.
pub(crate) fn cells(character: char) -> u32 {
    if (' '..='~').contains(&character) {
        return 1;
    }
    match find_run(character) {
        Some(run) if run.combining => 0,
        _ if in_vector_font(character) => 1,
        Some(run) if run.wide => 2,
        Some(_) => 1,
        None if matches!(u32::from(character), 0x2_0000..=0x3_FFFF) => 2,
        None => 1,
    }
}

/// Whether a glyph exists for `character`; otherwise a placeholder is drawn.
#[cfg(test)]
pub(crate) fn covers(character: char) -> bool {
    in_vector_font(character) || find_run(character).is_some()
}

/// A size and weight of text.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Face {
    /// Width of a cell in pixels; the em is 5/3 of it.
    pub cell: u32,
    /// Bold instead of regular.
    pub bold: bool,
}

impl Face {
    /// Labels.
    pub(crate) const SMALL: Self = Self::regular(7);
    /// Running text. Bitmap glyphs are drawn one to one.
    pub(crate) const TEXT: Self = Self::regular(8);

    pub(crate) const fn regular(cell: u32) -> Self {
        Self { cell, bold: false }
    }

    pub(crate) const fn bold(cell: u32) -> Self {
        Self { cell, bold: true }
    }

    fn em(self) -> f32 {
        self.cell as f32 / 0.6
    }

    /// Distance between two lines in pixels.
    pub(crate) fn line(self) -> u32 {
        (self.cell * 19).div_ceil(8)
    }

    /// From the top of a line down to the baseline in pixels.
    pub(crate) fn baseline(self) -> i32 {
        let spare = self.line() as f32 - self.em() * (ASCENT + DESCENT);
        (spare / 2.0 + self.em() * ASCENT).round() as i32
    }
}

/// How strongly a glyph covers each pixel of a rectangle.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Mask {
    /// Left edge, relative to the pen.
    pub left: i32,
    /// Upper edge, relative to the top of the line.
    pub top: i32,
    /// Pixels per row.
    pub width: u32,
    /// Coverage, row-major; 255 is full.
    pub coverage: Vec<u8>,
}

/// Draws one glyph.
pub(crate) fn rasterise(character: char, face: Face) -> Mask {
    match find_run(character) {
        // The bitmap font knows where a mark sits over the cells before it.
        Some(run) if run.combining => bitmap_mask(run, character, face),
        _ if in_vector_font(character) => vector_mask(character, face),
        Some(run) => bitmap_mask(run, character, face),
        None => placeholder(face, cells(character)),
    }
}

fn vector_mask(character: char, face: Face) -> Mask {
    let font = if face.bold && BOLD.glyph_id(character).0 != 0 { &*BOLD } else { &*REGULAR };
    let scale = PxScale::from(face.em() * (ASCENT + DESCENT));
    let glyph = font.glyph_id(character).with_scale_and_position(scale, point(0.0, face.baseline() as f32));
    let Some(outline) = font.outline_glyph(glyph) else {
        return Mask { left: 0, top: 0, width: 0, coverage: Vec::new() };
    };
    let bounds = outline.px_bounds();
    let (width, height) = (bounds.width() as u32, bounds.height() as u32);
    let mut coverage = vec![0; (width * height) as usize];
    outline.draw(|x, y, strength| {
        // Thin strokes look pale on white without hinting; this lifts the middle of the range.
        let strength = strength.clamp(0.0, 1.0);
        let lifted = strength + 0.35 * strength * (1.0 - strength);
        if let Some(pixel) = coverage.get_mut((y * width + x) as usize) {
            *pixel = (lifted * 255.0).round() as u8;
        }
    });
    Mask { left: bounds.min.x as i32, top: bounds.min.y as i32, width, coverage }
}

fn bitmap_mask(run: &Run, character: char, face: Face) -> Mask {
    let halves = if run.wide { 2 } else { 1 };
    let offset = (u32::from(character) - run.first) as usize;
    let first = (run.row + offset * halves) * ROW;
    let rows = BITMAPS.get(first..first + ROW * halves).unwrap_or(&[]);
    let is_set = |x: u32, y: u32| {
        let byte = rows.get((x / 8) as usize * ROW + y as usize).copied();
        byte.unwrap_or(0) & (0x80 >> (x % 8)) != 0
    };
    // Both axes shrink or grow by cell / 8; each target pixel averages the source pixels under it, in units of 1 / cell.
    let (width, height) = (face.cell * halves as u32, face.cell * 2);
    let mut coverage = Vec::with_capacity((width * height) as usize);
    for y in 0..height {
        for x in 0..width {
            let mut area = 0;
            for (source_y, part_y) in overlaps(y, face.cell) {
                for (source_x, part_x) in overlaps(x, face.cell) {
                    area += part_x * part_y * u32::from(is_set(source_x, source_y));
                }
            }
            coverage.push((area * 255 / 64) as u8);
        }
    }
    // One pixel lower than the font's own baseline: so CJK is centred on the taller vector letters.
    let above = (13 * face.cell / 8) as i32;
    Mask { left: if run.combining { -(width as i32) } else { 0 }, top: face.baseline() - above, width, coverage }
}

/// The source pixels under target pixel `target`, each with its share in eighths, when 8 source pixels become `cell` pixels.
fn overlaps(target: u32, cell: u32) -> impl Iterator<Item = (u32, u32)> {
    let (start, end) = (target * 8, target * 8 + 8);
    (start / cell..end.div_ceil(cell)).map(move |source| {
        let (from, to) = (source * cell, source * cell + cell);
        (source, to.min(end) - from.max(start))
    })
}

/// A pale block for code points without a glyph.
fn placeholder(face: Face, cells: u32) -> Mask {
    let (width, height) = (face.cell * cells - 2, face.cell * 11 / 8);
    Mask { left: 1, top: face.baseline() - height as i32, width, coverage: vec![70; (width * height) as usize] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_has_glyphs_of_its_own() {
        let empty = rasterise('\u{E000}', Face::TEXT);
        for character in "aé√✓→█αя你かカ한😀🧊🪿♥☃أअกא①".chars() {
            assert!(covers(character), "{character}");
            let mask = rasterise(character, Face::TEXT);
            assert_ne!(mask, empty, "{character}");
            assert!(mask.coverage.iter().any(|&c| c > 100), "{character}");
        }
        assert!(!covers('\u{E000}') && !covers('\u{378}'));
    }

    #[test]
    fn widths_follow_the_cell_grid() {
        for (character, expected) in [
            ('a', 1),
            ('√', 1),
            ('你', 2),
            ('한', 2),
            ('か', 2),
            ('😀', 2),
            ('\u{301}', 0),
            ('\u{E000}', 1),
            ('\u{2A6D6}', 2),
        ] {
            assert_eq!(cells(character), expected, "{character}");
        }
    }

    #[test]
    fn bitmap_glyphs_are_crisp_at_the_text_size() {
        let mask = rasterise('你', Face::TEXT);
        assert_eq!((mask.width, mask.coverage.len()), (16, 256));
        assert!(mask.coverage.iter().all(|&c| c == 0 || c == 255));
    }

    /// Eight source pixels spread over any cell width lose and gain nothing.
    #[test]
    fn resampling_keeps_the_whole_area() {
        for cell in 5..=30 {
            let total: u32 = (0..cell).flat_map(|x| overlaps(x, cell)).map(|(_, part)| part).sum();
            assert_eq!(total, 8 * cell, "cell {cell}");
            assert!((0..2 * cell).flat_map(|x| overlaps(x, cell)).all(|(source, _)| source < 16));
        }
    }
}
