//! Lowercase hexadecimal digits.

use std::fmt;

/// The bytes that `digits` are, two digits a byte; `None` if there are more, fewer, or other characters.
pub fn parse<const BYTES: usize>(digits: &[u8]) -> Option<[u8; BYTES]> {
    if digits.len() != 2 * BYTES {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().try_fold(0, |value, digit| Some((value << 4) | value_of(*digit)?))?;
    }
    Some(bytes)
}

/// Writes bytes as digits.
pub fn write(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn value_of(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
