//! The row of a node: its boards with what is in their slots.

use crate::nodes::{kind_of, loaded_on};
use fpga_core::device::{Health, ReconfiguredPart};
use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::{DeviceState, NodeState};
use serde::Serialize;

/// Most columns of a trend.
const TREND: usize = 30;
/// Most slots of a board that are drawn.
const MAX_SLOTS: usize = 64;
/// Ages are told in these steps, so that a node of which only the age changes is not sent again and again.
const AGE_STEP_MS: u64 = 5_000;

/// A node, as the page shows it. Shares are in thousandths of the window's slot time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// `fresh`, `stale`, `absent` or `unreadable`.
    pub freshness: String,
    /// Where the state is from: `stream`, `watched`, or `annotation` if the extender does not tell.
    pub source: String,
    /// Why the node's annotation can't be read.
    pub problem: Option<String>,
    /// Vendor, board and shell by the node's labels.
    pub labels: [Option<String>; 3],
    /// Time of the measurement, milliseconds since the epoch, rounded; `None` without a state.
    pub measured_at_ms: Option<u64>,
    /// Length of the window in which use is counted.
    pub window_ms: u64,
    /// Used share.
    pub usage: u64,
    /// Share in which boards were reconfigured.
    pub reconfiguration: u64,
    /// The used share in the slices of the window, oldest first.
    pub trend: Vec<u64>,
    /// The boards.
    pub boards: Vec<BoardRow>,
}

/// A board of a [`NodeRow`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BoardRow {
    /// Id, unique on the node.
    pub id: String,
    /// Vendor, board and shell.
    pub kind: String,
    /// Whether the board answers.
    pub is_healthy: bool,
    /// Why the board is out of rotation; `None` if it is in rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cordon: Option<String>,
    /// Whether a reconfiguration replaces the whole board.
    pub is_whole: bool,
    /// For each slot the name of the bitstream; `None` if it is empty.
    pub slots: Vec<Option<String>>,
    /// Slots beyond those that are drawn.
    pub more_slots: u64,
    /// Tasks that wait for a slot.
    pub queued: u32,
    /// Used share.
    pub usage: u64,
    /// Share in which the board was reconfigured.
    pub reconfiguration: u64,
    /// Containers that have the board and may have it, where a node plugin gives it.
    pub instances: Option<[u32; 2]>,
}

/// A node's state with what the reader knows of it.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The state.
    pub state: &'a NodeState,
    /// Time since the node told the state.
    pub age_ms: u64,
    /// Slot time used in the window that ends now.
    pub usage_ms: u64,
    /// Time spent reconfiguring in the window that ends now.
    pub reconfiguration_ms: u64,
}

/// What is known of a node beside its state.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// The labels.
    pub labels: &'a NodeLabels,
    /// `fresh`, `stale`, `absent` or `unreadable`.
    pub freshness: &'a str,
    /// Where the state is from.
    pub source: &'a str,
    /// Why the annotation can't be read.
    pub problem: Option<&'a str>,
}

impl NodeRow {
    /// The row of a node at `now_ms`, milliseconds since the epoch. A bitstream stays in the slot in which `before` has it.
    #[must_use]
    pub fn of(about: About<'_>, told: Option<Told<'_>>, before: Option<&Self>, now_ms: u64) -> Self {
        let labels = [&about.labels.vendor, &about.labels.board, &about.labels.shell].map(Clone::clone);
        let mut row = Self {
            freshness: about.freshness.to_owned(),
            source: about.source.to_owned(),
            problem: about.problem.map(str::to_owned),
            labels,
            measured_at_ms: None,
            window_ms: 0,
            usage: 0,
            reconfiguration: 0,
            trend: Vec::new(),
            boards: Vec::new(),
        };
        let Some(Told { state, age_ms, usage_ms, reconfiguration_ms }) = told else { return row };
        let capacity = state.window.0.saturating_mul(state.slots());
        let measured_at = now_ms.saturating_sub(age_ms);
        row.measured_at_ms = Some(measured_at - measured_at % AGE_STEP_MS);
        row.window_ms = state.window.0;
        row.usage = per_mille(usage_ms, capacity);
        row.reconfiguration = per_mille(reconfiguration_ms, capacity);
        row.trend = trend(state);
        let earlier = |id: &str| before.and_then(|before| before.boards.iter().find(|board| board.id == id));
        row.boards = state.devices.iter().map(|device| board(device, state, earlier(&device.id))).collect();
        row
    }
}

fn board(device: &DeviceState, state: &NodeState, before: Option<&BoardRow>) -> BoardRow {
    let capacity = state.window.0.saturating_mul(device.slots.into());
    let plugin = state.plugin.as_ref();
    let instances = plugin.and_then(|plugin| plugin.report.boards.get(&device.id));
    let drawn = usize::try_from(device.slots).unwrap_or(MAX_SLOTS).min(MAX_SLOTS);
    let before = before.map(|before| before.slots.as_slice()).unwrap_or_default();
    BoardRow {
        id: device.id.clone(),
        kind: kind_of(device),
        is_healthy: state.reported_health(device) == Health::Healthy,
        cordon: state.cordons.get(&device.id).map(|cordoned| cordoned.cordon.to_string()),
        is_whole: device.reconfigured_part != ReconfiguredPart::Slot,
        slots: arrange(loaded_on(device, state), drawn, before),
        more_slots: u64::from(device.slots).saturating_sub(drawn as u64),
        queued: device.queued,
        usage: per_mille(device.usage.0, capacity),
        reconfiguration: per_mille(device.reconfiguration.0, capacity),
        instances: instances.map(|instances| [instances.used, instances.limit]),
    }
}

/// The bitstreams in `count` slots. A state says which bitstreams a board has, not where: who looks at a board should see
/// each of them stay where it was.
fn arrange(mut holds: Vec<String>, count: usize, before: &[Option<String>]) -> Vec<Option<String>> {
    let mut slots: Vec<Option<String>> = vec![None; count];
    for (slot, earlier) in slots.iter_mut().zip(before) {
        let Some(earlier) = earlier else { continue };
        if let Some(index) = holds.iter().position(|name| name == earlier) {
            *slot = Some(holds.remove(index));
        }
    }
    for (slot, name) in slots.iter_mut().filter(|slot| slot.is_none()).zip(holds) {
        *slot = Some(name);
    }
    slots
}

/// The used share in the slices of the window, oldest first, in at most [`TREND`] columns.
fn trend(state: &NodeState) -> Vec<u64> {
    let bucket = state.buckets.bucket.0;
    if bucket == 0 {
        return Vec::new();
    }
    let slices = usize::try_from(state.window.0.div_ceil(bucket)).unwrap_or(usize::MAX).clamp(1, 1 << 16);
    let per_column = slices.div_ceil(TREND);
    let used = |slice: usize| state.buckets.usage.get(slice).map_or(0, |used| used.0);
    let capacity = bucket.saturating_mul(per_column as u64).saturating_mul(state.slots());
    let columns = slices.div_ceil(per_column);
    let column = |index: usize| {
        let first = index * per_column;
        per_mille((first..first + per_column).map(used).fold(0, u64::saturating_add), capacity)
    };
    (0..columns).rev().map(column).collect()
}

fn per_mille(part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    let share = u128::from(part) * 1000 / u128::from(whole);
    u64::try_from(share).unwrap_or(u64::MAX).min(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state(loaded: &[u32]) -> NodeState {
        let state = json!({
            "boot": 1, "seq": 1, "heartbeatMs": 1, "measuredAtMs": 1, "windowMs": 1000, "usageMs": 600,
            "reconfigurationMs": 0, "window": {"bucketMs": 250, "usageMs": [500, 100]},
            "devices": [{"id": "dm0", "vendor": "intel", "board": "a10", "slots": 2, "loaded": loaded, "usageMs": 600,
                         "queued": 3, "healthy": true}],
            "bitstreams": [{"name": "sobel", "lastUsedAgoMs": 0}, {"name": "mm", "lastUsedAgoMs": 0},
                           {"name": "sha", "lastUsedAgoMs": 0}],
            "plugin": {"boards": {"dm0": [3, 16]}},
        });
        serde_json::from_value(state).unwrap()
    }

    fn row(state: &NodeState, before: Option<&NodeRow>, now_ms: u64) -> NodeRow {
        let labels = NodeLabels::default();
        let about = About { labels: &labels, freshness: "fresh", source: "stream", problem: None };
        let told = Told { state, age_ms: 300, usage_ms: 600, reconfiguration_ms: 0 };
        NodeRow::of(about, Some(told), before, now_ms)
    }

    #[test]
    fn a_board_has_its_slots_use_queue_and_instances() {
        let row = row(&state(&[0]), None, 1_000_300);
        let board = &row.boards[0];
        assert_eq!((board.kind.as_str(), board.queued, board.usage), ("intel/a10/-", 3, 300));
        assert_eq!(
            (board.slots.clone(), board.instances),
            (vec![Some("sobel".to_owned()), None], Some([3, 16]))
        );
        assert_eq!((row.usage, row.trend), (300, vec![0, 0, 200, 1000]));
        assert_eq!(row.measured_at_ms, Some(1_000_000));
    }

    #[test]
    fn a_board_out_of_rotation_says_why_and_is_healthy_as_long_as_it_answers() {
        let mut state = state(&[0]);
        let cordons = r#"{"dm0":{"reason":"fan is loud","sinceMs":5}}"#;
        state.cordon(&fpga_core::cordon::CordonedBoards::parse(cordons).unwrap());
        let board = &row(&state, None, 0).boards[0];
        assert_eq!((board.is_healthy, board.cordon.as_deref()), (true, Some("cordoned: fan is loud")));
    }

    #[test]
    fn a_bitstream_stays_in_its_slot_while_others_come_and_go() {
        let named = |row: &NodeRow| {
            row.boards[0].slots.iter().map(|slot| slot.clone().unwrap_or_default()).collect::<Vec<_>>()
        };
        let first = row(&state(&[0, 1]), None, 0);
        assert_eq!(named(&first), ["sobel", "mm"]);
        let swapped = row(&state(&[1, 0]), Some(&first), 0);
        assert_eq!(named(&swapped), ["sobel", "mm"]);
        let evicted = row(&state(&[1]), Some(&swapped), 0);
        assert_eq!(named(&evicted), ["", "mm"]);
        let loaded = row(&state(&[1, 2]), Some(&evicted), 0);
        assert_eq!(named(&loaded), ["sha", "mm"]);
    }

    #[test]
    fn a_node_of_which_only_the_age_changes_has_the_same_row() {
        assert_eq!(row(&state(&[0]), None, 1_000_300), row(&state(&[0]), None, 1_004_000));
        assert_ne!(row(&state(&[0]), None, 1_000_300), row(&state(&[0]), None, 1_006_000));
    }

    #[test]
    fn a_board_with_a_wrong_number_of_slots_is_bounded() {
        let mut state = state(&[0]);
        state.devices[0].slots = u32::MAX;
        let row = row(&state, None, 0);
        assert_eq!((row.boards[0].slots.len(), row.boards[0].more_slots), (64, u64::from(u32::MAX) - 64));
    }
}
