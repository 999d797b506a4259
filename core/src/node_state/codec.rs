//! The text form of a node state: compact JSON, at most 4 KiB written, at most 64 KiB read, everything checked.
//!
//! What reads it is the cluster's scheduler, what wrote it may be anyone with write access to the node.

use super::{NodeState, RecentBitstream};
use crate::bitstream::BitstreamId;
use crate::units::Millis;
use serde::{Deserialize, Serialize};

/// The only version of the text form so far.
pub const VERSION: u32 = 1;
/// How the text of this version begins when [`encode`] wrote it.
const BEGINNING: &str = "{\"v\":1,";
/// Longest text that is written, in bytes: it travels with every update of the node to everyone who watches nodes.
pub const MAX_ENCODED_BYTES: usize = 4096;
/// Longest text that is read, in bytes.
pub const MAX_DECODED_BYTES: usize = 64 * 1024;
/// Most devices of a node that are read.
pub const MAX_DEVICES: usize = 256;
/// Most slots of one device that are read.
pub const MAX_SLOTS: u32 = 4096;
/// Most bitstreams that are read.
pub const MAX_BITSTREAMS: usize = 1024;
/// Most time slices that are read.
pub const MAX_BUCKETS: usize = 1024;
/// Longest vendor, platform, board, shell or device id that is read, in bytes.
pub const MAX_TEXT_BYTES: usize = 256;
/// Longest heartbeat that is believed: a state must not declare itself fresh for ever.
pub const MAX_HEARTBEAT: Millis = Millis::from_secs(3600);
/// Longest window that is believed.
pub const MAX_WINDOW: Millis = Millis::from_secs(24 * 3600);

/// Why a state can't be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// All that may be left out was, and it is still too long.
    #[error(
        "the node state has {0} bytes with all that can be left out gone; at most {MAX_ENCODED_BYTES} are written: the node has too many devices"
    )]
    DoesNotFit(usize),
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
    #[error("it has version {0}; version {VERSION} is understood")]
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
    /// A bitstream without name and digest, or with a name that can't be one.
    #[error("a bitstream has no valid name and no digest")]
    NamelessBitstream,
}

#[derive(Serialize)]
struct Versioned<'a> {
    v: u32,
    #[serde(flatten)]
    state: &'a NodeState,
}

#[derive(Deserialize)]
struct OnlyVersion {
    v: u32,
}

/// The state in `text`.
///
/// # Errors
/// [`Unreadable`] says what is wrong with it; nothing of it should be used then.
pub fn decode(text: &str) -> Result<NodeState, Unreadable> {
    if text.len() > MAX_DECODED_BYTES {
        return Err(Unreadable::TooLong(text.len()));
    }
    let malformed = |error: serde_json::Error| Unreadable::Malformed(error.to_string());
    // What we write begins like this; all of it is read twice only if it doesn't.
    if !text.starts_with(BEGINNING) {
        let OnlyVersion { v } = serde_json::from_str(text).map_err(malformed)?;
        if v != VERSION {
            return Err(Unreadable::Version(v));
        }
    }
    let state: NodeState = serde_json::from_str(text).map_err(malformed)?;
    validate(&state)?;
    Ok(state)
}

/// The text of `state`, with as much left out as [`MAX_ENCODED_BYTES`] asks for; each step counts in `truncated`.
///
/// Left out are, in this order: bitstreams that no slot holds, oldest first; resolution of the time slices, by halves;
/// platform names; names of bitstreams that have a digest, oldest first.
///
/// # Errors
/// [`EncodeError::DoesNotFit`] if that is not enough, [`EncodeError::Invalid`] if [`decode`] would refuse it.
pub fn encode(state: &NodeState) -> Result<String, EncodeError> {
    validate(state).map_err(EncodeError::Invalid)?;
    let mut state = state.clone();
    state.buckets.trim();
    loop {
        let text = serde_json::to_string(&Versioned { v: VERSION, state: &state })
            .map_err(|error| EncodeError::Json(error.to_string()))?;
        if text.len() <= MAX_ENCODED_BYTES {
            return Ok(text);
        }
        if !shrink(&mut state) {
            return Err(EncodeError::DoesNotFit(text.len()));
        }
        state.truncated = state.truncated.saturating_add(1);
    }
}

/// Leaves one thing out; false if there is nothing that may be.
fn shrink(state: &mut NodeState) -> bool {
    let is_loaded =
        |index: usize| state.devices.iter().any(|d| d.loaded.iter().any(|l| *l as usize == index));
    if let Some(index) = (0..state.bitstreams.len()).rev().find(|index| !is_loaded(*index)) {
        remove_bitstream(state, index);
        return true;
    }
    if state.buckets.len() > 1 && state.buckets.bucket + state.buckets.bucket <= MAX_WINDOW {
        state.buckets.halve();
        return true;
    }
    if state.devices.iter().any(|device| !device.platform.is_empty()) {
        state.devices.iter_mut().for_each(|device| device.platform.clear());
        return true;
    }
    let has_both = |b: &&mut RecentBitstream| b.name.is_some() && b.digest.is_some();
    if let Some(bitstream) = state.bitstreams.iter_mut().rev().find(has_both) {
        bitstream.name = None;
        return true;
    }
    false
}

fn remove_bitstream(state: &mut NodeState, index: usize) {
    state.bitstreams.remove(index);
    for device in &mut state.devices {
        for loaded in &mut device.loaded {
            if *loaded as usize > index {
                *loaded -= 1;
            }
        }
    }
}

/// Whether `state` keeps all the bounds of this module.
///
/// # Errors
/// The first bound that it breaks.
pub fn validate(state: &NodeState) -> Result<(), Unreadable> {
    let many = |is: usize, most: usize, what| if is > most { Err(Unreadable::TooMany(what)) } else { Ok(()) };
    let range = |ok: bool, what| if ok { Ok(()) } else { Err(Unreadable::OutOfRange(what)) };
    let between = |value: Millis, most: Millis| value > Millis::ZERO && value <= most;
    many(state.devices.len(), MAX_DEVICES, "devices")?;
    many(state.bitstreams.len(), MAX_BITSTREAMS, "bitstreams")?;
    many(state.buckets.len(), MAX_BUCKETS, "window slices")?;
    range(between(state.heartbeat, MAX_HEARTBEAT), "heartbeatMs")?;
    range(between(state.window, MAX_WINDOW), "windowMs")?;
    range(between(state.buckets.bucket, MAX_WINDOW), "window.bucketMs")?;
    for bitstream in &state.bitstreams {
        let name = bitstream.name.as_deref().map(str::parse);
        match (name, bitstream.digest) {
            (Some(Ok(BitstreamId::Name(_))), _) | (None, Some(_)) => {}
            _ => return Err(Unreadable::NamelessBitstream),
        }
    }
    for device in &state.devices {
        range(device.slots <= MAX_SLOTS, "devices.slots")?;
        many(device.loaded.len(), device.slots as usize, "loaded bitstreams")?;
        let known = |index: &u32| (*index as usize) < state.bitstreams.len();
        if !device.loaded.iter().all(known) {
            return Err(Unreadable::UnknownBitstream);
        }
        let texts = [
            ("devices.id", &device.id),
            ("devices.vendor", &device.vendor),
            ("devices.platform", &device.platform),
            ("devices.board", &device.board),
            ("devices.shell", &device.shell),
        ];
        if let Some((what, _)) = texts.iter().find(|(_, text)| text.len() > MAX_TEXT_BYTES) {
            return Err(Unreadable::TextTooLong(what));
        }
    }
    Ok(())
}
