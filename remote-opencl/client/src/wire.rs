//! Connections to a manager, and the messages on them: on a gRPC stream, or in a command ring.

pub(crate) mod access;
pub(crate) mod address;
pub(crate) mod claim;
mod codec;
pub(crate) mod command_ring;
pub(crate) mod connection_race;
mod credentials;
pub(crate) mod features;
pub(crate) mod handshake;
pub(crate) mod inbox;
pub(crate) mod keepalive;
pub(crate) mod outbox;
pub(crate) mod outgoing;
pub(crate) mod reconnect;
pub(crate) mod replay_buffer;
mod socket;
mod timeouts;
pub(crate) mod transport;
mod usm;
