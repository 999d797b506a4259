//! How many bytes clients make the manager hold: one governor for all of them, an account for each tenant, a budget for
//! each session.
//!
//! There are two kinds of bytes. *Lasting* ones stay until their client gives them back (segments, and what a session
//! takes by itself): where the limit is reached the next ones are refused. *Passing* ones go without the client's doing
//! (messages, staged data, what waits to be sent): where the limit is reached the client is not read until some have gone.
//!
//! What must stay true, so that the governor bounds memory and never stops anybody for ever:
//!
//! - [`Budget::try_hold`] and [`Budget::lasting`] never bring an account above its limit; what is refused changes nothing.
//! - A session has [`OWN_BYTES`] that nobody else can take: small commands never wait for other sessions.
//! - Who waits for bytes holds none that only another message of its own client would free; who does is refused instead.
//! - More than there can ever be is refused at once.

use fpga_net::memory::MemoryLimit;
use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Passing bytes that each session has for itself.
pub const OWN_BYTES: u64 = 1 << 20;

/// What decoding a message may take beside its encoded bytes without asking the governor.
pub const DECODING_BYTES: u64 = 4 << 20;

/// What may wait in a session's connection for its socket.
pub const SEND_BUFFER_BYTES: usize = 1 << 20;

/// A thread's stack as far as it is used, the runtime, and the connection's own state.
const THREAD_BYTES: u64 = 512 << 10;

/// Windows of HTTP/2 are between these: less would slow every client down, more makes none faster.
const WINDOW_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=4 << 20;

/// Without any limit known.
const UNKNOWN_MEMORY_BYTES: u64 = 4 << 30;

/// With less a tenant could not have a session, or no room beside it.
pub const LEAST_BYTES: u64 = 64 << 20;

/// The most bytes of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Bytes that stay until their client gives them back.
    pub lasting: u64,
    /// Bytes that go by themselves.
    pub passing: u64,
}

/// Who has to agree to lasting bytes, too: where a process serves for another, the one that counts those of all.
pub trait Above: std::fmt::Debug + Send + Sync {
    /// Holds so many until the value is dropped; nothing where there are none left.
    fn hold(&self, bytes: u64) -> Option<Box<dyn HeldAbove>>;
}

/// What is held above, until this is dropped.
pub trait HeldAbove: std::fmt::Debug + Send + Sync {}

/// The governor of a manager. Clones are the same.
#[derive(Debug, Clone)]
pub struct Governor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    manager: Account,
    of_tenant: Limits,
    above: Option<Box<dyn Above>>,
    freed: Notify,
    /// How many want to hear of freed bytes.
    watched: AtomicUsize,
}

/// A tenant's account. Clones are the same.
#[derive(Debug, Clone)]
pub struct TenantAccount(Arc<OfTenant>);

#[derive(Debug)]
struct OfTenant {
    account: Account,
    governor: Governor,
    /// How many of its sessions want to hear of freed bytes.
    watched: AtomicUsize,
}

/// What is held, and the limits of it.
#[derive(Debug)]
struct Account {
    lasting: AtomicU64,
    passing: AtomicU64,
    limits: Limits,
}

/// A session's budget. Clones are the same.
#[derive(Debug, Clone)]
pub struct Budget(Arc<OfSession>);

#[derive(Debug)]
struct OfSession {
    tenant: TenantAccount,
    /// Of [`OWN_BYTES`].
    own: AtomicU64,
    /// On the tenant's account.
    shared: AtomicU64,
    _session: Option<Lasting>,
}

/// Passing bytes that a session holds, until this is dropped.
#[derive(Debug)]
pub struct Hold {
    budget: Budget,
    bytes: u64,
    pocket: Pocket,
}

/// Where held bytes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pocket {
    Own,
    Shared,
}

/// Lasting bytes, until this is dropped.
#[derive(Debug)]
pub struct Lasting {
    tenant: TenantAccount,
    bytes: u64,
    above: Option<Box<dyn HeldAbove>>,
}

/// Why bytes can't be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There are too many now.
    NotNow,
    /// It is more than there can ever be.
    Never,
}

/// Somebody who hears of freed bytes, until this is dropped.
#[derive(Debug)]
pub struct Watch(TenantAccount);

impl Limits {
    /// Two thirds for what lasts, one for what passes.
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

/// What clients may make the manager hold unless somebody says otherwise: three quarters of what its process may use and the
/// store of bitstreams, of this limit, leaves over. The rest is the vendor's runtime and the manager itself.
#[must_use]
pub fn default_limit(store_limit: u64) -> u64 {
    clients_part(process_memory(), store_limit)
}

/// How many bytes of bitstreams are kept unless somebody says otherwise: a quarter of what the process may use, and at most
/// 1 GiB. The store's bytes are the process's own memory, and in a folder too where one is given.
#[must_use]
pub fn default_store_limit() -> u64 {
    (process_memory() / 4).min(1 << 30)
}

fn process_memory() -> u64 {
    MemoryLimit::of_this_process().map_or(UNKNOWN_MEMORY_BYTES, |limit| limit.bytes)
}

/// Where the store could have more than half, by a flag, clients still get their part of half.
fn clients_part(memory: u64, store_limit: u64) -> u64 {
    (memory - store_limit.min(memory / 2)) / 4 * 3
}

impl Governor {
    /// Nobody holds anything.
    #[must_use]
    pub fn new(manager: Limits, of_tenant: Limits) -> Self {
        Self::with(manager, of_tenant, None)
    }

    /// That of a process with one tenant, which may hold so much as far as the one above agrees.
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

    /// One that limits nothing.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(Limits::none(), Limits::none())
    }

    /// What each tenant may have.
    #[must_use]
    pub fn of_tenant(&self) -> Limits {
        self.0.of_tenant
    }

    /// A new account.
    #[must_use]
    pub fn tenant(&self) -> TenantAccount {
        let account = Account::new(self.0.of_tenant);
        let watched = AtomicUsize::new(0);
        TenantAccount(Arc::new(OfTenant { account, governor: self.clone(), watched }))
    }

    /// How much of a stream may be on its way: a window of HTTP/2.
    #[must_use]
    pub fn window_bytes(&self) -> u32 {
        let part = (self.0.of_tenant.passing / 16).clamp(*WINDOW_BYTES.start(), *WINDOW_BYTES.end());
        // At most the end of WINDOW_BYTES, 4 MiB: it fits.
        u32::try_from(part).unwrap_or(u32::MAX)
    }

    /// How many connections may have no session yet. Each takes a thread, a few short messages and frames.
    #[must_use]
    pub fn unproven(&self) -> usize {
        const EACH_BYTES: u64 = 512 << 10;
        const MOST: u64 = 512;
        const LEAST: u64 = 64;
        let part = self.0.manager.limits.lasting / 16 / EACH_BYTES;
        usize::try_from(part.clamp(LEAST, MOST)).unwrap_or(usize::MAX)
    }

    /// What a session takes by itself: windows and buffers of its connection, a message and its decoding, its own bytes.
    fn session_bytes(&self) -> u64 {
        u64::from(self.window_bytes())
            + SEND_BUFFER_BYTES as u64
            + MAX_MESSAGE_BYTES as u64
            + DECODING_BYTES
            + OWN_BYTES
            + THREAD_BYTES
    }

    /// How many lasting and passing bytes are held.
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

    /// From here on who holds shared bytes is not read on. Below the limit, since each message may still add what it
    /// brings to be sent.
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

/// Adds to what is held, unless that would exceed the limit.
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

    /// Holds lasting bytes; nothing where the tenant, or all tenants together, have what they may.
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

    /// The budget of a new session; nothing where there is not even that much left.
    #[must_use]
    pub fn session(&self) -> Option<Budget> {
        // The one above has counted the session where it began.
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
    /// [`Refusal`]; nothing is held then.
    pub fn try_hold(&self, bytes: u64) -> Result<Hold, Refusal> {
        if take(&self.0.own, bytes, OWN_BYTES) {
            return Ok(self.held_in(Pocket::Own, bytes));
        }
        if self.0.tenant.take_passing(bytes) {
            self.0.shared.fetch_add(bytes, Ordering::SeqCst);
            return Ok(self.held_in(Pocket::Shared, bytes));
        }
        let most = self.0.tenant.0.account.limits.passing.min(self.0.tenant.manager().limits.passing);
        Err(if bytes > most { Refusal::Never } else { Refusal::NotNow })
    }

    /// Holds bytes that are there already, whatever the limits: what answers the message that is being handled. Who is
    /// above a limit is not read on.
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

    /// Holds lasting bytes, as [`TenantAccount::lasting`].
    #[must_use]
    pub fn lasting(&self, bytes: u64) -> Option<Lasting> {
        self.0.tenant.lasting(bytes)
    }

    /// How many passing bytes the session holds.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.0.own.load(Ordering::SeqCst) + self.0.shared.load(Ordering::SeqCst)
    }

    /// Whether it holds bytes that others want: it is not read on.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        let shared = self.0.shared.load(Ordering::SeqCst) > 0;
        shared && (self.0.tenant.0.account.is_pressed() || self.0.tenant.manager().is_pressed())
    }

    /// Whether it holds bytes that a session waits for: one of its tenant, or of any tenant where all of them together
    /// have half of what they may.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let tenant = &self.0.tenant.0;
        let all =
            tenant.governor.0.watched.load(Ordering::SeqCst) > 0 && self.0.tenant.manager().is_half_taken();
        let shared = self.0.shared.load(Ordering::SeqCst) > 0;
        shared && (tenant.watched.load(Ordering::SeqCst) > 0 || all || self.is_pressed())
    }

    /// Whether it holds bytes of an account that is above its limit.
    #[must_use]
    pub fn is_overdrawn(&self) -> bool {
        let shared = self.0.shared.load(Ordering::SeqCst) > 0;
        shared && (self.0.tenant.0.account.is_overdrawn() || self.0.tenant.manager().is_overdrawn())
    }

    /// Ready when bytes have been freed since it was made, while somebody watches. Watch, make this, look, then await it.
    pub fn freed(&self) -> Notified<'_> {
        self.0.tenant.0.governor.0.freed.notified()
    }

    /// Has [`Self::freed`] told of.
    #[must_use]
    pub fn watch(&self) -> Watch {
        let tenant = self.0.tenant.clone();
        tenant.0.watched.fetch_add(1, Ordering::SeqCst);
        tenant.0.governor.0.watched.fetch_add(1, Ordering::SeqCst);
        Watch(tenant)
    }

    /// The most passing bytes that may ever be held at once.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.0.tenant.0.account.limits.passing
    }
}

impl Default for Budget {
    /// One without limits.
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
    /// As much of it as `bytes`, as a value of its own.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes, pocket: self.pocket }
    }

    /// How many bytes.
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
