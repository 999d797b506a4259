//! States that collectors send by streams go to the index of nodes.

use crate::clock::Clock;
use crate::index::NodeIndex;
use crate::metrics::{Metrics, StateSource};
use crate::ports::metrics::PortName;
use fpga_core::node_state::NodeState;
use fpga_net::http::Refusal;
use fpga_net::tls::{Expiry, Reload};
use fpga_node_stream::server::Streams;
use fpga_node_stream::server::authenticator::Authenticator;
use fpga_node_stream::server::receiver::{Annotations, Receiver, StreamRefusal, Taken, UnknownNode};
use std::sync::Arc;

/// Takes streamed states into an index.
#[derive(Debug)]
pub struct IndexReceiver {
    /// The index.
    pub index: Arc<NodeIndex>,
    /// The metrics of the extender.
    pub metrics: Arc<Metrics>,
    /// The clock of receipts.
    pub clock: Clock,
}

impl IndexReceiver {
    /// The streams whose states this receiver takes, of collectors that `authenticator` admits.
    #[must_use]
    pub fn streams(self, authenticator: impl Into<Authenticator>) -> Arc<Streams> {
        Arc::new(Streams::new(Arc::new(self), authenticator))
    }
}

impl Receiver for IndexReceiver {
    fn is_synced(&self) -> bool {
        self.index.is_synced()
    }

    fn find(&self, node: &str, uid: &str) -> Result<(), UnknownNode> {
        self.index.find(node, uid).map(drop)
    }

    fn take(&self, node: &str, uid: &str, state: NodeState) -> Result<Taken, UnknownNode> {
        let taken = self.index.stream(node, uid, state, self.clock.read())?;
        match taken {
            Taken::Yes => self.metrics.took_state(StateSource::Stream),
            Taken::Outdated => drop(self.metrics.outdated_states.inc()),
        }
        Ok(taken)
    }

    fn nodes_with_states(&self) -> usize {
        let census = self.index.census();
        census.annotation + census.stream
    }

    fn annotations(&self) -> Annotations {
        Annotations::Spared
    }

    fn refused_stream(&self, reason: StreamRefusal) {
        self.metrics.refused_stream(reason);
    }

    fn refused_connection(&self, reason: Refusal) {
        self.metrics.ports.refused(PortName::Stream, reason);
    }

    fn unreadable_state(&self) {
        self.metrics.unreadable_states.inc();
    }

    fn open_streams(&self, count: usize) {
        self.metrics.streams.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn certificate(&self, reload: &Reload, expiry: Expiry) {
        self.metrics.ports.reloaded(PortName::Stream, reload);
        self.metrics.ports.valid_until(PortName::Stream, expiry);
    }
}
