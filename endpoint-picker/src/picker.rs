//! The state of the picker as its tasks share it, and the requests in flight. A request counts until its [`Ticket`] is
//! dropped, however its stream ends.

use crate::function::FunctionName;
use crate::metrics::Metrics;
use crate::state::{Assignment, Basis, Census, Choice, Refusal, Request, State};
use fpga_core::units::MonotonicTime;
use fpga_traces::tracer::Tracer;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::Notify;

/// Settings of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of endpoints in an answer.
    pub endpoints: usize,
    /// Most requests of a function that may wait for a slot, where the function says nothing else.
    pub waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { endpoints: 3, waiting: 1_000 }
    }
}

/// The state of the picker, shared by its tasks.
#[derive(Debug)]
pub struct Picker {
    state: Mutex<State>,
    limits: Limits,
    /// The picker's metrics.
    pub metrics: Metrics,
    /// Takes the spans of requests.
    pub tracer: Tracer,
    started: Instant,
    synced: AtomicBool,
    ending: AtomicBool,
    replicas_changed: Notify,
}

/// The endpoints for a request, and the request itself.
#[derive(Debug)]
pub struct Picked {
    /// The endpoints to try, in order.
    pub endpoints: Vec<SocketAddr>,
    /// Id of the board that the first endpoint should use, if it has several.
    pub board: Option<Arc<str>>,
    /// What the choice is based on.
    pub basis: Basis,
    /// The request in flight.
    pub ticket: Ticket,
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub struct Ticket {
    picker: Arc<Picker>,
    assignment: Assignment,
}

impl Picker {
    /// A picker that knows nothing yet.
    #[must_use]
    pub fn new(limits: Limits, metrics: Metrics) -> Arc<Self> {
        Self::traced(limits, metrics, Tracer::off())
    }

    /// A picker that knows nothing yet, and records the spans of requests.
    #[must_use]
    pub fn traced(limits: Limits, metrics: Metrics, tracer: Tracer) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            limits,
            metrics,
            tracer,
            started: Instant::now(),
            synced: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            replicas_changed: Notify::new(),
        })
    }

    /// The time of the picker's clock.
    #[must_use]
    pub fn now(&self) -> MonotonicTime {
        MonotonicTime::after(self.started.elapsed())
    }

    /// Changes or reads the state. The lock is held meanwhile, so `with` must be short.
    pub fn with<T>(&self, with: impl FnOnce(&mut State, MonotonicTime) -> T) -> T {
        with(&mut self.state.lock(), self.now())
    }

    /// From now on all functions of the cluster are known.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
        self.tell_of_replicas();
    }

    /// Whether all functions of the cluster are known.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Replicas have come or gone.
    pub fn tell_of_replicas(&self) {
        self.replicas_changed.notify_one();
    }

    /// Waits until replicas have come or gone since the last call. For one task.
    pub async fn replicas_changed(&self) {
        self.replicas_changed.notified().await;
    }

    /// From now on the picker is not ready: it is about to end. It still answers.
    pub fn begin_to_end(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// Whether requests can be answered: all functions are known, and the picker is not about to end.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_synced() && !self.ending.load(Ordering::Acquire)
    }

    /// Chooses endpoints for a request.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn pick(
        self: &Arc<Self>,
        function: Option<&FunctionName>,
        subset: Option<&HashSet<SocketAddr>>,
    ) -> Result<Picked, Refusal> {
        let begun = Instant::now();
        let Limits { endpoints, waiting } = self.limits;
        let request = Request { function, subset, most: endpoints, max_waiting: waiting };
        let chosen = if self.is_synced() {
            self.with(|state, now| state.choose(request, now))
        } else {
            Err(Refusal::NotReady)
        };
        self.metrics.picked(&chosen, begun.elapsed());
        let Choice { assignment, endpoints, board, basis, .. } = chosen?;
        Ok(Picked { endpoints, board, basis, ticket: Ticket { picker: Arc::clone(self), assignment } })
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn census(&self) -> Census {
        self.with(|state, now| state.census(now))
    }
}

impl Ticket {
    /// The gateway says which endpoint served the request.
    pub fn served_by(&mut self, address: SocketAddr) {
        let before = self.assignment;
        self.assignment = self.picker.with(|state, now| state.served(before, address, now));
        if self.assignment != before {
            self.picker.metrics.served_elsewhere.inc();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.picker.with(|state, now| state.end(self.assignment, now));
    }
}
