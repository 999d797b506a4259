//! How many bytes a session makes the manager hold: data of commands that have not ended, results not sent yet.
//!
//! Above [`SOFT_LIMIT`] the session's messages wait in its socket; above [`HARD_LIMIT`] the session ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// From here on nothing more is read of the client while its commands run.
pub const SOFT_LIMIT: u64 = 512 << 20;

/// The most that a session may make the manager hold.
pub const HARD_LIMIT: u64 = 4 << 30;

/// The account of one session.
#[derive(Debug, Clone, Default)]
pub struct Budget(Arc<Account>);

#[derive(Debug, Default)]
struct Account {
    held: AtomicU64,
    freed: Notify,
}

/// Bytes on an account; off it when dropped.
#[derive(Debug)]
pub struct Hold {
    account: Arc<Account>,
    bytes: u64,
}

impl Budget {
    /// Puts bytes on the account.
    #[must_use]
    pub fn hold(&self, bytes: u64) -> Hold {
        self.0.held.fetch_add(bytes, Ordering::Relaxed);
        Hold { account: self.0.clone(), bytes }
    }

    /// How many there are.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Waits until some bytes are off the account.
    pub async fn freed(&self) {
        self.0.freed.notified().await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.held.fetch_sub(self.bytes, Ordering::Relaxed);
            self.account.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_off_the_account() {
        let budget = Budget::default();
        let (one, two) = (budget.hold(3), budget.hold(4));
        assert_eq!(budget.held(), 7);
        drop(one);
        assert_eq!(budget.held(), 4);
        drop(two);
        assert_eq!(budget.held(), 0);
    }
}
