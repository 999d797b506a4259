//! Turns at the review of tokens. An address has few at once: the junk of one pod keeps nobody else waiting.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Tokens of an address that are reviewed at once, of the 32 of all.
const TURNS_OF_ADDRESS: usize = 4;

/// Who waits for turns, and who has them.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<IpAddr, Weak<Semaphore>>>);

/// A turn, which is over when it is dropped.
#[derive(Debug)]
pub struct Turn {
    /// `None` never: the semaphore is never closed.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Waits for a turn of the address.
    pub async fn wait(&self, address: IpAddr) -> Turn {
        let turns = self.of(address);
        Turn { _permit: turns.acquire_owned().await.ok() }
    }

    fn of(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut all = self.0.lock();
        if let Some(turns) = all.get(&address).and_then(Weak::upgrade) {
            return turns;
        }
        all.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(TURNS_OF_ADDRESS));
        all.insert(address, Arc::downgrade(&turns));
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::net::Ipv4Addr;

    #[test]
    fn an_address_has_few_turns_at_once_and_keeps_no_other_one_waiting() {
        let turns = Turns::default();
        let [busy, other] = [1, 2].map(|last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let taken: Vec<Turn> =
            (0..TURNS_OF_ADDRESS).map(|_| turns.wait(busy).now_or_never().unwrap()).collect();
        let mut next = std::pin::pin!(turns.wait(busy));
        assert!(next.as_mut().now_or_never().is_none());
        assert!(turns.wait(other).now_or_never().is_some());
        drop(taken);
        assert!(next.now_or_never().is_some());
        assert!(turns.wait(other).now_or_never().is_some());
        assert_eq!(turns.0.lock().len(), 1, "addresses without a turn are forgotten");
    }
}
