//! Enums whose values map one to one to a written word.

/// Declares an enum whose variants each have one written word, and both directions of the mapping.
#[macro_export]
macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident: $what:literal { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The written form.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::string_enum::ParseEnumError;

            fn from_str(text: &str) -> Result<Self, $crate::string_enum::ParseEnumError> {
                let text = text.trim();
                Self::ALL.iter().copied().find(|value| value.word().eq_ignore_ascii_case(text)).ok_or_else(|| $crate::string_enum::ParseEnumError {
                    what: $what,
                    text: text.into(),
                    choices: Self::ALL.iter().map(|value| value.word()).collect::<Vec<_>>().join(", "),
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }
    };
}

pub use crate::string_enum;

/// The error for a text that is not one of the allowed words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}; choose one of {choices}")]
pub struct ParseEnumError {
    pub what: &'static str,
    pub text: String,
    pub choices: String,
}
