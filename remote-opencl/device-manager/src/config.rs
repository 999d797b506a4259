//! The parts and settings that the service runs with; `serve` puts them together.

use crate::handshake::Access;
use crate::keepalive::Keepalive;
use crate::pool::broker_stream::Brokers;
use crate::pool::lender::Lending;
use crate::tenant_args::TenantArgs;
use fpga_net::tls::ServerTls;
use std::sync::Arc;
use std::time::Duration;

/// The parts and settings of one device manager. Clones share the parts.
#[derive(Debug, Clone)]
pub struct Config {
    /// What the sessions run with.
    pub sessions: fpga_session::config::Config,
    /// The proof that a client must give of its tenant.
    pub access: Access,
    /// TLS on TCP. Without it a client counts as the tenant of its address.
    pub tls: Option<Arc<ServerTls>>,
    /// TLS of the port for sessions with a lease, whose clients show no certificate.
    pub pool_tls: Option<Arc<ServerTls>>,
    /// The flags and files from which the settings of tenants are read again.
    pub tenant_args: TenantArgs,
    /// How long clients over a network may be silent.
    pub keepalive: Keepalive,
    /// How long sessions may continue while the manager drains.
    pub drain_timeout: Duration,
    /// How long a client may take to resume after it lost its connection; zero if it cannot resume.
    pub reconnect_grace: Duration,
    /// Whether clients on this node share memory with the manager.
    pub shared_memory: SharedMemory,
    /// The slots that are lent to the pool, if any are.
    pub lending: Option<Lending>,
    /// The brokers to which they are lent.
    pub brokers: Option<Brokers>,
}

/// Whether clients on this node share memory with the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SharedMemory {
    /// Memory is shared with clients that can.
    On,
    /// No memory is shared: all bytes travel in messages.
    Off,
}
