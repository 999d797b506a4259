//! The loop of a session: inputs of the client, the dispatcher and the vendor's callbacks, and the reports to the client.

use super::{Building, LAST_STATUS, MAX_ROUND, OWES_DATA, Proof, READS_NOTHING, Session};
use crate::command_ring::WithRing;
use crate::incoming::Incoming;
use crate::outgoing::STALL_TIMEOUT;
use crate::report::Report;
use crate::router::Input;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

/// How the session's thread waits when nothing is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// For a short time on the command ring.
    Doze,
    /// In the runtime.
    Sleep,
}

impl Session {
    /// Serves the client until the end. Returns the status that ends the stream, or `None` if the client has ended
    /// it without error.
    pub(super) async fn serve(
        &mut self,
        input: &mut UnboundedReceiver<Input>,
        client: &mut WithRing<impl Incoming>,
    ) -> Option<Status> {
        let shutdown = self.shared.shutdown.clone();
        let ending = shutdown.ending();
        tokio::pin!(ending);
        let budget = self.budget.clone();
        let mut watch = None;
        let look = tokio::time::sleep(STALL_TIMEOUT);
        tokio::pin!(look);
        let mut before = (self.outgoing.progress(), self.messages);
        let doze = self.inbox.doze().clone();
        let mut rest = Rest::Doze;
        loop {
            let looked = doze.look();
            self.take_ends();
            // The future is made before the check of the held memory, so that it reports all memory that is freed
            // after the check.
            let mut freed = budget.freed();
            let mut full = self.is_full();
            if (full || self.put_off.is_some()) && watch.is_none() {
                watch = Some(budget.watch());
                freed = budget.freed();
                full = self.is_full();
            }
            let loading = self.loading.map(|loading| loading.until);
            let board = self.shared.config.board.clone();
            let mut openings = board.openings();
            if board.is_open() && board.is_whole() {
                // Tasks that waited for the board may have missed its opening.
                self.start_granted();
                self.go_on_decided();
            }
            let listening = self.building == Building::No;
            if board.is_open()
                && listening
                && let Some(message) = self.put_off.take()
            {
                if let Err(violation) = self.message(message) {
                    return Some(violation.status());
                }
                if self.put_off.is_none() {
                    self.ring.attach_to(client);
                    self.tell();
                    continue;
                }
            }
            // The board may have closed while tasks and messages tried to come in.
            let open = board.is_open();
            let waits = self.put_off.is_some();
            if !full && !waits {
                watch = None;
            }
            let dozes = rest == Rest::Doze
                && doze.is_possible()
                && loading.is_none()
                && open
                && listening
                && !full
                && !waits;
            tokio::select! {
                biased;
                Some(first) = input.recv() => {
                    rest = Rest::Doze;
                    self.take(first);
                    for _ in 0..MAX_ROUND {
                        match input.try_recv() {
                            Ok(more) => self.take(more),
                            Err(_) => break,
                        }
                    }
                }
                () = sleep_until(loading.unwrap_or_else(Instant::now)), if loading.is_some() => self.loaded(),
                () = openings.next() => self.board_opened(),
                message = client.next(), if listening && !full && !waits && open => match message {
                    Ok(None) => return None,
                    Ok(Some(message)) => {
                        rest = Rest::Doze;
                        if let Err(violation) = self.encoded(message) {
                            return Some(violation.status());
                        }
                        self.ring.attach_to(client);
                    }
                    Err(status) => return Some(status),
                },
                () = self.outgoing.closed() => return None,
                () = freed, if full || waits => {}
                () = look.as_mut(), if self.may_stall() => {
                    let now = (self.outgoing.progress(), self.messages);
                    if budget.is_wanted() {
                        if before.0.is_stalled_at(now.0) {
                            return Some(Status::resource_exhausted(READS_NOTHING));
                        }
                        if self.transfers.bytes() > 0 && before.1 == now.1 && !waits {
                            return Some(Status::resource_exhausted(OWES_DATA));
                        }
                    }
                    before = now;
                    // A message that waits for memory is refused when it has waited for too long.
                    look.as_mut().reset(Instant::now() + STALL_TIMEOUT);
                }
                () = &mut ending => {
                    // The status is sent before the cleanup, since running tasks may never end, and the manager
                    // then ends without them.
                    self.outgoing.end(Status::unavailable(LAST_STATUS));
                    return None;
                }
                // Nothing else is ready.
                () = std::future::ready(()), if dozes => {
                    // The next look at the ring finds an error again.
                    let _ = client.doze(&doze, looked);
                    rest = Rest::Sleep;
                    continue;
                }
            }
            if let Some(violation) = self.violation.take() {
                return Some(violation.status());
            }
            if let Proof::Revoked(status) = &self.proof {
                // As above, the status does not wait for tasks.
                self.outgoing.end(Status::clone(status));
                return None;
            }
            self.tell();
        }
    }

    /// Sends the reports to the client.
    pub(super) fn tell(&mut self) {
        if !self.traced.is_empty() {
            for report in &self.reports {
                if let Report::Ended(ended) = report {
                    self.traced.command_ended(ended);
                }
            }
        }
        let trace = &self.shared.config.trace;
        if trace.is_on() {
            for report in &self.reports {
                if let Report::Ended(ended) = report {
                    trace.command(self.id, &self.tenant, ended);
                }
            }
        }
        self.outgoing.reports(&mut self.reports);
    }

    /// Whether the manager stops reading from the client because memory is short.
    fn is_full(&self) -> bool {
        self.budget.is_pressed() && !self.is_clients_turn()
    }

    /// Whether other sessions may come to wait for memory that this one holds, or this one waits for memory. Only tasks
    /// and messages raise the held memory, so that an idle session sleeps until its next message.
    fn may_stall(&self) -> bool {
        !self.charges.is_empty() || self.budget.is_sharing() || self.put_off.is_some()
    }

    /// Whether memory of the session can be freed only by another message of the client: one that sets the user
    /// event for which commands wait, or one that continues a transfer or refers to it. Such a session never waits
    /// for memory.
    pub(super) fn is_clients_turn(&self) -> bool {
        self.dependencies.deferred() > 0 || self.transfers.bytes() > 0
    }
}
