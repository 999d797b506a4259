//! Limits the bytes that clients make the manager hold: one governor for all clients, an account for each
//! tenant, a budget for each session.
//!
//! There are two kinds of bytes. *Lasting* bytes stay until their client gives them back (segments, and the
//! fixed needs of a session); at the limit, further requests are refused. *Passing* bytes are freed without
//! the client's doing (messages, staged data, messages that wait to be sent); at the limit, the manager stops
//! reading from the client until some are freed.
//!
//! These rules keep memory bounded and every client able to continue:
//!
//! - [`Budget::try_hold`] and [`Budget::lasting`] never raise an account above its limit; a refusal changes
//!   nothing.
//! - A session has [`OWN_BYTES`] that no other session can take: small commands never wait for other
//!   sessions.
//! - A session that waits for bytes holds none that only another message of its own client would free; if it
//!   does, it is refused instead.
//! - A request for more bytes than the limit is refused at once.

mod budget;
mod limits;

pub use budget::{Budget, Hold, Watch};
pub use limits::{LEAST_BYTES, Limits, default_limit, default_store_limit, limit_of, store_limit_of};

use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Passing bytes that each session has for itself alone.
pub const OWN_BYTES: u64 = 1 << 20;

/// Bytes that decoding a message may take, besides its encoded bytes, without asking the governor.
pub const DECODING_BYTES: u64 = 4 << 20;

/// Most bytes in a session's connection that wait for the socket.
pub const SEND_BUFFER_BYTES: usize = 1 << 20;

/// Bytes of a session's thread: its stack as far as it is used, its async runtime, and the state of its
/// connection.
const THREAD_BYTES: u64 = 512 << 10;

/// Bounds of an HTTP/2 window. Less would slow every client down; more makes none faster.
const WINDOW_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=4 << 20;

/// The governor of another process that must agree to lasting bytes: a tenant process asks the manager, which
/// counts the bytes of all tenants.
pub trait Above: std::fmt::Debug + Send + Sync {
    /// Holds the bytes until the value is dropped; `None` if there are not enough left.
    fn hold(&self, bytes: u64) -> Option<Box<dyn HeldAbove>>;
}

/// Bytes held in the other process, until the value is dropped.
pub trait HeldAbove: std::fmt::Debug + Send + Sync {}

/// The governor of a process. Clones share it.
#[derive(Debug, Clone)]
pub struct Governor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    manager: Account,
    of_tenant: Limits,
    above: Option<Box<dyn Above>>,
    freed: Notify,
    /// Number of [`Watch`] values.
    watched: AtomicUsize,
}

/// A tenant's account. Clones share it.
#[derive(Debug, Clone)]
pub struct TenantAccount(Arc<OfTenant>);

#[derive(Debug)]
struct OfTenant {
    account: Account,
    governor: Governor,
    /// Number of [`Watch`] values of the tenant's sessions.
    watched: AtomicUsize,
}

/// The bytes that are held, and their limits.
#[derive(Debug)]
struct Account {
    lasting: AtomicU64,
    passing: AtomicU64,
    limits: Limits,
}

/// Lasting bytes; dropping the value frees them.
#[derive(Debug)]
pub struct Lasting {
    tenant: TenantAccount,
    bytes: u64,
    above: Option<Box<dyn HeldAbove>>,
}

/// The reason why bytes can't be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryRefusal {
    /// Too many bytes are held now.
    NotNow,
    /// The limit is less than the request.
    Never,
}

impl Governor {
    /// A governor with these limits; no bytes are held.
    #[must_use]
    pub fn new(manager: Limits, of_tenant: Limits) -> Self {
        Self::with(manager, of_tenant, None)
    }

    /// The governor of a process with one tenant, whose lasting bytes `above` must also agree to.
    #[must_use]
    pub fn below(above: Box<dyn Above>, of_tenant: Limits) -> Self {
        Self::with(of_tenant, of_tenant, Some(above))
    }

    fn with(manager: Limits, of_tenant: Limits, above: Option<Box<dyn Above>>) -> Self {
        let least = |one: Limits, other: Limits| Limits {
            lasting: one.lasting.min(other.lasting),
            passing: one.passing.min(other.passing),
        };
        Self(Arc::new(Inner {
            manager: Account::new(manager),
            of_tenant: least(of_tenant, manager),
            above,
            freed: Notify::new(),
            watched: AtomicUsize::new(0),
        }))
    }

    /// A governor without limits.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(Limits::none(), Limits::none())
    }

    /// Limits of each tenant.
    #[must_use]
    pub fn of_tenant(&self) -> Limits {
        self.0.of_tenant
    }

    /// A new account for a tenant.
    #[must_use]
    pub fn tenant(&self) -> TenantAccount {
        let account = Account::new(self.0.of_tenant);
        let watched = AtomicUsize::new(0);
        TenantAccount(Arc::new(OfTenant { account, governor: self.clone(), watched }))
    }

    /// Size of an HTTP/2 window, in bytes.
    #[must_use]
    pub fn window_bytes(&self) -> u32 {
        let part = (self.0.of_tenant.passing / 16).clamp(*WINDOW_BYTES.start(), *WINDOW_BYTES.end());
        // The part is at most the end of WINDOW_BYTES, 4 MiB, so it fits.
        u32::try_from(part).unwrap_or(u32::MAX)
    }

    /// Most connections without a session. Each takes a thread, a few short messages, and frames.
    #[must_use]
    pub fn most_without_session(&self) -> usize {
        const EACH_BYTES: u64 = 512 << 10;
        const MOST: u64 = 512;
        const LEAST: u64 = 64;
        let part = self.0.manager.limits.lasting / 16 / EACH_BYTES;
        usize::try_from(part.clamp(LEAST, MOST)).unwrap_or(usize::MAX)
    }

    /// Lasting bytes of a session: windows and buffers of its connection, a message and its decoding, its own
    /// bytes, and its thread.
    fn session_bytes(&self) -> u64 {
        u64::from(self.window_bytes())
            + SEND_BUFFER_BYTES as u64
            + MAX_MESSAGE_BYTES as u64
            + DECODING_BYTES
            + OWN_BYTES
            + THREAD_BYTES
    }

    /// Lasting and passing bytes that are held.
    #[must_use]
    pub fn held(&self) -> Limits {
        self.0.manager.held()
    }

    fn gave_back(&self) {
        if self.0.watched.load(Ordering::SeqCst) > 0 {
            self.0.freed.notify_waiters();
        }
    }
}

impl Account {
    fn new(limits: Limits) -> Self {
        Self { lasting: AtomicU64::new(0), passing: AtomicU64::new(0), limits }
    }

    fn held(&self) -> Limits {
        Limits { lasting: self.lasting.load(Ordering::SeqCst), passing: self.passing.load(Ordering::SeqCst) }
    }

    /// Whether the manager stops reading from sessions that hold shared bytes. The threshold is below the
    /// limit, since each message that is read may add bytes to be sent.
    fn is_pressed(&self) -> bool {
        self.passing.load(Ordering::SeqCst) >= self.limits.passing / 8 * 7
    }

    fn is_half_taken(&self) -> bool {
        self.passing.load(Ordering::SeqCst) >= self.limits.passing / 2
    }

    fn is_overdrawn(&self) -> bool {
        self.passing.load(Ordering::SeqCst) > self.limits.passing
    }
}

/// Adds to the held bytes, unless that would exceed the limit.
fn take(held: &AtomicU64, bytes: u64, limit: u64) -> bool {
    let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= limit);
    held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
}

fn give(held: &AtomicU64, bytes: u64) {
    held.fetch_sub(bytes, Ordering::SeqCst);
}

impl TenantAccount {
    fn manager(&self) -> &Account {
        &self.0.governor.0.manager
    }

    /// Holds lasting bytes; `None` if the tenant, or all tenants together, would exceed their limit.
    #[must_use]
    pub fn lasting(&self, bytes: u64) -> Option<Lasting> {
        let mut lasting = self.lasting_here(bytes)?;
        if let Some(above) = &self.0.governor.0.above {
            lasting.above = Some(above.hold(bytes)?);
        }
        Some(lasting)
    }

    fn lasting_here(&self, bytes: u64) -> Option<Lasting> {
        let (own, all) = (&self.0.account, self.manager());
        if !take(&own.lasting, bytes, own.limits.lasting) {
            return None;
        }
        if !take(&all.lasting, bytes, all.limits.lasting) {
            give(&own.lasting, bytes);
            return None;
        }
        Some(Lasting { tenant: self.clone(), bytes, above: None })
    }

    /// The budget of a new session; `None` if the lasting bytes of a session are not available.
    #[must_use]
    pub fn session(&self) -> Option<Budget> {
        // The process above has already counted the session.
        let session = self.lasting_here(self.0.governor.session_bytes())?;
        Some(Budget::new(self.clone(), Some(session)))
    }

    fn take_passing(&self, bytes: u64) -> bool {
        let (own, all) = (&self.0.account, self.manager());
        if !take(&own.passing, bytes, own.limits.passing) {
            return false;
        }
        if !take(&all.passing, bytes, all.limits.passing) {
            give(&own.passing, bytes);
            return false;
        }
        true
    }

    fn give_passing(&self, bytes: u64) {
        give(&self.0.account.passing, bytes);
        give(&self.manager().passing, bytes);
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        give(&self.tenant.0.account.lasting, self.bytes);
        give(&self.tenant.manager().lasting, self.bytes);
        drop(self.above.take());
    }
}

#[cfg(test)]
mod tests;
