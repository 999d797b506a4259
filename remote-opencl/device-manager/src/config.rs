//! The parts and settings that the service runs with; `serve` puts them together.

use crate::board::Board;
use crate::builds::Builds;
use crate::catalogue::Catalogue;
use crate::confine::Confinement;
use crate::dispatcher::Dispatcher;
use crate::gate::{Gate, MayReconfigure};
use crate::greeting::Access;
use crate::health::Health;
use crate::includes::Includes;
use crate::keepalive::Keepalive;
use crate::metrics::Metrics;
use crate::reporting::Reports;
use crate::settings::{Settings, TenantArgs};
use crate::store::BitstreamStore;
use crate::trace::Trace;
use fpga_net::tls::ServerTls;
use std::sync::Arc;
use std::time::Duration;

/// The parts and settings of one device manager. Clones share the parts.
#[derive(Debug, Clone)]
pub struct Config {
    /// Decides which tasks run.
    pub dispatcher: Arc<Dispatcher>,
    /// Bitstreams by digest.
    pub store: Arc<BitstreamStore>,
    /// Names of the bitstreams.
    pub catalogue: Arc<Catalogue>,
    /// Reports events to the collector.
    pub reports: Reports,
    /// Health of the device.
    pub health: Health,
    /// The proof that a client must give of its tenant.
    pub access: Access,
    /// Writes the trace file of `--trace`, if there is one.
    pub trace: Trace,
    /// Confinement of builds.
    pub confinement: Confinement,
    /// Limits how many builds run at a time.
    pub builds: Builds,
    /// Where the clients' files that sources include are written.
    pub includes: Includes,
    /// TLS on TCP. Without it a client counts as the tenant of its address.
    pub tls: Option<Arc<ServerTls>>,
    /// Rules and quotas of tenants.
    pub settings: Settings,
    /// The flags and files from which `settings` are read again.
    pub tenant_args: TenantArgs,
    /// Counters for metrics.
    pub metrics: Metrics,
    /// Time to load a slot in the model; zero if loading is not modelled.
    pub reconfiguration_time: Duration,
    /// The lock of a board that may be reconfigured as a whole.
    pub board: Board,
    /// How long clients over a network may be silent.
    pub keepalive: Keepalive,
    /// How long tasks of a client that has gone may continue.
    pub abandoned_grace: Duration,
    /// How long sessions may continue while the manager drains.
    pub drain_timeout: Duration,
    /// How long a client may take to resume after it lost its connection; zero if it cannot resume.
    pub reconnect_grace: Duration,
    /// Whether clients on this node share memory with the manager.
    pub shared_memory: SharedMemory,
    /// Decides which sessions may have the device reconfigured.
    pub gate: Arc<dyn Gate>,
    /// How programs from source are counted.
    pub sources: Sources,
}

/// Whether clients on this node share memory with the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SharedMemory {
    /// Memory is shared with clients that can.
    On,
    /// No memory is shared: all bytes travel in messages.
    Off,
}

/// How a program that was built from source is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    /// Its kernels take any one slot.
    AnySlot,
    /// It counts as a bitstream, whose digest is that of source, options and device
    /// (`--source-as-bitstream`).
    AsBitstream,
}

impl Config {
    /// The configuration of a process without listeners: another process passes sessions on and makes the
    /// decisions.
    #[must_use]
    pub fn without_listeners(dispatcher: Dispatcher, settings: Settings, store: Arc<BitstreamStore>) -> Self {
        Self {
            dispatcher: Arc::new(dispatcher),
            store,
            catalogue: Arc::default(),
            reports: Reports::off(),
            health: Health::new(Duration::MAX),
            access: Access::Connection,
            trace: Trace::default(),
            confinement: Confinement::off(),
            builds: Builds::by_processors(),
            includes: Includes::ignored(),
            tls: None,
            settings,
            tenant_args: TenantArgs::none(),
            metrics: Metrics::default(),
            reconfiguration_time: Duration::ZERO,
            board: Board::default(),
            keepalive: Keepalive::within(Duration::ZERO),
            abandoned_grace: Duration::MAX,
            drain_timeout: Duration::MAX,
            reconnect_grace: Duration::ZERO,
            shared_memory: SharedMemory::On,
            gate: Arc::new(MayReconfigure::Always),
            sources: Sources::AsBitstream,
        }
    }
}
