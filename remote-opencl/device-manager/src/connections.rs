//! Limits the number of connections. One peer cannot have all of them, and a connection without a session
//! makes room for new ones.

use crate::peer::Peer;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Most connections at a time.
const MAX_CONNECTIONS: usize = 512;
/// Most connections of one user or from one address.
const MAX_OF_PEER: usize = 384;
/// Age from which a connection without a session is closed if there is no room for another.
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// The open connections. Clones share them.
#[derive(Debug, Clone)]
pub struct Connections {
    open: Arc<Mutex<Table>>,
    /// Most connections without a session, whose tenants are not proved yet.
    most_unproven: usize,
    count: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Table {
    /// Connections in the order of arrival.
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
    /// Whether a session has begun on the connection.
    used: AtomicBool,
    close: Notify,
}

/// An open connection; dropping the value frees its place.
#[derive(Debug)]
pub struct Open {
    id: u64,
    connections: Connections,
    state: Arc<State>,
}

impl Default for Connections {
    fn default() -> Self {
        Self::with_unproven(MAX_CONNECTIONS)
    }
}

impl Connections {
    /// No connections yet; at most `most_unproven` may be without a session.
    #[must_use]
    pub fn with_unproven(most_unproven: usize) -> Self {
        Self { open: Arc::default(), most_unproven, count: watch::Sender::new(0) }
    }

    /// A place for a connection of this peer; `None` if the peer, or all peers together, have as many as they
    /// may and no connection can be closed.
    #[must_use]
    pub fn open(&self, peer: &Peer) -> Option<Open> {
        self.open_at(peer, Instant::now())
    }

    fn open_at(&self, peer: &Peer, now: Instant) -> Option<Open> {
        let mut table = self.open.lock();
        let of_peer = table.entries.values().filter(|entry| entry.peer == *peer).count();
        if of_peer >= MAX_OF_PEER {
            table.make_room(now, |entry| entry.peer == *peer)?;
        } else if table.entries.len() >= MAX_CONNECTIONS {
            table.make_room(now, |_| true)?;
        }
        if table.unproven().count() >= self.most_unproven {
            table.make_unproven_room(now, peer)?;
        }
        table.last += 1;
        let id = table.last;
        let state = Arc::new(State::default());
        table.entries.insert(id, Entry { peer: peer.clone(), since: now, state: state.clone() });
        drop(table);
        self.count.send_modify(|count| *count += 1);
        Some(Open { id, connections: self.clone(), state })
    }

    /// Waits until all connections are closed.
    pub async fn all_closed(&self) {
        // The channel can't be closed: this value holds a sender.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Table {
    fn unproven(&self) -> impl Iterator<Item = (&u64, &Entry)> {
        self.entries.iter().filter(|(_, entry)| !entry.state.used.load(Ordering::Relaxed))
    }

    /// Like [`Self::make_room`]. If another peer has more than half of the connections without a session, its
    /// oldest one is closed whatever its age.
    fn make_unproven_room(&mut self, now: Instant, newcomer: &Peer) -> Option<()> {
        let all = self.unproven().count();
        let greedy = self.unproven().map(|(_, entry)| &entry.peer).find(|peer| {
            *peer != newcomer && 2 * self.unproven().filter(|(_, entry)| entry.peer == **peer).count() > all
        });
        match greedy.cloned() {
            Some(greedy) => {
                let oldest = self.unproven().find(|(_, entry)| entry.peer == greedy).map(|(id, _)| *id)?;
                self.close(oldest)
            }
            None => self.make_room(now, |_| true),
        }
    }

    fn close(&mut self, id: u64) -> Option<()> {
        self.entries.remove(&id)?.state.close.notify_one();
        Some(())
    }

    /// Closes the oldest connection without a session if it is old enough. Its place is free at once.
    fn make_room(&mut self, now: Instant, of: impl Fn(&Entry) -> bool) -> Option<()> {
        let silent = |entry: &Entry| {
            of(entry)
                && now.saturating_duration_since(entry.since) >= IDLE_GRACE
                && !entry.state.used.load(Ordering::Relaxed)
        };
        let oldest = self.entries.iter().find(|(_, entry)| silent(entry)).map(|(id, _)| *id)?;
        self.close(oldest)
    }
}

impl Open {
    /// Notes that a session has begun on the connection, which is then never closed to make room.
    pub fn is_used(&self) {
        self.state.used.store(true, Ordering::Relaxed);
    }

    /// Waits until the connection is to be closed to make room for another.
    pub async fn makes_room(&self) {
        self.state.close.notified().await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.open.lock().entries.remove(&self.id);
        self.connections.count.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_most_of_the_places_without_a_session_makes_room_for_others_at_once() {
        const UNPROVEN: usize = 8;
        let connections = Connections::with_unproven(UNPROVEN);
        let (greedy, other) = (Peer::User(1), Peer::User(2));
        let start = Instant::now();
        let held: Vec<_> = (0..UNPROVEN).map(|_| connections.open_at(&greedy, start).unwrap()).collect();
        assert!(
            connections.open_at(&greedy, start).is_none(),
            "its own newcomers wait until it is silent for long"
        );
        let first = connections.open_at(&other, start).unwrap();
        first.is_used();
        let second = connections.open_at(&other, start).unwrap();
        let used: Vec<_> = (0..2 * UNPROVEN)
            .map(|_| {
                let open = connections.open_at(&other, start).unwrap();
                open.is_used();
                open
            })
            .collect();
        drop((held, first, second, used));
        assert_eq!(*connections.count.borrow(), 0);
    }

    #[test]
    fn one_peer_leaves_places_for_others_and_the_silent_make_room_for_those_who_come() {
        let connections = Connections::default();
        let (one, two, three) = (Peer::User(1), Peer::User(2), Peer::User(3));
        let start = Instant::now();
        let later = start + IDLE_GRACE;
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
        assert_eq!(connections.open.lock().entries.len(), MAX_CONNECTIONS);
        drop((of_one, of_two, third));
        assert!(connections.open.lock().entries.is_empty());
        assert_eq!(*connections.count.borrow(), 0);
    }
}
