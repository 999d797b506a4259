//! The session of a leased slot (pool/leases), with its address and its secret instead of an environment.

use crate::error::ClError;
use crate::objects::platform::Platform;
use crate::session::driver::Driver;
use crate::session::{Holder, Notice, Session};
use crate::wire::access::Access;
use crate::wire::address::{AddressError, ManagerAddress};
use crate::wire::connection_race::ConnectionRace;
use crate::wire::handshake::ConnectError;
use crate::wire::keepalive::Keepalive;
use crate::wire::reconnect::Reconnect;
use crate::wire::transport::{Opening, connect, resolve};
use fpga_net::tls::PinnedKey;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where a lease counts, and what opens it.
#[derive(Clone)]
pub struct Lease {
    /// The manager's address: `unix:/path` or `tcp://host:port`.
    pub address: String,
    /// The public key that the manager must have over TCP; `None` without TLS.
    pub key: Option<PinnedKey>,
    /// The lease's id, a secret.
    pub id: [u8; 16],
    /// Time without a sign of life after which the manager counts as lost.
    pub silence: Duration,
}

/// The session of a lease. It ends when it is closed, and when it and all objects made in it are dropped.
#[derive(Debug)]
pub struct LeasedSession {
    session: Arc<Session>,
    platforms: Vec<Arc<Platform>>,
}

/// The reason why a lease's session can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The manager has no such lease, or its time is over.
    #[error("the manager has no such lease: {0}")]
    Gone(String),
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The manager doesn't answer, or refuses for another reason than the lease.
    #[error("{0}")]
    Connect(String),
    /// This thread can't wait for a connection, since an asynchronous runtime runs on it.
    #[error("this thread runs an asynchronous runtime; open the session on a thread of its own")]
    InsideRuntime,
    /// The library's background thread can't be started.
    #[error("the background thread can't be started: {0}")]
    Thread(ClError),
}

impl LeasedSession {
    /// Opens the session of a lease, and waits until the manager has welcomed it. `on_notice` is called, on any thread and
    /// with no lock held that a call of this crate needs, when the manager wants the slot back and when the manager is
    /// lost. Commands are sent when a queue is flushed, and no sooner.
    ///
    /// # Errors
    /// [`LeaseError::Gone`] if the manager does not know the lease; the others say themselves when they come.
    pub fn open(
        lease: &Lease,
        on_notice: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Self, LeaseError> {
        let address: ManagerAddress = lease.address.parse()?;
        let resolved = resolve(&address).map_err(ConnectError::from)?;
        let opening = Opening {
            access: Access::Lease { id: lease.id, key: lease.key },
            reconnect: Reconnect::Fail,
            keepalive: Keepalive::within(lease.silence),
        };
        let driver = Driver::of_process().map_err(LeaseError::Thread)?;
        let race = ConnectionRace::new(false);
        let opened = driver.try_drive(async {
            let mut connection = connect(address, resolved, opening, &race).await?;
            let platforms = std::mem::take(&mut connection.platforms);
            let holder = Holder::Lease(Box::new(on_notice));
            Ok::<_, ConnectError>((Session::start(driver, connection, holder), platforms))
        });
        let (session, platforms) = opened.ok_or(LeaseError::InsideRuntime)??;
        session.release_in_background().map_err(LeaseError::Thread)?;
        let platform = |(index, it)| Platform::new(&session, lease.address.clone(), index, it);
        let platforms = platforms.into_iter().enumerate().map(platform).collect();
        Ok(Self { session, platforms })
    }

    /// The platforms of the manager, with the lease's device.
    #[must_use]
    pub fn platforms(&self) -> &[Arc<Platform>] {
        &self.platforms
    }

    /// Gives the lease up: commands that have not ended fail, and the manager is told. Returns at once, on any thread.
    pub fn close(&self) {
        self.session.close();
    }
}

impl From<ConnectError> for LeaseError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Refused(status) if status.code() == tonic::Code::NotFound => {
                Self::Gone(status.message().to_owned())
            }
            other => Self::Connect(other.to_string()),
        }
    }
}

/// Leaves the secret out.
impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("address", &self.address)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
