//! Strings that borrow from the request where possible, maps that keep only keys of this project, and lists of
//! bounded length. Without the bound, a list of very short items would take many times the memory of its text.

use fpga_core::names::{ALIAS_PREFIX, OWN_PREFIX};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// Most labels, annotations or resources of this project on an object.
pub const MAX_OUR_PAIRS: usize = 256;

/// A string of the request: borrowed, unless its JSON contains escapes.
#[derive(Debug, Clone, PartialEq, Eq, DeriveDeserialize, Serialize)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The labels, annotations or resources of this project; all others are skipped while decoding.
#[derive(Debug, Default)]
pub struct OurPairs<'a>(Vec<(Text<'a>, Text<'a>)>);

/// A list of at most `MOST` items.
#[derive(Debug)]
pub struct Few<T, const MOST: usize>(pub Vec<T>);

impl From<&str> for Text<'_> {
    fn from(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }
}

impl Text<'_> {
    /// The string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl OurPairs<'_> {
    /// The keys with their values.
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
                        if pairs.len() > MAX_OUR_PAIRS {
                            return Err(A::Error::custom(format_args!(
                                "more than {MAX_OUR_PAIRS} keys of ours"
                            )));
                        }
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

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Few<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const MOST: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Items<T, MOST> {
            type Value = Few<T, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MOST} items")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == MOST {
                        return Err(A::Error::custom(format_args!("a list has more than {MOST} items")));
                    }
                    items.push(item);
                }
                Ok(Few(items))
            }
        }

        deserializer.deserialize_seq(Items(PhantomData))
    }
}
