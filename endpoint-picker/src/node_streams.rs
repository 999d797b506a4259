//! States that collectors send by streams go to the picker's state.

use crate::picker::Picker;
use crate::state::{Seen, StateSource};
use fpga_core::node_state::NodeState;
use fpga_net::http::Refusal;
use fpga_net::tls::{Expiry, Reload};
use fpga_node_stream::server::receiver::{Annotations, Receiver, StreamRefusal, Taken, UnknownNode};
use std::sync::Arc;
use tracing::{info, warn};

/// Takes streamed states into a picker's state.
#[derive(Debug)]
pub struct PickerReceiver(pub Arc<Picker>);

impl Receiver for PickerReceiver {
    fn is_synced(&self) -> bool {
        self.0.is_synced()
    }

    fn find(&self, node: &str, uid: &str) -> Result<(), UnknownNode> {
        self.0.with(|known, _| known.find_node(node, uid))
    }

    fn take(&self, node: &str, uid: &str, state: NodeState) -> Result<Taken, UnknownNode> {
        let taken = self.0.with(|known, now| known.learn(node, uid, &state, Seen::Stream, now))?;
        self.0.metrics.took_state(StateSource::Stream, taken);
        Ok(taken)
    }

    fn nodes_with_states(&self) -> usize {
        self.0.with(|known, _| known.nodes_with_states())
    }

    fn annotations(&self) -> Annotations {
        // The extender needs them, and it may have no stream.
        Annotations::Needed
    }

    fn refused_stream(&self, reason: StreamRefusal) {
        self.0.metrics.refused_node_stream(reason);
    }

    fn refused_connection(&self, reason: Refusal) {
        self.0.metrics.refused_node_connection(reason);
    }

    fn unreadable_state(&self) {
        self.0.metrics.unreadable_states.inc();
    }

    fn open_streams(&self, count: usize) {
        self.0.metrics.node_streams.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn certificate(&self, reload: &Reload, _expiry: Expiry) {
        match reload {
            Reload::Same => {}
            Reload::Loaded => info!("The certificate for streams of nodes is a new one"),
            Reload::Failed(error) => warn!(%error, "The certificate for streams of nodes can't be used"),
        }
    }
}
