//! What the picker knows, and its decision: functions, their replicas, and the boards with the requests in flight.
//! No I/O and no clock: time is an argument.

#[cfg(test)]
mod tests;

use crate::function::{BitstreamKey, BoardName, Function, FunctionName, Replica};
use foldhash::fast::RandomState;
use fpga_cluster::router::{self, Board, SlotState};
use fpga_cluster::tracked_board::{Loaded, TrackedBoard};
use fpga_core::device::Health;
use fpga_core::node_state::{IN_SLOT_LEFT_OUT, NodeState, StateVersion};
use fpga_core::units::{Millis, MonotonicTime};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// Time for which a replica gets no request after the gateway went past it.
pub const AVOIDED_FOR: Millis = Millis(2_000);

/// Everything that the picker knows.
#[derive(Debug, Default)]
pub struct State {
    functions: HashMap<FunctionName, FunctionEntry, RandomState>,
    replicas: HashMap<ReplicaId, ReplicaEntry, RandomState>,
    /// The replicas of each address, for gateways that name candidates and no function.
    addresses: HashMap<SocketAddr, Vec<ReplicaId>, RandomState>,
    boards: HashMap<BoardId, BoardEntry, RandomState>,
    board_ids: HashMap<BoardName, BoardId>,
    nodes: HashMap<Arc<str>, NodeEntry>,
    next_id: u64,
    in_flight: usize,
}

/// A replica, as long as the same pod has the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BoardId(u64);

#[derive(Debug, Default)]
struct FunctionEntry {
    bitstream: Option<BitstreamKey>,
    max_waiting: Option<usize>,
    replicas: Vec<ReplicaId>,
    in_flight: usize,
}

#[derive(Debug)]
struct ReplicaEntry {
    function: FunctionName,
    replica: Replica,
    board: Option<BoardId>,
    bitstream: Option<BitstreamKey>,
    in_flight: usize,
    avoided_until: MonotonicTime,
}

#[derive(Debug)]
struct NodeEntry {
    uid: Arc<str>,
    version: StateVersion,
    /// The node's board, if it has exactly one.
    only_board: Option<Arc<str>>,
}

#[derive(Debug)]
struct BoardEntry {
    name: BoardName,
    tracked: TrackedBoard<BitstreamKey>,
    /// Until when the last state is believed.
    fresh_until: MonotonicTime,
    /// Number of replicas that use the board.
    replicas: usize,
}

/// A request for a replica.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    /// The function that the request is for; `None` if it names none, and only the candidates tell.
    pub function: Option<&'r FunctionName>,
    /// The candidates, if the gateway names any: no other endpoint may be chosen.
    pub subset: Option<&'r HashSet<SocketAddr>>,
    /// Most endpoints in the answer.
    pub most: usize,
    /// Most requests of a function that may wait for a slot, where the function says nothing else.
    pub max_waiting: usize,
}

/// The endpoints for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The replica for which the request counts: the first endpoint's.
    pub replica: ReplicaId,
    /// The endpoints to try, in order.
    pub endpoints: Vec<SocketAddr>,
    /// What the choice is based on.
    pub basis: Basis,
}

/// What a choice is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Basis {
    /// An idle slot of the replica's board has the bitstream.
    Resident,
    /// An idle slot of the replica's board is to be loaded.
    Load,
    /// The shortest queue: all slots are busy.
    Queue,
    /// The fewest requests in flight: nothing fresh is known of the replica's board.
    InFlight,
}

/// Why a request gets no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The functions of the cluster are not known yet.
    NotReady,
    /// Nobody knows the function.
    UnknownFunction,
    /// The function has no replica that is ready, or none among the candidates.
    NoEndpoint,
    /// Too many requests of the function wait for a slot.
    TooManyWaiting,
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
}

impl State {
    /// Takes what is known of a function: a new one, or changes of a known one. Requests in flight stay counted.
    pub fn set_function(&mut self, name: &FunctionName, function: &Function, now: MonotonicTime) {
        let bitstream = function.bitstream.as_ref().map(BitstreamKey::of);
        let before = self.functions.remove(name).unwrap_or_default();
        let mut old: HashMap<SocketAddr, ReplicaId> = HashMap::new();
        for id in before.replicas {
            if let Some(entry) = self.replicas.get(&id) {
                old.insert(entry.replica.address, id);
            }
        }
        let mut replicas = Vec::with_capacity(function.replicas.len());
        let mut in_flight = 0;
        for replica in &function.replicas {
            let known = old.remove(&replica.address).filter(|id| {
                let same = self.replicas.get(id).is_some_and(|known| known.replica.pod == replica.pod);
                if !same {
                    self.remove_replica(*id, now);
                }
                same
            });
            let id = known.unwrap_or_else(|| self.add_replica(name, replica));
            if let Some(entry) = self.replicas.get_mut(&id) {
                entry.replica = replica.clone();
            }
            self.place_replica(id, bitstream, now);
            in_flight += self.replicas.get(&id).map_or(0, |entry| entry.in_flight);
            replicas.push(id);
        }
        for id in old.into_values() {
            self.remove_replica(id, now);
        }
        let entry = FunctionEntry { bitstream, max_waiting: function.max_waiting, replicas, in_flight };
        self.functions.insert(name.clone(), entry);
    }

    /// Forgets a function and its replicas.
    pub fn remove_function(&mut self, name: &FunctionName, now: MonotonicTime) {
        if let Some(entry) = self.functions.remove(name) {
            for id in entry.replicas {
                self.remove_replica(id, now);
            }
        }
    }

    /// Takes the state of the node `node` with the UID `uid`, which was measured `age` ago. Returns whether it is newer
    /// than what is known.
    pub fn learn(
        &mut self,
        node: &str,
        uid: &str,
        state: &NodeState,
        age: Millis,
        now: MonotonicTime,
    ) -> bool {
        let known = self.nodes.get(node).filter(|known| *known.uid == *uid);
        if known.is_some_and(|known| known.version >= state.version()) {
            return false;
        }
        let only_before = known.and_then(|known| known.only_board.clone());
        let only_board = match state.devices.as_slice() {
            [only] => Some(Arc::from(only.id.as_str())),
            _ => None,
        };
        let entry = NodeEntry { uid: uid.into(), version: state.version(), only_board: only_board.clone() };
        self.nodes.insert(node.into(), entry);
        if only_before != only_board {
            self.place_replicas_of(node, now);
        }
        // Only digests that a function asks for go before names.
        let asked: HashSet<BitstreamKey> =
            self.functions.values().filter_map(|function| function.bitstream).collect();
        let key = |index: u32| match state.bitstreams.get(index as usize) {
            Some(bitstream) if index != IN_SLOT_LEFT_OUT => {
                let key = BitstreamKey::of_recent(bitstream, |key| asked.contains(&key));
                Loaded { bitstream: key, last_use: moment_before(now, age + bitstream.last_used_ago) }
            }
            _ => Loaded { bitstream: BitstreamKey::LEFT_OUT, last_use: MonotonicTime::START },
        };
        let left = Millis(state.stale_after().0.saturating_sub(age.0));
        let mut told = HashSet::new();
        for device in &state.devices {
            let name = BoardName { node: node.into(), device: device.id.as_str().into() };
            let id = self.board_id(&name);
            told.insert(id);
            let Some(board) = self.boards.get_mut(&id) else { continue };
            let loaded = device.loaded.iter().map(|index| key(*index));
            board.tracked.learn(device.slots, loaded, device.queued, now);
            board.fresh_until = match device.health {
                Health::Healthy => now + left,
                Health::Unhealthy => MonotonicTime::START,
            };
        }
        self.forget_boards(node, |id| !told.contains(&id));
        true
    }

    /// Forgets the state of a node.
    pub fn forget_node(&mut self, node: &str, now: MonotonicTime) {
        self.nodes.remove(node);
        self.place_replicas_of(node, now);
        self.forget_boards(node, |_| true);
    }

    /// Chooses the endpoints for a request, which is in flight from now on.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn choose(&mut self, request: Request<'_>, now: MonotonicTime) -> Result<Choice, Refusal> {
        let name = match request.function {
            Some(name) => name.clone(),
            None => self.function_of_candidates(request.subset)?,
        };
        let function = self.functions.get(&name).ok_or(Refusal::UnknownFunction)?;
        let replicas = function.replicas.iter().filter_map(|id| Some((*id, self.replicas.get(id)?)));
        let allowed = |replica: &ReplicaEntry| {
            request.subset.is_none_or(|subset| subset.contains(&replica.replica.address))
        };
        let mut candidates: Vec<(ReplicaId, &ReplicaEntry)> =
            replicas.filter(|(_, replica)| allowed(replica)).collect();
        if candidates.is_empty() {
            return Err(Refusal::NoEndpoint);
        }
        if candidates.iter().any(|(_, replica)| replica.avoided_until <= now) {
            candidates.retain(|(_, replica)| replica.avoided_until <= now);
        }
        let max_waiting = function.max_waiting.unwrap_or(request.max_waiting);
        if function.in_flight >= self.slots(&candidates).saturating_add(max_waiting) {
            return Err(Refusal::TooManyWaiting);
        }
        let boards: Vec<Option<&BoardEntry>> = candidates
            .iter()
            .map(|(_, replica)| self.boards.get(&replica.board?).filter(|board| board.fresh_until > now))
            .map(|board| board.filter(|_| function.bitstream.is_some()))
            .collect();
        let views = boards.iter().zip(&candidates).map(|(board, (_, replica))| match board {
            Some(board) => board.tracked.board(),
            None => Board { slots: &[], waiting: replica.in_flight, in_flight: replica.in_flight },
        });
        // Without a bitstream no board is known, so that this one is compared with nothing.
        let wanted = function.bitstream.unwrap_or(BitstreamKey::LEFT_OUT);
        let worth = |place: usize, resident, copies| {
            let board = boards.get(place).copied().flatten();
            board.map_or(0, |board| board.tracked.worth(resident, copies, now))
        };
        let order = router::rank(views, wanted, worth, request.most.max(1));
        let endpoints = order.iter().filter_map(|place| candidates.get(*place));
        let endpoints: Vec<SocketAddr> = endpoints.map(|(_, replica)| replica.replica.address).collect();
        let first = order.first().copied().ok_or(Refusal::NoEndpoint)?;
        let basis =
            boards.get(first).copied().flatten().map_or(Basis::InFlight, |board| basis(board, wanted));
        let replica = candidates.get(first).map(|(id, _)| *id).ok_or(Refusal::NoEndpoint)?;
        self.begin(replica, now);
        Ok(Choice { replica, endpoints, basis })
    }

    /// The request is no longer in flight. A replica that is gone has none.
    pub fn end(&mut self, replica: ReplicaId, now: MonotonicTime) {
        let Some(entry) = self.replicas.get_mut(&replica) else { return };
        if entry.in_flight == 0 {
            return;
        }
        entry.in_flight -= 1;
        self.in_flight -= 1;
        let (board, bitstream) = (entry.board, entry.bitstream);
        if let Some(function) = self.functions.get_mut(&entry.function) {
            function.in_flight = function.in_flight.saturating_sub(1);
        }
        if let (Some(board), Some(bitstream)) = (board.and_then(|id| self.boards.get_mut(&id)), bitstream) {
            board.tracked.end(bitstream, 1, now);
        }
    }

    /// The gateway says that the endpoint `served` served the request, which was meant for `replica`. Returns the
    /// replica for which the request counts from now on. One that the gateway went past is avoided for a while.
    pub fn served(&mut self, replica: ReplicaId, served: SocketAddr, now: MonotonicTime) -> ReplicaId {
        let Some(entry) = self.replicas.get_mut(&replica) else { return replica };
        if entry.replica.address == served {
            return replica;
        }
        entry.avoided_until = now + AVOIDED_FOR;
        let function = entry.function.clone();
        let others = self.addresses.get(&served).into_iter().flatten().copied();
        let of_function = |id: &ReplicaId| self.replicas.get(id).is_some_and(|it| it.function == function);
        let Some(other) = others.into_iter().find(of_function) else { return replica };
        self.end(replica, now);
        self.begin(other, now);
        other
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn census(&self, now: MonotonicTime) -> Census {
        let used = self.boards.values().filter(|board| board.replicas > 0);
        let (fresh, stale): (Vec<_>, Vec<_>) = used.partition(|board| board.fresh_until > now);
        let without = self.replicas.values().filter(|replica| replica.board.is_none()).count();
        Census {
            functions: self.functions.len(),
            replicas: self.replicas.len(),
            fresh_boards: fresh.len(),
            unknown_boards: stale.len() + without,
            in_flight: self.in_flight,
        }
    }

    /// The addresses of all replicas of each function, sorted.
    #[must_use]
    pub fn endpoints(&self) -> Vec<SocketAddr> {
        let mut all: Vec<SocketAddr> = self.addresses.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Requests in flight at the replicas with this address.
    #[must_use]
    pub fn in_flight_at(&self, address: SocketAddr) -> usize {
        let ids = self.addresses.get(&address).into_iter().flatten();
        ids.filter_map(|id| self.replicas.get(id)).map(|replica| replica.in_flight).sum()
    }

    /// The slots of the boards of these replicas. A board that nobody knows counts as one slot.
    fn slots(&self, candidates: &[(ReplicaId, &ReplicaEntry)]) -> usize {
        let slots = |replica: &ReplicaEntry| {
            replica.board.and_then(|id| self.boards.get(&id)).map_or(1, |board| board.tracked.slots().max(1))
        };
        candidates.iter().map(|(_, replica)| slots(replica)).sum()
    }

    fn function_of_candidates(&self, subset: Option<&HashSet<SocketAddr>>) -> Result<FunctionName, Refusal> {
        let subset = subset.ok_or(Refusal::UnknownFunction)?;
        let ids = subset.iter().filter_map(|address| self.addresses.get(address)?.first());
        // The first by its id, so that equal requests get equal answers.
        let first = ids.min().and_then(|id| self.replicas.get(id)).ok_or(Refusal::NoEndpoint)?;
        Ok(first.function.clone())
    }

    fn begin(&mut self, replica: ReplicaId, now: MonotonicTime) {
        let Some(entry) = self.replicas.get_mut(&replica) else { return };
        entry.in_flight += 1;
        self.in_flight += 1;
        if let Some(function) = self.functions.get_mut(&entry.function) {
            function.in_flight += 1;
        }
        let board = entry.board.and_then(|id| self.boards.get_mut(&id));
        if let (Some(board), Some(bitstream)) = (board, entry.bitstream) {
            board.tracked.begin(bitstream, now);
        }
    }

    fn add_replica(&mut self, function: &FunctionName, replica: &Replica) -> ReplicaId {
        let id = ReplicaId(self.id());
        let entry = ReplicaEntry {
            function: function.clone(),
            replica: replica.clone(),
            board: None,
            bitstream: None,
            in_flight: 0,
            avoided_until: MonotonicTime::START,
        };
        self.replicas.insert(id, entry);
        self.addresses.entry(replica.address).or_default().push(id);
        id
    }

    /// Puts a replica, with its requests in flight, on its board.
    fn place_replica(&mut self, id: ReplicaId, bitstream: Option<BitstreamKey>, now: MonotonicTime) {
        let Some(Replica { node, board: device, .. }) = self.replicas.get(&id).map(|entry| &entry.replica)
        else {
            return;
        };
        let name = node.clone().and_then(|node| {
            let only = || self.nodes.get(&node)?.only_board.clone();
            let device = device.clone().or_else(only)?;
            Some(BoardName { node, device })
        });
        let board = name.map(|name| self.board_id(&name));
        let Some(entry) = self.replicas.get_mut(&id) else { return };
        let (before, before_bitstream, requests) = (entry.board, entry.bitstream, entry.in_flight);
        (entry.board, entry.bitstream) = (board, bitstream);
        if (before, before_bitstream) == (board, bitstream) {
            return;
        }
        self.leave_board(before, before_bitstream, requests, now);
        if let Some(board) = board.and_then(|id| self.boards.get_mut(&id)) {
            board.replicas += 1;
            if let Some(bitstream) = bitstream {
                board.tracked.adopt(bitstream, requests, now);
            }
        }
    }

    /// Places the replicas anew whose board follows from the node's state.
    fn place_replicas_of(&mut self, node: &str, now: MonotonicTime) {
        let of_node = |replica: &Replica| replica.board.is_none() && replica.node.as_deref() == Some(node);
        let replicas = self.replicas.iter().filter(|(_, entry)| of_node(&entry.replica));
        let replicas: Vec<_> = replicas.map(|(id, entry)| (*id, entry.bitstream)).collect();
        for (id, bitstream) in replicas {
            self.place_replica(id, bitstream, now);
        }
    }

    fn remove_replica(&mut self, id: ReplicaId, now: MonotonicTime) {
        let Some(entry) = self.replicas.remove(&id) else { return };
        let address = entry.replica.address;
        if let Some(ids) = self.addresses.get_mut(&address) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.addresses.remove(&address);
            }
        }
        // Requests in flight at a replica that is gone are gone as well.
        self.in_flight -= entry.in_flight;
        self.leave_board(entry.board, entry.bitstream, entry.in_flight, now);
    }

    fn leave_board(
        &mut self,
        board: Option<BoardId>,
        bitstream: Option<BitstreamKey>,
        requests: usize,
        now: MonotonicTime,
    ) {
        let Some(id) = board else { return };
        let Some(entry) = self.boards.get_mut(&id) else { return };
        entry.replicas = entry.replicas.saturating_sub(1);
        if let Some(bitstream) = bitstream {
            entry.tracked.end(bitstream, requests, now);
        }
        if entry.replicas == 0 && entry.fresh_until <= now {
            self.board_ids.remove(&entry.name);
            self.boards.remove(&id);
        }
    }

    /// The id of a board, which is new if nobody knows it.
    fn board_id(&mut self, name: &BoardName) -> BoardId {
        if let Some(id) = self.board_ids.get(name) {
            return *id;
        }
        let id = BoardId(self.id());
        let entry = BoardEntry {
            name: name.clone(),
            tracked: TrackedBoard::default(),
            fresh_until: MonotonicTime::START,
            replicas: 0,
        };
        self.boards.insert(id, entry);
        self.board_ids.insert(name.clone(), id);
        id
    }

    /// Forgets what was known of the node's boards that `gone` names; those without replicas are dropped.
    fn forget_boards(&mut self, node: &str, gone: impl Fn(BoardId) -> bool) {
        let board_ids = &mut self.board_ids;
        self.boards.retain(|id, board| {
            if *board.name.node != *node || !gone(*id) {
                return true;
            }
            board.fresh_until = MonotonicTime::START;
            if board.replicas == 0 {
                board_ids.remove(&board.name);
            }
            board.replicas > 0
        });
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

fn basis(board: &BoardEntry, wanted: BitstreamKey) -> Basis {
    let idle = || board.tracked.board().slots.iter().filter(|slot| slot.state == SlotState::Idle);
    match idle().next() {
        None => Basis::Queue,
        Some(_) if idle().any(|slot| slot.resident == Some(wanted)) => Basis::Resident,
        Some(_) => Basis::Load,
    }
}

fn moment_before(now: MonotonicTime, ago: Millis) -> MonotonicTime {
    MonotonicTime(now.0.saturating_sub(ago.0))
}
