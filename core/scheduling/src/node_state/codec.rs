//! The text forms of a node state: compact JSON of bounded length. The reader checks every bound.
//!
//! The cluster's scheduler reads a state, and anyone with write access to the node may have written it.
//!
//! There are two forms. **Version 1** has a name for every field and at most [`V1_MAX_BYTES`]; every reader
//! understands it. **Version 2** names each kind of board once and writes digests in base64. It is about half as long,
//! so that nodes with many boards fit. A collector writes version 1 unless it would have to leave out a part that
//! decides about a pod's requirement, and version 2 otherwise. So extenders and collectors can be updated in any
//! order: a reader of version 1 misses only states that version 1 cannot hold.
//!
//! The **stream** carries the whole state ([`encode_whole`]). The **annotation** is shorter ([`encode`]), since every
//! update of the node sends it to all watchers of nodes, and since Kubernetes accepts 256 KiB for all annotations of
//! an object. [`LeftOut`] counts the parts that the annotation leaves out.

mod compact;
mod shorten;
mod spelled_out;
mod validate;

pub use validate::validate;

use super::{LeftOut, NodeState};
use crate::units::Millis;
use serde::Deserialize;

/// Maximum length of a text of version 1 that is written, in bytes.
pub const V1_MAX_BYTES: usize = 4096;
/// Bytes in an annotation for each board beyond the fourth: about 700 for four slots with bitstreams of the longest
/// names, the rest for the board itself.
pub const BYTES_PER_BOARD: usize = 1024;
/// Maximum length of an annotation that is written, in bytes: an eighth of what Kubernetes accepts for all annotations
/// of a node.
pub const MAX_ANNOTATION_BYTES: usize = 32 * 1024;
/// Maximum length of a text that is read or streamed, in bytes.
pub const MAX_DECODED_BYTES: usize = 64 * 1024;
/// Maximum number of devices of a node.
pub const MAX_DEVICES: usize = 256;
/// Maximum number of slots of one device.
pub const MAX_SLOTS: u32 = 4096;
/// Maximum number of bitstreams.
pub const MAX_BITSTREAMS: usize = 1024;
/// Maximum number of slots of all devices together that hold a bitstream.
pub const MAX_LOADED: usize = 4096;
/// Maximum number of time slices.
pub const MAX_BUCKETS: usize = 1024;
/// Maximum length of a vendor, platform, board, shell or device id, in bytes.
pub const MAX_TEXT_BYTES: usize = 256;
/// Maximum heartbeat: a state must not declare itself fresh for ever.
pub const MAX_HEARTBEAT: Millis = Millis::from_secs(3600);
/// Maximum length of the window.
pub const MAX_WINDOW: Millis = Millis::from_secs(24 * 3600);

/// The text of a state and the parts that it leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The JSON text.
    pub text: String,
    /// The parts that were left out of the text.
    pub left_out: LeftOut,
}

/// The reason why a state cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The text is too long even with every optional part left out.
    #[error(
        "the node state has {bytes} bytes with all that can be left out gone, at most {most} are written: the ids or kinds of its devices are too long"
    )]
    DoesNotFit {
        /// Length of the shortest text, in bytes.
        bytes: usize,
        /// Maximum length of the text, in bytes.
        most: usize,
    },
    /// [`decode`] would refuse the text.
    #[error("the node state is not valid: {0}")]
    Invalid(#[source] Unreadable),
    /// Serialization to JSON failed.
    #[error("the node state can't be written as JSON: {0}")]
    Json(String),
}

/// The reason why a text is not a node state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The text is longer than [`MAX_DECODED_BYTES`].
    #[error("it has {0} bytes; at most {MAX_DECODED_BYTES} are read")]
    TooLong(usize),
    /// The text is not JSON, or a field is missing or has the wrong type.
    #[error("it is not a node state: {0}")]
    Malformed(String),
    /// The version of the format is unknown.
    #[error("it has version {0}; versions 1 and 2 are understood")]
    Version(u32),
    /// The state has more of the named items than the maximum.
    #[error("it has too many {0}")]
    TooMany(&'static str),
    /// The named text is longer than [`MAX_TEXT_BYTES`].
    #[error("its {0} is too long")]
    TextTooLong(&'static str),
    /// The named number is outside its range.
    #[error("its {0} is out of range")]
    OutOfRange(&'static str),
    /// A device refers to a bitstream that the state does not list.
    #[error("a device has loaded a bitstream that is not listed")]
    UnknownBitstream,
    /// A device refers to a kind that the state does not list.
    #[error("a device is of a kind that is not listed")]
    UnknownKind,
    /// A bitstream has neither name nor digest, or an invalid name.
    #[error("a bitstream has no valid name and no digest")]
    NamelessBitstream,
}

/// Maximum length of the annotation of a node with `boards` boards, in bytes: [`V1_MAX_BYTES`], and
/// [`BYTES_PER_BOARD`] for each board beyond the fourth, up to [`MAX_ANNOTATION_BYTES`].
#[must_use]
pub fn max_annotation_bytes(boards: usize) -> usize {
    let more = boards.saturating_sub(4).saturating_mul(BYTES_PER_BOARD);
    V1_MAX_BYTES.saturating_add(more).min(MAX_ANNOTATION_BYTES)
}

/// Reads and validates a state.
///
/// # Errors
/// [`Unreadable`] for the first fault in the text.
pub fn decode(text: &str) -> Result<NodeState, Unreadable> {
    if text.len() > MAX_DECODED_BYTES {
        return Err(Unreadable::TooLong(text.len()));
    }
    let state = match version(text)? {
        spelled_out::VERSION => spelled_out::read(text)?,
        compact::VERSION => compact::read(text)?,
        other => return Err(Unreadable::Version(other)),
    };
    validate(&state)?;
    Ok(state)
}

/// Writes `state` for the annotation, and leaves out as little as [`max_annotation_bytes`] allows.
///
/// Parts are left out in this order: bitstreams that no slot holds, the longest unused first; resolution of the
/// window, by halves; names of bitstreams that have a digest; platforms; bitstreams in slots, the longest unused
/// first.
///
/// # Errors
/// [`EncodeError::DoesNotFit`] if the text is still too long, [`EncodeError::Invalid`] if [`decode`] would refuse it.
pub fn encode(state: &NodeState) -> Result<Encoded, EncodeError> {
    let state = checked(state)?;
    if !state.left_out.concerns_filter() {
        let of_everyone = shorten::until(&state, shorten::RECENT, spelled_out::write, V1_MAX_BYTES)?;
        if let Ok(encoded) = of_everyone {
            return Ok(encoded);
        }
    }
    let most = max_annotation_bytes(state.devices.len());
    fitting(shorten::until(&state, shorten::ALL, compact::write, most)?, most)
}

/// Writes the whole `state`, for the stream. Parts are left out only if the text would exceed [`MAX_DECODED_BYTES`].
///
/// # Errors
/// As for [`encode`].
pub fn encode_whole(state: &NodeState) -> Result<Encoded, EncodeError> {
    let state = checked(state)?;
    if !state.left_out.concerns_filter()
        && let Ok(encoded) = shorten::until(&state, &[], spelled_out::write, V1_MAX_BYTES)?
    {
        return Ok(encoded);
    }
    fitting(shorten::until(&state, shorten::ALL, compact::write, MAX_DECODED_BYTES)?, MAX_DECODED_BYTES)
}

fn checked(state: &NodeState) -> Result<NodeState, EncodeError> {
    validate(state).map_err(EncodeError::Invalid)?;
    let mut state = state.clone();
    state.buckets.trim();
    Ok(state)
}

fn fitting(shortened: Result<Encoded, usize>, most: usize) -> Result<Encoded, EncodeError> {
    shortened.map_err(|bytes| EncodeError::DoesNotFit { bytes, most })
}

#[derive(Deserialize)]
struct OnlyVersion {
    v: u32,
}

/// The version in the text's field `v`.
fn version(text: &str) -> Result<u32, Unreadable> {
    // Our own texts begin with the version; only other texts are parsed twice.
    for version in [spelled_out::VERSION, compact::VERSION] {
        let rest = text.strip_prefix("{\"v\":").and_then(|rest| rest.strip_prefix(&version.to_string()));
        if rest.is_some_and(|rest| rest.starts_with(',')) {
            return Ok(version);
        }
    }
    let OnlyVersion { v } = serde_json::from_str(text).map_err(malformed)?;
    Ok(v)
}

#[expect(clippy::needless_pass_by_value, reason = "it is for map_err")]
fn malformed(error: serde_json::Error) -> Unreadable {
    Unreadable::Malformed(error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "it is for map_err")]
fn json(error: serde_json::Error) -> EncodeError {
    EncodeError::Json(error.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Writes `state` in version 2 with at most `most` bytes, or as short as possible, and reads it back.
    pub(in super::super) fn shortened_to(state: &NodeState, most: usize) -> NodeState {
        let shortest = || {
            let Ok(Err(bytes)) = shorten::until(state, shorten::ALL, compact::write, 0) else {
                unreachable!()
            };
            bytes
        };
        let shortened = match shorten::until(state, shorten::ALL, compact::write, most).unwrap() {
            Ok(encoded) => encoded,
            Err(_) => shorten::until(state, shorten::ALL, compact::write, shortest()).unwrap().unwrap(),
        };
        decode(&shortened.text).unwrap()
    }
}
