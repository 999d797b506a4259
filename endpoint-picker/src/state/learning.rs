//! What the picker learns: functions and their replicas, and the states of nodes.

use super::{BoardEntry, BoardId, FunctionEntry, NodeEntry, ReplicaEntry, ReplicaId, State};
use crate::function::{BitstreamKey, BoardName, Function, FunctionName, Replica};
use fpga_cluster::tracked_board::{Loaded, TrackedBoard};
use fpga_core::device::Health;
use fpga_core::node_state::{IN_SLOT_LEFT_OUT, NodeState};
use fpga_core::units::{Millis, MonotonicTime};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

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

fn moment_before(now: MonotonicTime, ago: Millis) -> MonotonicTime {
    MonotonicTime(now.0.saturating_sub(ago.0))
}
