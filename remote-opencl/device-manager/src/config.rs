//! What the service needs to run, put together by `serve`.

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
    /// Who may run.
    pub dispatcher: Arc<Dispatcher>,
    /// The bitstreams by digest.
    pub store: Arc<BitstreamStore>,
    /// Their names.
    pub catalogue: Arc<Catalogue>,
    /// Whom the collector hears from.
    pub reports: Reports,
    /// Whether the device works.
    pub health: Health,
    /// What proves a tenant.
    pub access: Access,
    /// What happens is drawn there.
    pub trace: Trace,
    /// Where programs are built.
    pub confinement: Confinement,
    /// How many of them are built at a time.
    pub builds: Builds,
    /// Where what they include of the clients' files is laid out.
    pub includes: Includes,
    /// TLS on TCP; without it whoever reaches the port is taken for who its address says.
    pub tls: Option<Arc<ServerTls>>,
    /// What tenants have.
    pub settings: Settings,
    /// Where that is read again.
    pub tenant_args: TenantArgs,
    /// What is counted.
    pub metrics: Metrics,
    /// How long loading a slot takes in the model; zero where it is not modelled.
    pub reconfiguration_time: Duration,
    /// Who uses it while it may be reconfigured as a whole.
    pub board: Board,
    /// How long clients over a network may be silent.
    pub keepalive: Keepalive,
    /// How long tasks of a client that has gone may run on.
    pub abandoned_grace: Duration,
    /// How long sessions may go on once the manager drains.
    pub drain_timeout: Duration,
    /// How long a client that lost its connection may take to come back; zero: it can't.
    pub reconnect_grace: Duration,
    /// Whether clients on this node share memory with the manager.
    pub shared_memory: SharedMemory,
    /// Who says which sessions may have the device reconfigured.
    pub gate: Arc<dyn Gate>,
    /// How programs from source are counted.
    pub sources: Sources,
}

/// Whether clients on this node share memory with the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SharedMemory {
    /// Those that can.
    On,
    /// None: all bytes travel in messages.
    Off,
}

/// How a program built from source is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    /// Its kernels take one slot, whatever that holds.
    AnySlot,
    /// As the bitstream whose digest is that of source, options and device (`--source-as-bitstream`).
    AsBitstream,
}

impl Config {
    /// That of a process to which nobody connects: its sessions come from elsewhere, and so does what is decided about them.
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
