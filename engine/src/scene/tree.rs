//! Parsed RON in which every value and every key knows where it stands.

use std::fmt::Write as _;

use super::problem::Span;

/// Characters of a line in the form over several lines.
const LINE_WIDTH: usize = 100;
/// Blanks per level.
const INDENT: usize = 4;

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// From the first to the last character of the value, its name included.
    pub span: Span,
    /// The value.
    pub value: Value,
}

/// A RON value as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `true`, `false`.
    Bool(bool),
    /// A whole number.
    Integer {
        /// Its value.
        value: i128,
        /// Written without `0x`, `0o`, `0b`.
        decimal: bool,
    },
    /// A number with a point or an exponent, `inf`, `NaN`.
    Float(f64),
    /// `'a'`.
    Char(char),
    /// `"text"`.
    String(String),
    /// A bare name: an enum variant without values, or `None`.
    Name(String),
    /// `(key: value)` or `Name(key: value)`.
    Struct {
        /// Name before the parenthesis.
        name: Option<String>,
        /// In the order of the text; keys are distinct.
        fields: Vec<Field>,
    },
    /// `(a, b)`, `()`, `Name(a)`, `Some(a)`.
    Tuple {
        /// Name before the parenthesis.
        name: Option<String>,
        /// The values.
        items: Vec<Node>,
    },
    /// `[a, b]`.
    List(Vec<Node>),
    /// `{a: b}`.
    Map(Vec<(Node, Node)>),
}

/// A named value of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub key_span: Span,
    /// The value.
    pub node: Node,
}

impl Node {
    /// An empty unnamed struct.
    #[must_use]
    pub fn empty(span: Span) -> Self {
        Self { span, value: Value::Struct { name: None, fields: Vec::new() } }
    }

    /// The value inside any number of `Some(…)`.
    #[must_use]
    pub fn unwrapped(&self) -> &Node {
        match &self.value {
            Value::Tuple { name: Some(name), items } if name == "Some" && items.len() == 1 => items[0].unwrapped(),
            _ => self,
        }
    }

    /// As [`Node::unwrapped`], to change it.
    pub fn unwrapped_mut(&mut self) -> &mut Node {
        let is_some = |node: &Node| matches!(&node.value, Value::Tuple { name: Some(name), items } if name == "Some" && items.len() == 1);
        if !is_some(self) {
            return self;
        }
        match &mut self.value {
            Value::Tuple { items, .. } => items[0].unwrapped_mut(),
            _ => unreachable!("a `Some` is a tuple"),
        }
    }

    /// The value under one key: a struct's field, a map's text key, or an index into a list or tuple.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<(Span, &Node)> {
        match &self.unwrapped().value {
            Value::Struct { fields, .. } => {
                fields.iter().find(|field| field.key == key).map(|field| (field.key_span, &field.node))
            }
            Value::Map(entries) => entries
                .iter()
                .find(|(found, _)| matches!(&found.value, Value::String(text) if text == key))
                .map(|(found, node)| (found.span, node)),
            Value::List(items) | Value::Tuple { items, .. } => {
                let item = items.get(key.parse::<usize>().ok()?)?;
                Some((item.span, item))
            }
            _ => None,
        }
    }

    /// Follows a path as far as the text goes: the key and the value of the last segment that exists, and how many exist.
    #[must_use]
    pub fn follow(&self, path: &str) -> (Option<Span>, &Node, usize) {
        let (mut key_span, mut node, mut found) = (None, self, 0);
        for segment in path.split('.').filter(|segment| !segment.is_empty()) {
            let Some((span, next)) = node.get(segment) else {
                break;
            };
            (key_span, node, found) = (Some(span), next, found + 1);
        }
        (key_span, node, found)
    }

    /// The path of the innermost key, value or list item that holds `span`.
    #[must_use]
    pub fn path_of(&self, span: Span) -> Option<String> {
        let deeper = |key: &str, node: &Node| {
            let rest = node.path_of(span)?;
            Some(if rest.is_empty() { key.to_owned() } else { format!("{key}.{rest}") })
        };
        let found = match &self.unwrapped().value {
            Value::Struct { fields, .. } => fields.iter().find_map(|field| {
                if field.key_span == span {
                    return Some(field.key.clone());
                }
                deeper(&field.key, &field.node)
            }),
            Value::Map(entries) => entries.iter().find_map(|(key, node)| {
                let Value::String(text) = &key.value else {
                    return None;
                };
                if key.span == span {
                    return Some(text.clone());
                }
                deeper(text, node)
            }),
            Value::List(items) | Value::Tuple { items, .. } => {
                items.iter().enumerate().find_map(|(index, item)| deeper(&index.to_string(), item))
            }
            _ => None,
        };
        found.or_else(|| self.span.holds(span).then(String::new))
    }

    /// Takes the innermost field, list item or map entry that holds `span` out of the tree.
    ///
    /// Tuples keep their length, so a bad element takes the field or item around the tuple with it. Returns the field's key,
    /// or an empty text for items and entries.
    pub fn remove(&mut self, span: Span) -> Option<(String, Node)> {
        match &mut self.value {
            Value::Struct { fields, .. } => {
                for index in 0..fields.len() {
                    if let Some(removed) = fields[index].node.remove(span) {
                        return Some(removed);
                    }
                    if fields[index].key_span.holds(span) || fields[index].node.span.holds(span) {
                        let field = fields.remove(index);
                        return Some((field.key, field.node));
                    }
                }
                None
            }
            Value::Map(entries) => {
                for index in 0..entries.len() {
                    if let Some(removed) = entries[index].1.remove(span) {
                        return Some(removed);
                    }
                    if entries[index].0.span.holds(span) || entries[index].1.span.holds(span) {
                        return Some((String::new(), entries.remove(index).1));
                    }
                }
                None
            }
            Value::List(items) => {
                for index in 0..items.len() {
                    if let Some(removed) = items[index].remove(span) {
                        return Some(removed);
                    }
                    if items[index].span.holds(span) {
                        return Some((String::new(), items.remove(index)));
                    }
                }
                None
            }
            Value::Tuple { items, .. } => items.iter_mut().find_map(|item| item.remove(span)),
            _ => None,
        }
    }

    /// Puts the settings of `base` below this node's own: structs and maps merge key by key, all else stays.
    ///
    /// Two structs merge if at most one has a name or both have the same; an enum variant thus never mixes with another.
    pub fn merge_below(&mut self, base: Node) {
        match (&mut self.value, base.value) {
            (Value::Struct { name, fields }, Value::Struct { name: base_name, fields: base_fields })
                if name.is_none() || base_name.is_none() || *name == base_name =>
            {
                if name.is_none() {
                    *name = base_name;
                }
                for field in base_fields {
                    match fields.iter_mut().find(|own| own.key == field.key) {
                        Some(own) => own.node.merge_below(field.node),
                        None => fields.push(field),
                    }
                }
            }
            (Value::Map(entries), Value::Map(base_entries)) => {
                for (key, node) in base_entries {
                    match entries.iter_mut().find(|(own, _)| own.value == key.value) {
                        Some((_, own)) => own.merge_below(node),
                        None => entries.push((key, node)),
                    }
                }
            }
            // `()` is a struct without fields.
            (Value::Tuple { name: None, items }, base @ Value::Struct { .. }) if items.is_empty() => {
                self.value = base;
            }
            _ => {}
        }
    }

    /// The value as RON on one line, in one fixed form.
    #[must_use]
    pub fn to_ron(&self) -> String {
        let mut text = String::new();
        self.print(&mut text);
        text
    }

    /// The value as RON over several lines; a value inside that fits on its line stays on one.
    #[must_use]
    pub fn to_pretty_ron(&self) -> String {
        let mut text = String::new();
        self.print_lines(0, &mut text);
        text
    }

    fn print_lines(&self, indent: usize, out: &mut String) {
        let column = out.len() - out.rfind('\n').map_or(0, |at| at + 1);
        let line = self.to_ron();
        if indent > 0 && column + line.chars().count() < LINE_WIDTH {
            return out.push_str(&line);
        }
        let inner = format!("\n{}", " ".repeat(indent + INDENT));
        let (name, brackets) = match &self.value {
            Value::Struct { name, .. } | Value::Tuple { name, .. } => (name.as_deref(), ["(", ")"]),
            Value::List(_) => (None, ["[", "]"]),
            Value::Map(_) => (None, ["{", "}"]),
            _ => return out.push_str(&line),
        };
        out.push_str(name.unwrap_or_default());
        out.push_str(brackets[0]);
        let mut item = |key: Option<String>, node: &Node| {
            out.push_str(&inner);
            if let Some(key) = key {
                out.push_str(&key);
                out.push_str(": ");
            }
            node.print_lines(indent + INDENT, out);
            out.push(',');
        };
        match &self.value {
            Value::Struct { fields, .. } => fields.iter().for_each(|field| item(Some(field.key.clone()), &field.node)),
            Value::Map(entries) => entries.iter().for_each(|(key, node)| item(Some(key.to_ron()), node)),
            Value::Tuple { items, .. } | Value::List(items) => items.iter().for_each(|node| item(None, node)),
            _ => {}
        }
        out.push('\n');
        out.push_str(&" ".repeat(indent));
        out.push_str(brackets[1]);
    }

    fn print(&self, out: &mut String) {
        // Writing to a `String` cannot fail.
        match &self.value {
            Value::Bool(value) => drop(write!(out, "{value}")),
            Value::Integer { value, .. } => drop(write!(out, "{value}")),
            Value::Float(value) => out.push_str(&float_to_ron(*value)),
            Value::Char(value) => drop(write!(out, "'{}'", value.escape_default())),
            Value::String(value) => out.push_str(&text_to_ron(value)),
            Value::Name(name) => {
                // These words are values unless marked as names.
                if matches!(name.as_str(), "true" | "false" | "inf" | "NaN" | "Some") {
                    out.push_str("r#");
                }
                out.push_str(name);
            }
            Value::Struct { name, fields } => {
                out.push_str(name.as_deref().unwrap_or_default());
                separated(out, '(', ')', fields, |out, field| {
                    let _ = write!(out, "{}: ", field.key);
                    field.node.print(out);
                });
            }
            Value::Tuple { name, items } => {
                out.push_str(name.as_deref().unwrap_or_default());
                separated(out, '(', ')', items, |out, item| item.print(out));
            }
            Value::List(items) => separated(out, '[', ']', items, |out, item| item.print(out)),
            Value::Map(entries) => separated(out, '{', '}', entries, |out, (key, node)| {
                key.print(out);
                out.push_str(": ");
                node.print(out);
            }),
        }
    }
}

fn separated<T>(out: &mut String, open: char, close: char, items: &[T], print: impl Fn(&mut String, &T)) {
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        print(out, item);
    }
    out.push(close);
}

/// A number in the shortest form that reads back exactly and is still a float.
#[must_use]
pub(crate) fn float_to_ron(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "inf" } else { "-inf" }.to_owned()
    } else {
        format!("{value:?}")
    }
}

/// A text in quotes.
#[must_use]
pub(crate) fn text_to_ron(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
