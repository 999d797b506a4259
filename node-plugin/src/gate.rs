//! Answers device managers that ask whether a container may have a bitstream. [`fpga_core::gate`] decides, by the
//! allocations, the library, and the last state of the boards.

use crate::library::LibraryError;
use crate::plugin::Plugin;
use fpga_core::gate::{
    GateAnswer, GateBoard, GateRefusal, GateRequest, GateVerdict, Moves, Origin, Reservation, Stage, decide,
};
use fpga_core::library::Library;
use fpga_core::units::MonotonicTime;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{debug, info};

/// Age up to which the library counts as that of now.
const FRESH: Duration = Duration::from_secs(10);
/// Age up to which a library without the bitstream counts: it may have been applied a moment ago.
const JUST_READ: Duration = Duration::from_secs(1);

/// The requests that come first on their boards. A new plugin has none: whoever waits asks again.
pub(crate) struct Gate {
    moves: Moves,
    started: Instant,
    by_board: Mutex<BTreeMap<String, Reservation>>,
}

impl Gate {
    pub(crate) fn new(moves: Moves) -> Self {
        Self { moves, started: Instant::now(), by_board: Mutex::default() }
    }

    /// The boards off which pods are to be moved, with the UID of the pod that waits for each.
    pub(crate) fn wanted(&self) -> BTreeMap<String, String> {
        let now = self.now();
        let by_board = self.by_board.lock();
        let wanted =
            by_board.iter().filter(|(_, wanted)| wanted.stage == Stage::Moving && now < wanted.until);
        wanted.map(|(board, wanted)| (board.clone(), wanted.first.uid.clone())).collect()
    }

    fn now(&self) -> MonotonicTime {
        MonotonicTime::after(self.started.elapsed())
    }
}

impl Plugin {
    /// Whether the container with the request's token may have the bitstream.
    pub(crate) async fn may_have(&self, request: &GateRequest) -> GateAnswer {
        let verdict = match self.library_for(request, FRESH).await {
            Ok(library) => match self.decide_gate(request, library.as_deref()) {
                GateVerdict::Refused(GateRefusal::Unlisted { .. }) => {
                    let library = self.library_for(request, JUST_READ).await;
                    library.map(|library| self.decide_gate(request, library.as_deref()))
                }
                verdict => Ok(verdict),
            },
            Err(error) => Err(error),
        };
        let GateRequest { board, bitstream, .. } = request;
        match verdict {
            Ok(verdict) => {
                match &verdict {
                    GateVerdict::Refused(reason) => info!(board, %bitstream, %reason, "The gate refuses"),
                    verdict => debug!(board, %bitstream, ?verdict, "The gate decides"),
                }
                verdict.answer()
            }
            Err(error) => GateAnswer::Wait(error.to_string()),
        }
    }

    /// The library by which the request is judged; `None` where there is none, or the request needs none.
    async fn library_for(
        &self,
        request: &GateRequest,
        age: Duration,
    ) -> Result<Option<Arc<Library>>, LibraryError> {
        let asking = self.allocated().0.remove(&request.token);
        match (&self.bitstreams.library, asking) {
            (Some(library), Some(asking)) if request.origin != Origin::Source => {
                library.listed.of_namespace(&library.bitstreams, &asking.namespace, age).await
            }
            _ => Ok(None),
        }
    }

    fn decide_gate(&self, request: &GateRequest, library: Option<&Library>) -> GateVerdict {
        let boards = self.boards.borrow();
        let mut by_board = self.gate.by_board.lock();
        let board = GateBoard {
            state: boards.state.as_ref(),
            reservation: by_board.get(&request.board),
            moves: self.gate.moves,
        };
        let decision = decide(&self.allocated(), library, board, request, self.gate.now());
        match decision.reservation {
            Some(reservation) => by_board.insert(request.board.clone(), reservation),
            None => by_board.remove(&request.board),
        };
        decision.verdict
    }
}
