//! Whose turn it is on each board that is reconfigured as a whole. A new plugin knows of none: whoever waits asks again.

use fpga_core::gate::{Allocated, GateBoard, GateRequest, GateVerdict, Moves, Reservation, Stage, decide};
use fpga_core::library::Library;
use fpga_core::node_state::{NodeState, waiting_pod};
use fpga_core::units::MonotonicTime;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Instant;

/// The requests that come first on their boards.
pub(crate) struct Turns {
    moves: Moves,
    started: Instant,
    by_board: Mutex<BTreeMap<String, Reservation>>,
}

impl Turns {
    pub(crate) fn new(moves: Moves) -> Self {
        Self { moves, started: Instant::now(), by_board: Mutex::default() }
    }

    /// Decides about a request, and notes whose turn it is then.
    pub(crate) fn decide(
        &self,
        allocated: &Allocated,
        library: Option<&Library>,
        state: Option<&NodeState>,
        request: &GateRequest,
    ) -> GateVerdict {
        let mut by_board = self.by_board.lock();
        let board = GateBoard { state, reservation: by_board.get(&request.board), moves: self.moves };
        let decision = decide(allocated, library, board, request, self.now());
        match decision.reservation {
            Some(reservation) => by_board.insert(request.board.clone(), reservation),
            None => by_board.remove(&request.board),
        };
        decision.verdict
    }

    /// The boards off which pods are to be moved, with the [`waiting_pod`] of each.
    pub(crate) fn wanted(&self) -> BTreeMap<String, String> {
        let now = self.now();
        let by_board = self.by_board.lock();
        let wanted =
            by_board.iter().filter(|(_, wanted)| wanted.stage == Stage::Moving && now < wanted.until);
        wanted.map(|(board, wanted)| (board.clone(), waiting_pod(&wanted.first.uid))).collect()
    }

    fn now(&self) -> MonotonicTime {
        MonotonicTime::after(self.started.elapsed())
    }
}
