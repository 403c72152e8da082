//! One state as a block of pixels: the environment's picture, a card, or the state's text.

use image::{Rgb, RgbImage, imageops};

use super::{
    canvas::{Area, Canvas},
    font::Face,
    palette,
    text::{Flow, Line, Style, grouped},
};
use crate::environment::{CardLine, Picture, Tone};

/// Small pictures grow by a whole factor up to this many pixels.
const COMFORTABLE: u32 = 240;
/// Larger pictures shrink into this box.
const LARGEST: (u32, u32) = (320, 400);
/// Width of a card, and of the text on it in cells.
const CARD_WIDTH: u32 = 240;
const CARD_COLUMNS: u32 = 24;
/// Lines of a card before it is clipped.
const CARD_LINES: usize = 16;
/// Columns and lines of a state shown as text.
const TEXT_COLUMNS: u32 = 36;
const TEXT_LINES: usize = 18;
/// Texts of a card up to this many cells become tiles in a row.
const TILE_COLUMNS: u32 = 4;
const TILE: Face = Face::bold(10);
const TILES_PER_ROW: usize = 4;
const GAP: u32 = 8;

/// Draws `picture` at the size it has in a panel.
pub(crate) fn draw_picture(picture: &Picture) -> RgbImage {
    match picture {
        Picture::Image(image) => fit(image),
        Picture::Card { title, lines } => draw_card(title, lines),
    }
}

/// Scales pixel art up by a whole factor, large pictures down, and frames them.
fn fit(image: &RgbImage) -> RgbImage {
    let (width, height) = image.dimensions();
    if width == 0 || height == 0 {
        return RgbImage::new(0, 0);
    }
    if width > LARGEST.0 || height > LARGEST.1 {
        let limit = |numerator: u32, over: u32, under: u32| {
            let scaled = u64::from(numerator) * u64::from(over) / u64::from(under);
            u32::try_from(scaled).unwrap_or(u32::MAX).max(1)
        };
        let narrow = limit(height, LARGEST.0, width);
        let (width, height) =
            if narrow <= LARGEST.1 { (LARGEST.0, narrow) } else { (limit(width, LARGEST.1, height), LARGEST.1) };
        return imageops::thumbnail(image, width, height);
    }
    let factor = (COMFORTABLE / width.max(height)).max(1);
    RgbImage::from_fn(width * factor, height * factor, |x, y| *image.get_pixel(x / factor, y / factor))
}

/// Draws a state that has no picture as text in a fixed-width block.
pub(crate) fn draw_state(state: &str) -> RgbImage {
    let state = state.trim_end();
    let mut flow = Flow::new(TEXT_COLUMNS);
    flow.push_shortened(state, Style::plain(palette::ENVIRONMENT), TEXT_LINES);
    let lines = flow.finish(TEXT_LINES);
    let columns = lines.iter().map(|line| line.width).max().unwrap_or(0);
    let face = Face::TEXT;
    let pad = 12;
    let width = columns * face.cell + 2 * pad;
    let height = lines.len() as u32 * face.line() + 2 * pad;
    let mut canvas = Canvas::new(width, height, palette::PAPER);
    let whole = Area::new(0, 0, width, height);
    canvas.panel(whole, 6, 1, palette::LINE, palette::SUNKEN);
    canvas.lines(&lines, face, pad as i32, pad as i32);
    canvas.into_image()
}

/// What stands on a card, from top to bottom.
enum Row<'a> {
    Tiles(Vec<(Line, Tone)>),
    Bar(Vec<Line>, &'a CardLine),
    Note(String),
}

impl Row<'_> {
    fn height(&self) -> u32 {
        match self {
            Self::Tiles(_) => 44,
            Self::Bar(lines, _) => lines.len() as u32 * Face::TEXT.line() + 12,
            Self::Note(_) => Face::SMALL.line(),
        }
    }
}

fn draw_card(title: &str, lines: &[CardLine]) -> RgbImage {
    let rows = arrange(lines);
    let mut heading = Flow::new(CARD_COLUMNS);
    heading.push_shortened(title, Style::bold(palette::INK), 4);
    let heading = heading.finish(4);
    let pad = 14;
    let top = heading.len() as u32 * Face::TEXT.line() + 18;
    let body: u32 = rows.iter().map(|row| row.height() + GAP).sum();
    let height = top + if rows.is_empty() { 0 } else { body + 2 * pad - GAP };

    let mut canvas = Canvas::new(CARD_WIDTH, height, palette::PAPER);
    let whole = Area::new(0, 0, CARD_WIDTH, height);
    canvas.panel(whole, 8, 1, palette::LINE, palette::PAPER);
    canvas.fill_round(Area::new(1, 1, CARD_WIDTH - 2, top + 8), 7, palette::SUNKEN);
    if !rows.is_empty() {
        canvas.fill(Area::new(1, top as i32, CARD_WIDTH - 2, 9), palette::PAPER);
        canvas.fill(Area::new(1, top as i32, CARD_WIDTH - 2, 1), palette::LINE);
    }
    canvas.lines(&heading, Face::TEXT, pad as i32, 9);

    let mut y = (top + pad) as i32;
    let inner = CARD_WIDTH - 2 * pad;
    for row in &rows {
        match row {
            Row::Tiles(tiles) => {
                let count = tiles.len() as u32;
                let width = (inner - GAP * (count - 1)) / count;
                let mut x = pad as i32;
                for (line, tone) in tiles {
                    let area = Area::new(x, y, width, row.height());
                    draw_tone(&mut canvas, area, *tone);
                    let left = (width.saturating_sub(line.width * TILE.cell) / 2) as i32;
                    let above = (row.height() - TILE.line()) / 2;
                    canvas.line(line, TILE, x + left, y + above as i32);
                    x += (width + GAP) as i32;
                }
            }
            Row::Bar(lines, source) => {
                let area = Area::new(pad as i32, y, inner, row.height());
                draw_tone(&mut canvas, area, source.tone);
                canvas.lines(lines, Face::TEXT, pad as i32 + 12, y + 6);
                let right = (pad + inner - 20) as i32;
                let (mark, colour) = match source.tone {
                    Tone::Plain => ("", palette::INK),
                    Tone::Chosen => ("●", palette::CHOSEN),
                    Tone::Good => ("✓", palette::GOOD),
                    Tone::Bad => ("✗", palette::BAD),
                };
                canvas.label(mark, Face::bold(8), right, y + 6, colour, 2);
            }
            Row::Note(note) => {
                canvas.label(note, Face::SMALL, pad as i32, y, palette::MUTED, 30);
            }
        }
        y += (row.height() + GAP) as i32;
    }
    canvas.into_image()
}

/// Puts short texts side by side and long ones below each other.
fn arrange(lines: &[CardLine]) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let (shown, rest) = lines.split_at(lines.len().min(CARD_LINES));
    let is_short = |line: &CardLine| {
        let flow = Flow::single(&line.text, Style::plain(palette::INK), TILE_COLUMNS + 1);
        flow.width <= TILE_COLUMNS
    };
    for group in shown.chunk_by(|a, b| is_short(a) && is_short(b)) {
        if group.len() > 1 {
            // Rows of nearly equal length: 5 tiles become 3 and 2.
            let count = group.len().div_ceil(TILES_PER_ROW);
            for tiles in group.chunks(group.len().div_ceil(count)) {
                let tile = |line: &CardLine| {
                    let style = Style::bold(colours(line.tone).0);
                    (Flow::single(&line.text, style, TILE_COLUMNS), line.tone)
                };
                rows.push(Row::Tiles(tiles.iter().map(tile).collect()));
            }
        } else {
            rows.extend(group.iter().map(|line| {
                let columns = CARD_COLUMNS - if line.tone == Tone::Plain { 0 } else { 2 };
                let mut flow = Flow::new(columns);
                let style = Style { bold: line.tone != Tone::Plain, ..Style::plain(colours(line.tone).0) };
                flow.push_shortened(&line.text, style, 5);
                Row::Bar(flow.finish(5), line)
            }));
        }
    }
    if !rest.is_empty() {
        rows.push(Row::Note(format!("… {} more lines", grouped(rest.len()))));
    }
    rows
}

/// Colours of the text, the border and the inside.
fn colours(tone: Tone) -> (Rgb<u8>, Rgb<u8>, Rgb<u8>) {
    match tone {
        Tone::Plain => (palette::INK, palette::LINE, palette::SUNKEN),
        Tone::Chosen => (palette::CHOSEN, palette::CHOSEN, palette::CHOSEN_TINT),
        Tone::Good => (palette::GOOD, palette::GOOD, palette::GOOD_TINT),
        Tone::Bad => (palette::BAD, palette::BAD, palette::BAD_TINT),
    }
}

fn draw_tone(canvas: &mut Canvas, area: Area, tone: Tone) {
    let (_, border, inside) = colours(tone);
    let thick = if tone == Tone::Plain { 1 } else { 2 };
    canvas.panel(area, 6, thick, border, inside);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixel_art_grows_by_whole_factors_and_large_pictures_shrink() {
        for (from, to) in [
            ((6, 6), (240, 240)),
            ((96, 96), (192, 192)),
            ((160, 160), (160, 160)),
            ((640, 640), (320, 320)),
            ((640, 6400), (40, 400)),
            ((5000, 1), (320, 1)),
            ((0, 7), (0, 0)),
        ] {
            let picture = Picture::Image(RgbImage::new(from.0, from.1));
            assert_eq!(draw_picture(&picture).dimensions(), to, "{from:?}");
        }
    }

    #[test]
    fn cards_of_any_content_have_a_bounded_size() {
        let line = |text: &str| CardLine { text: text.to_owned(), tone: Tone::Bad };
        for lines in [
            vec![],
            vec![line("")],
            vec![line("1"), line("2"), line("3"), line("4"), line("5")],
            vec![line(&"x".repeat(100_000)); 1000],
        ] {
            let title = "very long ".repeat(1000);
            let image = draw_picture(&Picture::Card { title, lines });
            assert!(image.width() == CARD_WIDTH && image.height() < 2500);
        }
    }
}
