//! What every setting is called, may be, and means: one description for errors, `explain` and the reference page.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use super::{problem::nearest, tree};

/// A type that can say what values it takes.
pub trait Documented {
    /// The values it takes.
    fn describe() -> Shape;

    /// The value as RON on one line.
    fn to_ron_text(&self) -> String;

    /// Adds `(path, message)` for every number in here that is outside its range.
    fn out_of_range(&self, path: &str, range: Option<Range>, problems: &mut Vec<(String, String)>) {
        let (_, _, _) = (path, range, problems);
    }
}

/// What a setting's value looks like.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A plain value, in words: `a whole number`, `a text`.
    Plain(&'static str),
    /// May be left out with `None`.
    Optional(Box<Shape>),
    /// `[…]` of these.
    List(Box<Shape>),
    /// `{"name": …}` of these.
    Map(Box<Shape>),
    /// One of several variants.
    Choice(Vec<Variant>),
    /// A group of settings.
    Group(Vec<Entry>),
}

/// One setting of a group.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Key as scenes write it.
    pub key: &'static str,
    /// What it means, as running text.
    pub doc: String,
    /// What values it takes.
    pub shape: Shape,
    /// Range of a number.
    pub range: Option<Range>,
    /// Default as RON.
    pub default: String,
}

/// One variant of a choice.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Name as scenes write it.
    pub name: &'static str,
    /// What it means.
    pub doc: String,
    /// Its values.
    pub fields: Vec<Entry>,
}

/// The numbers that a setting allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    low: f64,
    low_allowed: bool,
    high: f64,
    high_allowed: bool,
}

/// `low` and everything above.
#[must_use]
pub const fn at_least(low: f64) -> Range {
    Range { low, low_allowed: true, high: f64::INFINITY, high_allowed: false }
}

/// Everything above `low`.
#[must_use]
pub const fn above(low: f64) -> Range {
    Range { low, low_allowed: false, high: f64::INFINITY, high_allowed: false }
}

/// From `low` to `high`, both allowed.
#[must_use]
pub const fn between(low: f64, high: f64) -> Range {
    Range { low, low_allowed: true, high, high_allowed: true }
}

/// Above `low`, up to and including `high`.
#[must_use]
pub const fn above_to(low: f64, high: f64) -> Range {
    Range { low, low_allowed: false, high, high_allowed: true }
}

/// From `low` to just below `high`.
#[must_use]
pub const fn below(low: f64, high: f64) -> Range {
    Range { low, low_allowed: true, high, high_allowed: false }
}

/// Up to and including `high`.
#[must_use]
pub const fn at_most(high: f64) -> Range {
    Range { low: f64::NEG_INFINITY, low_allowed: false, high, high_allowed: true }
}

impl Range {
    /// Whether `value` is allowed.
    #[must_use]
    pub fn allows(self, value: f64) -> bool {
        let low = value > self.low || (self.low_allowed && value == self.low);
        let high = value < self.high || (self.high_allowed && value == self.high);
        value.is_finite() && low && high
    }

    /// The range in words that follow `a number`.
    #[must_use]
    pub fn words(self) -> String {
        let (low, high) = (self.low, self.high);
        match (low.is_finite(), high.is_finite()) {
            (true, true) => match (self.low_allowed, self.high_allowed) {
                (true, true) => format!("from {low} to {high}"),
                (true, false) => format!("of at least {low} and below {high}"),
                (false, true) => format!("above {low} and at most {high}"),
                (false, false) => format!("between {low} and {high}"),
            },
            (true, false) if self.low_allowed => format!("of at least {low}"),
            (true, false) => format!("above {low}"),
            (false, true) => format!("of at most {high}"),
            (false, false) => String::new(),
        }
    }
}

impl Shape {
    /// The values in words, e.g. ``one of `Full`, `SingleTurn` ``.
    #[must_use]
    pub fn words(&self, range: Option<Range>) -> String {
        match self {
            Self::Plain(words) => match range.map(Range::words) {
                Some(range) if !range.is_empty() => format!("{words} {range}"),
                _ => (*words).to_owned(),
            },
            Self::Optional(inner) => format!("{}, or `None`", inner.words(range)),
            Self::List(inner) => match &**inner {
                Self::Plain(words) => format!("a list; each item is {words}"),
                inner => format!("a list of {}", inner.words(range)),
            },
            Self::Map(_) => "a map from names to settings".to_owned(),
            Self::Choice(variants) => {
                let names: Vec<String> = variants
                    .iter()
                    .map(|variant| match variant.fields.as_slice() {
                        [] => format!("`{}`", variant.name),
                        fields => {
                            let fields: Vec<String> =
                                fields.iter().map(|field| format!("{}: {}", field.key, field.default)).collect();
                            format!("`{}({})`", variant.name, fields.join(", "))
                        }
                    })
                    .collect();
                format!("one of {}", names.join(", "))
            }
            Self::Group(_) => "a group of settings".to_owned(),
        }
    }

    /// Without the `Option` around it.
    #[must_use]
    pub fn required(&self) -> &Shape {
        match self {
            Self::Optional(inner) => inner.required(),
            other => other,
        }
    }

    /// The settings directly inside, of a group or of all variants of a choice.
    fn entries(&self) -> Vec<&Entry> {
        match self.required() {
            Self::Group(entries) => entries.iter().collect(),
            Self::Choice(variants) => variants.iter().flat_map(|variant| &variant.fields).collect(),
            _ => Vec::new(),
        }
    }

    /// The description under one key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Found<'_>> {
        match self.required() {
            Self::Map(inner) | Self::List(inner) => Some(Found { shape: inner, entry: None }),
            _ => {
                let entry = self.entries().into_iter().find(|entry| entry.key == key)?;
                Some(Found { shape: &entry.shape, entry: Some(entry) })
            }
        }
    }

    /// The description under a dotted path.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<Found<'_>> {
        let mut found = Found { shape: self, entry: None };
        for segment in path.split('.').filter(|segment| !segment.is_empty()) {
            found = found.shape.get(segment)?;
        }
        Some(found)
    }

    /// All dotted paths below, groups included; map keys are written `<name>`.
    fn paths(&self, prefix: &str, out: &mut Vec<String>) {
        match self.required() {
            Self::Map(inner) => inner.paths(&format!("{prefix}.<name>"), out),
            shape => {
                for entry in shape.entries() {
                    let path = join(prefix, entry.key);
                    if !out.contains(&path) {
                        out.push(path.clone());
                        entry.shape.paths(&path, out);
                    }
                }
            }
        }
    }
}

/// A description found by path.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// What values it takes.
    pub shape: &'a Shape,
    /// The setting, unless the path ends at a map's entry or the root.
    pub entry: Option<&'a Entry>,
}

impl Entry {
    /// Key, values and default in one line.
    #[must_use]
    pub fn help(&self) -> String {
        let words = self.shape.words(self.range);
        match self.shape.required() {
            Shape::Group(entries) => {
                let keys: Vec<&str> = entries.iter().map(|entry| entry.key).collect();
                format!("`{}` is {words}: `{}`", self.key, keys.join("`, `"))
            }
            _ => format!("`{}` is {words}; default {}", self.key, self.default),
        }
    }
}

pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Doc lines as running text.
pub(crate) fn doc_text(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ").trim().to_owned()
}

macro_rules! plain {
    ($words:literal: $($ty:ty),*; $value:ident => $text:expr) => { $(
        impl Documented for $ty {
            fn describe() -> Shape { Shape::Plain($words) }
            fn to_ron_text(&self) -> String { let $value = self; $text }
        }
    )* };
}
macro_rules! number {
    ($words:literal: $($ty:ty),*; $value:ident => $float:expr, $text:expr) => { $(
        impl Documented for $ty {
            fn describe() -> Shape { Shape::Plain($words) }
            fn to_ron_text(&self) -> String { let $value = *self; $text }
            fn out_of_range(&self, path: &str, range: Option<Range>, problems: &mut Vec<(String, String)>) {
                let $value = *self;
                let range = range.unwrap_or(Range { low: f64::NEG_INFINITY, low_allowed: false, high: f64::INFINITY, high_allowed: false });
                if !range.allows($float) {
                    let key = path.rsplit('.').find(|part| part.parse::<usize>().is_err()).unwrap_or(path);
                    let words = match range.words() {
                        words if words.is_empty() => "finite".to_owned(),
                        words => format!("{} {words}", $words),
                    };
                    problems.push((path.to_owned(), format!("`{key}` is {} and must be {words}", $text)));
                }
            }
        }
    )* };
}
plain!("`true` or `false`": bool; value => value.to_string());
plain!("a text": String; value => tree::text_to_ron(value));
plain!("a path": PathBuf; value => tree::text_to_ron(&value.to_string_lossy()));
// Counters stay far below 2^53, and a bound is only compared.
number!("a whole number": u32, usize, u64; value => value as f64, value.to_string());
number!("a number": f64; value => value, tree::float_to_ron(value));

impl<T: Documented> Documented for Option<T> {
    fn describe() -> Shape {
        Shape::Optional(Box::new(T::describe()))
    }

    fn to_ron_text(&self) -> String {
        self.as_ref().map_or("None".to_owned(), T::to_ron_text)
    }

    fn out_of_range(&self, path: &str, range: Option<Range>, problems: &mut Vec<(String, String)>) {
        if let Some(value) = self {
            value.out_of_range(path, range, problems);
        }
    }
}

impl<T: Documented> Documented for Vec<T> {
    fn describe() -> Shape {
        Shape::List(Box::new(T::describe()))
    }

    fn to_ron_text(&self) -> String {
        let items: Vec<String> = self.iter().map(T::to_ron_text).collect();
        format!("[{}]", items.join(", "))
    }

    fn out_of_range(&self, path: &str, range: Option<Range>, problems: &mut Vec<(String, String)>) {
        for (index, item) in self.iter().enumerate() {
            item.out_of_range(&join(path, &index.to_string()), range, problems);
        }
    }
}

impl<T: Documented> Documented for BTreeMap<String, T> {
    fn describe() -> Shape {
        Shape::Map(Box::new(T::describe()))
    }

    fn to_ron_text(&self) -> String {
        let entries: Vec<String> =
            self.iter().map(|(key, value)| format!("{}: {}", tree::text_to_ron(key), value.to_ron_text())).collect();
        format!("{{{}}}", entries.join(", "))
    }

    fn out_of_range(&self, path: &str, range: Option<Range>, problems: &mut Vec<(String, String)>) {
        for (key, value) in self {
            value.out_of_range(&join(path, key), range, problems);
        }
    }
}

impl Documented for (f64, f64) {
    fn describe() -> Shape {
        Shape::Plain("two numbers in parentheses")
    }

    fn to_ron_text(&self) -> String {
        format!("({}, {})", self.0.to_ron_text(), self.1.to_ron_text())
    }

    fn out_of_range(&self, path: &str, range: Option<Range>, problems: &mut Vec<(String, String)>) {
        self.0.out_of_range(&join(path, "0"), range, problems);
        self.1.out_of_range(&join(path, "1"), range, problems);
    }
}

/// No setting has this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no setting is called `{key}`{}", suggestions(.nearest))]
pub struct UnknownKey {
    /// The name asked for.
    pub key: String,
    /// Settings that may be meant.
    pub nearest: Vec<String>,
}

fn suggestions(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!("; did you mean `{}`?", names.join("` or `")),
    }
}

pub(crate) fn explain_in(root: &Shape, key: &str) -> Result<String, UnknownKey> {
    let Some(found) = root.find(key) else {
        let mut paths = Vec::new();
        root.paths("", &mut paths);
        let leaf = key.rsplit('.').next().unwrap_or(key);
        let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
        let mut near: Vec<String> = paths.iter().filter(|path| last(path) == leaf).take(3).cloned().collect();
        if near.is_empty() {
            let whole = nearest(key, paths.iter().map(String::as_str)).map(str::to_owned);
            let leaves: Vec<String> = paths.iter().map(|path| last(path)).collect();
            let by_leaf = nearest(leaf, leaves.iter().map(String::as_str))
                .and_then(|leaf| paths.iter().find(|path| last(path) == leaf).cloned());
            near.extend(whole.or(by_leaf));
        }
        return Err(UnknownKey { key: key.to_owned(), nearest: near });
    };
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    if let Some(entry) = found.entry {
        let _ = match found.shape.required() {
            Shape::Group(_) => writeln!(out, "{key}: {}", entry.shape.words(entry.range)),
            _ => writeln!(out, "{key}: {}; default {}", entry.shape.words(entry.range), entry.default),
        };
        let _ = writeln!(out, "  {}", entry.doc);
    }
    match found.shape.required() {
        Shape::Choice(variants) => {
            for variant in variants {
                let _ = writeln!(out, "  {}: {}", variant.name, variant.doc);
                for field in &variant.fields {
                    let _ = writeln!(out, "    {}; {}", field.help(), field.doc);
                }
            }
        }
        Shape::Group(entries) => {
            for entry in entries {
                let _ = match entry.shape.required() {
                    Shape::Group(_) => writeln!(out, "  {}: {}", entry.key, entry.doc),
                    _ => writeln!(out, "  {}: {} (default {})", entry.key, entry.doc, entry.default),
                };
            }
        }
        _ => {}
    }
    Ok(out)
}

/// One table per group, in the order of the scene.
pub(crate) fn markdown_of(root: &Shape) -> String {
    let mut out = String::new();
    table("", "The scene", "", root, &mut out);
    out
}

fn table(path: &str, title: &str, doc: &str, shape: &Shape, out: &mut String) {
    let shape = shape.required();
    let Shape::Group(entries) = shape else {
        if let Shape::Map(inner) = shape {
            table(&format!("{path}.<name>"), &format!("`{path}.<name>`"), doc, inner, out);
        }
        return;
    };
    let _ = write!(out, "\n## {title}\n\n");
    if !doc.is_empty() {
        let _ = write!(out, "{doc}\n\n");
    }
    out.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for entry in entries {
        let (value, default, mut meaning) = match entry.shape.required() {
            Shape::Group(_) => ("settings, see below".to_owned(), String::new(), entry.doc.clone()),
            Shape::Choice(variants) => {
                let mut meaning = entry.doc.clone();
                for variant in variants {
                    let _ = write!(meaning, "<br>`{}`: {}", variant.name, variant.doc);
                    for field in &variant.fields {
                        let _ = write!(
                            meaning,
                            " `{}`: {} ({}; default `{}`)",
                            field.key,
                            field.doc,
                            field.shape.words(field.range),
                            field.default
                        );
                    }
                }
                (entry.shape.words(entry.range), format!("`{}`", entry.default), meaning)
            }
            _ => (entry.shape.words(entry.range), format!("`{}`", entry.default), entry.doc.clone()),
        };
        if entry.doc.is_empty() {
            meaning.clear();
        }
        let escape = |text: &str| text.replace('|', "\\|");
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            join(path, entry.key),
            escape(&value),
            escape(&default),
            escape(&meaning)
        );
    }
    for entry in entries {
        let path = join(path, entry.key);
        table(&path, &format!("`{path}`"), &entry.doc, &entry.shape, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_says_what_it_allows() {
        for (range, words, inside, outside) in [
            (at_least(1.0), "of at least 1", 1.0, 0.0),
            (above(0.0), "above 0", 1e-9, 0.0),
            (between(0.0, 1.0), "from 0 to 1", 1.0, 1.5),
            (above_to(0.0, 1.0), "above 0 and at most 1", 1.0, 0.0),
            (below(0.0, 1.0), "of at least 0 and below 1", 0.0, 1.0),
            (at_most(0.0), "of at most 0", 0.0, 0.1),
        ] {
            assert_eq!(range.words(), words);
            assert!(range.allows(inside) && !range.allows(outside) && !range.allows(f64::NAN), "{words}");
        }
    }
}
