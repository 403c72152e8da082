//! What is wrong with a scene, and how it looks on the screen.

use std::{fmt, sync::Arc};

/// Lines shown of a source line at most, in characters.
const SHOWN_WIDTH: usize = 100;
/// Problems shown at once, so that the answer fits on one screen.
const SHOWN_PROBLEMS: usize = 8;
/// Characters of a message or a help line at most.
const SHOWN_MESSAGE: usize = 320;

/// A text that settings come from: a file, or one `--set` argument.
#[derive(Debug, Eq, PartialEq)]
pub struct Source {
    /// Path as given by the user, or `--set`.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// A piece of a source, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Span {
    /// Which source of the loaded scene.
    pub source: usize,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// Whether `other` lies within this span.
    #[must_use]
    pub fn holds(self, other: Span) -> bool {
        self.source == other.source && self.start <= other.start && other.end <= self.end
    }
}

/// What kind of problem it is. Every code has a page in the manual.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Code {
    /// `RG0100`: a file cannot be read as text.
    File,
    /// `RG0101`: the text is not valid RON or does not fit the schema.
    Schema,
    /// `RG0102`: a value is outside its range.
    Range,
    /// `RG0103`: values that are fine alone cannot be used together.
    Combination,
    /// `RG0104`: a shared file leads back to itself or cannot be merged.
    Include,
    /// `RG0105`: a `--set` argument has no usable form.
    Override,
    /// `RG0106`: an environment refuses its configuration.
    Environment,
}

impl Code {
    /// The code as users see it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "RG0100",
            Self::Schema => "RG0101",
            Self::Range => "RG0102",
            Self::Combination => "RG0103",
            Self::Include => "RG0104",
            Self::Override => "RG0105",
            Self::Environment => "RG0106",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that is wrong, with its place.
///
/// `Display` writes file, line, column, the line with carets and one line of help.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// Kind.
    pub code: Code,
    /// The text that holds the mistake.
    pub source: Arc<Source>,
    /// Where in that text, or `None` for the text as a whole.
    pub span: Option<Span>,
    /// What is wrong: expected and got.
    pub message: String,
    /// How to put it right.
    pub help: Option<String>,
}

impl Problem {
    /// Line and column of the start, both from 1; the column counts characters.
    #[must_use]
    pub fn position(&self) -> Option<(usize, usize)> {
        let place = Place::find(&self.source.text, self.span?);
        Some((place.line, place.column))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, message) = (printable(&self.source.name), cut(&printable(&self.message), SHOWN_MESSAGE));
        match self.span.map(|span| Place::find(&self.source.text, span)) {
            None => write!(f, "error[{}]: {name}: {message}", self.code)?,
            Some(place) => {
                let (line, column) = (place.line, place.column);
                writeln!(f, "error[{}]: {name}:{line}:{column}: {message}", self.code)?;
                let number = line.to_string();
                let blank = " ".repeat(number.len());
                writeln!(f, "  {number} | {}", place.shown)?;
                write!(f, "  {blank} | {}{}", " ".repeat(place.caret_start), "^".repeat(place.carets))?;
            }
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {}", cut(&printable(help), SHOWN_MESSAGE))?;
        }
        Ok(())
    }
}

/// A span as it is shown: its line, cut to the screen, and where the carets go.
struct Place {
    line: usize,
    column: usize,
    shown: String,
    caret_start: usize,
    carets: usize,
}

impl Place {
    fn find(text: &str, span: Span) -> Self {
        let start = floor_boundary(text, span.start);
        let end = floor_boundary(text, span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line = text[..line_start].matches('\n').count() + 1;
        let column = text[line_start..start].chars().count() + 1;
        let whole = text[line_start..line_end].trim_end_matches('\r');
        let whole_len = whole.chars().count();
        let wanted = text[start..end.min(line_end).max(start)].trim_end().chars().count();

        // Long lines are cut so that the carets stay in view.
        let skipped = if whole_len > SHOWN_WIDTH && column > SHOWN_WIDTH / 2 {
            (column - 1).saturating_sub(SHOWN_WIDTH / 3)
        } else {
            0
        };
        let mut shown: String = whole.chars().skip(skipped).take(SHOWN_WIDTH).collect();
        let mut caret_start = column - 1 - skipped;
        let room = SHOWN_WIDTH.saturating_sub(caret_start).max(1);
        if skipped + SHOWN_WIDTH < whole_len {
            shown.push('…');
        }
        if skipped > 0 {
            shown.insert(0, '…');
            caret_start += 1;
        }
        Self { line, column, shown: printable(shown.trim_end()), caret_start, carets: wanted.clamp(1, room) }
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Replaces what would disturb a terminal; one character stays one character.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' | '\n' => ' ',
            c if c.is_control() => '\u{fffd}',
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            c => c,
        })
        .collect()
}

fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Everything that is wrong with a scene, found at once.
///
/// `Display` shows the first few problems in the order of files and lines, and says how many more there are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SceneError {
    /// The problems, never empty.
    pub problems: Vec<Problem>,
}

impl std::error::Error for SceneError {}

impl fmt::Display for SceneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().take(SHOWN_PROBLEMS).enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        match self.problems.len().saturating_sub(SHOWN_PROBLEMS) {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more"),
        }
    }
}

/// The candidate that `word` most likely stands for, if any is near enough.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let allowed = (word.chars().count() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| {
            let distance = distance(&lower, &candidate.to_lowercase());
            // A name that was cut short or written out is near even if many letters differ.
            let begins = lower.chars().count() >= 4 && (candidate.starts_with(&lower) || lower.starts_with(candidate));
            (if begins { distance.min(allowed) } else { distance }, candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(64).collect();
    let right: Vec<char> = right.chars().take(64).collect();
    let width = right.len() + 1;
    let mut table = vec![0_usize; (left.len() + 1) * width];
    for i in 0..=left.len() {
        for j in 0..=right.len() {
            table[i * width + j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = usize::from(left[i - 1] != right[j - 1]);
                let mut best = (table[(i - 1) * width + j] + 1)
                    .min(table[i * width + j - 1] + 1)
                    .min(table[(i - 1) * width + j - 1] + replaced);
                if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                    best = best.min(table[(i - 2) * width + j - 2] + 1);
                }
                best
            };
        }
    }
    table[left.len() * width + right.len()]
}

/// Names in backticks, joined by commas, cut after a few.
pub(crate) fn list_names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let shown: Vec<String> = names.iter().take(12).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(12) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str, start: usize, end: usize) -> Problem {
        let source = Arc::new(Source { name: "s.ron".into(), text: text.into() });
        let span = Some(Span { source: 0, start, end });
        Problem { code: Code::Schema, source, span, message: "wrong".into(), help: None }
    }

    #[test]
    fn a_column_counts_characters_and_not_bytes() {
        // `é` has two bytes: byte 3 is the third character.
        assert_eq!(problem("aéx", 3, 4).to_string(), "error[RG0101]: s.ron:1:3: wrong\n  1 | aéx\n    |   ^");
    }

    #[test]
    fn the_end_of_the_text_can_be_shown() {
        assert_eq!(problem("(\n", 2, 2).to_string(), "error[RG0101]: s.ron:2:1: wrong\n  2 | \n    | ^");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let screen = problem("\u{1b}[31m\tx", 6, 7).to_string();
        assert!(!screen.contains('\u{1b}') && !screen.contains('\t'));
    }

    #[test]
    fn a_long_line_is_cut_around_the_carets() {
        let text = format!("{}bad{}", "x".repeat(500), "y".repeat(500));
        let screen = problem(&text, 500, 503).to_string();
        let lines: Vec<&str> = screen.lines().collect();
        assert!(lines[1].chars().count() < 120);
        let at = lines[2].find('^').unwrap();
        let shown: String = lines[1].chars().skip(at).take(3).collect();
        assert_eq!(shown, "bad");
    }

    #[test]
    fn the_nearest_name_allows_a_slip_and_not_a_guess() {
        let names = ["max_turns", "max_actions", "seed"];
        assert_eq!(nearest("max_trun", names), Some("max_turns"));
        assert_eq!(nearest("sede", names), Some("seed"));
        assert_eq!(nearest("temperature", names), None);
        assert_eq!(nearest("", names), None);
    }

    #[test]
    fn many_problems_fit_on_one_screen() {
        let problems = vec![problem("x", 0, 1); 50];
        let screen = SceneError { problems }.to_string();
        assert!(screen.lines().count() <= 40);
        assert!(screen.ends_with("… and 42 more"));
    }
}
