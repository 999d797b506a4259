//! Pods with which there would be fewer cold starts on another board, by the gaps between the uses of bitstreams that
//! the nodes' collectors publish.

use super::found::Found;
use super::places;
use crate::cluster::KnownNode;
use fpga_board::reuse::published::{BitstreamReuse, NodeReuse};
use fpga_cluster::moves::{Cause, SavedColdStarts};
use fpga_cluster::rebalance::expected::{Gain, Movable, UsedBoard, gains};
use fpga_core::device::Health;
use fpga_core::library::{Library, Meaning};
use fpga_core::node_state::{DeviceState, DigestPrefix, Heartbeat, NodeState};
use fpga_core::units::{Millis, WallTime};
use fpga_registry_api::FpgaPod;
use std::collections::BTreeMap;

/// Gaps that must be known of a bitstream before a pod is moved because of them.
const LEAST_GAPS: u32 = 16;
/// A bitstream that no pod of its board names and that has not been used for so many of its mean gaps is that of a pod
/// that has gone.
const GAPS_UNTIL_LEFT: u64 = 8;

/// A board, and what of it is published.
struct Board<'n> {
    node: &'n KnownNode,
    state: &'n NodeState,
    device: &'n DeviceState,
    /// What its node publishes of it; `None` if that is not all.
    uses: Vec<&'n BitstreamReuse>,
    is_complete: bool,
    pods: Vec<&'n FpgaPod>,
}

/// The pods whose move is expected to save at least `least_per_hour` cold starts in an hour, one of a board at most, the
/// greatest gain first. `reuse` has what the nodes publish.
#[must_use]
pub fn find<'p>(
    pods: &'p [FpgaPod],
    nodes: &'p [KnownNode],
    reuse: &'p BTreeMap<String, NodeReuse>,
    library: &Library,
    least_per_hour: u32,
    now: WallTime,
) -> Vec<Found<'p>> {
    let mut boards = boards(nodes, reuse);
    settle(&mut boards, pods);
    for board in &mut boards {
        let (pods, age) = (&board.pods, board.node.age);
        board.uses.retain(|used| {
            let left_after = Millis(used.mean_gap().0.saturating_mul(GAPS_UNTIL_LEFT));
            used.idle + age < left_after || pods.iter().any(|pod| names(pod, used, library))
        });
    }
    let used: Vec<UsedBoard> = boards
        .iter()
        .map(|board| UsedBoard {
            slots: board.device.slots,
            uses: board.uses.iter().map(|used| used.profile(board.node.age)).collect(),
        })
        .collect();
    let mut movable: Vec<Movable> = Vec::new();
    let mut functions: Vec<&FpgaPod> = Vec::new();
    for (index, board) in boards.iter().enumerate() {
        for pod in &board.pods {
            if let Some(uses) = own_uses(pod, board, library) {
                movable.push(Movable { function: functions.len(), board: index, uses });
                functions.push(pod);
            }
        }
    }
    let may_go = |movable: &Movable, to: usize| {
        let (from, to) = (&boards[movable.board], &boards[to]);
        takes(to, from, functions[movable.function], now)
    };
    let gains = gains(&used, &movable, may_go, to_per_second(least_per_hour));
    let found = gains.into_iter().map(|gain| {
        let pod = functions[gain.function];
        Found { pod, cause: Cause::ColdStarts(saved(&gain, pod, &boards)) }
    });
    found.collect()
}

/// The boards of nodes that publish gaps and whose state is fresh.
fn boards<'n>(nodes: &'n [KnownNode], reuse: &'n BTreeMap<String, NodeReuse>) -> Vec<Board<'n>> {
    let known = nodes.iter().filter_map(|node| Some((node, node.fresh()?, reuse.get(&node.name)?)));
    let boards = known.flat_map(|(node, state, reuse)| {
        state.devices.iter().map(move |device| {
            let published = reuse.boards.get(&device.id);
            Board {
                node,
                state,
                device,
                uses: published.iter().flat_map(|board| &board.used).collect(),
                is_complete: published.is_none_or(|board| board.left_out == 0),
                pods: Vec::new(),
            }
        })
    });
    boards.collect()
}

/// Tells the boards their pods. Pods with several boards count nowhere; where boards are wired by hand, a pod has the
/// only board of its node.
fn settle<'n>(boards: &mut [Board<'n>], pods: &'n [FpgaPod]) {
    let of_name = |board: &Board<'n>| (board.node.name.as_str(), board.device.id.as_str());
    let indexes: BTreeMap<(&str, &str), usize> =
        boards.iter().enumerate().map(|(index, board)| (of_name(board), index)).collect();
    for pod in pods.iter().filter(|pod| !pod.is_ending) {
        let Some(node) = pod.node.as_deref() else { continue };
        let index = match pod.boards.as_slice() {
            [board] => indexes.get(&(node, board.as_str())).copied(),
            [] => {
                let mut of_node = indexes.range((node, "")..).take_while(|((of, _), _)| *of == node);
                let first = of_node.next().map(|(_, index)| *index);
                first.filter(|first| of_node.next().is_none() && boards[*first].state.plugin.is_none())
            }
            _ => None,
        };
        if let Some(board) = index.and_then(|index| boards.get_mut(index)) {
            board.pods.push(pod);
        }
    }
}

/// Indexes of the uses that go with a pod; `None` if it shares one with another pod, has none, or too little is known.
fn own_uses(pod: &FpgaPod, board: &Board<'_>, library: &Library) -> Option<Vec<usize>> {
    let is_own = |used: &BitstreamReuse| {
        used.gaps_known() >= LEAST_GAPS
            && board.pods.iter().all(|other| other.uid == pod.uid || !names(other, used, library))
    };
    let own: Vec<usize> =
        (0..board.uses.len()).filter(|index| names(pod, board.uses[*index], library)).collect();
    let is_movable = pod.is_ready && !own.is_empty() && own.iter().all(|index| is_own(board.uses[*index]));
    is_movable.then_some(own)
}

/// Whether `pod` names a bitstream, by name, by digest, or by the library.
fn names(pod: &FpgaPod, used: &BitstreamReuse, library: &Library) -> bool {
    pod.requirement.bitstreams.iter().any(|id| {
        let bitstream = &used.bitstream;
        bitstream.is(id)
            || match library.meaning(&pod.namespace, id) {
                Meaning::Variants(variants) => variants
                    .iter()
                    .any(|variant| bitstream.digest == Some(DigestPrefix::from(&variant.digest))),
                Meaning::Unlisted | Meaning::Refused => false,
            }
    })
}

/// Whether the board `to` would take a pod from the board `from`: it is of the same kind, on another node, and has room,
/// its node takes the pod, and all its uses are known.
fn takes(to: &Board<'_>, from: &Board<'_>, pod: &FpgaPod, now: WallTime) -> bool {
    let kind = |board: &Board<'_>| {
        let device = board.device;
        (device.vendor.clone(), device.platform.clone(), device.board.clone(), device.shell.clone())
    };
    // The extender rejects a node whose plugin is late.
    let plugin_is_late = to.state.plugin.as_ref().is_some_and(|plugin| plugin.heartbeat == Heartbeat::Late);
    to.node.name != from.node.name
        && to.is_complete
        && !plugin_is_late
        && to.device.health == Health::Healthy
        && to.state.offers(to.device)
        && to.state.has_instances_left(to.device)
        && kind(to) == kind(from)
        && places::takes(to.node, pod, now)
}

fn saved(gain: &Gain, pod: &FpgaPod, boards: &[Board<'_>]) -> SavedColdStarts {
    let best = boards.get(gain.best).map(|board| format!("{} of {}", board.device.id, board.node.name));
    let own = boards.iter().find(|board| board.pods.iter().any(|other| other.uid == pod.uid));
    SavedColdStarts {
        board: own.map(|board| board.device.id.clone()).unwrap_or_default(),
        per_hour: to_per_hour(gain.cold),
        saved: to_per_hour(gain.expected),
        best: best.unwrap_or_default(),
        saved_at_best: to_per_hour(gain.at_best),
    }
}

fn to_per_hour(per_second: f32) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    let per_hour = (per_second * 3_600.0).round() as u32;
    per_hour
}

fn to_per_second(per_hour: u32) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "an estimate needs no more digits")]
    let per_second = (f64::from(per_hour) / 3_600.0) as f32;
    per_second
}

#[cfg(test)]
mod tests;
