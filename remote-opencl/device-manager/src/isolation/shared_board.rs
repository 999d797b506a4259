//! A board that is reconfigured as a whole, for the tenant processes that use it and the manager's own probe: tells them to
//! leave before one of them loads, and to return. [`WholeBoard`] decides.

use fpga_board::dispatch::{Grant, TaskId};
use fpga_board::whole_board::{MemberId, Order, WholeBoard, Word};
use fpga_session::confine::Confinement;
use fpga_session::metrics::Metrics;
use fpga_session::quiesce::QuiesceLock;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The manager's own use of the board. Processes have greater ids.
const MANAGER: MemberId = MemberId(0);

/// The board, and who uses it.
#[derive(Debug, Default)]
pub struct SharedBoard(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    board: WholeBoard,
    members: BTreeMap<MemberId, Arc<dyn Member>>,
}

/// A process that uses the board.
pub(super) trait Member: fmt::Debug + Send + Sync {
    /// Passes on what is to happen. Called while the board is locked, so that each member hears all in its order.
    fn orders(&self, order: Order);
}

/// The manager's own use of the board. It has no tasks.
impl Member for QuiesceLock {
    fn orders(&self, order: Order) {
        match order {
            Order::Leave(round) => self.leave(round),
            Order::Return(images) => self.may_return(images),
            Order::Start(_) => {}
        }
    }
}

impl SharedBoard {
    /// The lock for the manager's own use of the board.
    ///
    /// # Errors
    /// The thread of the lock can't be started.
    pub fn lock_of_manager(
        self: &Arc<Self>,
        confinement: Confinement,
        metrics: Metrics,
    ) -> io::Result<QuiesceLock> {
        let board = Arc::downgrade(self);
        let say = move |word| {
            if let Some(board) = board.upgrade() {
                board.said(MANAGER, word);
            }
        };
        let lock = QuiesceLock::shared(confinement, metrics, Box::new(say))?;
        self.joined(MANAGER, Arc::new(lock.clone()));
        Ok(lock)
    }

    /// A process is about to load the vendor's runtime. It waits until it is told to return.
    pub(super) fn joined(&self, id: MemberId, member: Arc<dyn Member>) {
        let mut state = self.0.lock();
        state.members.insert(id, member);
        let orders = state.board.joined(id);
        state.tell(orders);
    }

    /// A process has ended and was waited for.
    pub(super) fn left(&self, id: MemberId) {
        let mut state = self.0.lock();
        state.members.remove(&id);
        let orders = state.board.left(id);
        state.tell(orders);
    }

    /// A task of a process has its grant.
    pub(super) fn granted(&self, id: MemberId, grant: Grant) {
        let mut state = self.0.lock();
        let orders = state.board.granted(id, grant);
        state.tell(orders);
    }

    /// A member says that it has left or returned.
    pub(super) fn said(&self, member: MemberId, word: Word) {
        let mut state = self.0.lock();
        let orders = match word {
            Word::IsOff(round) => state.board.is_off(member, round),
            Word::IsBack(loaded) => state.board.is_back(member, loaded),
        };
        state.tell(orders);
    }

    /// A task has ended. Returns whether its load was given up.
    pub(super) fn ended(&self, task: TaskId) -> bool {
        let mut state = self.0.lock();
        let (gave_up, orders) = state.board.ended(task);
        state.tell(orders);
        gave_up
    }
}

impl State {
    fn tell(&self, orders: Vec<(MemberId, Order)>) {
        for (member, order) in orders {
            if let Some(member) = self.members.get(&member) {
                member.orders(order);
            }
        }
    }
}
