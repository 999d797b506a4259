//! The limit on the connections of a server, and what each connection does.

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The limit on the connections of a server, and the places that are taken.
#[derive(Debug)]
pub struct ConnectionLimit {
    limit: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    connections: HashMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    origin: Origin,
    activity: Arc<ConnectionActivity>,
}

/// The source of connections; the places of all its connections count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An address on the network.
    Address(IpAddr),
    /// A user of this machine.
    User(u32),
}

/// A place, taken until this value is dropped.
#[derive(Debug)]
pub struct Place {
    limit: Arc<ConnectionLimit>,
    number: u64,
    activity: Arc<ConnectionActivity>,
}

/// The state of a connection, and the signal to end it.
#[derive(Debug)]
pub struct ConnectionActivity {
    state: Mutex<ConnectionState>,
    evict: Notify,
}

/// The state of a connection, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// The connection was accepted and no byte has come yet.
    Beginning(Instant),
    /// The head of a request is coming.
    Head(Instant),
    /// The body of a request is coming; the handler limits the time for it.
    Body(Instant),
    /// A handler works on a request.
    Request,
    /// The answer is being sent, or the connection is idle.
    Resting(Instant),
}

/// A request in progress, until this value is dropped.
#[derive(Debug)]
pub struct InRequest(Arc<ConnectionActivity>);

impl ConnectionLimit {
    /// A server's places, at most `limit`.
    pub fn new(limit: usize) -> Self {
        Self { limit, taken: Mutex::default() }
    }

    /// Takes a free place, or the place of a connection that is evicted. `None` if no connection has to make room for
    /// one of `origin`.
    pub fn take(self: &Arc<Self>, origin: Origin) -> Option<Place> {
        let mut taken = self.taken.lock();
        if taken.connections.len() >= self.limit {
            let victim = taken.victim(origin)?;
            if let Some(connection) = taken.connections.remove(&victim) {
                connection.activity.evict();
            }
        }
        let number = taken.next;
        taken.next += 1;
        let activity = Arc::new(ConnectionActivity {
            state: Mutex::new(ConnectionState::Beginning(Instant::now())),
            evict: Notify::new(),
        });
        taken.connections.insert(number, Connection { origin, activity: Arc::clone(&activity) });
        Some(Place { limit: Arc::clone(self), number, activity })
    }
}

impl Taken {
    /// The connection that makes room for a new one of `newcomer`. The origin with the most places loses one, if it
    /// keeps at least as many as `newcomer` then has: so two origins never take a place from each other in turn. Its
    /// longest idle connection comes first, then its oldest one with a request in progress. If no origin has that many
    /// places, it is the longest idle connection of `newcomer` itself or of an origin with more places.
    fn victim(&self, newcomer: Origin) -> Option<u64> {
        let mut places: HashMap<Origin, usize> = HashMap::new();
        for connection in self.connections.values() {
            *places.entry(connection.origin).or_default() += 1;
        }
        let places = |origin| places.get(&origin).copied().unwrap_or(0);
        let own = places(newcomer);
        let all = || {
            self.connections.iter().map(|(number, connection)| {
                (places(connection.origin), connection.origin, connection.activity.idle_since(), *number)
            })
        };
        let largest = all().filter(|(count, ..)| *count > own + 1);
        let largest =
            largest.min_by_key(|(count, _, idle, number)| (Reverse(*count), idle.is_none(), *idle, *number));
        let idle = || {
            let idle = all()
                .filter(|(count, origin, idle, _)| idle.is_some() && (*count > own || *origin == newcomer));
            idle.min_by_key(|(.., idle, number)| (*idle, *number))
        };
        largest.or_else(idle).map(|(.., number)| number)
    }
}

impl Place {
    /// The state of the connection.
    pub fn activity(&self) -> Arc<ConnectionActivity> {
        Arc::clone(&self.activity)
    }

    /// Waits until a new connection has taken the place.
    pub fn evicted(&self) -> impl Future<Output = ()> + Send + 'static {
        let activity = self.activity();
        async move { activity.evict.notified().await }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limit.taken.lock().connections.remove(&self.number);
    }
}

impl ConnectionActivity {
    /// Records that a request begins.
    pub fn begin(self: &Arc<Self>) -> InRequest {
        *self.state.lock() = ConnectionState::Request;
        InRequest(Arc::clone(self))
    }

    /// Records that bytes were read.
    pub fn bytes_read(&self) {
        let mut state = self.state.lock();
        match *state {
            ConnectionState::Beginning(since) => *state = ConnectionState::Head(since),
            ConnectionState::Resting(_) => *state = ConnectionState::Head(Instant::now()),
            ConnectionState::Head(_) | ConnectionState::Body(_) | ConnectionState::Request => {}
        }
    }

    /// Records that a handler waits for the body of its request. Until the body is there, a new connection may take
    /// the place.
    pub fn body_begins(&self) {
        self.change(ConnectionState::Request, ConnectionState::Body(Instant::now()));
    }

    /// Records that the body is there.
    pub fn body_ends(&self) {
        if let state @ ConnectionState::Body(_) = self.state() {
            self.change(state, ConnectionState::Request);
        }
    }

    fn change(&self, before: ConnectionState, after: ConnectionState) {
        let mut state = self.state.lock();
        if *state == before {
            *state = after;
        }
    }

    /// Records that bytes were written: a peer that reads slowly is not idle.
    pub fn bytes_written(&self) {
        let mut state = self.state.lock();
        if let ConnectionState::Resting(since) = &mut *state {
            *since = Instant::now();
        }
    }

    /// Ends the connection.
    pub fn evict(&self) {
        self.evict.notify_one();
    }

    /// The current state.
    pub fn state(&self) -> ConnectionState {
        *self.state.lock()
    }

    fn idle_since(&self) -> Option<Instant> {
        match self.state() {
            ConnectionState::Request => None,
            ConnectionState::Beginning(since)
            | ConnectionState::Head(since)
            | ConnectionState::Body(since)
            | ConnectionState::Resting(since) => Some(since),
        }
    }
}

impl Drop for InRequest {
    fn drop(&mut self) {
        *self.0.state.lock() = ConnectionState::Resting(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: Origin = Origin::User(0);

    #[tokio::test]
    async fn a_newcomer_gets_the_place_that_was_idle_for_longest_and_none_of_those_at_work() {
        let limit = Arc::new(ConnectionLimit::new(2));
        let (first, second) = (limit.take(SAME).unwrap(), limit.take(SAME).unwrap());
        let working = first.activity().begin();
        let third = limit.take(SAME).unwrap();
        second.evicted().await;
        let also_working = third.activity().begin();
        assert!(limit.take(SAME).is_none(), "both have requests");
        drop(working);
        let fourth = limit.take(SAME).unwrap();
        first.evicted().await;
        drop((first, second));
        assert_eq!(limit.taken.lock().connections.len(), 2, "who was evicted frees nothing");
        drop((also_working, third, fourth));
        assert_eq!(limit.taken.lock().connections.len(), 0);
    }

    #[tokio::test]
    async fn the_origin_with_the_most_places_makes_room_idle_ones_first_and_small_shares_are_kept() {
        let [large, small, other] = [1, 2, 3].map(Origin::User);
        let limit = Arc::new(ConnectionLimit::new(4));
        let kept = limit.take(small).unwrap();
        let places = [large; 3].map(|origin| limit.take(origin).unwrap());
        let working = [&places[0], &places[1]].map(|place| place.activity().begin());
        let newcomer = limit.take(other).unwrap();
        places[2].evicted().await;
        let _working = (working, newcomer.activity().begin());
        assert!(limit.take(large).is_none(), "the other places are idle, and of origins with fewer places");
        let own = limit.take(small).unwrap();
        kept.evicted().await;
        let _fourth = limit.take(Origin::User(4)).unwrap();
        places[0].evicted().await;
        assert_eq!(limit.taken.lock().connections.len(), 4);
        drop(own);
    }

    #[tokio::test]
    async fn a_request_whose_body_has_not_come_keeps_no_place_from_a_newcomer() {
        let limit = Arc::new(ConnectionLimit::new(1));
        let uploading = limit.take(SAME).unwrap();
        let activity = uploading.activity();
        let _in_request = activity.begin();
        activity.body_begins();
        let newcomer = limit.take(SAME).unwrap();
        uploading.evicted().await;
        let activity = newcomer.activity();
        let _in_request = activity.begin();
        activity.body_begins();
        activity.body_ends();
        assert!(limit.take(SAME).is_none(), "its body is there, and it is worked on");
    }

    #[tokio::test]
    async fn a_head_is_timed_from_its_first_byte_and_the_first_one_from_the_begin() {
        let limit = Arc::new(ConnectionLimit::new(1));
        let place = limit.take(SAME).unwrap();
        let activity = place.activity();
        let ConnectionState::Beginning(begin) = activity.state() else { panic!() };
        activity.bytes_read();
        assert_eq!(activity.state(), ConnectionState::Head(begin));
        drop(activity.begin());
        let ConnectionState::Resting(rest) = activity.state() else { panic!() };
        activity.bytes_read();
        let ConnectionState::Head(head) = activity.state() else { panic!() };
        assert!(head >= rest);
        activity.bytes_read();
        assert_eq!(activity.state(), ConnectionState::Head(head), "more bytes win no time");
    }
}
