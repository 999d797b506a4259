//! An upper bound of the memory that the decoding of a message takes, computed from the encoding before it is
//! decoded.
//!
//! An encoded message may be far smaller than the decoded one: an empty command of 2 bytes becomes a structure of
//! more than 100. `build.rs` makes the table of messages and fields from the .proto file, so that no field is
//! missing.

/// Factor for each element of a repeated field: a vector starts with 4 elements, doubles when it is full, and holds
/// the old elements too while it grows.
const GROWTH: u64 = 4;

/// A message of the .proto file.
struct Message {
    fields: &'static [Field],
}

/// A field of a message.
struct Field {
    number: u32,
    kind: Kind,
}

/// The memory that decoding a field allocates besides the structure that contains the field.
#[derive(Clone, Copy)]
enum Kind {
    /// A `bytes` field: no memory, since it is a slice of the encoded message.
    Bytes,
    /// A `string` field: as many bytes as the text.
    Text,
    /// A repeated `string` or `bytes` field: an element for each entry, and the bytes of a text.
    Texts,
    /// A repeated number: an element of this many bytes for each number.
    Numbers { element: usize },
    /// A message: the weight of the message at this index of the table.
    One(usize),
    /// A repeated message, or one on the heap: an element of this many bytes, and the weight of the message at this index of the table.
    Many { message: usize, element: usize },
}

/// The bytes are not an encoded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message can't be decoded")]
pub struct Malformed;

include!(concat!(env!("OUT_DIR"), "/weights.rs"));

/// Upper bound, in bytes, of the memory that decoding `encoded` as a [`crate::v1::ClientMessage`] allocates.
///
/// # Errors
/// [`Malformed`] for most inputs that can't be decoded. The only decodable inputs with this error have protobuf
/// groups, which no client sends.
pub fn of_client_message(encoded: &[u8]) -> Result<u64, Malformed> {
    of(CLIENT_MESSAGE, encoded)
}

/// The recursion is as deep as the .proto file, in which no message contains itself.
fn of(message: usize, mut encoded: &[u8]) -> Result<u64, Malformed> {
    let fields = MESSAGES.get(message).ok_or(Malformed)?.fields;
    let mut weight = 0_u64;
    while !encoded.is_empty() {
        let key = varint(&mut encoded)?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        let kind = fields.iter().find(|field| field.number == number).map(|field| field.kind);
        let added = match key & 7 {
            0 => {
                varint(&mut encoded)?;
                numbers(kind, 1)
            }
            1 => {
                take(&mut encoded, 8)?;
                numbers(kind, 1)
            }
            5 => {
                take(&mut encoded, 4)?;
                numbers(kind, 1)
            }
            2 => {
                let length = varint(&mut encoded)?;
                let inside = take(&mut encoded, length)?;
                match kind {
                    None | Some(Kind::Bytes) => 0,
                    Some(Kind::Text) => length,
                    Some(Kind::Texts) => length.saturating_add(size_of::<bytes::Bytes>() as u64 * GROWTH),
                    // Every number ends with a byte whose top bit is clear.
                    Some(Kind::Numbers { .. }) => {
                        numbers(kind, inside.iter().filter(|byte| **byte < 0x80).count() as u64)
                    }
                    Some(Kind::One(message)) => of(message, inside)?,
                    Some(Kind::Many { message, element }) => {
                        (element as u64 * GROWTH).saturating_add(of(message, inside)?)
                    }
                }
            }
            _ => return Err(Malformed),
        };
        weight = weight.saturating_add(added);
    }
    Ok(weight)
}

/// Memory of `count` numbers in a field of this kind.
fn numbers(kind: Option<Kind>, count: u64) -> u64 {
    match kind {
        Some(Kind::Numbers { element }) => (element as u64 * GROWTH).saturating_mul(count),
        _ => 0,
    }
}

fn varint(encoded: &mut &[u8]) -> Result<u64, Malformed> {
    prost::encoding::decode_varint(encoded).map_err(|_| Malformed)
}

fn take<'a>(encoded: &mut &'a [u8], length: u64) -> Result<&'a [u8], Malformed> {
    let length = usize::try_from(length).map_err(|_| Malformed)?;
    encoded.split_off(..length).ok_or(Malformed)
}
