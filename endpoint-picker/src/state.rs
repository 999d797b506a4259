//! What the picker knows, and its decision: functions, their replicas, and the boards with the requests in flight.
//! No I/O and no clock: time is an argument.

mod choosing;
mod learning;
mod recent;
#[cfg(test)]
mod tests;
mod views;
mod wanted;

use crate::function::{BitstreamKey, BoardName, FunctionName, Replica};
use foldhash::fast::RandomState;
use fpga_cluster::demand::Demand;
use fpga_cluster::tracked_board::TrackedBoard;
use fpga_core::bitstream::BitstreamId;
use fpga_core::cordon::CordonReason;
use fpga_core::node_state::StateVersion;
use fpga_core::units::{Millis, MonotonicTime};
use recent::Picks;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use wanted::Wanted;

/// Time for which a replica gets no request after the gateway went past it.
pub const AVOIDED_FOR: Millis = Millis(2_000);

/// Everything that the picker knows.
#[derive(Debug, Default)]
pub struct State {
    functions: HashMap<FunctionName, FunctionEntry, RandomState>,
    replicas: HashMap<ReplicaId, ReplicaEntry, RandomState>,
    /// The replicas of each address of a pod, for gateways that name candidates and no function.
    hosts: HashMap<IpAddr, Vec<ReplicaId>, RandomState>,
    boards: HashMap<BoardId, BoardEntry, RandomState>,
    board_ids: HashMap<BoardName, BoardId>,
    nodes: HashMap<Arc<str>, NodeEntry>,
    wanted: Wanted,
    next_id: u64,
    in_flight: usize,
}

/// A replica, as long as the same pod has the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(u64);

/// A board, as long as a state or a replica names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BoardId(u64);

/// What a request in flight counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// The replica.
    pub replica: ReplicaId,
    /// The board that the request is believed to use: the best one of the replica's when the request came.
    pub board: Option<BoardId>,
}

#[derive(Debug)]
struct FunctionEntry {
    bitstream: Option<BitstreamKey>,
    /// The bitstream as it was written.
    asked: Option<BitstreamId>,
    max_waiting: Option<usize>,
    replicas: Vec<ReplicaId>,
    in_flight: usize,
    demand: Demand,
    /// Demand of the moment.
    recent: Demand,
    /// Requests since the function is known.
    requests: u64,
    picks: Picks,
}

#[derive(Debug)]
struct ReplicaEntry {
    function: FunctionName,
    replica: Replica,
    boards: Vec<BoardUse>,
    bitstream: Option<BitstreamKey>,
    in_flight: usize,
    avoided_until: MonotonicTime,
}

/// A board of a replica, and the replica's requests that are believed to use it. All requests in flight of a replica with
/// boards are on one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BoardUse {
    board: BoardId,
    in_flight: usize,
}

/// A node of the cluster.
#[derive(Debug)]
struct NodeEntry {
    uid: Arc<str>,
    /// The version of the last annotation. The API server tells it again whenever anything of the node changes.
    annotation: Option<StateVersion>,
    told: Option<Told>,
}

/// The last state of a node.
#[derive(Debug)]
struct Told {
    version: StateVersion,
    /// Until when the state is believed.
    fresh_until: MonotonicTime,
    source: StateSource,
    /// The node's board, if it has exactly one.
    only_board: Option<Arc<str>>,
    /// The boards that the state names.
    boards: Vec<BoardId>,
}

/// The way by which a state came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateSource {
    /// The node's annotation.
    Annotation,
    /// A stream of the node's collector.
    Stream,
}

#[derive(Debug)]
struct BoardEntry {
    name: BoardName,
    tracked: TrackedBoard<BitstreamKey>,
    /// Until when the last state is believed. The state of an unhealthy board is not.
    fresh_until: MonotonicTime,
    /// Why the board is out of rotation; `None` if it is in rotation.
    cordon: Option<CordonReason>,
    /// Number of replicas that use the board.
    replicas: usize,
}

/// How a state came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// By a stream, measured just now.
    Stream,
    /// By the node's annotation, which was written `age` ago. The age counts for the first annotation of a node that is
    /// seen; further ones come when they are written.
    Annotation {
        /// Time since the write.
        age: Millis,
    },
}

/// A request for a replica.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    /// The function that the request is for; `None` if it names none, and only the candidates tell.
    pub function: Option<&'r FunctionName>,
    /// The candidates, if the gateway names any: no other endpoint may be chosen.
    pub subset: Option<&'r HashSet<SocketAddr>>,
    /// Maximum number of endpoints in the answer.
    pub most: usize,
    /// Most requests of a function that may wait for a slot; the function's own limit can only be lower.
    pub max_waiting: usize,
}

/// The endpoints for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What the request counts for: the first endpoint's replica.
    pub assignment: Assignment,
    /// The endpoints to try, in order.
    pub endpoints: Vec<SocketAddr>,
    /// Id of the board that the first endpoint should use, if it has several.
    pub board: Option<Arc<str>>,
    /// What the choice is based on.
    pub basis: Basis,
    /// Requests in flight at the replica before this one.
    pub in_flight: usize,
    /// Requests that waited for a slot of the board before this one.
    pub waiting: usize,
}

/// What a choice is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Basis {
    /// An idle slot of a board of the replica has the bitstream.
    Resident,
    /// An idle slot of a board of the replica is to be loaded.
    Load,
    /// The shortest queue: all slots are busy.
    Queue,
    /// The fewest requests in flight: nothing fresh is known of the replica's boards.
    InFlight,
    /// The same: the replica's boards are out of rotation.
    Cordoned,
}

impl Basis {
    /// The name in metrics and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resident => "resident",
            Self::Load => "load",
            Self::Queue => "queue",
            Self::InFlight => "in_flight",
            Self::Cordoned => "cordoned",
        }
    }
}

/// Why a request gets no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The functions of the cluster are not known yet.
    NotReady,
    /// No Service is a function of this name.
    UnknownFunction,
    /// The function has no replica that is ready, or none among the candidates.
    NoEndpoint,
    /// Too many requests of the function wait for a slot.
    TooManyWaiting,
}

impl Refusal {
    /// The name in metrics and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotReady => "not_ready",
            Self::UnknownFunction => "unknown_function",
            Self::NoEndpoint => "no_endpoint",
            Self::TooManyWaiting => "too_many_waiting",
        }
    }
}

/// Numbers for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Functions that are known.
    pub functions: usize,
    /// Replicas that take requests.
    pub replicas: usize,
    /// Boards of replicas with a fresh state.
    pub fresh_boards: usize,
    /// Boards of replicas without a fresh state, and replicas whose board is not known.
    pub unknown_boards: usize,
    /// Requests in flight.
    pub in_flight: usize,
    /// Nodes with a fresh state that came by annotation.
    pub nodes_by_annotation: usize,
    /// Nodes with a fresh state that came by stream.
    pub nodes_by_stream: usize,
}

impl BoardEntry {
    fn is_fresh(&self, now: MonotonicTime) -> bool {
        self.fresh_until > now
    }

    /// Whether requests go to the board by what is in its slots.
    fn is_in_rotation(&self, now: MonotonicTime) -> bool {
        self.is_fresh(now) && self.cordon.is_none()
    }
}

impl FunctionEntry {
    /// Notes that a request has come.
    fn arrive(&mut self, now: MonotonicTime) {
        self.demand.arrive(now);
        self.recent.arrive(now);
        self.requests = self.requests.saturating_add(1);
    }

    /// Notes how many requests are in flight from now on.
    fn set_in_flight(&mut self, in_flight: usize, now: MonotonicTime) {
        self.in_flight = in_flight;
        self.demand.set_in_flight(in_flight, now);
        self.recent.set_in_flight(in_flight, now);
    }
}

impl State {
    /// Numbers for metrics.
    #[must_use]
    pub fn census(&self, now: MonotonicTime) -> Census {
        let used = self.boards.values().filter(|board| board.replicas > 0);
        let (fresh, stale): (Vec<_>, Vec<_>) = used.partition(|board| board.is_fresh(now));
        let told = self.nodes.values().filter_map(|node| node.told.as_ref());
        let (by_stream, by_annotation): (Vec<_>, Vec<_>) =
            told.filter(|told| told.fresh_until > now).partition(|told| told.source == StateSource::Stream);
        let without = self.replicas.values().filter(|replica| replica.boards.is_empty()).count();
        Census {
            functions: self.functions.len(),
            replicas: self.replicas.len(),
            fresh_boards: fresh.len(),
            unknown_boards: stale.len() + without,
            in_flight: self.in_flight,
            nodes_by_annotation: by_annotation.len(),
            nodes_by_stream: by_stream.len(),
        }
    }

    /// The addresses of all replicas, and the functions of each.
    #[must_use]
    pub fn endpoints(&self) -> BTreeMap<SocketAddr, BTreeSet<FunctionName>> {
        let mut endpoints = BTreeMap::<SocketAddr, BTreeSet<FunctionName>>::new();
        for entry in self.replicas.values() {
            endpoints.entry(entry.replica.address).or_default().insert(entry.function.clone());
        }
        endpoints
    }

    /// Requests in flight at the replicas with this address.
    #[must_use]
    pub fn in_flight_at(&self, address: SocketAddr) -> usize {
        self.at(address).map(|(_, entry)| entry.in_flight).sum()
    }

    /// The replicas that a gateway means by this address.
    fn at(&self, address: SocketAddr) -> impl Iterator<Item = (ReplicaId, &ReplicaEntry)> {
        let ids = self.hosts.get(&address.ip()).into_iter().flatten();
        let entries = ids.filter_map(|id| Some((*id, self.replicas.get(id)?)));
        entries.filter(move |(_, entry)| entry.replica.is_at(address))
    }
}
