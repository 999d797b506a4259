//! The choice of endpoints for a request, and the counts of requests in flight.

use super::recent::Pick;
use super::{
    AVOIDED_FOR, Basis, BoardEntry, Choice, FunctionEntry, Refusal, ReplicaEntry, ReplicaId, Request, State,
};
use crate::function::{BitstreamKey, FunctionName};
use fpga_cluster::router::{self, Board, SlotState};
use fpga_core::units::MonotonicTime;
use std::collections::HashSet;
use std::net::SocketAddr;

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
            self.begin(choice.replica, now);
        }
        if let Some(function) = self.functions.get_mut(&name) {
            function.demand.arrive(now);
            function.picks.push(Pick { at: now, candidates, outcome: outcome.clone() });
        }
        outcome
    }

    /// The replicas that may serve the request.
    fn candidates(
        &self,
        function: &FunctionEntry,
        request: Request<'_>,
        now: MonotonicTime,
    ) -> Vec<(ReplicaId, &ReplicaEntry)> {
        let replicas = function.replicas.iter().filter_map(|id| Some((*id, self.replicas.get(id)?)));
        let allowed = |replica: &ReplicaEntry| {
            request.subset.is_none_or(|subset| subset.contains(&replica.replica.address))
        };
        let mut candidates: Vec<_> = replicas.filter(|(_, replica)| allowed(replica)).collect();
        if candidates.iter().any(|(_, replica)| replica.avoided_until <= now) {
            candidates.retain(|(_, replica)| replica.avoided_until <= now);
        }
        candidates
    }

    fn decide(
        &self,
        function: &FunctionEntry,
        candidates: &[(ReplicaId, &ReplicaEntry)],
        request: Request<'_>,
        now: MonotonicTime,
    ) -> Result<Choice, Refusal> {
        if candidates.is_empty() {
            return Err(Refusal::NoEndpoint);
        }
        let max_waiting = function.max_waiting.unwrap_or(request.max_waiting);
        if function.in_flight >= self.slots(candidates).saturating_add(max_waiting) {
            return Err(Refusal::TooManyWaiting);
        }
        let boards: Vec<Option<&BoardEntry>> = candidates
            .iter()
            .map(|(_, replica)| self.boards.get(&replica.board?).filter(|board| board.fresh_until > now))
            .map(|board| board.filter(|_| function.bitstream.is_some()))
            .collect();
        let views = boards.iter().zip(candidates).map(|(board, (_, replica))| match board {
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
        let (replica, entry) = candidates.get(first).ok_or(Refusal::NoEndpoint)?;
        let board = boards.get(first).copied().flatten();
        Ok(Choice {
            replica: *replica,
            endpoints,
            basis: board.map_or(Basis::InFlight, |board| basis(board, wanted)),
            in_flight: entry.in_flight,
            waiting: board.map_or(0, |board| board.tracked.board().waiting),
        })
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
            function.demand.set_in_flight(function.in_flight, now);
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
            function.demand.set_in_flight(function.in_flight, now);
        }
        let board = entry.board.and_then(|id| self.boards.get_mut(&id));
        if let (Some(board), Some(bitstream)) = (board, entry.bitstream) {
            board.tracked.begin(bitstream, now);
        }
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
