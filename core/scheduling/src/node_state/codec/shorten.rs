//! Leaves parts out of a state until its text fits, as few as possible, and counts them in the state.

use super::{EncodeError, Encoded, MAX_WINDOW};
use crate::node_state::{IN_SLOT_LEFT_OUT, NodeState};

/// A kind of part that may be left out.
pub(super) struct Step {
    /// Number of these parts in a state.
    count: fn(&NodeState) -> usize,
    /// Leaves out so many of them, those that matter least first.
    leave_out: fn(&mut NodeState, usize),
}

const RECENT_BITSTREAMS: Step = Step {
    count: |state| is_loaded(state).iter().filter(|is_loaded| !**is_loaded).count(),
    leave_out: |state, count| {
        let is_recent = is_loaded(state).iter().map(|is_loaded| !is_loaded).collect();
        remove_last(state, is_recent, count);
        state.left_out.recent = state.left_out.recent.saturating_add(to_u32(count));
    },
};

const RESOLUTION: Step = Step {
    count: |state| {
        let (mut slices, mut bucket, mut halvings) = (state.buckets.len(), state.buckets.bucket, 0);
        while slices > 1 && bucket + bucket <= MAX_WINDOW {
            (slices, bucket, halvings) = (slices.div_ceil(2), bucket + bucket, halvings + 1);
        }
        halvings
    },
    leave_out: |state, count| {
        (0..count).for_each(|_| state.buckets.halve());
        state.left_out.resolution = state.left_out.resolution.saturating_add(to_u32(count));
    },
};

const NAMES: Step = Step {
    count: |state| state.bitstreams.iter().filter(|b| b.name.is_some() && b.digest.is_some()).count(),
    leave_out: |state, count| {
        let named = state.bitstreams.iter_mut().rev().filter(|b| b.name.is_some() && b.digest.is_some());
        named.take(count).for_each(|bitstream| bitstream.name = None);
        state.left_out.names = state.left_out.names.saturating_add(to_u32(count));
    },
};

const PLATFORMS: Step = Step {
    // The text has each platform once, so leaving out some of them saves little.
    count: |state| usize::from(state.devices.iter().any(|device| !device.platform.is_empty())),
    leave_out: |state, _| {
        let devices = state.devices.iter_mut().filter(|device| !device.platform.is_empty());
        let cleared = devices.map(|device| device.platform.clear()).count();
        state.left_out.platforms = state.left_out.platforms.saturating_add(to_u32(cleared));
    },
};

const LOADED: Step = Step {
    count: |state| is_loaded(state).iter().filter(|is_loaded| **is_loaded).count(),
    leave_out: |state, count| {
        remove_last(state, is_loaded(state), count);
        state.left_out.loaded = state.left_out.loaded.saturating_add(to_u32(count));
    },
};

/// The step that affects scores only.
pub(super) const RECENT: &[Step] = &[RECENT_BITSTREAMS];
/// All steps. Those that affect the filter come last.
pub(super) const ALL: &[Step] = &[RECENT_BITSTREAMS, RESOLUTION, NAMES, PLATFORMS, LOADED];

/// Writes `state` with at most `most` bytes and leaves out as little as possible, in the order of `steps`. The inner
/// `Err` is the length of the shortest text, if that is too long.
pub(super) fn until(
    state: &NodeState,
    steps: &[Step],
    write: fn(&NodeState) -> Result<String, EncodeError>,
    most: usize,
) -> Result<Result<Encoded, usize>, EncodeError> {
    let mut state = state.clone();
    let mut text = write(&state)?;
    for step in steps {
        if text.len() <= most {
            break;
        }
        let without = |count: usize| {
            let mut state = state.clone();
            (step.leave_out)(&mut state, count);
            write(&state).map(|text| (state, text))
        };
        // Invariant: `too_few` gives too long a text; `enough` gives one that fits, or is all there is.
        let (mut too_few, mut enough) = (0, (step.count)(&state));
        if enough == 0 {
            continue;
        }
        let mut shortened = without(enough)?;
        while enough - too_few > 1 && shortened.1.len() <= most {
            let count = too_few.midpoint(enough);
            let tried = without(count)?;
            if tried.1.len() <= most {
                (enough, shortened) = (count, tried);
            } else {
                too_few = count;
            }
        }
        (state, text) = shortened;
    }
    let length = text.len();
    Ok(if length <= most { Ok(Encoded { text, left_out: state.left_out }) } else { Err(length) })
}

/// For each bitstream whether a slot holds it.
fn is_loaded(state: &NodeState) -> Vec<bool> {
    let mut is_loaded = vec![false; state.bitstreams.len()];
    for index in state.devices.iter().flat_map(|device| &device.loaded) {
        if let Some(is_loaded) = is_loaded.get_mut(*index as usize) {
            *is_loaded = true;
        }
    }
    is_loaded
}

/// Removes the last `count` of the bitstreams that `may_go`. Slots with a removed bitstream hold [`IN_SLOT_LEFT_OUT`].
fn remove_last(state: &mut NodeState, may_go: Vec<bool>, count: usize) {
    let mut goes = may_go;
    let places = (0..goes.len()).rev().filter(|place| goes[*place]);
    let stay: Vec<usize> = places.skip(count).collect();
    stay.into_iter().for_each(|place| goes[place] = false);
    let mut place = 0;
    let mut kept = 0_u32;
    let mut new_places = Vec::with_capacity(goes.len());
    state.bitstreams.retain(|_| {
        let stays = !goes[place];
        place += 1;
        new_places.push(if stays { kept } else { IN_SLOT_LEFT_OUT });
        kept += u32::from(stays);
        stays
    });
    for index in state.devices.iter_mut().flat_map(|device| &mut device.loaded) {
        *index = new_places.get(*index as usize).copied().unwrap_or(IN_SLOT_LEFT_OUT);
    }
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
