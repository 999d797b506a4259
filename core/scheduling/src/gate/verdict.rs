//! The decision on a request, and its reasons in words.
//!
//! Tenants read the words. So the words name no pod, no namespace and no digest of anybody else.

use super::message::GateAnswer;
use crate::bitstream::Digest;
use crate::board_kind::BoardKind;

/// Most pods and boards that a reason names.
const MAX_NAMED: usize = 4;

/// Whether a container may have a bitstream on a board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateVerdict {
    /// The container may have the bitstream.
    Allowed,
    /// It may ask again in a moment.
    Wait(WaitReason),
    /// It may not.
    Refused(GateRefusal),
}

/// What a container waits for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaitReason {
    /// The state of the board has not been reported.
    #[error("the state of the board {0} is not known yet")]
    UnknownBoard(String),
    /// Another request came first.
    #[error("another request has the board reconfigured first")]
    Conflict {
        /// Namespace and name of the pod that came first.
        pod: String,
        /// The bitstream that it wants.
        bitstream: Digest,
    },
    /// Other pods are moved off the board first.
    #[error("the board is reconfigured as a whole, and {} moved off it first", are(.0.len()))]
    Moving(Vec<String>),
}

/// The reason why a container may not have a bitstream, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateRefusal {
    /// No container of the node has the token.
    #[error(
        "no container of this node has the session's token: its pod has ended, or got no board; ask for the resource \
         fpga-scheduling.io/accelerated"
    )]
    NoAllocation,
    /// The container has other boards.
    #[error(
        "the pod {pod} does not have the board {board}; it has {}; ask for as many boards as the program uses",
        list(.boards)
    )]
    OtherBoards {
        /// Namespace and name of the pod.
        pod: String,
        /// The board.
        board: String,
        /// The boards that the container has.
        boards: Vec<String>,
    },
    /// The library has no such bitstream for the namespace.
    #[error(
        "the library lists no bitstream with this digest for pods of the namespace {namespace}; apply a Bitstream with it \
         there or in the library's namespace (kubectl fpga bitstream push prints one)"
    )]
    Unlisted {
        /// Namespace of the pod.
        namespace: String,
    },
    /// The bitstream is not for the namespace.
    #[error(
        "the library's Bitstream with this digest is not for pods of the namespace {namespace}; its owner can add the \
         namespace to spec.allowedNamespaces"
    )]
    NotForNamespace {
        /// Namespace of the pod.
        namespace: String,
    },
    /// The bitstream was built for other boards.
    #[error(
        "the bitstream was built for {}, and the board {board} is {}; name the bitstream in the pod's annotation \
         fpga-scheduling.io/bitstreams, so that the pod gets a board that it fits", kinds(.built_for), kind(.is)
    )]
    OtherKind {
        /// The board.
        board: String,
        /// Its kind.
        is: BoardKind,
        /// The kinds for which the bitstream was built.
        built_for: Vec<BoardKind>,
    },
    /// The bitstream's region takes more slots than the board has.
    #[error(
        "the bitstream's region takes {region_size} slots, and the board {board} has {slots}; take a larger board"
    )]
    RegionTooLarge {
        /// The board.
        board: String,
        /// Number of slots of the smallest region.
        region_size: u32,
        /// Number of slots of the board.
        slots: u32,
    },
    /// Other pods use the board, which is reconfigured as a whole.
    #[error(
        "the board is reconfigured as a whole, and kernels of {} run or wait there; try again when they are idle, or \
         have the registry move pods (registry.moves: evict)", others(.0.len())
    )]
    OthersBusy(Vec<String>),
}

impl GateVerdict {
    /// The answer for the device manager.
    #[must_use]
    pub fn answer(&self) -> GateAnswer {
        match self {
            Self::Allowed => GateAnswer::Allowed,
            Self::Wait(reason) => GateAnswer::Wait(reason.to_string()),
            Self::Refused(reason) => GateAnswer::Refused(reason.to_string()),
        }
    }
}

/// The first names of a list, and how many more there are.
fn list(names: &[String]) -> String {
    let named = names.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 if named.is_empty() => "none".to_owned(),
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn others(pods: usize) -> String {
    if pods == 1 { "another pod".to_owned() } else { format!("{pods} other pods") }
}

fn are(pods: usize) -> String {
    if pods == 1 { "a pod is".to_owned() } else { format!("{pods} pods are") }
}

fn kind(kind: &BoardKind) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "?".to_owned());
    format!("{} {} {}", part(&kind.vendor), part(&kind.board), part(&kind.shell))
}

fn kinds(built_for: &[BoardKind]) -> String {
    list(&built_for.iter().map(kind).collect::<Vec<_>>())
}
