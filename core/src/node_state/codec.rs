//! The text forms of a node state: compact JSON of bounded length, everything checked when it is read.
//!
//! What reads a state is the cluster's scheduler, what wrote it may be anyone with write access to the node.
//!
//! There are two forms. **Version 1** spells everything out, at most [`V1_MAX_BYTES`]; every reader understands it.
//! **Version 2** names each kind of board once and writes digests in base64: about half as long, so that nodes with many
//! boards fit. A collector writes version 1 wherever nothing that decides on a pod's requirements has to be left out of
//! it, and version 2 elsewhere: so extenders and collectors can be updated in any order, and a reader of version 1 alone
//! lacks only states that version 1 could not hold.
//!
//! The **stream** carries the whole state ([`encode_whole`]). The **annotation** is shorter ([`encode`]): it travels with
//! every update of the node to everyone who watches nodes, and Kubernetes takes 256 KiB for all annotations of an object.
//! What it leaves out is named in [`LeftOut`].

mod compact;
mod shorten;
mod spelled_out;
mod validate;

pub use validate::validate;

use super::{LeftOut, NodeState};
use crate::units::Millis;
use serde::Deserialize;

/// Longest text of version 1 that is written, in bytes.
pub const V1_MAX_BYTES: usize = 4096;
/// Room in an annotation for each board beyond the fourth, in bytes: four slots with bitstreams of the longest names take
/// about 700, and what names the board the rest.
pub const BYTES_PER_BOARD: usize = 1024;
/// Longest annotation that is written, in bytes: an eighth of what Kubernetes takes for all annotations of a node.
pub const MAX_ANNOTATION_BYTES: usize = 32 * 1024;
/// Longest text that is read, and that is streamed, in bytes.
pub const MAX_DECODED_BYTES: usize = 64 * 1024;
/// Most devices of a node that are read.
pub const MAX_DEVICES: usize = 256;
/// Most slots of one device that are read.
pub const MAX_SLOTS: u32 = 4096;
/// Most bitstreams that are read.
pub const MAX_BITSTREAMS: usize = 1024;
/// Most slots of all devices together that hold something.
pub const MAX_LOADED: usize = 4096;
/// Most time slices that are read.
pub const MAX_BUCKETS: usize = 1024;
/// Longest vendor, platform, board, shell or device id that is read, in bytes.
pub const MAX_TEXT_BYTES: usize = 256;
/// Longest heartbeat that is believed: a state must not declare itself fresh for ever.
pub const MAX_HEARTBEAT: Millis = Millis::from_secs(3600);
/// Longest window that is believed.
pub const MAX_WINDOW: Millis = Millis::from_secs(24 * 3600);

/// The text of a state, and what it lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The text.
    pub text: String,
    /// What was left out of it.
    pub left_out: LeftOut,
}

/// Why a state can't be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// All that may be left out was, and it is still too long.
    #[error(
        "the node state has {bytes} bytes with all that can be left out gone, at most {most} are written: the ids or kinds of its devices are too long"
    )]
    DoesNotFit {
        /// Length of the shortest text, in bytes.
        bytes: usize,
        /// Most bytes that are written.
        most: usize,
    },
    /// It would not be read back.
    #[error("the node state is not valid: {0}")]
    Invalid(#[source] Unreadable),
    /// JSON refused it.
    #[error("the node state can't be written as JSON: {0}")]
    Json(String),
}

/// Why a text is not a node state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// More than [`MAX_DECODED_BYTES`].
    #[error("it has {0} bytes; at most {MAX_DECODED_BYTES} are read")]
    TooLong(usize),
    /// Not JSON, a field is missing or of the wrong type.
    #[error("it is not a node state: {0}")]
    Malformed(String),
    /// Another version of the format.
    #[error("it has version {0}; versions 1 and 2 are understood")]
    Version(u32),
    /// More of something than is read.
    #[error("it has too many {0}")]
    TooMany(&'static str),
    /// A text is too long.
    #[error("its {0} is too long")]
    TextTooLong(&'static str),
    /// A number that can't be.
    #[error("its {0} is out of range")]
    OutOfRange(&'static str),
    /// A device refers to a bitstream that isn't there.
    #[error("a device has loaded a bitstream that is not listed")]
    UnknownBitstream,
    /// A device refers to a kind that isn't there.
    #[error("a device is of a kind that is not listed")]
    UnknownKind,
    /// A bitstream without name and digest, or with a name that can't be one.
    #[error("a bitstream has no valid name and no digest")]
    NamelessBitstream,
}

/// The longest annotation of a node with so many boards, in bytes: [`V1_MAX_BYTES`], and [`BYTES_PER_BOARD`] for each
/// board beyond the fourth, up to [`MAX_ANNOTATION_BYTES`].
#[must_use]
pub fn max_annotation_bytes(boards: usize) -> usize {
    let more = boards.saturating_sub(4).saturating_mul(BYTES_PER_BOARD);
    V1_MAX_BYTES.saturating_add(more).min(MAX_ANNOTATION_BYTES)
}

/// The state in `text`.
///
/// # Errors
/// [`Unreadable`] says what is wrong with it; nothing of it should be used then.
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

/// The text of `state` for the annotation, with as much left out as [`max_annotation_bytes`] asks for.
///
/// Left out are, in this order: bitstreams that no slot holds, the longest unused first; resolution of the window, by
/// halves; names of bitstreams that have a digest; platforms; bitstreams in slots, the longest unused first.
///
/// # Errors
/// [`EncodeError::DoesNotFit`] if that is not enough, [`EncodeError::Invalid`] if [`decode`] would refuse it.
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

/// The text of the whole `state`, for the stream. Only what would not be read, beyond [`MAX_DECODED_BYTES`], is left out.
///
/// # Errors
/// As [`encode`].
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

/// The version that `text` says it has.
fn version(text: &str) -> Result<u32, Unreadable> {
    // What we write begins with it; all of it is read twice only if it doesn't.
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

    /// The state as it comes back from a text of version 2 of at most so many bytes, as far as that is possible.
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
