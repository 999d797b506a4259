//! The choice of endpoints for a request, and the counts of requests in flight.

use super::recent::Pick;
use super::{
    AVOIDED_FOR, Assignment, Basis, BoardEntry, BoardId, Choice, FunctionEntry, Refusal, ReplicaEntry,
    ReplicaId, Request, State,
};
use crate::function::{BitstreamKey, FunctionName, Replica};
use fpga_cluster::router::{self, Board, SlotState};
use fpga_core::units::MonotonicTime;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A board that requests of a replica can use, or all boards of a replica that has none in rotation with a fresh state.
#[derive(Debug, Clone, Copy)]
struct Spot<'s> {
    /// The replica's place among those that are compared.
    place: usize,
    replica: &'s ReplicaEntry,
    fresh: Option<(BoardId, &'s BoardEntry)>,
    /// What a choice is based on where nothing is fresh.
    otherwise: Basis,
}

impl<'s> Spot<'s> {
    fn view(&self) -> Board<'s, BitstreamKey> {
        let in_flight = self.replica.in_flight;
        match self.fresh {
            Some((_, board)) => board.tracked.board(),
            None => Board { slots: &[], waiting: in_flight, in_flight },
        }
    }

    /// The board that a request counts on. Of boards of which nothing is known it is the one with the fewest requests of
    /// the replica.
    fn board(&self) -> Option<BoardId> {
        let least_used = || self.replica.boards.iter().min_by_key(|used| used.in_flight);
        self.fresh.map(|(board, _)| board).or_else(|| least_used().map(|used| used.board))
    }

    fn basis(&self, wanted: BitstreamKey) -> Basis {
        let Some((_, board)) = self.fresh else { return self.otherwise };
        let idle = || board.tracked.board().slots.iter().filter(|slot| slot.state == SlotState::Idle);
        match idle().next() {
            None => Basis::Queue,
            Some(_) if idle().any(|slot| slot.resident == Some(wanted)) => Basis::Resident,
            Some(_) => Basis::Load,
        }
    }
}

/// A replica that may serve a request, and the address at which the gateway asks it.
#[derive(Debug, Clone, Copy)]
struct Candidate<'s> {
    id: ReplicaId,
    entry: &'s ReplicaEntry,
    endpoint: SocketAddr,
}

/// The candidates that the gateway names.
struct Named<'r> {
    addresses: &'r HashSet<SocketAddr>,
    /// The least port of each.
    hosts: HashMap<IpAddr, SocketAddr>,
}

impl<'r> Named<'r> {
    fn new(addresses: &'r HashSet<SocketAddr>) -> Self {
        let mut hosts = HashMap::with_capacity(addresses.len());
        for address in addresses {
            let least = hosts.entry(address.ip()).or_insert(*address);
            *least = (*least).min(*address);
        }
        Self { addresses, hosts }
    }

    /// The candidate that means this replica.
    fn endpoint(&self, replica: &Replica) -> Option<SocketAddr> {
        let by_host = || replica.hosts.iter().find_map(|host| self.hosts.get(host).copied());
        self.addresses.get(&replica.address).copied().or_else(by_host)
    }
}

/// The best spots for a request, each of another replica, the best first.
fn rank<'s, 'a>(
    spots: &'a [Spot<'s>],
    wanted: BitstreamKey,
    most: usize,
    now: MonotonicTime,
) -> impl Iterator<Item = &'a Spot<'s>> {
    let worth = |place: usize, resident, copies| {
        let board = spots.get(place).and_then(|spot| spot.fresh);
        board.map_or(0, |(_, board)| board.tracked.worth(resident, copies, now))
    };
    let views = spots.iter().map(|spot| (spot.place, spot.view()));
    router::rank(views, wanted, worth, most).into_iter().filter_map(|place| spots.get(place))
}

impl State {
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
        let candidates = self.candidates(function, request, now);
        let outcome = self.decide(function, &candidates, request, now);
        let candidates = candidates.len();
        if let Ok(choice) = &outcome {
            self.begin(choice.assignment, now);
        }
        if let Some(function) = self.functions.get_mut(&name) {
            function.arrive(now);
            function.picks.push(Pick { at: now, candidates, outcome: outcome.clone() });
        }
        outcome
    }

    /// The replicas that may serve the request, each with the address at which the gateway asks it: a candidate's own, if
    /// the gateway names candidates.
    fn candidates(
        &self,
        function: &FunctionEntry,
        request: Request<'_>,
        now: MonotonicTime,
    ) -> Vec<Candidate<'_>> {
        let named = request.subset.map(Named::new);
        let candidate = |id: &ReplicaId| {
            let entry = self.replicas.get(id)?;
            let address = entry.replica.address;
            let endpoint = named.as_ref().map_or(Some(address), |named| named.endpoint(&entry.replica))?;
            Some(Candidate { id: *id, entry, endpoint })
        };
        let mut candidates: Vec<_> = function.replicas.iter().filter_map(candidate).collect();
        if candidates.iter().any(|candidate| candidate.entry.avoided_until <= now) {
            candidates.retain(|candidate| candidate.entry.avoided_until <= now);
        }
        candidates
    }

    fn decide(
        &self,
        function: &FunctionEntry,
        candidates: &[Candidate<'_>],
        request: Request<'_>,
        now: MonotonicTime,
    ) -> Result<Choice, Refusal> {
        if candidates.is_empty() {
            return Err(Refusal::NoEndpoint);
        }
        let max_waiting =
            function.max_waiting.map_or(request.max_waiting, |own| own.min(request.max_waiting));
        if function.in_flight >= self.slots(candidates).saturating_add(max_waiting) {
            return Err(Refusal::TooManyWaiting);
        }
        let spots = self.spots(candidates.iter().map(|candidate| candidate.entry), now);
        // Without a bitstream no board is known, so that this one is compared with nothing.
        let wanted = function.bitstream.unwrap_or(BitstreamKey::LEFT_OUT);
        let mut ranked = rank(&spots, wanted, request.most.max(1), now).peekable();
        let best = **ranked.peek().ok_or(Refusal::NoEndpoint)?;
        let &Candidate { id, entry, .. } = candidates.get(best.place).ok_or(Refusal::NoEndpoint)?;
        let board = best.board();
        let named = board.filter(|_| entry.boards.len() > 1).and_then(|id| self.boards.get(&id));
        Ok(Choice {
            assignment: Assignment { replica: id, board },
            endpoints: ranked.filter_map(|spot| Some(candidates.get(spot.place)?.endpoint)).collect(),
            board: named.map(|board| Arc::clone(&board.name.device)),
            basis: best.basis(wanted),
            in_flight: entry.in_flight,
            waiting: best.fresh.map_or(0, |(_, board)| board.tracked.board().waiting),
        })
    }

    /// What the requests of these replicas can use: the boards in rotation with a fresh state, those of one replica after each other.
    fn spots<'s>(
        &'s self,
        replicas: impl ExactSizeIterator<Item = &'s ReplicaEntry>,
        now: MonotonicTime,
    ) -> Vec<Spot<'s>> {
        let mut spots = Vec::with_capacity(replicas.len());
        for (place, replica) in replicas.enumerate() {
            let known = spots.len();
            let boards =
                || replica.boards.iter().filter_map(|used| Some((used.board, self.boards.get(&used.board)?)));
            let is_cordoned = boards().any(|(_, board)| board.is_fresh(now) && board.cordon.is_some());
            let otherwise = if is_cordoned { Basis::Cordoned } else { Basis::InFlight };
            let fresh =
                boards().filter(|(_, board)| board.is_in_rotation(now) && replica.bitstream.is_some());
            spots.extend(fresh.map(|fresh| Spot { place, replica, fresh: Some(fresh), otherwise }));
            if spots.len() == known {
                spots.push(Spot { place, replica, fresh: None, otherwise });
            }
        }
        spots
    }

    /// The request is no longer in flight. A replica that is gone has none.
    pub fn end(&mut self, assignment: Assignment, now: MonotonicTime) {
        let Some(entry) = self.replicas.get_mut(&assignment.replica) else { return };
        if entry.in_flight == 0 {
            return;
        }
        entry.in_flight -= 1;
        self.in_flight -= 1;
        if let Some(function) = self.functions.get_mut(&entry.function) {
            function.set_in_flight(function.in_flight.saturating_sub(1), now);
        }
        // If the board is no longer the replica's, the request was put on another one of the replica.
        let used = entry.boards.iter_mut().filter(|used| used.in_flight > 0);
        let Some(used) = used.max_by_key(|used| Some(used.board) == assignment.board) else { return };
        used.in_flight -= 1;
        if let (Some(board), Some(bitstream)) = (self.boards.get_mut(&used.board), entry.bitstream) {
            board.tracked.end(bitstream, 1, now);
        }
    }

    /// The gateway says that the endpoint `served` served the request, which was meant for another one. Returns what the
    /// request counts for from now on. A replica that the gateway went past is avoided for a while.
    pub fn served(&mut self, before: Assignment, served: SocketAddr, now: MonotonicTime) -> Assignment {
        let Some(entry) = self.replicas.get_mut(&before.replica) else { return before };
        if entry.replica.is_at(served) {
            return before;
        }
        entry.avoided_until = now + AVOIDED_FOR;
        let function = entry.function.clone();
        let Some((replica, entry)) = self.at(served).find(|(_, entry)| entry.function == function) else {
            return before;
        };
        let spots = self.spots(std::iter::once(entry), now);
        let wanted = entry.bitstream.unwrap_or(BitstreamKey::LEFT_OUT);
        let board = rank(&spots, wanted, 1, now).next().and_then(Spot::board);
        let other = Assignment { replica, board };
        self.end(before, now);
        self.begin(other, now);
        other
    }

    /// The slots of the boards of these replicas. A board that nobody knows counts as one slot.
    fn slots(&self, candidates: &[Candidate<'_>]) -> usize {
        let of_board =
            |board: &BoardId| self.boards.get(board).map_or(1, |board| board.tracked.slots().max(1));
        let of_replica = |replica: &ReplicaEntry| {
            replica.boards.iter().map(|used| of_board(&used.board)).sum::<usize>().max(1)
        };
        candidates.iter().map(|candidate| of_replica(candidate.entry)).sum()
    }

    fn function_of_candidates(&self, subset: Option<&HashSet<SocketAddr>>) -> Result<FunctionName, Refusal> {
        let subset = subset.ok_or(Refusal::UnknownFunction)?;
        let meant = subset.iter().flat_map(|address| self.at(*address).map(move |found| (address, found)));
        // Pods of a node's network share its address: a replica with this port goes first. Equal requests get equal answers.
        let first = meant.min_by_key(|(address, (id, entry))| (entry.replica.address != **address, *id));
        first.map(|(_, (_, entry))| entry.function.clone()).ok_or(Refusal::NoEndpoint)
    }

    fn begin(&mut self, assignment: Assignment, now: MonotonicTime) {
        let Some(entry) = self.replicas.get_mut(&assignment.replica) else { return };
        entry.in_flight += 1;
        self.in_flight += 1;
        if let Some(function) = self.functions.get_mut(&entry.function) {
            function.set_in_flight(function.in_flight + 1, now);
        }
        let Some(used) = entry.boards.iter_mut().find(|used| Some(used.board) == assignment.board) else {
            return;
        };
        used.in_flight += 1;
        if let (Some(board), Some(bitstream)) = (self.boards.get_mut(&used.board), entry.bitstream) {
            board.tracked.begin(bitstream, now);
        }
    }
}
