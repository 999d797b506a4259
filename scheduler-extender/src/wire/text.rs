//! Strings that borrow from the request where they can, and maps of which only our keys are kept.

use fpga_core::names::ALIAS_PREFIX;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Start of our own labels and annotations.
const OWN_PREFIX: &str = "fpga-scheduling.io/";

/// A string of the request: borrowed, unless it is written with escapes.
#[derive(Debug, Clone, PartialEq, Eq, DeriveDeserialize, Serialize)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The labels or annotations that are for us; all others are skipped as they are read.
#[derive(Debug, Default)]
pub struct OurPairs<'a>(Vec<(Text<'a>, Text<'a>)>);

impl Text<'_> {
    /// The string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Writes it as JSON at the end of `out`.
    ///
    /// # Errors
    /// None so far: serde_json's signature.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        match &self.0 {
            // It lay between quotes like this: what would have to be escaped could not have been borrowed.
            Cow::Borrowed(text) => {
                out.push(b'"');
                out.extend_from_slice(text.as_bytes());
                out.push(b'"');
                Ok(())
            }
            Cow::Owned(text) => serde_json::to_writer(out, text),
        }
    }
}

impl OurPairs<'_> {
    /// Key and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for OurPairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ours;

        impl<'de> Visitor<'de> for Ours {
            type Value = OurPairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    if key.0.starts_with(OWN_PREFIX) || key.0.starts_with(ALIAS_PREFIX) {
                        pairs.push((key, map.next_value()?));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(OurPairs(pairs))
            }
        }

        deserializer.deserialize_map(Ours)
    }
}
