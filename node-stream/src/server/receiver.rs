//! What a service does with the states of nodes that collectors send it.

use fpga_core::node_state::NodeState;
use fpga_net::http::Refusal;
use fpga_net::label_texts;
use fpga_net::tls::{Expiry, Reload};

/// A service that takes the states of nodes.
pub trait Receiver: Send + Sync + 'static {
    /// Whether all nodes of the cluster are known. Before that no stream begins.
    fn is_synced(&self) -> bool;

    /// Looks up the node called `node` with the UID `uid`.
    ///
    /// # Errors
    /// [`UnknownNode`]: there is none.
    fn find(&self, node: &str, uid: &str) -> Result<(), UnknownNode>;

    /// Takes the state of the node called `node` with the UID `uid`, which was measured just now.
    ///
    /// # Errors
    /// [`UnknownNode`]: there is no such node, or no longer.
    fn take(&self, node: &str, uid: &str, state: NodeState) -> Result<Taken, UnknownNode>;

    /// Number of nodes with a state, from which the intervals between updates follow.
    fn nodes_with_states(&self) -> usize;

    /// Whether nodes write their annotations seldom because this receiver has a stream of them.
    fn annotations(&self) -> Annotations;

    /// A stream was refused, or ended before its time.
    fn refused_stream(&self, reason: StreamRefusal);

    /// A connection was refused, or ended before its time.
    fn refused_connection(&self, reason: Refusal);

    /// A state could not be decoded.
    fn unreadable_state(&self);

    /// So many streams are open.
    fn open_streams(&self, count: usize);

    /// The files of the port's certificate were read; the certificate in use ends at `expiry`.
    fn certificate(&self, reload: &Reload, expiry: Expiry);
}

/// What became of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Decisions see the state from now on.
    Yes,
    /// A state at least as new is known.
    Outdated,
}

/// No node has this name and UID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownNode {
    /// No node has this name.
    Name,
    /// The node of this name has another UID.
    Uid,
}

/// How often nodes write their annotations while a receiver has a stream of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Annotations {
    /// Seldom: the receiver reads them only where it has no stream.
    Spared,
    /// As often as without this receiver.
    Needed,
}

/// Reason why a stream was refused or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamRefusal {
    /// The token is missing or wrong.
    Token,
    /// The token or the certificate is for another node.
    OtherNode,
    /// The first update names no node and UID.
    Introduction,
    /// The nodes are not known yet, or the token can't be checked.
    NotReady,
    /// No node has this name.
    UnknownNode,
    /// The node of this name has another UID.
    OtherUid,
    /// A newer stream of the same node took its place.
    Replaced,
    /// The collector sent nothing for too long.
    Silent,
}

impl From<UnknownNode> for StreamRefusal {
    fn from(unknown: UnknownNode) -> Self {
        match unknown {
            UnknownNode::Name => Self::UnknownNode,
            UnknownNode::Uid => Self::OtherUid,
        }
    }
}

label_texts! {
    StreamRefusal {
        Token => "token",
        OtherNode => "other_node",
        Introduction => "introduction",
        NotReady => "not_ready",
        UnknownNode => "unknown_node",
        OtherUid => "other_uid",
        Replaced => "replaced",
        Silent => "silent",
    }
}
