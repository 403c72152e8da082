//! Turns a [`Node`] tree into any serde type, and says where and why it does not fit.

use std::{fmt, slice};

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer as _, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};

use super::{
    problem::Span,
    tree::{Field, Node, Value},
};

/// The name under which `ron::value::RawValue` asks for the text of a value instead of the value.
const RAW_VALUE: &str = "$ron::private::RawValue";
/// Mismatches collected from one tree at most.
const MAX_MISMATCHES: usize = 100;

/// One place where a tree does not fit a type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mismatch {
    /// The key or the value that does not fit; `None` only if the type itself failed without reading anything.
    pub span: Option<Span>,
    /// How it does not fit.
    pub kind: Kind,
}

/// How a value does not fit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A key that the struct does not have.
    UnknownField {
        /// The key.
        found: String,
        /// The keys it has.
        expected: &'static [&'static str],
    },
    /// A variant that the enum does not have.
    UnknownVariant {
        /// The name.
        found: String,
        /// The variants it has.
        expected: &'static [&'static str],
    },
    /// Another type of value.
    Type {
        /// What stands there.
        found: String,
        /// What is needed.
        expected: String,
    },
    /// A required key is not there.
    Missing {
        /// The key.
        field: &'static str,
    },
    /// The type's own words.
    Custom(String),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::UnknownField { found, .. } => write!(f, "unexpected field `{found}`"),
            Kind::UnknownVariant { found, .. } => write!(f, "unknown variant `{found}`"),
            Kind::Type { found, expected } => write!(f, "expected {expected}, found {found}"),
            Kind::Missing { field } => write!(f, "`{field}` is missing"),
            Kind::Custom(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Mismatch {}

impl Mismatch {
    fn new(kind: Kind) -> Self {
        Self { span: None, kind }
    }

    /// Keeps the innermost place.
    fn at(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }
}

/// Rust's type names in the words of a scene.
fn in_words(expected: &dyn de::Expected) -> String {
    let expected = expected.to_string();
    match expected.as_str() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" | "integer" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "`true` or `false`".to_owned(),
        "a string" | "path string" | "string" | "str" => "a text in quotes".to_owned(),
        "a sequence" => "a list".to_owned(),
        _ if expected.starts_with("struct ") => "named values in parentheses".to_owned(),
        _ => expected,
    }
}

impl de::Error for Mismatch {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(Kind::Custom(message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let found = match found {
            Unexpected::Bool(value) => format!("`{value}`"),
            Unexpected::Unsigned(value) => format!("`{value}`"),
            Unexpected::Signed(value) => format!("`{value}`"),
            Unexpected::Float(value) => format!("`{value:?}`"),
            Unexpected::Char(value) => format!("the character `{value}`"),
            Unexpected::Str(value) => format!("the text {value:?}"),
            Unexpected::Unit => "`()`".to_owned(),
            Unexpected::Option => "an optional value".to_owned(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "named values".to_owned(),
            Unexpected::Other(value) => value.to_owned(),
            other => other.to_string(),
        };
        Self::new(Kind::Type { found, expected: in_words(expected) })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn de::Expected) -> Self {
        let found = format!("{length} value{}", if length == 1 { "" } else { "s" });
        Self::new(Kind::Type { found, expected: in_words(expected) })
    }

    fn unknown_field(found: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Kind::UnknownField { found: found.to_owned(), expected })
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Kind::UnknownVariant { found: found.to_owned(), expected })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(Kind::Missing { field })
    }
}

/// Reads a value of type `T`.
///
/// # Errors
/// The first [`Mismatch`].
pub fn from_node<T: DeserializeOwned>(node: &Node) -> Result<T, Mismatch> {
    T::deserialize(Tree::of(node))
}

/// Reads a value of type `T`, and finds all mismatches by taking each offender out and reading again.
///
/// The value is what remains without the offenders; it is `None` if nothing usable remains.
pub fn from_node_all<T: DeserializeOwned>(node: &Node) -> (Option<T>, Vec<Mismatch>) {
    let mut node = node.clone();
    let mut mismatches: Vec<Mismatch> = Vec::new();
    let mut removed: Vec<(String, Span)> = Vec::new();
    loop {
        let mismatch = match from_node(&node) {
            Ok(value) => return (Some(value), mismatches),
            Err(mismatch) => mismatch,
        };
        let span = mismatch.span.unwrap_or(node.span);
        // A key that is missing only because its bad value was taken out is no news; its struct goes too.
        let echo = matches!(&mismatch.kind, Kind::Missing { field }
            if removed.iter().any(|(key, place)| key == field && span.holds(*place)));
        if !echo && !mismatches.contains(&mismatch) {
            mismatches.push(mismatch);
        }
        match node.remove(span) {
            Some((key, value)) if mismatches.len() < MAX_MISMATCHES => removed.push((key, value.span)),
            _ => return (None, mismatches),
        }
    }
}

#[derive(Clone, Copy)]
struct Tree<'a> {
    node: &'a Node,
    /// The name before the parentheses belongs to an enum variant around this value.
    anonymous: bool,
}

impl<'a> Tree<'a> {
    fn of(node: &'a Node) -> Self {
        Self { node, anonymous: false }
    }

    /// Whether the value may stand for a struct called `name`.
    fn is_named(self, found: Option<&str>, name: &str) -> bool {
        self.anonymous || found.is_none_or(|found| found == name)
    }

    fn wrong(self, visitor: &dyn de::Expected) -> Mismatch {
        let found;
        let unexpected = match &self.node.value {
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Integer { value, .. } => {
                found = format!("`{value}`");
                Unexpected::Other(&found)
            }
            Value::Float(value) => Unexpected::Float(*value),
            Value::Char(value) => Unexpected::Char(*value),
            Value::String(value) => Unexpected::Str(value),
            Value::Name(name) => {
                found = format!("the name `{name}`");
                Unexpected::Other(&found)
            }
            Value::Struct { name: Some(name), .. } | Value::Tuple { name: Some(name), .. } => {
                found = format!("`{name}(…)`");
                Unexpected::Other(&found)
            }
            Value::Struct { .. } => Unexpected::Other("named values"),
            Value::Tuple { items, .. } if items.is_empty() => Unexpected::Unit,
            Value::Tuple { .. } => Unexpected::Other("values in parentheses"),
            Value::List(_) => Unexpected::Other("a list"),
            Value::Map(_) => Unexpected::Other("a map"),
        };
        <Mismatch as de::Error>::invalid_type(unexpected, visitor).at(self.node.span)
    }

    fn fields<V: Visitor<'a>>(self, fields: &'a [Field], visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_map(Fields { rest: fields.iter(), value: None }).map_err(|e| e.at(self.node.span))
    }

    fn items<V: Visitor<'a>>(self, items: &'a [Node], visitor: V) -> Result<V::Value, Mismatch> {
        let mut access = Items(items.iter());
        let value = visitor.visit_seq(&mut access).map_err(|e| e.at(self.node.span))?;
        match access.0.len() {
            0 => Ok(value),
            more => Err(Mismatch {
                span: access.0.next().map(|node| node.span),
                kind: Kind::Type {
                    found: format!("{} values", items.len()),
                    expected: format!("{} values", items.len() - more),
                },
            }),
        }
    }

    fn integer<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        let Value::Integer { value, .. } = self.node.value else {
            return Err(self.wrong(&visitor));
        };
        // The parser admits what fits in `i64` or `u64` and nothing else.
        match (u64::try_from(value), i64::try_from(value)) {
            (Ok(value), _) => visitor.visit_u64(value),
            (_, Ok(value)) => visitor.visit_i64(value),
            _ => return Err(self.wrong(&visitor)),
        }
        .map_err(|e: Mismatch| e.at(self.node.span))
    }

    fn float<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.node.value {
            Value::Float(value) => visitor.visit_f64(value),
            // RON has no hexadecimal floats.
            Value::Integer { value, decimal: true } => visitor.visit_f64(value as f64),
            _ => return Err(self.wrong(&visitor)),
        }
        .map_err(|e: Mismatch| e.at(self.node.span))
    }
}

impl<'de> Deserializer<'de> for Tree<'de> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.node.value {
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer { .. } => return self.integer(visitor),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Char(value) => visitor.visit_char(*value),
            Value::String(value) => visitor.visit_borrowed_str(value),
            Value::Name(name) if name == "None" => visitor.visit_none(),
            // A self-describing reader has no names, so a bare name is offered as the text of a unit variant.
            Value::Name(name) => visitor.visit_borrowed_str(name),
            Value::Tuple { name: Some(name), items } if name == "Some" && items.len() == 1 => {
                visitor.visit_some(Tree::of(&items[0]))
            }
            Value::Struct { fields, .. } => return self.fields(fields, visitor),
            Value::Tuple { items, .. } if items.is_empty() => visitor.visit_unit(),
            Value::Tuple { items, .. } | Value::List(items) => return self.items(items, visitor),
            Value::Map(_) => return self.deserialize_map(visitor),
        }
        .map_err(|e: Mismatch| e.at(self.node.span))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.node.value {
            Value::Bool(value) => visitor.visit_bool(value),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.integer(visitor)
    }

    fn deserialize_i16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.integer(visitor)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.integer(visitor)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.integer(visitor)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.integer(visitor)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.integer(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.integer(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.integer(visitor)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.float(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.float(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.node.value {
            Value::Char(value) => visitor.visit_char(value),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.node.value {
            Value::String(value) => visitor.visit_borrowed_str(value).map_err(|e: Mismatch| e.at(self.node.span)),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        Err(self.wrong(&visitor))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        Err(self.wrong(&visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.node.value {
            Value::Name(name) if name == "None" => visitor.visit_none(),
            Value::Tuple { name: Some(name), items } if name == "Some" && items.len() == 1 => {
                visitor.visit_some(Tree::of(&items[0]))
            }
            // A group's own parentheses may be left out: `Some(a: 1)`.
            Value::Struct { name: Some(name), .. } | Value::Tuple { name: Some(name), .. } if name == "Some" => {
                visitor.visit_some(Tree { node: self.node, anonymous: true })
            }
            _ => visitor.visit_some(self),
        }
        .map_err(|e: Mismatch| e.at(self.node.span))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.node.value {
            Value::Tuple { name, items } if items.is_empty() && (self.anonymous || name.is_none()) => {
                visitor.visit_unit()
            }
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.node.value {
            Value::Name(found) if found == name => visitor.visit_unit(),
            _ => self.deserialize_unit(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Mismatch> {
        if name == RAW_VALUE {
            return visitor.visit_string(self.node.to_ron()).map_err(|e: Mismatch| e.at(self.node.span));
        }
        match &self.node.value {
            Value::Tuple { name: found, items } if items.len() == 1 && self.is_named(found.as_deref(), name) => {
                visitor.visit_newtype_struct(Tree::of(&items[0]))
            }
            _ => visitor.visit_newtype_struct(self),
        }
        .map_err(|e: Mismatch| e.at(self.node.span))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.node.value {
            Value::List(items) => self.items(items, visitor),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.node.value {
            Value::Tuple { name, items } if self.anonymous || name.is_none() => self.items(items, visitor),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        match &self.node.value {
            Value::Tuple { name: found, items } if self.is_named(found.as_deref(), name) => self.items(items, visitor),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.node.value {
            Value::Map(entries) => {
                visitor.visit_map(Entries { rest: entries.iter(), value: None }).map_err(|e| e.at(self.node.span))
            }
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let (found, fields): (_, &[Field]) = match &self.node.value {
            Value::Struct { name, fields } => (name, fields),
            Value::Tuple { name, items } if items.is_empty() => (name, &[]),
            _ => return Err(self.wrong(&visitor)),
        };
        match found {
            Some(found) if !self.is_named(Some(found), name) => Err(Mismatch {
                span: Some(self.node.span),
                kind: Kind::Type { found: format!("`{found}(…)`"), expected: format!("`(…)` or `{name}(…)`") },
            }),
            _ => self.fields(fields, visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let name = match &self.node.value {
            _ if self.anonymous => return Err(self.wrong(&visitor)),
            Value::Name(name) | Value::Struct { name: Some(name), .. } | Value::Tuple { name: Some(name), .. } => name,
            _ => return Err(self.wrong(&visitor)),
        };
        visitor.visit_enum(Variant { name, node: self.node }).map_err(|e| e.at(self.node.span))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_unit()
    }
}

struct Fields<'a> {
    rest: slice::Iter<'a, Field>,
    value: Option<&'a Field>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Mismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mismatch> {
        self.value = self.rest.next();
        let Some(field) = self.value else {
            return Ok(None);
        };
        let key = de::value::BorrowedStrDeserializer::new(&field.key);
        seed.deserialize(key).map(Some).map_err(|e: Mismatch| e.at(field.key_span))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mismatch> {
        let Some(field) = self.value.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        seed.deserialize(Tree::of(&field.node)).map_err(|e| e.at(field.node.span))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Entries<'a> {
    rest: slice::Iter<'a, (Node, Node)>,
    value: Option<&'a Node>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Mismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mismatch> {
        let Some((key, value)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        seed.deserialize(Tree::of(key)).map(Some).map_err(|e| e.at(key.span))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mismatch> {
        let Some(node) = self.value.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        seed.deserialize(Tree::of(node)).map_err(|e| e.at(node.span))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Items<'a>(slice::Iter<'a, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Mismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mismatch> {
        let Some(node) = self.0.next() else {
            return Ok(None);
        };
        seed.deserialize(Tree::of(node)).map(Some).map_err(|e| e.at(node.span))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Variant<'a> {
    name: &'a str,
    node: &'a Node,
}

impl Variant<'_> {
    fn name_span(&self) -> Span {
        Span { end: self.node.span.start + self.name.len(), ..self.node.span }
    }

    fn shape(&self, expected: String) -> Mismatch {
        let found = match &self.node.value {
            Value::Name(name) => format!("the bare name `{name}`"),
            _ => format!("`{}(…)`", self.name),
        };
        Mismatch { span: Some(self.node.span), kind: Kind::Type { found, expected } }
    }
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Mismatch;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Mismatch> {
        let name: de::value::StrDeserializer<'_, Mismatch> = self.name.into_deserializer();
        let value = seed.deserialize(name).map_err(|e| e.at(self.name_span()))?;
        Ok((value, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Mismatch;

    fn unit_variant(self) -> Result<(), Mismatch> {
        match &self.node.value {
            Value::Name(_) => Ok(()),
            _ => Err(self.shape(format!("`{}` without values", self.name))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Mismatch> {
        match &self.node.value {
            Value::Tuple { items, .. } if items.len() == 1 => seed.deserialize(Tree::of(&items[0])),
            Value::Name(_) => Err(self.shape(format!("`{}(…)` with a value", self.name))),
            // The newtype's own parentheses may be left out.
            _ => seed.deserialize(Tree { node: self.node, anonymous: true }),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.node.value {
            Value::Tuple { items, .. } => Tree::of(self.node).items(items, visitor),
            _ => Err(self.shape(format!("values as in `{}(…, …)`", self.name))),
        }
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        match &self.node.value {
            Value::Struct { fields, .. } => Tree::of(self.node).fields(fields, visitor),
            Value::Tuple { items, .. } if items.is_empty() => Tree::of(self.node).fields(&[], visitor),
            _ => {
                let first = fields.first().copied().unwrap_or_default();
                Err(self.shape(format!("named values as in `{}({first}: …)`", self.name)))
            }
        }
    }
}
