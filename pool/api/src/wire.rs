//! Checked readers of fields.

use crate::Malformed;
use std::sync::Arc;

/// A message or variant that must be there.
pub fn present<T>(value: Option<T>, field: &'static str) -> Result<T, Malformed> {
    value.ok_or(Malformed::Missing(field))
}

/// A field of `BYTES` bytes.
pub fn array<const BYTES: usize>(bytes: &[u8], field: &'static str) -> Result<[u8; BYTES], Malformed> {
    let length = Malformed::Length { field, length: bytes.len(), expected: BYTES };
    bytes.try_into().map_err(|_| length)
}

/// A field of `BYTES` bytes, or of none.
pub fn optional_array<const BYTES: usize>(
    bytes: &[u8],
    field: &'static str,
) -> Result<Option<[u8; BYTES]>, Malformed> {
    if bytes.is_empty() { Ok(None) } else { array(bytes, field).map(Some) }
}

/// An id of 128 bits.
pub fn id(bytes: &[u8], field: &'static str) -> Result<u128, Malformed> {
    array(bytes, field).map(u128::from_be_bytes)
}

/// An id of 128 bits as it is sent.
pub fn id_bytes(id: u128) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

/// A text of at most `most` bytes.
pub fn text(text: &str, most: usize, field: &'static str) -> Result<(), Malformed> {
    let length = text.len();
    if length > most { Err(Malformed::TooLong { field, length, most }) } else { Ok(()) }
}

/// A name of 1 to `most` bytes. Names get into logs, metrics and terminals, so that most characters are no part of them.
pub fn name(name: &str, most: usize, field: &'static str) -> Result<Arc<str>, Malformed> {
    text(name, most, field)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_plain) { Err(Malformed::Name(field)) } else { Ok(name.into()) }
}

/// A name, or an empty text for none.
pub fn optional_name(text: &str, most: usize, field: &'static str) -> Result<Option<Arc<str>>, Malformed> {
    if text.is_empty() { Ok(None) } else { name(text, most, field).map(Some) }
}

/// A number between two others, both included.
pub fn within<T: PartialOrd + Copy>(
    value: T,
    least: T,
    most: T,
    field: &'static str,
) -> Result<T, Malformed> {
    if least <= value && value <= most { Ok(value) } else { Err(Malformed::Range(field)) }
}

/// A text for people, cut to the maximum.
pub fn for_people(text: &str) -> String {
    let mut end = text.len().min(crate::limits::MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
