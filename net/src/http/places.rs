//! The places that connections take, and what each of them is doing.

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

/// A place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
    pulse: Arc<Pulse>,
}

/// What a connection is doing.
#[derive(Debug)]
pub struct Pulse {
    doing: Mutex<Doing>,
    evict: Notify,
}

/// What a connection is doing, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It has just begun, and nothing came so far.
    Beginning(Instant),
    /// A head is coming.
    Head(Instant),
    /// The body of a request is coming, for which the handler has a patience of its own.
    Body(Instant),
    /// A request is worked on.
    Request,
    /// The answer is on its way, or has arrived.
    Resting(Instant),
}

/// A request is worked on until this is dropped.
#[derive(Debug)]
pub struct InRequest(Arc<Pulse>);

impl Places {
    /// So many places.
    pub fn new(limit: usize) -> Self {
        Self { limit, taken: Mutex::default() }
    }

    /// Takes a place: a free one, or that of the connection that has been without a request for longest. None if all
    /// connections have requests.
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
    /// What the connection is doing.
    pub fn pulse(&self) -> Arc<Pulse> {
        Arc::clone(&self.pulse)
    }

    /// Waits until a newcomer has the place.
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
    /// A request begins.
    pub fn begin(self: &Arc<Self>) -> InRequest {
        *lock(&self.doing) = Doing::Request;
        InRequest(Arc::clone(self))
    }

    /// Bytes came.
    pub fn heard(&self) {
        let mut doing = lock(&self.doing);
        match *doing {
            Doing::Beginning(since) => *doing = Doing::Head(since),
            Doing::Resting(_) => *doing = Doing::Head(Instant::now()),
            Doing::Head(_) | Doing::Body(_) | Doing::Request => {}
        }
    }

    /// A handler waits for the body of its request: until that is there, a newcomer may take the place.
    pub fn body_begins(&self) {
        self.change(Doing::Request, Doing::Body(Instant::now()));
    }

    /// The body is there.
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

    /// Bytes went, so that whoever reads slowly is still reading.
    pub fn said(&self) {
        let mut doing = lock(&self.doing);
        if let Doing::Resting(since) = &mut *doing {
            *since = Instant::now();
        }
    }

    /// The connection ends.
    pub fn give_up(&self) {
        self.evict.notify_one();
    }

    /// What it is doing.
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
