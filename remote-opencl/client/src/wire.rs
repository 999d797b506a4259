//! Connections to a manager, and the messages on them: on a gRPC stream, or in a command ring.

pub(crate) mod address;
pub(crate) mod codec;
pub(crate) mod command_ring;
pub(crate) mod keepalive;
pub(crate) mod kept;
pub(crate) mod outbox;
pub(crate) mod proof;
pub(crate) mod reconnect;
pub(crate) mod socket;
pub(crate) mod transport;
