//! The network between nodes, modelled: each node has one card, and transfers share the cards max-min fair (P-6).
//!
//! The bytes themselves move over this machine's loopback, at once. A transfer in the model says only when: it ends as
//! late as it would if the cards were as slow as modelled. One thread plays the model in real time; events are played at
//! their modelled moments, however late the thread wakes, so that lateness does not change anybody's share.

use super::priority;
use anyhow::Result;
use fpga_sim::pool::sharing::{Sharing, Use};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A transfer is late if it is told by more than this, and by more than a hundredth of its time, after its modelled end.
const LATE: Duration = Duration::from_millis(1);
const LATE_PART: u32 = 100;

/// A modelled network. Clones share it; it ends with the last one.
#[derive(Debug, Clone)]
pub(super) struct Fabric(Arc<Owner>);

#[derive(Debug)]
struct Owner(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Incoming side of each node's card, then outgoing sides, in bytes per second.
    capacity: Vec<f64>,
    nodes: usize,
    /// The moment up to which the model has been played.
    now: Instant,
    flows: Vec<Flow>,
    sharing: Sharing,
    rates: Vec<f64>,
    late: Lateness,
    is_over: bool,
}

#[derive(Debug)]
struct Flow {
    uses: [Use; 2],
    began: Instant,
    left: f64,
    rate: f64,
    ended: oneshot::Sender<()>,
}

/// How many transfers ended later than modelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lateness {
    /// Transfers that were told late.
    pub late: u64,
    /// All of them.
    pub all: u64,
}

impl Fabric {
    /// A network of nodes whose cards have this speed in each direction, in bytes per second.
    pub fn start(nodes: u32, card: f64) -> Result<Self> {
        let nodes = nodes as usize;
        let state = State {
            capacity: vec![card; 2 * nodes],
            nodes,
            now: Instant::now(),
            flows: Vec::new(),
            sharing: Sharing::default(),
            rates: Vec::new(),
            late: Lateness::default(),
            is_over: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let played = Arc::clone(&shared);
        thread::Builder::new().name("fabric".to_owned()).spawn(move || {
            if let Err(error) = priority::raise([std::process::id()]) {
                eprintln!("the network's thread keeps its priority: {error:#}");
            }
            played.play();
        })?;
        Ok(Self(Arc::new(Owner(shared))))
    }

    /// Waits for as long as a transfer between two different nodes takes.
    pub async fn transfer(&self, from: u32, to: u32, bytes: u64) {
        let (ended, end) = oneshot::channel();
        {
            let mut state = self.0.0.lock();
            let now = Instant::now();
            state.play_until(now);
            let one = |port: usize| Use { port, weight: 1.0 };
            let uses = [one(state.nodes + from as usize), one(to as usize)];
            state.flows.push(Flow { uses, began: now, left: bytes as f64, rate: 0.0, ended });
            state.share();
        }
        self.0.0.changed.notify_one();
        // The thread lives as long as this value.
        let _ = end.await;
    }

    /// How exact the network has been so far.
    pub fn lateness(&self) -> Lateness {
        self.0.0.lock().late
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn play(&self) {
        let mut state = self.lock();
        while !state.is_over {
            state.play_until(Instant::now());
            let wait = state.next_end().map(|end| end.saturating_duration_since(Instant::now()));
            state = match wait {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl State {
    fn next_end(&self) -> Option<Instant> {
        let end = |flow: &Flow| self.now + Duration::from_secs_f64((flow.left / flow.rate).max(0.0));
        self.flows.iter().map(end).min()
    }

    /// Plays all ends up to a moment, in their order.
    fn play_until(&mut self, until: Instant) {
        while let Some(end) = self.next_end().filter(|end| *end <= until) {
            self.advance(end);
            let (mut index, mut is_changed) = (0, false);
            while let Some(flow) = self.flows.get(index) {
                // Less than a byte is left by rounding alone.
                if flow.left >= 0.5 {
                    index += 1;
                    continue;
                }
                let flow = self.flows.swap_remove(index);
                is_changed = true;
                self.late.all += 1;
                let lateness = until.saturating_duration_since(end);
                if lateness > LATE.max((end - flow.began) / LATE_PART) {
                    self.late.late += 1;
                }
                // The job may have been given up.
                let _ = flow.ended.send(());
            }
            if is_changed {
                self.share();
            }
        }
        self.advance(until);
    }

    fn advance(&mut self, to: Instant) {
        let seconds = to.saturating_duration_since(self.now).as_secs_f64();
        for flow in &mut self.flows {
            flow.left -= flow.rate * seconds;
        }
        self.now = self.now.max(to);
    }

    fn share(&mut self) {
        let uses = self.flows.iter().map(|flow| flow.uses.as_slice());
        self.sharing.rates(&self.capacity, uses, f64::INFINITY, &mut self.rates);
        for (flow, rate) in self.flows.iter_mut().zip(&self.rates) {
            flow.rate = *rate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn transfers_share_cards_as_the_model_says_and_none_is_early() {
        let fabric = Fabric::start(3, 1e6).unwrap();
        let began = Instant::now();
        let timed = async |from, to, bytes| {
            fabric.transfer(from, to, bytes).await;
            began.elapsed()
        };
        // Two into node 1 share its card: 0.5 MB/s each. The one out of node 1 has the other direction for itself.
        let (one, other, back) =
            tokio::join!(timed(0, 1, 100_000), timed(2, 1, 50_000), timed(1, 0, 100_000));
        let [tenth, one, other, back] = [Duration::from_millis(100), one, other, back];
        // Up to 100 ms both have 50 KB; then the first has the card for the other 50 KB.
        assert!(other >= tenth && one >= tenth * 3 / 2 && back >= tenth, "{one:?} {other:?} {back:?}");
        assert_eq!(fabric.lateness().all, 3);
    }
}
