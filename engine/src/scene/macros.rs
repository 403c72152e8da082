//! `settings!` and `choices!`: configuration types that are written once and describe themselves.

/// Defines groups of settings: every field has a doc comment, a default and, for numbers, a range after `;`.
///
/// The struct deserialises with every key optional and unknown keys refused, and implements
/// [`Documented`](super::describe::Documented).
macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])*
        pub struct $name:ident {
            $( $(#[doc = $field_doc:literal])* $field:ident : $ty:ty = $default:expr $(; $range:expr)? ),* $(,)?
        }
    )*) => { $(
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $( $(#[doc = $field_doc])* pub $field: $ty, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $crate::scene::describe::Documented for $name {
            fn describe() -> $crate::scene::describe::Shape {
                $crate::scene::describe::Shape::Group($crate::scene::macros::entries!(
                    $( $(#[doc = $field_doc])* $field: $ty = $default $(; $range)? ),*
                ))
            }

            fn to_ron_text(&self) -> String {
                let fields = [ $( format!(
                    "{}: {}", stringify!($field), $crate::scene::describe::Documented::to_ron_text(&self.$field)
                ) ),* ];
                format!("({})", fields.join(", "))
            }

            fn out_of_range(
                &self,
                path: &str,
                _: Option<$crate::scene::describe::Range>,
                problems: &mut Vec<(String, String)>,
            ) {
                #[allow(unused_imports, reason = "groups without ranges use none of the constructors")]
                use $crate::scene::describe::*;
                $( self.$field.out_of_range(&join(path, stringify!($field)), None $(.or(Some($range)))?, problems); )*
            }
        }
    )* };
}

/// The descriptions of a list of fields.
macro_rules! entries {
    ($( $(#[doc = $doc:literal])* $field:ident : $ty:ty = $default:expr $(; $range:expr)? ),*) => {{
        #[allow(unused_imports, reason = "groups without ranges use none of the constructors")]
        use $crate::scene::describe::*;
        vec![ $( Entry {
            key: stringify!($field),
            doc: doc_text(&[$($doc),*]),
            shape: <$ty as Documented>::describe(),
            range: None $(.or(Some($range)))?,
            default: { let default: $ty = $default; default.to_ron_text() },
        } ),* ]
    }};
}

/// Defines enums whose variants may carry named values, each with a doc comment, a default and a range.
///
/// In a scene a variant's values stand in parentheses and every one may be left out: `TopP(value: 0.9)`.
macro_rules! choices {
    ($(
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $(
                $(#[doc = $variant_doc:literal])*
                $variant:ident $({
                    $( $(#[doc = $field_doc:literal])* $field:ident : $ty:ty = $default:expr $(; $range:expr)? ),* $(,)?
                })?
            ),* $(,)?
        }
    )*) => { $(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
        pub enum $name {
            $( $(#[doc = $variant_doc])* $variant $({ $( $(#[doc = $field_doc])* $field: $ty, )* })?, )*
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                const VARIANTS: &[&str] = &[$(stringify!($variant)),*];
                struct ChoiceVisitor;
                impl<'de> serde::de::Visitor<'de> for ChoiceVisitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "one of {}", $crate::scene::problem::list_names(VARIANTS.iter().copied()))
                    }

                    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, access: A) -> Result<$name, A::Error> {
                        let (name, payload) = access.variant_seed($crate::scene::macros::VariantName(VARIANTS))?;
                        $( if name == stringify!($variant) {
                            return $crate::scene::macros::payload!(
                                payload, $name, $variant $({ $( $field: $ty = $default ),* })?
                            );
                        } )*
                        Err(serde::de::Error::unknown_variant(name, VARIANTS))
                    }
                }
                deserializer.deserialize_enum(stringify!($name), VARIANTS, ChoiceVisitor)
            }
        }

        impl $crate::scene::describe::Documented for $name {
            fn describe() -> $crate::scene::describe::Shape {
                use $crate::scene::{describe::{Shape, Variant, doc_text}, macros::entries};
                Shape::Choice(vec![ $( Variant {
                    name: stringify!($variant),
                    doc: doc_text(&[$($variant_doc),*]),
                    fields: entries!($($( $(#[doc = $field_doc])* $field: $ty = $default $(; $range)? ),*)?),
                } ),* ])
            }

            fn to_ron_text(&self) -> String {
                match self {
                    $( Self::$variant $({ $($field),* })? => {
                        let fields: &[String] = &[ $($( format!(
                            "{}: {}", stringify!($field), $crate::scene::describe::Documented::to_ron_text($field)
                        ) ),*)? ];
                        if fields.is_empty() {
                            stringify!($variant).to_owned()
                        } else {
                            format!("{}({})", stringify!($variant), fields.join(", "))
                        }
                    } )*
                }
            }

            fn out_of_range(
                &self,
                path: &str,
                _: Option<$crate::scene::describe::Range>,
                problems: &mut Vec<(String, String)>,
            ) {
                #[allow(unused_imports, reason = "groups without ranges use none of the constructors")]
                use $crate::scene::describe::*;
                let (_, _) = (path, &problems);
                match self {
                    $( Self::$variant $({ $($field),* })? => {
                        $($( $field.out_of_range(&join(path, stringify!($field)), None $(.or(Some($range)))?, problems); )*)?
                    } )*
                }
            }
        }
    )* };
}

/// Reads the values of one variant.
macro_rules! payload {
    ($payload:ident, $name:ident, $variant:ident) => {{
        serde::de::VariantAccess::unit_variant($payload)?;
        Ok($name::$variant)
    }};
    ($payload:ident, $name:ident, $variant:ident { $( $field:ident : $ty:ty = $default:expr ),* }) => {{
        #[derive(serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Payload { $( $field: $ty, )* }
        impl Default for Payload {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }
        let visitor = $crate::scene::macros::FieldsVisitor::<Payload>(std::marker::PhantomData);
        let fields = &[$(stringify!($field)),*];
        let Payload { $($field),* } = serde::de::VariantAccess::struct_variant($payload, fields, visitor)?;
        Ok($name::$variant { $($field),* })
    }};
}

pub(crate) use {choices, entries, payload, settings};

/// Reads a variant's name.
pub(crate) struct VariantName(pub(crate) &'static [&'static str]);

impl<'de> serde::de::DeserializeSeed<'de> for VariantName {
    type Value = &'static str;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl serde::de::Visitor<'_> for VariantName {
    type Value = &'static str;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the name of a variant")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        let known = self.0.iter().find(|known| **known == name).copied();
        known.ok_or_else(|| E::unknown_variant(name, self.0))
    }
}

/// Reads named fields into `T`.
pub(crate) struct FieldsVisitor<T>(pub(crate) std::marker::PhantomData<T>);

impl<'de, T: serde::Deserialize<'de>> serde::de::Visitor<'de> for FieldsVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("named values")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(serde::de::value::MapAccessDeserializer::new(map))
    }
}
