//! The tasks of leased sessions, which are the steps of the protocol.

use super::attachment::connection_of;
use super::{Inner, LENDER};
use fpga_board::dispatch::TaskId;
use fpga_board::slots::{SessionId, SlotIndex};
use fpga_pool_leases::ids::StepNumber;
use fpga_pool_leases::lease::Usage;
use fpga_pool_leases::manager::{Action, Event};
use fpga_pool_leases::messages::ClientToManager;
use fpga_session::dispatcher::{Admission, TaskUse, TaskWatch, TaskWork};
use std::sync::Weak;
use std::time::Duration;

/// Admits the tasks of a lent slot: those of the session that holds the slot.
#[derive(Debug)]
pub(super) struct SlotWatch {
    lender: Weak<Inner>,
    slot: SlotIndex,
}

impl SlotWatch {
    pub(super) fn new(lender: Weak<Inner>, slot: SlotIndex) -> Self {
        Self { lender, slot }
    }
}

impl TaskWatch for SlotWatch {
    fn starts(&self, session: SessionId, task: TaskId) -> Admission {
        if session == LENDER {
            return Admission::Admitted;
        }
        let Some(lender) = self.lender.upgrade() else { return Admission::Refused };
        let mut state = lender.state.lock();
        let connection = connection_of(session);
        let Some(lease) = state.clients.get(&connection).map(|client| client.lease) else {
            return Admission::Refused;
        };
        let (step, now) = (StepNumber(task.0), lender.now());
        let event = Event::Client(connection, ClientToManager::Step { lease, step });
        let actions = state.machine.handle(event, now);
        let starts = actions.contains(&Action::Start { slot: self.slot, lease, step });
        lender.act_all(&mut state, actions);
        if starts { Admission::Admitted } else { Admission::Refused }
    }

    fn ended(&self, session: SessionId, task: TaskId, used: TaskUse) {
        if session == LENDER {
            return;
        }
        let Some(lender) = self.lender.upgrade() else { return };
        let mut state = lender.state.lock();
        let Some(lease) = state.clients.get(&connection_of(session)).map(|client| client.lease) else {
            return;
        };
        // The broker takes busy time over actions for the time that an action needs. Making a program on a board that the
        // vendor loads is a step, since it needs the slot, and no action: it happens once in a lease.
        let (actions, held) = match used.work {
            TaskWork::Kernels => (1, used.held),
            TaskWork::Load | TaskWork::Transfers => (0, Duration::ZERO),
        };
        let busy = state.whole_millis(self.slot, held);
        let usage = Usage { bytes: used.bytes, actions, busy };
        lender.metrics.step(&usage);
        let step = StepNumber(task.0);
        lender.handle(&mut state, Event::StepEnded { slot: self.slot, lease, step, usage });
    }
}
