//! The places for connections: one peer can't have them all, and who says nothing makes room for who comes.

use crate::objects::lock;
use crate::peer::Peer;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Most connections at a time.
const MAX_CONNECTIONS: usize = 512;
/// Most of them of one user, or from one address: the rest is others'.
const MAX_OF_PEER: usize = 384;
/// A connection without a session that is older makes room where there is none.
const PATIENCE: Duration = Duration::from_secs(1);

/// The connections that are open. Clones are the same.
#[derive(Debug, Clone)]
pub struct Connections {
    open: Arc<Mutex<Table>>,
    count: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Table {
    /// By the order in which they came.
    entries: BTreeMap<u64, Entry>,
    last: u64,
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    since: Instant,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// A session has begun on it.
    used: AtomicBool,
    close: Notify,
}

/// One of them: its place is free again when the value goes.
#[derive(Debug)]
pub struct Open {
    id: u64,
    connections: Connections,
    state: Arc<State>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { open: Arc::default(), count: watch::Sender::new(0) }
    }
}

impl Connections {
    /// A place for this peer's connection; nothing where it, or all, have what they may and nobody is to make room.
    #[must_use]
    pub fn open(&self, peer: &Peer) -> Option<Open> {
        self.open_at(peer, Instant::now())
    }

    fn open_at(&self, peer: &Peer, now: Instant) -> Option<Open> {
        let mut table = lock(&self.open);
        let of_peer = table.entries.values().filter(|entry| entry.peer == *peer).count();
        if of_peer >= MAX_OF_PEER {
            table.make_room(now, |entry| entry.peer == *peer)?;
        } else if table.entries.len() >= MAX_CONNECTIONS {
            table.make_room(now, |_| true)?;
        }
        table.last += 1;
        let id = table.last;
        let state = Arc::new(State::default());
        table.entries.insert(id, Entry { peer: peer.clone(), since: now, state: state.clone() });
        drop(table);
        self.count.send_modify(|count| *count += 1);
        Some(Open { id, connections: self.clone(), state })
    }

    /// Waits until there is none.
    pub async fn all_closed(&self) {
        // It can't be closed: this value holds a sender.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Table {
    /// The oldest connection without a session goes, if it is old enough. Its place is taken at once.
    fn make_room(&mut self, now: Instant, of: impl Fn(&Entry) -> bool) -> Option<()> {
        let silent = |entry: &Entry| {
            of(entry)
                && now.saturating_duration_since(entry.since) >= PATIENCE
                && !entry.state.used.load(Ordering::Relaxed)
        };
        let oldest = self.entries.iter().find(|(_, entry)| silent(entry)).map(|(id, _)| *id)?;
        let entry = self.entries.remove(&oldest)?;
        entry.state.close.notify_one();
        Some(())
    }
}

impl Open {
    /// A session begins on it: it makes no room any more.
    pub fn is_used(&self) {
        self.state.used.store(true, Ordering::Relaxed);
    }

    /// Waits until it is to make room for another.
    pub async fn makes_room(&self) {
        self.state.close.notified().await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.connections.open).entries.remove(&self.id);
        self.connections.count.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_leaves_places_for_others_and_the_silent_make_room_for_those_who_come() {
        let connections = Connections::default();
        let (one, two, three) = (Peer::User(1), Peer::User(2), Peer::User(3));
        let start = Instant::now();
        let later = start + PATIENCE;
        let of_one: Vec<_> = (0..MAX_OF_PEER).map(|_| connections.open_at(&one, start).unwrap()).collect();
        assert!(connections.open_at(&one, start).is_none(), "it has all that it may");
        let left = MAX_CONNECTIONS - MAX_OF_PEER;
        let of_two: Vec<_> = (0..left).map(|_| connections.open_at(&two, start).unwrap()).collect();
        assert!(connections.open_at(&three, start).is_none(), "nobody has been silent for long");
        of_one[0].is_used();
        let third = connections.open_at(&three, later).unwrap();
        let told = |open: &Open| {
            use std::future::Future as _;
            let waits = open.makes_room();
            let mut waits = std::pin::pin!(waits);
            waits.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
        };
        assert!(!told(&of_one[0]) && told(&of_one[1]), "the oldest that has no session");
        assert_eq!(lock(&connections.open).entries.len(), MAX_CONNECTIONS);
        drop((of_one, of_two, third));
        assert!(lock(&connections.open).entries.is_empty());
        assert_eq!(*connections.count.borrow(), 0);
    }
}
