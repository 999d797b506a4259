//! The open streams, the checks before a stream begins, and the intervals that collectors must keep.

use super::authenticator::{Authenticator, NodeScope};
use super::receiver::{Annotations, Receiver, StreamRefusal};
use crate::limits::{MAX_NODE_NAME_BYTES, MAX_UID_BYTES};
use crate::v1::Introduction;
use fpga_core::pacing;
use fpga_core::units::Millis;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;
use tonic::Status;
use tracing::debug;

/// State that all streams share.
pub struct Streams {
    pub(super) receiver: Arc<dyn Receiver>,
    pub(super) authenticator: Authenticator,
    /// The open stream of each node. Replacing an entry ends the older stream.
    open: Mutex<HashMap<Arc<str>, Registration>>,
    next_registration: AtomicU64,
    write_interval: AtomicU64,
    update_interval: AtomicU64,
}

#[derive(Debug)]
struct Registration {
    number: u64,
    /// Dropped when a newer stream of the node replaces this one, which ends it.
    _held: oneshot::Sender<()>,
}

/// The intervals that collectors must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// Time between writes of the annotation; zero if the receiver has no say in it.
    pub write: Millis,
    /// Time between updates of the stream.
    pub update: Millis,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("authenticator", &self.authenticator).finish_non_exhaustive()
    }
}

impl Streams {
    /// Streams to `receiver`, of collectors that `authenticator` admits.
    #[must_use]
    pub fn new(receiver: Arc<dyn Receiver>, authenticator: impl Into<Authenticator>) -> Self {
        let streams = Self {
            receiver,
            authenticator: authenticator.into(),
            open: Mutex::default(),
            next_registration: AtomicU64::new(0),
            write_interval: AtomicU64::new(0),
            update_interval: AtomicU64::new(0),
        };
        streams.refresh_intervals();
        streams
    }

    /// Computes the intervals from the number of known nodes.
    pub fn refresh_intervals(&self) {
        let nodes = self.receiver.nodes_with_states();
        let write = match self.receiver.annotations() {
            Annotations::Spared => pacing::write_interval(nodes),
            Annotations::Needed => Millis::ZERO,
        };
        self.write_interval.store(write.0, Ordering::Relaxed);
        self.update_interval.store(pacing::update_interval(nodes).0, Ordering::Relaxed);
    }

    /// The intervals in force.
    #[must_use]
    pub fn intervals(&self) -> Intervals {
        Intervals {
            write: Millis(self.write_interval.load(Ordering::Relaxed)),
            update: Millis(self.update_interval.load(Ordering::Relaxed)),
        }
    }

    pub(super) fn check_node(&self, introduction: &Introduction, may_be: &[NodeScope]) -> Result<(), Status> {
        let Introduction { node, uid } = introduction;
        let fits = |text: &str, most| !text.is_empty() && text.len() <= most;
        if !fits(node, MAX_NODE_NAME_BYTES) || !fits(uid, MAX_UID_BYTES) {
            return Err(self.refuse(StreamRefusal::Introduction));
        }
        if !may_be.iter().all(|nodes| nodes.contains(node)) {
            return Err(self.refuse(StreamRefusal::OtherNode));
        }
        if !self.receiver.is_synced() {
            return Err(self.refuse(StreamRefusal::NotReady));
        }
        self.receiver.find(node, uid).map_err(|unknown| self.refuse(unknown.into()))
    }

    /// Counts a refusal and returns its status.
    pub(super) fn refuse(&self, refusal: StreamRefusal) -> Status {
        self.receiver.refused_stream(refusal);
        match refusal {
            StreamRefusal::Token => Status::unauthenticated("the token is none that is believed here"),
            StreamRefusal::OtherNode => {
                Status::permission_denied("the token or the certificate speaks for another node")
            }
            StreamRefusal::Introduction => {
                Status::invalid_argument("the first update must name a node and its UID")
            }
            StreamRefusal::NotReady => Status::unavailable("the nodes of the cluster are not known yet"),
            StreamRefusal::UnknownNode => Status::not_found("there is no such node"),
            StreamRefusal::OtherUid => Status::failed_precondition("the node of this name has another UID"),
            StreamRefusal::Replaced => Status::aborted("the same node speaks on a newer stream"),
            StreamRefusal::Silent => Status::deadline_exceeded("nothing was said for too long"),
        }
    }

    /// Registers a stream of `node`, which ends the older stream of the node. Returns the stream's number, and a
    /// receiver that fails when a newer stream replaces it.
    pub(super) fn register(&self, node: &Arc<str>) -> (u64, oneshot::Receiver<()>) {
        let number = self.next_registration.fetch_add(1, Ordering::Relaxed);
        let (held, replaced) = oneshot::channel();
        let mut open = self.open.lock();
        let before = open.insert(Arc::clone(node), Registration { number, _held: held });
        self.receiver.open_streams(open.len());
        drop(open);
        if before.is_some() {
            debug!(node = &**node, "A newer stream takes the place of one");
        }
        (number, replaced)
    }

    pub(super) fn unregister(&self, node: &Arc<str>, number: u64) {
        let mut open = self.open.lock();
        if open.get(node).is_some_and(|registration| registration.number == number) {
            open.remove(node);
        }
        self.receiver.open_streams(open.len());
    }
}
