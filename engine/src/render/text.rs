//! Text on a grid of cells: escapes, tabs, wrapping, clipping.

use std::fmt::Write as _;

use image::Rgb;

use super::{font, palette};

/// Columns between tab stops.
const TAB: u32 = 4;
/// Combining marks drawn over one character; further ones are dropped.
const MARKS: usize = 4;
/// Stands for text that is left out.
const ELLIPSIS: char = '…';

/// How a stretch of text looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Style {
    pub colour: Rgb<u8>,
    pub bold: bool,
    /// Carries the mark of tokens under the loss.
    pub under_loss: bool,
}

impl Style {
    pub(crate) const fn plain(colour: Rgb<u8>) -> Self {
        Self { colour, bold: false, under_loss: false }
    }

    pub(crate) const fn bold(colour: Rgb<u8>) -> Self {
        Self { bold: true, ..Self::plain(colour) }
    }

    pub(crate) const fn under_loss(colour: Rgb<u8>) -> Self {
        Self { under_loss: true, ..Self::plain(colour) }
    }
}

/// One character in its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Glyph {
    pub character: char,
    pub column: u32,
    pub cells: u32,
    pub style: Style,
    /// Byte of the pushed text that it came from.
    start: usize,
}

/// One line of laid-out text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Line {
    pub glyphs: Vec<Glyph>,
    /// Cells in use.
    pub width: u32,
    /// Byte of the pushed text where the line starts.
    start: usize,
}

/// Lays text out into lines of at most `columns` cells.
///
/// Lines break after spaces and beside wide characters, else anywhere. Control and direction characters become visible
/// escapes, joiners and variation selectors take no room.
pub(crate) struct Flow {
    columns: u32,
    done: Vec<Line>,
    line: Line,
    /// The line is full and ended with a space; the next character starts a new one.
    full: bool,
    /// Bytes pushed so far.
    position: usize,
}

impl Flow {
    pub(crate) fn new(columns: u32) -> Self {
        Self { columns: columns.max(2), done: Vec::new(), line: Line::default(), full: false, position: 0 }
    }

    /// Lays `text` out as one line of at most `columns` cells, with an ellipsis if it is longer.
    pub(crate) fn single(text: &str, style: Style, columns: u32) -> Line {
        let columns = columns.max(2);
        let first = text.split('\n').next().unwrap_or("");
        let kept = head(first, (columns as usize).saturating_mul(8));
        // Wide enough to hold everything that is kept, so nothing wraps.
        let mut flow = Self::new(u32::MAX);
        flow.push(kept, style);
        let mut line = flow.line;
        if kept.len() < text.len() || line.width > columns {
            while line.width > columns - 1 {
                line.width = match line.glyphs.pop() {
                    Some(glyph) => glyph.column,
                    None => 0,
                };
            }
            line.glyphs.push(Glyph { character: ELLIPSIS, column: line.width, cells: 1, style, start: kept.len() });
            line.width += 1;
        }
        line
    }

    /// Appends text.
    pub(crate) fn push(&mut self, text: &str, style: Style) {
        for (offset, character) in text.char_indices() {
            let start = self.position + offset;
            match character {
                '\n' => self.break_line(start + 1),
                '\t' => {
                    for _ in 0..TAB - self.line.width % TAB {
                        self.put(' ', 1, style, start);
                    }
                }
                _ if is_invisible(character) => {}
                _ if is_escaped(character) => {
                    for symbol in escape(character).chars() {
                        self.put(symbol, 1, style, start);
                    }
                }
                _ => match font::cells(character) {
                    0 => self.put_mark(character, style, start),
                    _ if self.is_skin_tone(character) => {}
                    cells => self.put(character, cells, style, start),
                },
            }
        }
        self.position += text.len();
    }

    /// Appends text with its middle left out if it would take more than `max_lines` lines.
    pub(crate) fn push_shortened(&mut self, text: &str, style: Style, max_lines: usize) {
        let Excerpt { head, omitted, tail } = shorten(text, self.columns, max_lines);
        self.push(head, style);
        if omitted > 0 {
            if self.line.width > 0 {
                self.push("\n", style);
            }
            let note = format!("{ELLIPSIS} {} characters {ELLIPSIS}\n", grouped(omitted));
            self.push(&note, Style::plain(palette::MUTED));
            self.push(tail, style);
        }
    }

    /// The lines, at most `max_lines`; a note stands for those left out of the middle.
    pub(crate) fn finish(mut self, max_lines: usize) -> Vec<Line> {
        let max_lines = max_lines.max(3);
        if !self.line.glyphs.is_empty() || self.done.is_empty() {
            self.break_line(self.position);
        }
        let mut lines = self.done;
        if lines.len() > max_lines {
            let (first, last) = shares(max_lines);
            let omitted = lines.len() - first - last;
            let note = format!("{ELLIPSIS} {} lines {ELLIPSIS}", grouped(omitted));
            let note = Self::single(&note, Style::plain(palette::MUTED), self.columns);
            lines.splice(first..first + omitted, [note]);
        }
        lines
    }

    /// Emoji skin tones belong to the emoji before them.
    fn is_skin_tone(&self, character: char) -> bool {
        let follows_emoji = |last: &Glyph| last.cells == 2 && last.character > '\u{2600}';
        matches!(character, '\u{1F3FB}'..='\u{1F3FF}') && self.line.glyphs.last().is_some_and(follows_emoji)
    }

    fn put_mark(&mut self, character: char, style: Style, start: usize) {
        let marks = self.line.glyphs.iter().rev();
        let stacked = marks.take(MARKS).filter(|glyph| glyph.cells == 0).count();
        if stacked < MARKS && self.line.width > 0 {
            let column = self.line.width;
            self.line.glyphs.push(Glyph { character, column, cells: 0, style, start });
        }
    }

    fn put(&mut self, character: char, cells: u32, style: Style, start: usize) {
        if self.line.width.saturating_add(cells) > self.columns {
            if character == ' ' {
                self.full = true;
                return;
            }
            if self.full {
                self.break_line(start);
            } else {
                self.wrap(start);
            }
        }
        self.line.glyphs.push(Glyph { character, column: self.line.width, cells, style, start });
        self.line.width += cells;
    }

    /// Starts a new line, taking the unfinished word along.
    fn wrap(&mut self, next_start: usize) {
        let breaks_after = |glyph: &Glyph| glyph.character == ' ' || glyph.cells != 1;
        let word = match self.line.glyphs.iter().rposition(breaks_after) {
            Some(last) => last + 1,
            None => self.line.glyphs.len(),
        };
        let moved = self.line.glyphs.split_off(word);
        let start = moved.first().map_or(next_start, |glyph| glyph.start);
        let left = moved.first().map_or(self.line.width, |glyph| glyph.column);
        let width = self.line.width - left;
        self.line.width = left;
        self.break_line(start);
        self.line.width = width;
        self.line.glyphs.extend(moved.into_iter().map(|glyph| Glyph { column: glyph.column - left, ..glyph }));
    }

    fn break_line(&mut self, next_start: usize) {
        let next = Line { start: next_start, ..Line::default() };
        self.done.push(std::mem::replace(&mut self.line, next));
        self.full = false;
    }
}

/// The beginning and the end of a text.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Excerpt<'a> {
    pub head: &'a str,
    /// Characters between the two.
    pub omitted: usize,
    pub tail: &'a str,
}

/// Cuts the middle out of `text` so that it fits `max_lines` lines of `columns` cells, counting one line for the note.
pub(crate) fn shorten(text: &str, columns: u32, max_lines: usize) -> Excerpt<'_> {
    let max_lines = max_lines.max(3);
    let (first, last) = shares(max_lines);
    // What more than fills the lines, so that the length of the text does not matter.
    let budget = max_lines * columns as usize * 4;
    let (before, after) = if text.len() > 2 * budget { (head(text, budget), tail(text, budget)) } else { (text, text) };
    let starts = |text: &str| {
        let mut flow = Flow::new(columns);
        flow.push(text, Style::plain(palette::INK));
        flow.finish(usize::MAX)
    };
    let lines = starts(before);
    if before.len() == text.len() && lines.len() <= max_lines {
        return Excerpt { head: text, omitted: 0, tail: "" };
    }
    let head_end = lines.get(first).map_or(before.len(), |line| line.start);
    let lines = starts(after);
    let from = lines.len().saturating_sub(last);
    let skipped = text.len() - after.len();
    let tail_start = skipped + lines.get(from).map_or(0, |line| line.start);
    let tail_start = tail_start.max(head_end);
    let cut = |from: usize, to: usize| text.get(from..to).unwrap_or("");
    Excerpt {
        head: cut(0, head_end),
        omitted: cut(head_end, tail_start).chars().count(),
        tail: cut(tail_start, text.len()),
    }
}

/// Lines to keep at the beginning and at the end of `max_lines`, one being needed for the note.
fn shares(max_lines: usize) -> (usize, usize) {
    let first = (max_lines - 1).div_ceil(2);
    (first, max_lines - 1 - first)
}

/// At most `bytes` bytes from the beginning.
fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// At most `bytes` bytes from the end.
fn tail(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Shapes its neighbours in a shaping renderer; here it takes no room.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200C}' | '\u{200D}' | '\u{FE00}'..='\u{FE0F}' | '\u{180B}'..='\u{180F}'
        | '\u{E0020}'..='\u{E007F}' | '\u{E0100}'..='\u{E01EF}')
}

/// Controls, and characters that would change or hide what is read.
fn is_escaped(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{AD}' | '\u{200B}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{E0001}')
}

fn escape(character: char) -> String {
    match character {
        '\r' => "\\r".to_owned(),
        '\0'..='\x7f' => format!("\\x{:02x}", u32::from(character)),
        _ => format!("\\u{{{:x}}}", u32::from(character)),
    }
}

/// `1204` as `1,204`.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with at least one and at most three decimals, with a true minus sign.
pub(crate) fn number(value: f32) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let size = value.abs();
    let mut text = String::new();
    let printed = if size >= 1e7 { write!(text, "{size:.2e}") } else { write!(text, "{size:.3}") };
    debug_assert!(printed.is_ok(), "writing to a string does not fail");
    if size < 1e7 {
        while text.ends_with('0') && !text.ends_with(".0") {
            text.pop();
        }
    }
    let is_zero = text == "0.0";
    if value < 0.0 && !is_zero {
        text.insert(0, '−');
    }
    text
}

/// [`number`] with a plus sign on gains.
pub(crate) fn signed(value: f32) -> String {
    let text = number(value);
    if value > 0.0 && text != "0.0" { format!("+{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style::plain(palette::INK);

    fn shown(text: &str, columns: u32, max_lines: usize) -> Vec<String> {
        let mut flow = Flow::new(columns);
        flow.push(text, PLAIN);
        let lines = flow.finish(max_lines);
        let read = |line: &Line| line.glyphs.iter().map(|glyph| glyph.character).collect();
        lines.iter().map(read).collect()
    }

    #[test]
    fn words_wrap_and_long_words_break() {
        assert_eq!(shown("go up now", 6, 9), ["go up ", "now"]);
        assert_eq!(shown("go up  now", 5, 9), ["go up", "now"]);
        assert_eq!(shown("go up \nnow", 5, 9), ["go up", "now"]);
        assert_eq!(shown("abcdefgh", 3, 9), ["abc", "def", "gh"]);
        assert_eq!(shown("你好世界", 5, 9), ["你好", "世界"]);
        assert_eq!(shown("a\n\nb\n", 5, 9), ["a", "", "b"]);
        assert_eq!(shown("", 5, 9), [""]);
    }

    #[test]
    fn controls_are_visible_and_tabs_align() {
        assert_eq!(shown("a\tb\u{1b}[0m", 40, 9), ["a   b\\x1b[0m"]);
        assert_eq!(shown("x\r\u{202e}y", 40, 9), ["x\\r\\u{202e}y"]);
        assert_eq!(shown("👍🏽👨\u{200D}👩\u{FE0F}", 40, 9), ["👍👨👩"]);
    }

    #[test]
    fn the_middle_of_long_text_is_left_out() {
        assert_eq!(shown("1\n2\n3\n4\n5\n6", 20, 4), ["1", "2", "… 3 lines …", "6"]);
        let line = Flow::single("abcdefgh", PLAIN, 4);
        assert_eq!((line.width, line.glyphs.len()), (4, 4));
        assert_eq!(Flow::single("abcd", PLAIN, 4).glyphs.len(), 4);
    }

    #[test]
    fn an_excerpt_accounts_for_every_character() {
        for text in [
            "word ".repeat(300_000),
            "你".repeat(300_000),
            "\n".repeat(300_000),
            "\u{301}".repeat(300_000),
            "a b\n".repeat(40),
        ] {
            let excerpt = shorten(&text, 40, 8);
            let kept = excerpt.head.chars().count() + excerpt.tail.chars().count();
            assert_eq!(kept + excerpt.omitted, text.chars().count());
            assert!(excerpt.omitted > 0 && kept < 10_000);
            assert!(text.starts_with(excerpt.head) && text.ends_with(excerpt.tail));
        }
        assert_eq!(shorten("short", 40, 8).omitted, 0);
    }

    #[test]
    fn numbers_are_short_and_signed() {
        assert_eq!(signed(1.0), "+1.0");
        assert_eq!(signed(-0.1), "−0.1");
        assert_eq!(signed(0.0), "0.0");
        assert_eq!(signed(-0.000_01), "0.0");
        assert_eq!(number(10.125), "10.125");
        assert_eq!(number(f32::NAN), "NaN");
        assert_eq!(signed(2.5e9), "+2.50e9");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
