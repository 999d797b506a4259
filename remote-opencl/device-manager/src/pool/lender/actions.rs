//! Carries out what the state machine decides.

use super::attachment::Standing;
use super::{Inner, Lender, State};
use crate::former::FormerProcess;
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_pool_leases::ids::LeaseId;
use fpga_pool_leases::manager::{Action, Event, LoadOutcome, Outcome};
use fpga_pool_leases::messages::ManagerToClient;
use fpga_pool_leases::timing;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Interval at which the end of a process is looked for.
const REAP_TICK: Duration = Duration::from_millis(2);
/// Interval at which the log tells which processes of former managers do not end.
const FORMER_INTERVAL: Duration = Duration::from_secs(10);

impl Lender {
    /// Carries the first actions out.
    pub(super) fn begin(&self, actions: Vec<Action>) {
        self.0.act_all(&mut self.0.state.lock(), actions);
    }
}

impl Inner {
    pub(super) fn act_all(self: &Arc<Self>, state: &mut State, actions: Vec<Action>) {
        if actions.is_empty() {
            return;
        }
        for action in actions {
            self.act(state, action);
        }
        self.metrics.set_slots(&state.statuses());
    }

    fn act(self: &Arc<Self>, state: &mut State, action: Action) {
        match action {
            Action::ReapChildren => {
                self.runtime.spawn(Arc::clone(self).reap());
            }
            Action::ToBroker(message) => {
                if let Some(broker) = &state.broker
                    && broker.say(message).is_err()
                {
                    // The owner of the stream learns that, and registers over another one.
                    state.broker = None;
                }
            }
            Action::ToClient(client, message) => {
                let standing = match message {
                    ManagerToClient::Attached { .. } => Standing::Holds,
                    ManagerToClient::Gone { .. } => Standing::Over,
                    ManagerToClient::Yield { .. } => Standing::Yields,
                    // The completions of the task's commands say that.
                    ManagerToClient::StepDone { .. } | ManagerToClient::StepRefused { .. } => return,
                };
                state.tell(client, standing);
            }
            Action::CloseClient(client) => state.tell(client, Standing::Over),
            Action::Load { slot, lease, digest } => {
                if let Some(loads) = state.loads.get_mut(slot.0 as usize) {
                    *loads += 1;
                }
                self.runtime.spawn(Arc::clone(self).load(slot, lease, digest));
            }
            // The task has its slot, and starts when it is admitted.
            Action::Start { .. } => {}
            Action::Kill { slot, lease } => {
                self.runtime.spawn(Arc::clone(self).kill(slot, lease));
            }
            Action::Probe(slot) => {
                self.runtime.spawn(Arc::clone(self).probe(slot));
            }
        }
    }

    /// Ends the tenant processes of former managers, and waits for their end. As long as one runs, nothing is lent: it may
    /// run a task on the board.
    async fn reap(self: Arc<Self>) {
        let mut left = (self.former)();
        left.iter().for_each(FormerProcess::kill);
        let mut tells_at = Instant::now() + FORMER_INTERVAL;
        while !left.is_empty() {
            if Instant::now() >= tells_at {
                tells_at += FORMER_INTERVAL;
                let pids: Vec<u32> = left.iter().map(FormerProcess::pid).collect();
                tracing::error!(
                    ?pids,
                    "Tenant processes of a former manager do not end, though they were killed: no slot is lent before"
                );
            }
            tokio::time::sleep(REAP_TICK).await;
            left.retain(FormerProcess::runs);
        }
        self.handle(&mut self.state.lock(), Event::ChildrenReaped);
    }

    async fn load(self: Arc<Self>, slot: SlotIndex, lease: LeaseId, digest: Digest) {
        let index = slot.0 as usize;
        let outcome = match self.slots.get(index) {
            Some(lent) => lent.load(&self.board.config, digest).await,
            None => LoadOutcome::Failed,
        };
        let mut state = self.state.lock();
        if let Some(loads) = state.loads.get_mut(index) {
            *loads = loads.saturating_sub(1);
        }
        self.handle(&mut state, Event::Loaded { slot, lease, outcome });
    }

    /// Ends the process of the lease's session. A process that serves other sessions too can't be ended, and no runtime
    /// can end a kernel.
    async fn kill(self: Arc<Self>, slot: SlotIndex, lease: LeaseId) {
        let session = self.state.lock().last_sessions.get(slot.0 as usize).copied().flatten();
        let outcome = match (&self.processes, session) {
            (Some(processes), Some(session)) => {
                processes.end_process(session);
                let deadline = Instant::now() + Duration::from(timing::REAP);
                while processes.has_process(session) && Instant::now() < deadline {
                    tokio::time::sleep(REAP_TICK).await;
                }
                if processes.has_process(session) { Outcome::Failed } else { Outcome::Done }
            }
            _ => Outcome::Failed,
        };
        if outcome == Outcome::Failed {
            tracing::error!(
                slot = slot.0,
                "Tasks of a lease that has ended do not end: the lent slot is bad"
            );
        }
        self.handle(&mut self.state.lock(), Event::Killed { slot, lease, outcome });
    }

    /// Whether nothing of former leases is left in a slot, and the device is well.
    async fn probe(self: Arc<Self>, slot: SlotIndex) {
        let index = slot.0 as usize;
        let (session, loads) = {
            let state = self.state.lock();
            let session = state.last_sessions.get(index).copied().flatten();
            (session, state.loads.get(index).copied().unwrap_or(0))
        };
        let lives = match (&self.processes, session) {
            (Some(processes), Some(session)) => processes.has_process(session),
            _ => false,
        };
        let is_idle = self.slots.get(index).is_some_and(|slot| slot.is_idle());
        let is_well = self.board.config.health.fault().is_none();
        let outcome =
            if is_idle && is_well && !lives && loads == 0 { Outcome::Done } else { Outcome::Failed };
        self.handle(&mut self.state.lock(), Event::Probed { slot, outcome });
    }
}

impl State {
    /// Tells a client's session where its lease stands.
    fn tell(&self, client: fpga_pool_leases::ids::ConnectionId, standing: Standing) {
        if let Some(client) = self.clients.get(&client) {
            client.standing.send_replace(standing);
        }
    }
}
