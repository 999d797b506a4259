//! The gate of a board: whether a container may have a bitstream there (B-8).
//!
//! A device manager asks the node plugin before it takes a bitstream from a session. The plugin knows which container
//! has which token and which boards, and what the library lists; [`decide`] is its decision:
//!
//! ```text
//!  whose token is it? ──► has the container this board? ──► may its namespace have the bitstream, on this board?
//!      └─ refused             └─ refused                        └─ refused; wait while the board is not known
//!  ──► is the bitstream resident, or is only a slot reconfigured? ─ yes ─► allowed
//!      no: the whole board is, and other pods have it
//!      ──► has another pod's request come first? ─ yes ─► wait
//!      ──► do kernels of others run or wait? ─ no ─► allowed, and first until it is loaded
//!          yes ─► are pods moved off boards? ─ yes ─► wait, and first until the others have gone;  no ─► refused
//! ```
//! The first request reserves the board for a while: [`Reservation`]. A reservation ends by itself, so that a container
//! that vanishes blocks nobody, and the pod that waited for it comes next, so that one that asks again and again doesn't
//! either.

mod message;
mod reservation;
#[cfg(test)]
mod tests;
mod verdict;

pub use message::{GateAnswer, GateRequest, InvalidMessage, MAX_MESSAGE_BYTES, Origin, Others, Residency};
pub use reservation::{Claim, Reservation, Stage};
pub use verdict::{GateRefusal, GateVerdict, WaitReason};

use crate::bitstream::{BitstreamId, Digest};
use crate::board_kind::BoardKind;
use crate::device::ReconfiguredPart;
use crate::library::{Library, Meaning};
use crate::node_state::{DeviceState, NodeState};
use crate::units::MonotonicTime;
use std::collections::{BTreeMap, BTreeSet};

/// The containers of a node that have boards, by the digest of the token that proves each of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocated(pub BTreeMap<Digest, AllocatedContainer>);

/// A container that has boards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedContainer {
    /// Namespace of the pod, which is the tenant.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub uid: String,
    /// Ids of the container's boards.
    pub boards: BTreeSet<String>,
    /// The bitstreams that the container was given when it started, by the board that they are for: also those that another
    /// namespace gives, which a digest alone does not find.
    pub given: BTreeMap<String, BTreeSet<Digest>>,
}

/// What the gate knows of a board.
#[derive(Debug, Clone, Copy)]
pub struct GateBoard<'b> {
    /// The state of the node; `None` while it is not known.
    pub state: Option<&'b NodeState>,
    /// The request that comes first on the board.
    pub reservation: Option<&'b Reservation>,
    /// Whether pods are moved off a board for others.
    pub moves: Moves,
}

/// Whether the registry moves pods off a board that another pod wants to have reconfigured as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moves {
    /// The registry moves the pods to other boards first, where it can.
    On,
    /// Pods stay: a board that others use is not reconfigured.
    Off,
}

/// The decision on a request, and the board's reservation after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateDecision {
    /// The decision.
    pub verdict: GateVerdict,
    /// The request that comes first from now on.
    pub reservation: Option<Reservation>,
}

/// Decides whether a container may have a bitstream on a board at the moment `now`. Without a `library` any bitstream may
/// be had.
#[must_use]
pub fn decide(
    allocated: &Allocated,
    library: Option<&Library>,
    board: GateBoard<'_>,
    request: &GateRequest,
    now: MonotonicTime,
) -> GateDecision {
    let reservation = board.reservation.and_then(|reservation| reservation.at(now));
    match admitted(allocated, library, board.state, request) {
        Ok((asking, device, state)) => {
            let reservation =
                reservation.and_then(|reservation| reservation.unless_loaded(state, device, now));
            let others = allocated.others_on(&request.board, &asking.uid);
            let is_taken = device.reconfigured_part == ReconfiguredPart::Board
                && request.residency == Residency::Absent
                && !others.is_empty();
            if is_taken {
                on_whole_board(asking, &others, reservation, board.moves, request, now)
            } else {
                GateDecision { verdict: GateVerdict::Allowed, reservation }
            }
        }
        Err(verdict) => GateDecision { verdict, reservation },
    }
}

/// The container that asks, its board, and the state of the node, if allocation and library admit the request; else the
/// verdict.
fn admitted<'a>(
    allocated: &'a Allocated,
    library: Option<&Library>,
    state: Option<&'a NodeState>,
    request: &GateRequest,
) -> Result<(&'a AllocatedContainer, &'a DeviceState, &'a NodeState), GateVerdict> {
    let Some(asking) = allocated.0.get(&request.token) else {
        return Err(GateVerdict::Refused(GateRefusal::NoAllocation));
    };
    if !asking.boards.contains(&request.board) {
        return Err(GateVerdict::Refused(GateRefusal::OtherBoards {
            pod: asking.name(),
            board: request.board.clone(),
            boards: asking.boards.iter().cloned().collect(),
        }));
    }
    let unknown = || GateVerdict::Wait(WaitReason::UnknownBoard(request.board.clone()));
    let state = state.ok_or_else(unknown)?;
    let device = state.devices.iter().find(|device| device.id == request.board).ok_or_else(unknown)?;
    match (library, request.origin) {
        // A program that the manager builds from source is no bitstream of anybody.
        (None, _) | (_, Origin::Source) => {}
        (Some(library), origin) => {
            listed(library, asking, device, request.bitstream, origin).map_err(GateVerdict::Refused)?;
        }
    }
    Ok((asking, device, state))
}

/// Whether the library lets the container have the bitstream on this board.
fn listed(
    library: &Library,
    asking: &AllocatedContainer,
    device: &DeviceState,
    bitstream: Digest,
    origin: Origin,
) -> Result<(), GateRefusal> {
    let namespace = &asking.namespace;
    let is_given = || asking.given.get(&device.id).is_some_and(|given| given.contains(&bitstream));
    let variants = match (library.meaning(namespace, &BitstreamId::Digest(bitstream)), origin) {
        (Meaning::Unlisted, _) if is_given() => return Ok(()),
        // The administrator's own files on the node are for all pods, unless the library says otherwise.
        (Meaning::Unlisted, Origin::OfNode) => return Ok(()),
        (Meaning::Unlisted, _) => {
            return Err(GateRefusal::Unlisted { namespace: namespace.to_owned() });
        }
        (Meaning::Refused, _) => {
            return Err(GateRefusal::NotForNamespace { namespace: namespace.to_owned() });
        }
        (Meaning::Variants(variants), _) => variants,
    };
    let for_kind: Vec<_> = variants.iter().filter(|variant| variant.boards.is(device)).collect();
    let Some(region_size) = for_kind.iter().map(|variant| variant.region_size).min() else {
        let kinds: BTreeSet<&BoardKind> = variants.iter().map(|variant| &variant.boards).collect();
        return Err(GateRefusal::OtherKind {
            board: device.id.clone(),
            is: kind_of(device),
            built_for: kinds.into_iter().cloned().collect(),
        });
    };
    if region_size > device.slots {
        let (board, slots) = (device.id.clone(), device.slots);
        return Err(GateRefusal::RegionTooLarge { board, region_size, slots });
    }
    Ok(())
}

/// Decides on a reconfiguration of the whole board, which `others` have as well.
fn on_whole_board(
    asking: &AllocatedContainer,
    others: &BTreeSet<String>,
    reservation: Option<Reservation>,
    moves: Moves,
    request: &GateRequest,
    now: MonotonicTime,
) -> GateDecision {
    let claim = Claim { uid: asking.uid.clone(), pod: asking.name(), bitstream: request.bitstream };
    if let Some(mut reservation) = reservation.clone()
        && reservation.first.conflicts_with(&claim)
    {
        let Claim { pod, bitstream, .. } = reservation.first.clone();
        reservation.is_waited_for(claim, now);
        let verdict = GateVerdict::Wait(WaitReason::Conflict { pod, bitstream });
        return GateDecision { verdict, reservation: Some(reservation) };
    }
    let comes_first = |stage| Some(Reservation::of(claim.clone(), stage, reservation.as_ref(), now));
    let named = || others.iter().cloned().collect();
    let (verdict, reservation) = match (request.others, moves) {
        (Others::Idle, _) => (GateVerdict::Allowed, comes_first(Stage::Loading)),
        (Others::Busy, Moves::On) => {
            (GateVerdict::Wait(WaitReason::Moving(named())), comes_first(Stage::Moving))
        }
        (Others::Busy, Moves::Off) => (GateVerdict::Refused(GateRefusal::OthersBusy(named())), reservation),
    };
    GateDecision { verdict, reservation }
}

impl Allocated {
    /// Namespace and name of the pods that have the board, but for the one with this UID.
    #[must_use]
    pub fn others_on(&self, board: &str, uid: &str) -> BTreeSet<String> {
        let others = self.0.values().filter(|other| other.uid != uid && other.boards.contains(board));
        others.map(AllocatedContainer::name).collect()
    }
}

impl AllocatedContainer {
    /// Namespace and name of the pod.
    fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }
}

/// The kind of a board. What the board does not tell is left open.
fn kind_of(device: &DeviceState) -> BoardKind {
    let told = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    BoardKind { vendor: told(&device.vendor), board: told(&device.board), shell: told(&device.shell) }
}
