//! The hold of a session on a lent slot, from its handshake to its end.

use super::Lender;
use bytes::Bytes;
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SessionId;
use fpga_pool_leases::ids::ConnectionId;
use fpga_session::incoming::Incoming;
use fpga_session::session::Shared;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;

/// Interval at which the lender is told when the client was heard last. Well below
/// [`SILENT`](fpga_pool_leases::timing::SILENT).
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Where a lease of a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The client asks for the slot.
    Asks,
    /// The session holds the slot.
    Holds,
    /// The client is to give the slot up.
    Yields,
    /// The lease has ended.
    Over,
}

/// A session's hold on a lent slot. Dropping it ends the lease.
#[derive(Debug)]
pub struct Attachment {
    pub(super) lender: Lender,
    pub(super) session: SessionId,
    pub(super) tenant: Tenant,
    pub(super) shared: Arc<Shared>,
    pub(super) standing: watch::Receiver<Standing>,
}

/// The messages of a leased session's client. Their end ends the lease, even if tasks still run.
#[derive(Debug)]
pub struct Leased<I> {
    client: I,
    lender: Lender,
    connection: ConnectionId,
}

impl Attachment {
    /// Id of the session.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The tenant whose lease it is, by the broker's word.
    #[must_use]
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// What the session runs with.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The client's messages, whose end the lender learns at once.
    #[must_use]
    pub fn of_client<I>(&self, client: I) -> Leased<I> {
        Leased { client, lender: self.lender.clone(), connection: connection_of(self.session) }
    }

    /// Waits for the end of the lease, and returns the status for the client. Meanwhile tells the lender when the client
    /// was `heard` last, and calls `yields` if the client is to give the slot up.
    pub async fn ended(&mut self, heard: impl Fn() -> Instant, mut yields: impl FnMut()) -> Status {
        let mut asked = false;
        loop {
            match *self.standing.borrow_and_update() {
                Standing::Over => return over(),
                Standing::Yields if !asked => {
                    asked = true;
                    yields();
                }
                Standing::Asks | Standing::Holds | Standing::Yields => {}
            }
            tokio::select! {
                changed = self.standing.changed() => if changed.is_err() {
                    return over();
                },
                () = tokio::time::sleep(ALIVE_INTERVAL) => self.lender.heard(connection_of(self.session), heard()),
            }
        }
    }
}

fn over() -> Status {
    Status::aborted("the lease of the session's slot has ended; the rest of the job needs another one")
}

/// The connection of a session, as the protocol counts connections.
pub(super) fn connection_of(session: SessionId) -> ConnectionId {
    ConnectionId(session.0)
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.lender.forget(connection_of(self.session));
    }
}

impl<I: Incoming> Incoming for Leased<I> {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        self.client.next().await
    }
}

impl<I> Drop for Leased<I> {
    fn drop(&mut self) {
        self.lender.closed(self.connection);
    }
}
