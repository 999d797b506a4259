//! The budget of a session: the passing bytes that it holds.

use super::{Governor, Lasting, MemoryRefusal, OWN_BYTES, TenantAccount, give, take};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::futures::Notified;

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

/// A session that waits for freed bytes; dropping the value ends the wait.
#[derive(Debug)]
pub struct Watch(TenantAccount);

impl Budget {
    pub(super) fn new(tenant: TenantAccount, session: Option<Lasting>) -> Self {
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

    /// Whether the session holds bytes that other sessions could use.
    #[must_use]
    pub fn is_sharing(&self) -> bool {
        self.0.shared.load(Ordering::SeqCst) > 0
    }

    /// Whether the session holds shared bytes of an account that is nearly used up. The manager then stops
    /// reading from it.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.is_sharing() && (self.0.tenant.0.account.is_pressed() || self.0.tenant.manager().is_pressed())
    }

    /// Whether the session holds shared bytes that another session waits for: one of the same tenant, or one
    /// of any tenant if half of the passing bytes of all are held.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let tenant = &self.0.tenant.0;
        let all =
            tenant.governor.0.watched.load(Ordering::SeqCst) > 0 && self.0.tenant.manager().is_half_taken();
        self.is_sharing() && (tenant.watched.load(Ordering::SeqCst) > 0 || all || self.is_pressed())
    }

    /// Whether the session holds bytes of an account that is above its limit.
    #[must_use]
    pub fn is_overdrawn(&self) -> bool {
        self.is_sharing()
            && (self.0.tenant.0.account.is_overdrawn() || self.0.tenant.manager().is_overdrawn())
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

    /// Holds more bytes of the same session, like [`Budget::try_hold`].
    ///
    /// # Errors
    /// As there.
    pub fn more(&self, bytes: u64) -> Result<Self, MemoryRefusal> {
        self.budget.try_hold(bytes)
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
