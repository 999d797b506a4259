//! The places that connections take, and the state of each connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// All places of a server.
#[derive(Debug)]
pub struct Places {
    limit: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    pulses: HashMap<u64, Arc<Pulse>>,
}

/// A place, taken until this value is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
    pulse: Arc<Pulse>,
}

/// The state of a connection, and the signal to end it.
#[derive(Debug)]
pub struct Pulse {
    doing: Mutex<Doing>,
    evict: Notify,
}

/// The state of a connection, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
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
pub struct InRequest(Arc<Pulse>);

impl Places {
    /// A server's places, at most `limit`.
    pub fn new(limit: usize) -> Self {
        Self { limit, taken: Mutex::default() }
    }

    /// Takes a free place, or that of the connection that has been idle for longest. `None` if every connection has a
    /// request that is being worked on.
    pub fn take(self: &Arc<Self>) -> Option<Place> {
        let mut taken = lock(&self.taken);
        if taken.pulses.len() >= self.limit {
            let idle = taken.pulses.iter().filter_map(|(number, pulse)| Some((pulse.idle_since()?, *number)));
            let (_, longest) = idle.min()?;
            if let Some(pulse) = taken.pulses.remove(&longest) {
                pulse.give_up();
            }
        }
        let number = taken.next;
        taken.next += 1;
        let pulse =
            Arc::new(Pulse { doing: Mutex::new(Doing::Beginning(Instant::now())), evict: Notify::new() });
        taken.pulses.insert(number, Arc::clone(&pulse));
        Some(Place { places: Arc::clone(self), number, pulse })
    }
}

impl Place {
    /// The state of the connection.
    pub fn pulse(&self) -> Arc<Pulse> {
        Arc::clone(&self.pulse)
    }

    /// Waits until a new connection has taken the place.
    pub fn evicted(&self) -> impl Future<Output = ()> + Send + 'static {
        let pulse = self.pulse();
        async move { pulse.evict.notified().await }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.taken).pulses.remove(&self.number);
    }
}

impl Pulse {
    /// Records that a request begins.
    pub fn begin(self: &Arc<Self>) -> InRequest {
        *lock(&self.doing) = Doing::Request;
        InRequest(Arc::clone(self))
    }

    /// Records that bytes were read.
    pub fn heard(&self) {
        let mut doing = lock(&self.doing);
        match *doing {
            Doing::Beginning(since) => *doing = Doing::Head(since),
            Doing::Resting(_) => *doing = Doing::Head(Instant::now()),
            Doing::Head(_) | Doing::Body(_) | Doing::Request => {}
        }
    }

    /// Records that a handler waits for the body of its request. Until the body is there, a new connection may take
    /// the place.
    pub fn body_begins(&self) {
        self.change(Doing::Request, Doing::Body(Instant::now()));
    }

    /// Records that the body is there.
    pub fn body_ends(&self) {
        if let doing @ Doing::Body(_) = self.doing() {
            self.change(doing, Doing::Request);
        }
    }

    fn change(&self, before: Doing, after: Doing) {
        let mut doing = lock(&self.doing);
        if *doing == before {
            *doing = after;
        }
    }

    /// Records that bytes were written: a peer that reads slowly is not idle.
    pub fn said(&self) {
        let mut doing = lock(&self.doing);
        if let Doing::Resting(since) = &mut *doing {
            *since = Instant::now();
        }
    }

    /// Ends the connection.
    pub fn give_up(&self) {
        self.evict.notify_one();
    }

    /// The current state.
    pub fn doing(&self) -> Doing {
        *lock(&self.doing)
    }

    fn idle_since(&self) -> Option<Instant> {
        match self.doing() {
            Doing::Request => None,
            Doing::Beginning(since) | Doing::Head(since) | Doing::Body(since) | Doing::Resting(since) => {
                Some(since)
            }
        }
    }
}

impl Drop for InRequest {
    fn drop(&mut self) {
        *lock(&self.0.doing) = Doing::Resting(Instant::now());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_newcomer_gets_the_place_that_was_idle_for_longest_and_none_of_those_at_work() {
        let places = Arc::new(Places::new(2));
        let (first, second) = (places.take().unwrap(), places.take().unwrap());
        let working = first.pulse().begin();
        let third = places.take().unwrap();
        second.evicted().await;
        let also_working = third.pulse().begin();
        assert!(places.take().is_none(), "both have requests");
        drop(working);
        let fourth = places.take().unwrap();
        first.evicted().await;
        drop((first, second));
        assert_eq!(lock(&places.taken).pulses.len(), 2, "who was evicted frees nothing");
        drop((also_working, third, fourth));
        assert_eq!(lock(&places.taken).pulses.len(), 0);
    }

    #[tokio::test]
    async fn a_request_whose_body_has_not_come_keeps_no_place_from_a_newcomer() {
        let places = Arc::new(Places::new(1));
        let uploading = places.take().unwrap();
        let pulse = uploading.pulse();
        let _in_request = pulse.begin();
        pulse.body_begins();
        let newcomer = places.take().unwrap();
        uploading.evicted().await;
        let pulse = newcomer.pulse();
        let _in_request = pulse.begin();
        pulse.body_begins();
        pulse.body_ends();
        assert!(places.take().is_none(), "its body is there, and it is worked on");
    }

    #[tokio::test]
    async fn a_head_is_timed_from_its_first_byte_and_the_first_one_from_the_begin() {
        let places = Arc::new(Places::new(1));
        let place = places.take().unwrap();
        let pulse = place.pulse();
        let Doing::Beginning(begin) = pulse.doing() else { panic!() };
        pulse.heard();
        assert_eq!(pulse.doing(), Doing::Head(begin));
        drop(pulse.begin());
        let Doing::Resting(rest) = pulse.doing() else { panic!() };
        pulse.heard();
        let Doing::Head(head) = pulse.doing() else { panic!() };
        assert!(head >= rest);
        pulse.heard();
        assert_eq!(pulse.doing(), Doing::Head(head), "more bytes win no time");
    }
}
