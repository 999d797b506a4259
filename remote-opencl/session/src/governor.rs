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

use fpga_net::memory::MemoryLimit;
use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

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

/// Memory of the process that is assumed if no limit is known.
const UNKNOWN_MEMORY_BYTES: u64 = 4 << 30;

/// Least bytes for clients. With less, a tenant could not have a session or would have no bytes besides it.
pub const LEAST_BYTES: u64 = 64 << 20;

/// The limits of an account, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Bytes that stay until their client gives them back.
    pub lasting: u64,
    /// Bytes that are freed without the client's doing.
    pub passing: u64,
}

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

/// A session's budget. Clones share it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<OfSession>);

#[derive(Debug)]
struct OfSession {
    tenant: TenantAccount,
    /// Bytes held of [`OWN_BYTES`].
    own: AtomicU64,
    /// Bytes held on the tenant's account.
    shared: AtomicU64,
    _session: Option<Lasting>,
}

/// Passing bytes that a session holds; dropping the value frees them.
#[derive(Debug)]
pub struct Hold {
    budget: Budget,
    bytes: u64,
    pocket: Pocket,
}

/// The account that counts held bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pocket {
    Own,
    Shared,
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

/// A session that waits for freed bytes; dropping the value ends the wait.
#[derive(Debug)]
pub struct Watch(TenantAccount);

impl Limits {
    /// Divides `bytes`: two thirds for lasting and one third for passing bytes.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        let passing = bytes / 3;
        Self { lasting: bytes - passing, passing }
    }

    /// No limits.
    #[must_use]
    pub fn none() -> Self {
        Self { lasting: u64::MAX, passing: u64::MAX }
    }
}

/// Default limit of the bytes that clients may make the manager hold: three quarters of what the store of
/// bitstreams, whose limit is `store_limit`, leaves of the process's memory. The rest is for the vendor's
/// runtime and the manager itself.
#[must_use]
pub fn default_limit(store_limit: u64) -> u64 {
    clients_part(process_memory(), store_limit)
}

/// Default limit of the store of bitstreams: a quarter of the process's memory, at most 1 GiB. The store's
/// bytes are in the memory of the process, and also in a folder if one is given.
#[must_use]
pub fn default_store_limit() -> u64 {
    (process_memory() / 4).min(1 << 30)
}

fn process_memory() -> u64 {
    MemoryLimit::of_this_process().map_or(UNKNOWN_MEMORY_BYTES, |limit| limit.bytes)
}

/// The part of clients. If a flag gives the store more than half of the memory, clients get their part of one
/// half.
fn clients_part(memory: u64, store_limit: u64) -> u64 {
    (memory - store_limit.min(memory / 2)) / 4 * 3
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
    pub fn unproven(&self) -> usize {
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

impl Budget {
    fn new(tenant: TenantAccount, session: Option<Lasting>) -> Self {
        let (own, shared) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Arc::new(OfSession { tenant, own, shared, _session: session }))
    }

    /// Holds passing bytes, the session's own ones first.
    ///
    /// # Errors
    /// [`MemoryRefusal`], if a limit would be exceeded; nothing is held then.
    pub fn try_hold(&self, bytes: u64) -> Result<Hold, MemoryRefusal> {
        if take(&self.0.own, bytes, OWN_BYTES) {
            return Ok(self.held_in(Pocket::Own, bytes));
        }
        if self.0.tenant.take_passing(bytes) {
            self.0.shared.fetch_add(bytes, Ordering::SeqCst);
            return Ok(self.held_in(Pocket::Shared, bytes));
        }
        let most = self.0.tenant.0.account.limits.passing.min(self.0.tenant.manager().limits.passing);
        Err(if bytes > most { MemoryRefusal::Never } else { MemoryRefusal::NotNow })
    }

    /// Holds bytes that are in memory already, whatever the limits: the answer to the message that is being
    /// handled. The manager stops reading from sessions above a limit.
    #[must_use]
    pub fn hold(&self, bytes: u64) -> Hold {
        if take(&self.0.own, bytes, OWN_BYTES) {
            return self.held_in(Pocket::Own, bytes);
        }
        let tenant = &self.0.tenant;
        tenant.0.account.passing.fetch_add(bytes, Ordering::SeqCst);
        tenant.manager().passing.fetch_add(bytes, Ordering::SeqCst);
        self.0.shared.fetch_add(bytes, Ordering::SeqCst);
        self.held_in(Pocket::Shared, bytes)
    }

    fn held_in(&self, pocket: Pocket, bytes: u64) -> Hold {
        Hold { budget: self.clone(), bytes, pocket }
    }

    /// Holds lasting bytes, like [`TenantAccount::lasting`].
    #[must_use]
    pub fn lasting(&self, bytes: u64) -> Option<Lasting> {
        self.0.tenant.lasting(bytes)
    }

    /// Number of passing bytes that the session holds.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.0.own.load(Ordering::SeqCst) + self.0.shared.load(Ordering::SeqCst)
    }

    /// Whether the session holds shared bytes of an account that is nearly used up. The manager then stops
    /// reading from it.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        let shared = self.0.shared.load(Ordering::SeqCst) > 0;
        shared && (self.0.tenant.0.account.is_pressed() || self.0.tenant.manager().is_pressed())
    }

    /// Whether the session holds shared bytes that another session waits for: one of the same tenant, or one
    /// of any tenant if half of the passing bytes of all are held.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let tenant = &self.0.tenant.0;
        let all =
            tenant.governor.0.watched.load(Ordering::SeqCst) > 0 && self.0.tenant.manager().is_half_taken();
        let shared = self.0.shared.load(Ordering::SeqCst) > 0;
        shared && (tenant.watched.load(Ordering::SeqCst) > 0 || all || self.is_pressed())
    }

    /// Whether the session holds bytes of an account that is above its limit.
    #[must_use]
    pub fn is_overdrawn(&self) -> bool {
        let shared = self.0.shared.load(Ordering::SeqCst) > 0;
        shared && (self.0.tenant.0.account.is_overdrawn() || self.0.tenant.manager().is_overdrawn())
    }

    /// Completes when bytes have been freed since this call, provided that a [`Watch`] exists. First call
    /// [`Self::watch`], then this, then check for bytes, then await.
    pub fn freed(&self) -> Notified<'_> {
        self.0.tenant.0.governor.0.freed.notified()
    }

    /// Makes freed bytes complete [`Self::freed`], until the value is dropped.
    #[must_use]
    pub fn watch(&self) -> Watch {
        let tenant = self.0.tenant.clone();
        tenant.0.watched.fetch_add(1, Ordering::SeqCst);
        tenant.0.governor.0.watched.fetch_add(1, Ordering::SeqCst);
        Watch(tenant)
    }

    /// Most passing bytes that the tenant may hold at once.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.0.tenant.0.account.limits.passing
    }
}

impl Default for Budget {
    /// A budget without limits.
    fn default() -> Self {
        Self::new(Governor::unlimited().tenant(), None)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.0.watched.fetch_sub(1, Ordering::SeqCst);
        self.0.0.governor.0.watched.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Hold {
    /// Splits off `bytes`, or all if there are fewer, as a value of its own.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes, pocket: self.pocket }
    }

    /// Number of bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let session = &self.budget.0;
        match self.pocket {
            Pocket::Own => give(&session.own, self.bytes),
            Pocket::Shared => {
                give(&session.shared, self.bytes);
                session.tenant.give_passing(self.bytes);
            }
        }
        session.tenant.0.governor.gave_back();
    }
}

#[cfg(test)]
mod tests;
