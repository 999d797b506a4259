//! Identifiers of bitstreams: the digest of the bytes, or the name of the accelerator.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Maximum length of an accelerator name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

const DIGEST_PREFIX: &str = "sha256:";

/// The SHA-256 of a bitstream's bytes. Text form: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The identifier of a bitstream in events and pod annotations (S-5).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BitstreamId {
    /// The digest of the bytes. A digest identifies the same bitstream everywhere.
    Digest(Digest),
    /// The name of the accelerator. A name identifies one bitstream only among boards of one kind and shell.
    Name(String),
}

/// The reason why a text is not a [`BitstreamId`] or a [`Digest`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBitstreamId {
    /// The text is empty.
    #[error(
        "a bitstream identifier is empty; write an accelerator name such as `sobel`, or `sha256:` and 64 hex digits"
    )]
    Empty,
    /// The name is longer than [`MAX_NAME_BYTES`].
    #[error("a bitstream name has {0} bytes; at most {MAX_NAME_BYTES} are taken")]
    TooLong(usize),
    /// The name has a character outside `A-Za-z0-9._-/`.
    #[error("a bitstream name has the character {0:?}; write letters, digits, `.`, `_`, `-` or `/`")]
    Character(char),
    /// `sha256:` is not followed by 64 hexadecimal digits.
    #[error("`sha256:` must be followed by 64 hexadecimal digits")]
    Digest,
}

impl Digest {
    /// The digest with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the digest.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = InvalidBitstreamId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix(DIGEST_PREFIX).and_then(from_hex).map(Self).ok_or(InvalidBitstreamId::Digest)
    }
}

/// Decodes hexadecimal `digits`, two per byte. `None` for other characters or another number of bytes than `BYTES`.
pub(crate) fn from_hex<const BYTES: usize>(digits: &str) -> Option<[u8; BYTES]> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let mut bytes = [0; BYTES];
    if pairs.len() != BYTES {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DIGEST_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for BitstreamId {
    type Err = InvalidBitstreamId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with(DIGEST_PREFIX) {
            return Ok(Self::Digest(text.parse()?));
        }
        if text.is_empty() {
            return Err(InvalidBitstreamId::Empty);
        }
        if text.len() > MAX_NAME_BYTES {
            return Err(InvalidBitstreamId::TooLong(text.len()));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        match text.chars().find(|c| !allowed(*c)) {
            Some(character) => Err(InvalidBitstreamId::Character(character)),
            None => Ok(Self::Name(text.to_owned())),
        }
    }
}

impl fmt::Display for BitstreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest(digest) => digest.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl TryFrom<String> for BitstreamId {
    type Error = InvalidBitstreamId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<BitstreamId> for String {
    fn from(id: BitstreamId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_and_names_survive_a_round_trip_through_text() {
        for text in ["sobel", "vendor/mm_v2.1", &format!("sha256:{}", "0a".repeat(32))] {
            assert_eq!(text.parse::<BitstreamId>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_invalid_identifier_is_refused_with_the_reason() {
        assert_eq!("".parse::<BitstreamId>(), Err(InvalidBitstreamId::Empty));
        assert_eq!("sha256:12".parse::<BitstreamId>(), Err(InvalidBitstreamId::Digest));
        assert_eq!("so bel".parse::<BitstreamId>(), Err(InvalidBitstreamId::Character(' ')));
        assert_eq!("x".repeat(129).parse::<BitstreamId>(), Err(InvalidBitstreamId::TooLong(129)));
    }
}
