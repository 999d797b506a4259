//! The streams of collectors: states that arrive directly, a moment after they were measured.
//!
//! A stream is for one node. The reflector must know the node under the UID that the collector names, and the
//! collector's token or certificate must be for that node ([`authenticator`]). Sizes and rates are bounded.

pub mod authenticator;
mod listener;
pub mod options;
mod session;

pub use listener::{serve, serve_with};

use crate::clock::Clock;
use crate::index::{NodeIndex, Streamed};
use crate::metrics::{Metrics, StreamRefusal};
use authenticator::{Authenticator, NodeScope};
use fpga_core::pacing;
use fpga_core::units::Millis;
use fpga_node_stream::limits::{ANSWER_TIMEOUT, MAX_NODE_NAME_BYTES, MAX_UID_BYTES};
use fpga_node_stream::v1::node_stream_server::NodeStream;
use fpga_node_stream::v1::{Answer, Introduction, Update};
use futures::Stream;
use listener::Connection;

use parking_lot::Mutex;
use session::Session;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status, Streaming};
use tracing::debug;

/// State that all streams share.
#[derive(Debug)]
pub struct Streams {
    index: Arc<NodeIndex>,
    metrics: Arc<Metrics>,
    clock: Clock,
    authenticator: Authenticator,
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
    /// Time between writes of the annotation.
    pub write: Millis,
    /// Time between updates of the stream.
    pub update: Millis,
}

impl Streams {
    /// Streams into `index`, of collectors that `authenticator` admits.
    #[must_use]
    pub fn new(
        index: Arc<NodeIndex>,
        metrics: Arc<Metrics>,
        clock: Clock,
        authenticator: impl Into<Authenticator>,
    ) -> Self {
        let streams = Self {
            index,
            metrics,
            clock,
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
        let census = self.index.census();
        let nodes = census.annotation + census.stream;
        self.write_interval.store(pacing::write_interval(nodes).0, Ordering::Relaxed);
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

    fn check_node(&self, introduction: &Introduction, may_be: &[NodeScope]) -> Result<(), Status> {
        let Introduction { node, uid } = introduction;
        let fits = |text: &str, most| !text.is_empty() && text.len() <= most;
        if !fits(node, MAX_NODE_NAME_BYTES) || !fits(uid, MAX_UID_BYTES) {
            return Err(self.refuse(StreamRefusal::Introduction));
        }
        if !may_be.iter().all(|nodes| nodes.contains(node)) {
            return Err(self.refuse(StreamRefusal::OtherNode));
        }
        if !self.index.is_synced() {
            return Err(self.refuse(StreamRefusal::NotReady));
        }
        match self.index.find(node, uid) {
            Ok(_) => Ok(()),
            Err(Streamed::OtherUid) => Err(self.refuse(StreamRefusal::OtherUid)),
            Err(_) => Err(self.refuse(StreamRefusal::UnknownNode)),
        }
    }

    /// Counts a refusal and returns its status.
    fn refuse(&self, refusal: StreamRefusal) -> Status {
        self.metrics.refused_stream(refusal);
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
    fn register(&self, node: &Arc<str>) -> (u64, oneshot::Receiver<()>) {
        let number = self.next_registration.fetch_add(1, Ordering::Relaxed);
        let (held, replaced) = oneshot::channel();
        let mut open = self.open.lock();
        let before = open.insert(Arc::clone(node), Registration { number, _held: held });
        self.metrics.streams.set(i64::try_from(open.len()).unwrap_or(i64::MAX));
        drop(open);
        if before.is_some() {
            debug!(node = &**node, "A newer stream takes the place of one");
        }
        (number, replaced)
    }

    fn unregister(&self, node: &Arc<str>, number: u64) {
        let mut open = self.open.lock();
        if open.get(node).is_some_and(|registration| registration.number == number) {
            open.remove(node);
        }
        self.metrics.streams.set(i64::try_from(open.len()).unwrap_or(i64::MAX));
    }
}

/// The gRPC service over [`Streams`].
#[derive(Debug, Clone)]
pub struct Service(pub Arc<Streams>);

#[tonic::async_trait]
impl NodeStream for Service {
    type ReportStream = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;

    async fn report(
        &self,
        request: Request<Streaming<Update>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let streams = &self.0;
        // A service that runs without the listener of this module has no `Connection`.
        let connection = request.extensions().get::<Connection>().cloned();
        let call = connection.as_ref().map(Connection::begin);
        let shown = streams.authenticator.check(request.metadata()).await;
        let shown = shown.map_err(|refusal| streams.refuse(refusal))?;
        let certified = connection.map_or(NodeScope::Any, |connection| connection.nodes);
        let mut updates = request.into_inner();
        let first = match tokio::time::timeout(ANSWER_TIMEOUT, updates.message()).await {
            Ok(first) => first?,
            Err(_) => return Err(streams.refuse(StreamRefusal::Silent)),
        };
        let introduction = first.and_then(|update| update.introduction);
        let introduction = introduction.ok_or_else(|| streams.refuse(StreamRefusal::Introduction))?;
        streams.check_node(&introduction, &[shown, certified])?;
        let session = Session::begin(Arc::clone(streams), introduction, updates, call);
        let answers = futures::stream::unfold(Some(session), |session| async move {
            let mut session = session?;
            match session.next().await? {
                Ok(answer) => Some((Ok(answer), Some(session))),
                // An error ends the stream.
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }
}
