//! Validation of a node state: numbers of items, lengths, and no more usage than the slots allow.

use super::{
    MAX_BITSTREAMS, MAX_BUCKETS, MAX_DEVICES, MAX_HEARTBEAT, MAX_LOADED, MAX_SLOTS, MAX_TEXT_BYTES,
    MAX_WINDOW, Unreadable,
};
use crate::bitstream::BitstreamId;
use crate::node_state::{DeviceState, IN_SLOT_LEFT_OUT, InvalidReport, NodeState};
use crate::units::Millis;

/// Checks `state` against all bounds of [`super`].
///
/// # Errors
/// [`Unreadable`] for the first bound that the state breaks.
pub fn validate(state: &NodeState) -> Result<(), Unreadable> {
    let loaded = state.devices.iter().map(|device| device.loaded.len()).sum();
    many(state.devices.len(), MAX_DEVICES, "devices")?;
    many(state.bitstreams.len(), MAX_BITSTREAMS, "bitstreams")?;
    many(loaded, MAX_LOADED, "loaded bitstreams")?;
    many(state.buckets.usage.len(), MAX_BUCKETS, "window slices")?;
    many(state.buckets.reconfiguration.len(), MAX_BUCKETS, "window slices")?;
    range(between(state.heartbeat, MAX_HEARTBEAT), "heartbeatMs")?;
    range(between(state.window, MAX_WINDOW), "windowMs")?;
    range(between(state.buckets.bucket, MAX_WINDOW), "window.bucketMs")?;
    if let Some(plugin) = &state.plugin {
        plugin.report.validate().map_err(|invalid| match invalid {
            InvalidReport::TooMany(what) => Unreadable::TooMany(what),
            InvalidReport::TextTooLong(what) => Unreadable::TextTooLong(what),
        })?;
    }
    many(state.cordons.len(), MAX_DEVICES, "cordons")?;
    if state.cordons.keys().any(|board| board.len() > MAX_TEXT_BYTES) {
        return Err(Unreadable::TextTooLong("cordons"));
    }
    for bitstream in &state.bitstreams {
        let name = bitstream.name.as_deref().map(str::parse);
        match (name, bitstream.digest) {
            (Some(Ok(BitstreamId::Name(_))), _) | (None, Some(_)) => {}
            _ => return Err(Unreadable::NamelessBitstream),
        }
    }
    state.devices.iter().try_for_each(|device| validate_device(device, state))?;
    validate_amounts(state)
}

fn validate_device(device: &DeviceState, state: &NodeState) -> Result<(), Unreadable> {
    range(device.slots <= MAX_SLOTS, "devices.slots")?;
    many(device.loaded.len(), device.slots as usize, "loaded bitstreams")?;
    let left_out = |index: u32| index == IN_SLOT_LEFT_OUT && state.left_out.loaded > 0;
    let known = |index: &u32| (*index as usize) < state.bitstreams.len() || left_out(*index);
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
    match texts.iter().find(|(_, text)| text.len() > MAX_TEXT_BYTES) {
        Some((what, _)) => Err(Unreadable::TextTooLong(what)),
        None => Ok(()),
    }
}

/// Checks that no slot is used for longer than time passes. A false amount would distort ranks and means.
fn validate_amounts(state: &NodeState) -> Result<(), Unreadable> {
    let fits = |amount: Millis, time: Millis, slots: u64| amount.0 <= time.0.saturating_mul(slots);
    for device in &state.devices {
        let slots = device.slots.into();
        range(fits(device.usage, state.window, slots), "devices.usageMs")?;
        range(fits(device.reconfiguration, state.window, slots), "devices.reconfigurationMs")?;
    }
    let slots = state.slots();
    range(fits(state.usage, state.window, slots), "usageMs")?;
    range(fits(state.reconfiguration, state.window, slots), "reconfigurationMs")?;
    let buckets = &state.buckets;
    let all_fit = |slices: &[Millis]| slices.iter().all(|slice| fits(*slice, buckets.bucket, slots));
    range(all_fit(&buckets.usage), "window.usageMs")?;
    range(all_fit(&buckets.reconfiguration), "window.reconfigurationMs")
}

fn many(is: usize, most: usize, what: &'static str) -> Result<(), Unreadable> {
    if is > most { Err(Unreadable::TooMany(what)) } else { Ok(()) }
}

fn range(ok: bool, what: &'static str) -> Result<(), Unreadable> {
    if ok { Ok(()) } else { Err(Unreadable::OutOfRange(what)) }
}

fn between(value: Millis, most: Millis) -> bool {
    value > Millis::ZERO && value <= most
}
