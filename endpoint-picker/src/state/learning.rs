//! What the picker learns: functions and their replicas, and the states of nodes.

use super::recent::Picks;
use super::wanted::Wanted;
use super::{
    BoardEntry, BoardId, BoardUse, FunctionEntry, NodeEntry, ReplicaEntry, ReplicaId, Seen, State,
    StateSource, Told,
};
use crate::function::{BitstreamKey, BoardName, Function, FunctionName, Replica};
use fpga_cluster::demand::{Demand, SHORT_MEMORY};
use fpga_cluster::tracked_board::{Loaded, TrackedBoard};
use fpga_core::device::Health;
use fpga_core::node_state::{IN_SLOT_LEFT_OUT, NodeState};
use fpga_core::units::{Millis, MonotonicTime};
use fpga_node_stream::server::receiver::{Taken, UnknownNode};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

impl State {
    /// Takes what is known of a function: a new one, or changes of a known one. Requests in flight stay counted.
    pub fn set_function(&mut self, name: &FunctionName, function: &Function, now: MonotonicTime) {
        let bitstream = function.bitstream.as_ref().map(BitstreamKey::of);
        let before = self.functions.remove(name).unwrap_or_else(|| FunctionEntry {
            bitstream: None,
            asked: None,
            max_waiting: None,
            replicas: Vec::new(),
            in_flight: 0,
            demand: Demand::new(now),
            recent: Demand::over(SHORT_MEMORY, now),
            requests: 0,
            picks: Picks::default(),
        });
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
            self.set_replica(id, replica);
            self.place_replica(id, bitstream, now);
            in_flight += self.replicas.get(&id).map_or(0, |entry| entry.in_flight);
            replicas.push(id);
        }
        for id in old.into_values() {
            self.remove_replica(id, now);
        }
        self.wanted.replace(before.bitstream, bitstream);
        let mut entry = FunctionEntry {
            bitstream,
            asked: function.bitstream.clone(),
            max_waiting: function.max_waiting,
            replicas,
            in_flight,
            demand: before.demand,
            recent: before.recent,
            requests: before.requests,
            picks: before.picks,
        };
        entry.set_in_flight(in_flight, now);
        self.functions.insert(name.clone(), entry);
    }

    /// Forgets a function and its replicas.
    pub fn remove_function(&mut self, name: &FunctionName, now: MonotonicTime) {
        if let Some(entry) = self.functions.remove(name) {
            self.wanted.replace(entry.bitstream, None);
            for id in entry.replicas {
                self.remove_replica(id, now);
            }
        }
    }

    /// Takes a node that the API server names. What was known of another node of this name is forgotten.
    pub fn set_node(&mut self, node: &str, uid: &str, now: MonotonicTime) {
        match self.find_node(node, uid) {
            Ok(()) => return,
            Err(UnknownNode::Uid) => self.forget_node(node, now),
            Err(UnknownNode::Name) => {}
        }
        self.nodes.insert(node.into(), NodeEntry { uid: uid.into(), annotation: None, told: None });
    }

    /// Looks up the node called `node` with the UID `uid`.
    ///
    /// # Errors
    /// [`UnknownNode`]
    pub fn find_node(&self, node: &str, uid: &str) -> Result<(), UnknownNode> {
        let known = self.nodes.get(node).ok_or(UnknownNode::Name)?;
        if *known.uid == *uid { Ok(()) } else { Err(UnknownNode::Uid) }
    }

    /// Number of nodes with a state.
    #[must_use]
    pub fn nodes_with_states(&self) -> usize {
        self.nodes.values().filter(|node| node.told.is_some()).count()
    }

    /// Takes a state of the node called `node` with the UID `uid`, unless one that is at least as new is known and
    /// fresh: annotation and stream can overtake each other.
    ///
    /// # Errors
    /// [`UnknownNode`]
    pub fn learn(
        &mut self,
        node: &str,
        uid: &str,
        state: &NodeState,
        seen: Seen,
        now: MonotonicTime,
    ) -> Result<Taken, UnknownNode> {
        self.find_node(node, uid)?;
        let Some(entry) = self.nodes.get_mut(node) else { return Err(UnknownNode::Name) };
        let (source, age) = match seen {
            Seen::Stream => (StateSource::Stream, Millis::ZERO),
            Seen::Annotation { age } => match entry.annotation.replace(state.version()) {
                Some(same) if same == state.version() => return Ok(Taken::Outdated),
                Some(_) => (StateSource::Annotation, Millis::ZERO),
                None => (StateSource::Annotation, age),
            },
        };
        let before = entry.told.as_ref();
        // A stale state outdates nothing: a collector that lost its count is believed again.
        if before.is_some_and(|told| told.fresh_until > now && told.version >= state.version()) {
            return Ok(Taken::Outdated);
        }
        let only_board = match state.devices.as_slice() {
            [only] => Some(Arc::from(only.id.as_str())),
            _ => None,
        };
        let (only_before, boards_before) =
            before.map(|told| (told.only_board.clone(), told.boards.clone())).unwrap_or_default();
        let fresh_until = now + Millis(state.stale_after().0.saturating_sub(age.0));
        let boards: Vec<BoardId> = state
            .devices
            .iter()
            .map(|device| {
                let of_device =
                    |id: &&BoardId| self.boards.get(id).is_some_and(|board| *board.name.device == *device.id);
                boards_before.iter().find(of_device).copied().unwrap_or_else(|| {
                    self.board_id(&BoardName { node: node.into(), device: device.id.as_str().into() })
                })
            })
            .collect();
        for (device, id) in state.devices.iter().zip(&boards) {
            let Some(board) = self.boards.get_mut(id) else { continue };
            let loaded = device.loaded.iter().map(|index| loaded(state, *index, &self.wanted, age, now));
            board.tracked.learn(device.slots, loaded, device.queued, now);
            board.fresh_until = match state.reported_health(device) {
                Health::Healthy => fresh_until,
                Health::Unhealthy => MonotonicTime::START,
            };
            board.cordon = state.cordons.get(&device.id).map(|cordoned| cordoned.cordon.reason.clone());
        }
        self.forget_boards(boards_before.into_iter().filter(|id| !boards.contains(id)));
        let is_placed_anew = only_before != only_board;
        let told = Told { version: state.version(), fresh_until, source, only_board, boards };
        if let Some(entry) = self.nodes.get_mut(node) {
            entry.told = Some(told);
        }
        if is_placed_anew {
            self.place_replicas_of(node, now);
        }
        Ok(Taken::Yes)
    }

    /// Forgets a node and its state.
    pub fn forget_node(&mut self, node: &str, now: MonotonicTime) {
        if let Some(Told { boards, .. }) = self.nodes.remove(node).and_then(|entry| entry.told) {
            self.place_replicas_of(node, now);
            self.forget_boards(boards);
        }
    }

    fn add_replica(&mut self, function: &FunctionName, replica: &Replica) -> ReplicaId {
        let id = ReplicaId(self.id());
        let entry = ReplicaEntry {
            function: function.clone(),
            replica: replica.clone(),
            boards: Vec::new(),
            bitstream: None,
            in_flight: 0,
            avoided_until: MonotonicTime::START,
        };
        self.replicas.insert(id, entry);
        self.add_hosts(id);
        id
    }

    fn set_replica(&mut self, id: ReplicaId, replica: &Replica) {
        self.remove_hosts(id);
        if let Some(entry) = self.replicas.get_mut(&id) {
            entry.replica = replica.clone();
        }
        self.add_hosts(id);
    }

    fn add_hosts(&mut self, id: ReplicaId) {
        for host in self.replicas.get(&id).map_or_else(BTreeSet::new, ReplicaEntry::hosts) {
            self.hosts.entry(host).or_default().push(id);
        }
    }

    fn remove_hosts(&mut self, id: ReplicaId) {
        for host in self.replicas.get(&id).map_or_else(BTreeSet::new, ReplicaEntry::hosts) {
            let Some(ids) = self.hosts.get_mut(&host) else { continue };
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.hosts.remove(&host);
            }
        }
    }

    /// Puts a replica, with its requests in flight, on its boards.
    fn place_replica(&mut self, id: ReplicaId, bitstream: Option<BitstreamKey>, now: MonotonicTime) {
        let Some(replica) = self.replicas.get(&id).map(|entry| &entry.replica) else { return };
        let names: Vec<BoardName> = replica.node.as_ref().map_or_else(Vec::new, |node| {
            let only = || self.nodes.get(node)?.told.as_ref()?.only_board.clone();
            let devices = match replica.boards.as_slice() {
                [] if replica.asks_for_board => only().into_iter().collect(),
                boards => boards.to_vec(),
            };
            devices.into_iter().map(|device| BoardName { node: Arc::clone(node), device }).collect()
        });
        let boards: Vec<BoardId> = names.iter().map(|name| self.board_id(name)).collect();
        let Some(entry) = self.replicas.get_mut(&id) else { return };
        let before = entry.boards.iter().map(|used| used.board);
        if entry.bitstream == bitstream && before.eq(boards.iter().copied()) {
            return;
        }
        let known = |board: BoardId| entry.boards.iter().find(|used| used.board == board);
        let with_requests =
            |board| BoardUse { board, in_flight: known(board).map_or(0, |used| used.in_flight) };
        let mut boards: Vec<BoardUse> = boards.into_iter().map(with_requests).collect();
        if let Some((first, others)) = boards.split_first_mut() {
            // Requests on a board that the replica no longer has are put on the first one.
            first.in_flight = entry.in_flight - others.iter().map(|used| used.in_flight).sum::<usize>();
        }
        let before = (std::mem::replace(&mut entry.boards, boards.clone()), entry.bitstream);
        entry.bitstream = bitstream;
        for used in &boards {
            if let Some(board) = self.boards.get_mut(&used.board) {
                board.replicas += 1;
            }
        }
        self.leave_boards(&before.0, before.1, now);
        for used in &boards {
            if let (Some(board), Some(bitstream)) = (self.boards.get_mut(&used.board), bitstream) {
                board.tracked.adopt(bitstream, used.in_flight, now);
            }
        }
    }

    /// Places the replicas anew whose board follows from the node's state.
    fn place_replicas_of(&mut self, node: &str, now: MonotonicTime) {
        let of_node = |replica: &Replica| replica.boards.is_empty() && replica.node.as_deref() == Some(node);
        let replicas = self.replicas.iter().filter(|(_, entry)| of_node(&entry.replica));
        let replicas: Vec<_> = replicas.map(|(id, entry)| (*id, entry.bitstream)).collect();
        for (id, bitstream) in replicas {
            self.place_replica(id, bitstream, now);
        }
    }

    fn remove_replica(&mut self, id: ReplicaId, now: MonotonicTime) {
        self.remove_hosts(id);
        let Some(entry) = self.replicas.remove(&id) else { return };
        // Requests in flight at a replica that is gone are gone as well.
        self.in_flight -= entry.in_flight;
        self.leave_boards(&entry.boards, entry.bitstream, now);
    }

    fn leave_boards(&mut self, uses: &[BoardUse], bitstream: Option<BitstreamKey>, now: MonotonicTime) {
        for BoardUse { board: id, in_flight } in uses {
            let Some(entry) = self.boards.get_mut(id) else { continue };
            entry.replicas = entry.replicas.saturating_sub(1);
            if let Some(bitstream) = bitstream {
                entry.tracked.end(bitstream, *in_flight, now);
            }
            if entry.replicas == 0 && entry.fresh_until <= now {
                self.board_ids.remove(&entry.name);
                self.boards.remove(id);
            }
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
            cordon: None,
            replicas: 0,
        };
        self.boards.insert(id, entry);
        self.board_ids.insert(name.clone(), id);
        id
    }

    /// Forgets what was known of these boards; those without replicas are dropped.
    fn forget_boards(&mut self, boards: impl IntoIterator<Item = BoardId>) {
        for id in boards {
            let Some(board) = self.boards.get_mut(&id) else { continue };
            board.fresh_until = MonotonicTime::START;
            board.cordon = None;
            if board.replicas == 0 {
                self.board_ids.remove(&board.name);
                self.boards.remove(&id);
            }
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

/// The bitstream with this number in a state that is `age` old.
fn loaded(
    state: &NodeState,
    index: u32,
    wanted: &Wanted,
    age: Millis,
    now: MonotonicTime,
) -> Loaded<BitstreamKey> {
    match state.bitstreams.get(index as usize) {
        Some(bitstream) if index != IN_SLOT_LEFT_OUT => Loaded {
            bitstream: BitstreamKey::of_recent(bitstream, |key| wanted.contains(key)),
            last_use: moment_before(now, age + bitstream.last_used_ago),
        },
        _ => Loaded { bitstream: BitstreamKey::LEFT_OUT, last_use: MonotonicTime::START },
    }
}

fn moment_before(now: MonotonicTime, ago: Millis) -> MonotonicTime {
    MonotonicTime(now.0.saturating_sub(ago.0))
}

impl ReplicaEntry {
    fn hosts(&self) -> BTreeSet<IpAddr> {
        self.replica.hosts.iter().copied().chain([self.replica.address.ip()]).collect()
    }
}
