//! Reads RON into a [`Node`] tree.
//!
//! The language is RON 0.12 without byte strings, number suffixes and names outside ASCII. Keys given twice are errors, and so
//! is nesting deeper than [`MAX_DEPTH`].

use super::{
    problem::Span,
    tree::{Field, Node, Value},
};

/// Values nested in each other at most.
pub const MAX_DEPTH: usize = 64;

/// Text that is not RON.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SyntaxError {
    /// Where.
    pub span: Span,
    /// What was expected there.
    pub reason: String,
    /// How to put it right, where that is known.
    pub help: Option<String>,
}

/// Parses one value that fills the text from byte `offset` to the end.
///
/// # Errors
/// [`SyntaxError`] with the first place that is not RON.
pub fn parse(source: usize, text: &str, offset: usize) -> Result<Node, SyntaxError> {
    let mut parser = Parser { source, text, at: offset.min(text.len()), depth: 0 };
    if parser.rest().starts_with('\u{feff}') {
        return Err(parser
            .fail(3, "the file begins with a byte order mark")
            .with("save it as UTF-8 without a byte order mark"));
    }
    parser.skip_blank()?;
    parser.attributes()?;
    let node = parser.value()?;
    parser.skip_blank()?;
    match parser.peek() {
        None => Ok(node),
        Some(c) => Err(parser.fail(c.len_utf8(), format!("expected the end, found `{c}`"))),
    }
}

impl SyntaxError {
    fn with(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

struct Parser<'a> {
    source: usize,
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn span(&self, start: usize) -> Span {
        Span { source: self.source, start, end: self.at }
    }

    fn fail(&self, len: usize, reason: impl Into<String>) -> SyntaxError {
        self.fail_at(self.at, self.at + len, reason)
    }

    fn fail_at(&self, start: usize, end: usize, reason: impl Into<String>) -> SyntaxError {
        SyntaxError { span: Span { source: self.source, start, end }, reason: reason.into(), help: None }
    }

    fn unexpected(&self, expected: &str) -> SyntaxError {
        match self.peek() {
            None => self.fail(0, format!("expected {expected}, found the end of the text")),
            Some(c) => self.fail(c.len_utf8(), format!("expected {expected}, found `{c}`")),
        }
    }

    fn skip_blank(&mut self) -> Result<(), SyntaxError> {
        loop {
            let rest = self.rest().trim_start_matches(is_blank);
            self.at = self.text.len() - rest.len();
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                self.skip_block()?;
            } else {
                return Ok(());
            }
        }
    }

    fn skip_block(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        let mut level = 0_usize;
        loop {
            if self.eat("/*") {
                level += 1;
            } else if self.eat("*/") {
                level -= 1;
                if level == 0 {
                    return Ok(());
                }
            } else {
                match self.peek() {
                    Some(c) => self.at += c.len_utf8(),
                    None => {
                        return Err(self.fail_at(start, start + 2, "this comment has no closing `*/`"));
                    }
                }
            }
        }
    }

    /// `#![enable(…)]`; the extensions it may name are always on, so it changes nothing.
    fn attributes(&mut self) -> Result<(), SyntaxError> {
        while self.peek() == Some('#') {
            for piece in ["#", "!", "["] {
                self.expect(piece)?;
            }
            let start = self.at;
            match self.identifier().as_deref() {
                Some("enable") => {
                    self.skip_blank()?;
                    self.expect("(")?;
                    loop {
                        let start = self.at;
                        let Some(name) = self.identifier() else {
                            return Err(self.unexpected("the name of an extension"));
                        };
                        if !["implicit_some", "unwrap_newtypes", "unwrap_variant_newtypes"].contains(&name.as_str()) {
                            return Err(self
                                .fail_at(start, self.at, format!("unknown extension `{name}`"))
                                .with("scenes know `implicit_some`, `unwrap_newtypes` and `unwrap_variant_newtypes`, which are always on"));
                        }
                        self.skip_blank()?;
                        let comma = self.eat(",");
                        self.skip_blank()?;
                        if !comma || self.peek() == Some(')') {
                            break;
                        }
                    }
                    self.expect(")")?;
                }
                Some("type" | "schema") => {
                    self.skip_blank()?;
                    self.expect("=")?;
                    if !matches!(self.value()?.value, Value::String(_)) {
                        return Err(self.fail_at(start, self.at, "expected a text"));
                    }
                    self.skip_blank()?;
                }
                _ => return Err(self.fail_at(start, self.at.max(start + 1), "expected `enable`")),
            }
            self.expect("]")?;
        }
        Ok(())
    }

    fn expect(&mut self, piece: &str) -> Result<(), SyntaxError> {
        if !self.eat(piece) {
            return Err(self.unexpected(&format!("`{piece}`")));
        }
        self.skip_blank()
    }

    fn identifier(&mut self) -> Option<String> {
        let rest = self.rest();
        let raw = rest.starts_with("r#");
        let body = if raw { &rest[2..] } else { rest };
        let len = body.find(|c: char| !is_name(c)).unwrap_or(body.len());
        if len == 0 || body.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        self.at += len + if raw { 2 } else { 0 };
        Some(body[..len].to_owned())
    }

    fn value(&mut self) -> Result<Node, SyntaxError> {
        if self.depth >= MAX_DEPTH {
            return Err(self.fail(1, format!("values are nested more than {MAX_DEPTH} deep here")));
        }
        self.depth += 1;
        let start = self.at;
        let value = self.bare_value();
        self.depth -= 1;
        let value = value?;
        Ok(Node { span: self.span(start), value })
    }

    fn bare_value(&mut self) -> Result<Value, SyntaxError> {
        let rest = self.rest();
        match self.peek() {
            Some('"') => return self.string().map(Value::String),
            Some('\'') => return self.char(),
            Some('[') => return self.list(),
            Some('{') => return self.map(),
            Some('(') => return self.parenthesised(None),
            Some('0'..='9' | '+' | '-' | '.') => return self.number(),
            Some('r') if is_raw_string(rest) => return self.raw_string(),
            Some('b')
                if rest.starts_with("b\"")
                    || rest.starts_with("b'")
                    || rest.starts_with("br\"")
                    || rest.starts_with("br#") =>
            {
                return Err(self.fail(1, "byte strings have no use in a scene"));
            }
            _ => {}
        }
        let raw = rest.starts_with("r#");
        let start = self.at;
        let Some(name) = self.identifier() else {
            return Err(self.unexpected("a value"));
        };
        let after_name = self.at;
        if !raw {
            match name.as_str() {
                "true" => return Ok(Value::Bool(true)),
                "false" => return Ok(Value::Bool(false)),
                "inf" => return Ok(Value::Float(f64::INFINITY)),
                "NaN" => return Ok(Value::Float(f64::NAN)),
                _ => {}
            }
        }
        if self.rest().starts_with(|c: char| !c.is_ascii() && c.is_alphanumeric() || c == '-') {
            return Err(self
                .fail_at(start, self.at, format!("`{name}` is followed by a character that no name holds"))
                .with("texts stand in quotes"));
        }
        self.skip_blank()?;
        if self.peek() == Some('(') {
            return self.parenthesised(Some(name));
        }
        self.at = after_name;
        if name == "Some" && !raw {
            return Err(self.fail_at(start, after_name, "expected a value in `Some(…)`"));
        }
        Ok(Value::Name(name))
    }

    /// Everything in parentheses: fields if the first thing is a name and a colon, else values.
    fn parenthesised(&mut self, name: Option<String>) -> Result<Value, SyntaxError> {
        let open = self.at;
        self.at += 1;
        self.skip_blank()?;
        let before = self.at;
        let named = self.identifier().is_some() && {
            self.skip_blank()?;
            self.peek() == Some(':')
        };
        self.at = before;
        if !named {
            let items = self.items(open, ')', Self::value)?;
            return Ok(Value::Tuple { name, items });
        }
        let fields = self.items(open, ')', |parser| {
            let start = parser.at;
            let Some(key) = parser.identifier() else {
                return Err(parser.unexpected("a key"));
            };
            let key_span = parser.span(start);
            parser.skip_blank()?;
            if parser.peek() != Some(':') {
                return Err(parser.unexpected(&format!("`:` after `{key}`")));
            }
            parser.at += 1;
            parser.skip_blank()?;
            let node = parser.value()?;
            Ok(Field { key, key_span, node })
        })?;
        let mut seen = std::collections::HashSet::new();
        for field in &fields {
            if !seen.insert(field.key.as_str()) {
                return Err(SyntaxError {
                    span: field.key_span,
                    reason: format!("`{}` is given twice", field.key),
                    help: Some("remove one of the two".to_owned()),
                });
            }
        }
        Ok(Value::Struct { name, fields })
    }

    fn list(&mut self) -> Result<Value, SyntaxError> {
        let open = self.at;
        self.at += 1;
        self.skip_blank()?;
        self.items(open, ']', Self::value).map(Value::List)
    }

    fn map(&mut self) -> Result<Value, SyntaxError> {
        let open = self.at;
        self.at += 1;
        self.skip_blank()?;
        let entries = self.items(open, '}', |parser| {
            let key = parser.value()?;
            parser.skip_blank()?;
            if parser.peek() != Some(':') {
                return Err(parser.unexpected("`:` after the key"));
            }
            parser.at += 1;
            parser.skip_blank()?;
            Ok((key, parser.value()?))
        })?;
        let mut seen = std::collections::HashSet::new();
        for (key, _) in &entries {
            if !seen.insert(key.to_ron()) {
                return Err(SyntaxError {
                    span: key.span,
                    reason: format!("{} is given twice", key.to_ron()),
                    help: Some("remove one of the two".to_owned()),
                });
            }
        }
        Ok(Value::Map(entries))
    }

    /// Comma-separated items up to `close`; the opening bracket is behind us.
    fn items<T>(
        &mut self,
        open: usize,
        close: char,
        item: impl Fn(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        let mut items = Vec::new();
        loop {
            if self.peek() == Some(close) {
                self.at += 1;
                return Ok(items);
            }
            if self.rest().is_empty() {
                return Err(self.fail_at(open, open + 1, format!("this bracket has no closing `{close}`")));
            }
            items.push(item(self)?);
            let after_item = self.at;
            self.skip_blank()?;
            if self.eat(",") {
                self.skip_blank()?;
            } else if self.peek() != Some(close) && !self.rest().is_empty() {
                let found = self.unexpected(&format!("`,` or `{close}`"));
                // The comma is missed where the value ends, which may be lines above.
                let new_line = self.text[after_item..self.at].contains('\n');
                return Err(if new_line {
                    self.fail_at(after_item, after_item, format!("expected `,` or `{close}` after this value"))
                } else {
                    found
                });
            }
        }
    }

    fn number(&mut self) -> Result<Value, SyntaxError> {
        let start = self.at;
        let rest = self.rest();
        let len = rest
            .char_indices()
            .find(|&(at, c)| {
                let exponent_sign = matches!(c, '+' | '-')
                    && at > 0
                    && matches!(rest.as_bytes()[at - 1], b'e' | b'E')
                    && !rest.trim_start_matches(['+', '-']).starts_with("0x");
                !(is_name(c) || c == '.' || exponent_sign || (at == 0 && matches!(c, '+' | '-')))
            })
            .map_or(rest.len(), |(at, _)| at);
        let written = &rest[..len];
        let fail = |reason: String| self.fail_at(start, start + len.max(1), reason);
        let bad = || fail(format!("`{written}` is not a number"));

        let negative = written.starts_with('-');
        let body = written.strip_prefix(['+', '-']).unwrap_or(written);
        if body == "inf" || body == "NaN" {
            self.at += len;
            let magnitude = if body == "inf" { f64::INFINITY } else { f64::NAN };
            return Ok(Value::Float(if negative { -magnitude } else { magnitude }));
        }
        let (digits, radix) = match body.as_bytes() {
            [b'0', b'x', ..] => (&body[2..], 16),
            [b'0', b'o', ..] => (&body[2..], 8),
            [b'0', b'b', ..] => (&body[2..], 2),
            _ => (body, 10),
        };
        let whole = radix != 10 || digits.chars().all(|c| c.is_ascii_digit() || c == '_');
        if digits.is_empty() || digits.starts_with('_') {
            return Err(bad());
        }
        if whole {
            let plain: String = digits.chars().filter(|&c| c != '_').collect();
            if !plain.chars().all(|c| c.is_digit(radix)) {
                return Err(bad());
            }
            let magnitude = u64::from_str_radix(&plain, radix)
                .map_err(|_| fail(format!("`{written}` is too large a whole number")))?;
            let value = if negative { -i128::from(magnitude) } else { i128::from(magnitude) };
            if value < i128::from(i64::MIN) {
                return Err(fail(format!("`{written}` is too small a whole number")));
            }
            self.at += len;
            return Ok(Value::Integer { value, decimal: radix == 10 });
        }
        // An underscore may follow a digit and nothing else.
        let mut plain = String::with_capacity(digits.len());
        let mut after_digit = false;
        for c in digits.chars() {
            match c {
                '_' if after_digit => {}
                '0'..='9' | '.' | 'e' | 'E' | '+' | '-' => {
                    after_digit = c.is_ascii_digit();
                    plain.push(c);
                }
                _ => return Err(bad()),
            }
        }
        let magnitude: f64 = plain.parse().map_err(|_| bad())?;
        self.at += len;
        Ok(Value::Float(if negative { -magnitude } else { magnitude }))
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let Some(next) = rest.find(['"', '\\']) else {
                return Err(self.fail_at(start, start + 1, "this text has no closing `\"`"));
            };
            out.push_str(&rest[..next]);
            self.at += next + 1;
            if rest.as_bytes()[next] == b'"' {
                return Ok(out);
            }
            if self.eat("\r\n") || self.eat("\n") {
                let rest = self.rest().trim_start_matches([' ', '\t', '\n', '\r']);
                self.at = self.text.len() - rest.len();
            } else {
                out.push(self.escape()?);
            }
        }
    }

    fn is_raw_end(rest: &str, hashes: usize) -> Option<usize> {
        rest.find(&format!("\"{}", "#".repeat(hashes)))
    }

    fn raw_string(&mut self) -> Result<Value, SyntaxError> {
        let start = self.at;
        let hashes = self.rest()[1..].bytes().take_while(|&b| b == b'#').count();
        self.at += hashes + 2;
        let Some(end) = Self::is_raw_end(self.rest(), hashes) else {
            return Err(self.fail_at(start, start + 1, "this raw text has no end"));
        };
        let text = self.rest()[..end].to_owned();
        self.at += end + hashes + 1;
        Ok(Value::String(text))
    }

    fn char(&mut self) -> Result<Value, SyntaxError> {
        let start = self.at;
        self.at += 1;
        let value = if self.eat("\\") {
            self.escape()?
        } else {
            let c = self.peek().ok_or_else(|| self.unexpected("a character"))?;
            self.at += c.len_utf8();
            c
        };
        if !self.eat("'") {
            return Err(self
                .fail_at(start, self.at, "expected one character between `'` and `'`")
                .with("texts stand in double quotes: \"like this\""));
        }
        Ok(Value::Char(value))
    }

    /// The character after a backslash.
    fn escape(&mut self) -> Result<char, SyntaxError> {
        let start = self.at - 1;
        let Some(c) = self.peek() else {
            return Err(self.unexpected("an escape"));
        };
        self.at += c.len_utf8();
        let bad = |parser: &Self, reason: &str| parser.fail_at(start, parser.at, reason.to_owned());
        Ok(match c {
            '\'' | '"' | '\\' => c,
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '0' => '\0',
            'x' => {
                let digits = self.rest().get(..2).unwrap_or_default();
                let value =
                    u8::from_str_radix(digits, 16).ok().filter(|value| value.is_ascii() && !digits.starts_with('+'));
                let Some(value) = value else {
                    return Err(bad(self, "expected two hexadecimal digits up to `7f`")
                        .with("characters beyond ASCII are written `\\u{…}`"));
                };
                self.at += 2;
                char::from(value)
            }
            'u' => {
                let found = self.rest().strip_prefix('{').and_then(|rest| {
                    let end = rest.find('}').filter(|end| (1..=6).contains(end))?;
                    let digits = &rest[..end];
                    let hexadecimal = digits.bytes().all(|b| b.is_ascii_hexdigit());
                    let value = u32::from_str_radix(digits, 16).ok().filter(|_| hexadecimal)?;
                    Some((char::from_u32(value)?, end + 2))
                });
                let Some((value, len)) = found else {
                    return Err(bad(self, "expected a character code such as `\\u{e9}`"));
                };
                self.at += len;
                value
            }
            _ => {
                return Err(bad(self, "unknown escape").with("a backslash itself is written `\\\\`"));
            }
        })
    }
}

fn is_raw_string(rest: &str) -> bool {
    rest[1..].trim_start_matches('#').starts_with('"')
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_blank(c: char) -> bool {
    matches!(
        c,
        ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reason(text: &str) -> (usize, String) {
        let error = parse(0, text, 0).unwrap_err();
        (error.span.start, error.reason)
    }

    #[test]
    fn every_kind_of_value_is_read() {
        let text = r##"#![enable(implicit_some, unwrap_newtypes,)]
        // a comment
        Scene(a: 1_000, b: -0x1F, /* nested /* comment */ */ c: 1e-6, d: "a\n\u{e9}\x41\
            b", e: r#"raw "text""#, f: 'c', g: [1, 2,], h: {"k": ()}, i: Some(None), j: Cosine(min_ratio: 0.1), k: (1, 2), l: true, r#m: .5)"##;
        assert_eq!(
            parse(0, text, 0).unwrap().to_ron(),
            "Scene(a: 1000, b: -31, c: 1e-6, d: \"a\\néAb\", e: \"raw \\\"text\\\"\", f: 'c', g: [1, 2], h: {\"k\": ()}, \
             i: Some(None), j: Cosine(min_ratio: 0.1), k: (1, 2), l: true, m: 0.5)"
        );
    }

    #[test]
    fn a_syntax_error_names_its_place_and_reason() {
        for (text, start, expected) in [
            ("", 0, "expected a value, found the end of the text"),
            ("(a: 1", 0, "this bracket has no closing `)`"),
            ("(a: 1 b: 2)", 6, "expected `,` or `)`, found `b`"),
            ("(a: 1\n b: 2)", 5, "expected `,` or `)` after this value"),
            ("(a: 1, 2)", 7, "expected a key, found `2`"),
            ("(a: 1, a: 2)", 7, "`a` is given twice"),
            ("{\"a\": 1, \"a\": 2}", 9, "\"a\" is given twice"),
            ("(a: \"x)", 4, "this text has no closing `\"`"),
            ("\"\\q\"", 1, "unknown escape"),
            ("/* x", 0, "this comment has no closing `*/`"),
            ("1.2.3", 0, "`1.2.3` is not a number"),
            ("12u8", 0, "`12u8` is not a number"),
            ("99999999999999999999", 0, "`99999999999999999999` is too large a whole number"),
            ("() x", 3, "expected the end, found `x`"),
            ("'ab'", 0, "expected one character between `'` and `'`"),
            ("#![enable(fast)] ()", 10, "unknown extension `fast`"),
            ("b\"x\"", 0, "byte strings have no use in a scene"),
        ] {
            assert_eq!(reason(text), (start, expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn nesting_has_a_limit() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(0, &deep(MAX_DEPTH), 0).is_ok());
        assert_eq!(reason(&deep(100_000)).1, "values are nested more than 64 deep here");
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            let _ = parse(0, &text, 0);
        }

        #[test]
        fn text_made_of_ron_pieces_never_panics(pieces in prop::collection::vec(
            prop::sample::select(vec!["(", ")", "[", "]", "{", "}", ":", ",", "a", "Some", "None", "\"", "\\", "'", "r#\"", "\"#",
                "0x", "1", "-", ".", "e", "_", "/*", "*/", "//", "\n", "é", "#![enable(", "inf", "r#", "\\u{", "\\x4", "\u{feff}"]), 0..40)) {
            let text: String = pieces.concat();
            if let Ok(node) = parse(0, &text, 0) {
                // The printed form reads back as itself, and RON accepts what we accept.
                let printed = node.to_ron();
                prop_assert_eq!(parse(0, &printed, 0).unwrap().to_ron(), printed);
                let options = ron::Options::default().with_default_extension(ron::extensions::Extensions::all() - ron::extensions::Extensions::EXPLICIT_STRUCT_NAMES);
                let accepted = options.from_str::<serde::de::IgnoredAny>(&text);
                prop_assert!(accepted.is_ok(), "{:?}: {:?}", text, accepted);
            }
        }
    }
}
