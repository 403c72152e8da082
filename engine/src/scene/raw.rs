//! A value kept as RON, for types that only a plugin knows.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    deserialize::{Mismatch, from_node_all},
    parse,
    tree::Node,
};

/// RON text in one fixed form on one line; `()` by default.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RawRon(String);

impl Default for RawRon {
    fn default() -> Self {
        Self("()".to_owned())
    }
}

impl RawRon {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == "()"
    }

    /// Reads the text as `T`, or returns everything that does not fit.
    ///
    /// # Errors
    /// All [`Mismatch`]es; their spans count within [`RawRon::as_str`]. [`super::Loaded::environment_config`] gives places in
    /// the user's files instead.
    pub fn parse<T: de::DeserializeOwned>(&self) -> Result<T, Vec<Mismatch>> {
        match from_node_all(&self.node()) {
            (Some(value), mismatches) if mismatches.is_empty() => Ok(value),
            (_, mismatches) => Err(mismatches),
        }
    }

    fn node(&self) -> Node {
        // The text was printed from a tree, so it parses.
        parse::parse(0, &self.0, 0).unwrap_or_else(|_| Node::empty(Default::default()))
    }
}

impl fmt::Display for RawRon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RawRon {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ron::value::RawValue::from_ron(&self.0).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawRon {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<ron::value::RawValue>::deserialize(deserializer)?;
        let node = parse::parse(0, raw.get_ron(), 0).map_err(|error| de::Error::custom(error.reason))?;
        Ok(Self(node.to_ron()))
    }
}
