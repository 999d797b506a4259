//! The end of a session: nothing of it stays in the dispatcher, on the device, or in memory.

use super::{Building, Closed, Session};
use crate::router::Input;
use fpga_board::dispatch::Grant;
use fpga_core::device::Health;
use tokio::sync::mpsc::UnboundedReceiver;

impl Session {
    /// Ends the session: cancels its tasks, and waits for the tasks and builds that run.
    pub(super) async fn close(&mut self, input: &mut UnboundedReceiver<Input>) {
        let dispatcher = self.shared.config.dispatcher.clone();
        let others = dispatcher.cancel_session(self.id);
        self.shared.router.remove(self.id);
        self.shared.sides.forget(self.id.0);
        self.give_back(others);
        self.loading = None;
        if self.on_board.take().is_some() {
            // The task of the call is in the backlog, which is cleared below.
            self.building = Building::No;
        }
        for task in self.backlog.clear() {
            self.give_back(dispatcher.finished(task));
        }
        if self.decided.take().is_some() {
            self.building = Building::No;
        }
        self.wind_up(Input::EndsLeft);
        let grace = tokio::time::sleep(self.shared.config.abandoned_grace);
        tokio::pin!(grace);
        let mut patient = true;
        while !self.executor.is_idle() || self.building == Building::Yes {
            let next = tokio::select! {
                next = input.recv() => next,
                () = &mut grace, if patient => {
                    patient = false;
                    if !self.executor.is_idle() {
                        self.device_is_stuck();
                    }
                    continue;
                }
            };
            let Some(next) = next else { break };
            self.wind_up(next);
        }
        while let Ok(next) = input.try_recv() {
            self.wind_up(next);
        }
        self.outgoing.reports(&mut self.reports);
        self.closed = Closed::Yes;
        tracing::debug!(session = self.id.0, "Session closed");
    }

    /// Handles commands of a client that has gone, if they do not end and keep their slots. A runtime can't end a
    /// kernel, so only a new process gets the device back: this process reports the device as unhealthy, drains,
    /// and ends with a failure.
    fn device_is_stuck(&self) {
        let (session, tenant) = (self.id.0, self.tenant.as_str());
        tracing::error!(
            session,
            tenant,
            "Commands of a client that has gone do not end; the device manager ends, to be started anew"
        );
        self.shared.config.health.abandoned();
        // The report is made at once, since the process is about to end.
        self.shared.config.reports.health(Health::Unhealthy);
        self.shared.shutdown.fail();
    }

    fn wind_up(&mut self, input: Input) {
        match input {
            Input::Ended(event, status) => {
                let last = self.executor.finish(event, status, &mut self.dependencies, &mut self.reports);
                if let Some(task) = last {
                    self.uses.remove(&task);
                    let grants = self.shared.config.dispatcher.finished(task);
                    self.give_back(grants);
                }
            }
            Input::EndsLeft => {
                for (event, status) in self.inbox.doze().take() {
                    self.wind_up(Input::Ended(event, status));
                }
            }
            Input::PieceEnded(event) => self.executor.piece_ended(event, &mut self.reports),
            Input::Granted(grant) => {
                let grants = self.shared.config.dispatcher.finished(grant.task);
                self.give_back(grants);
            }
            Input::FdChannel(_) | Input::Switched(_) | Input::Yield | Input::Revoked(_) => {}
            Input::Built(..) | Input::Decided(..) => self.build_ended(),
            Input::Loaded(loaded) => {
                self.load_ended(&loaded);
                self.build_ended();
            }
        }
    }

    /// Ends what ran on its own thread, and the task that has held its slot for it.
    fn build_ended(&mut self) {
        self.building = Building::No;
        if let Some(task) = self.holds_for_build.take() {
            let grants = self.shared.config.dispatcher.finished(task);
            self.give_back(grants);
        }
    }

    /// Gives back the slots of a session that a panic has ended before [`Self::close`] was done.
    fn abandon(&mut self) {
        let dispatcher = self.shared.config.dispatcher.clone();
        self.give_back(dispatcher.cancel_session(self.id));
        self.shared.router.remove(self.id);
        self.shared.sides.forget(self.id.0);
        let granted = self.backlog.clear();
        let held = self.holds_for_build.take();
        for task in self.executor.tasks().chain(granted).chain(held).collect::<Vec<_>>() {
            self.give_back(dispatcher.finished(task));
        }
    }

    /// Delivers grants to other sessions. Grants to this session come too late and are finished at once.
    pub(super) fn give_back(&self, grants: Vec<Grant>) {
        let dispatcher = &self.shared.config.dispatcher;
        let mut left = grants;
        while !left.is_empty() {
            let mine = self.shared.router.deliver(left, self.id, dispatcher);
            left = mine.into_iter().flat_map(|grant| dispatcher.finished(grant.task)).collect();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.closed == Closed::No {
            self.abandon();
        }
    }
}
