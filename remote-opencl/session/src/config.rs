//! The parts and settings that the service runs with; `serve` puts them together.

use crate::builds::Builds;
use crate::catalogue::Catalogue;
use crate::configuration_port::ConfigurationPort;
use crate::confine::Confinement;
use crate::dispatcher::Dispatcher;
use crate::gate::{Gate, MayReconfigure};
use crate::health::Health;
use crate::includes::Includes;
use crate::inventory::BoardDevices;
use crate::metrics::Metrics;
use crate::model::ModelledBoard;
use crate::printed::Printed;
use crate::programs::Sources;
use crate::quiesce::QuiesceLock;
use crate::reporting::Reports;
use crate::settings::Settings;
use crate::store::BitstreamStore;
use crate::trace::Trace;
use fpga_traces::tracer::Tracer;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// The parts and settings of one device manager. Clones share the parts.
#[derive(Debug, Clone)]
pub struct Config {
    /// The devices of the runtime that are the board.
    pub devices: BoardDevices,
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
    /// Writes the trace file of `--trace`, if there is one.
    pub trace: Trace,
    /// Takes the spans of tasks and commands that are part of a trace.
    pub tracer: Tracer,
    /// Confinement of builds.
    pub confinement: Confinement,
    /// Limits how many builds run at a time.
    pub builds: Builds,
    /// Where the clients' files that sources include are written.
    pub includes: Includes,
    /// Rules and quotas of tenants.
    pub settings: Settings,
    /// Counters for metrics.
    pub metrics: Metrics,
    /// Time to load a slot in the model; zero if loading is not modelled.
    pub reconfiguration_time: Duration,
    /// The model of the board, if the manager stands for another one.
    pub model: Option<Arc<ModelledBoard>>,
    /// Who loads bitstreams.
    pub loads: Loads,
    /// The port through which all loads go, if they are simulated.
    pub port: ConfigurationPort,
    /// The lock of a board that may be reconfigured as a whole.
    pub board: QuiesceLock,
    /// How long tasks of a client that has gone may continue.
    pub abandoned_grace: Duration,
    /// Decides which sessions may have the device reconfigured.
    pub gate: Arc<dyn Gate>,
    /// How programs from source are counted.
    pub sources: Sources,
    /// The text of kernels, in a process that serves one tenant.
    pub printed: Option<Printed>,
}

/// Who loads bitstreams into the slots of a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loads {
    /// The board has several slots. Loads are simulated: the vendor has no image to lose.
    Simulated,
    /// The board has one slot, which the vendor loads.
    ByVendor,
}

impl Loads {
    /// Who loads the bitstreams of a board with so many slots, lent ones included.
    #[must_use]
    pub fn of_board(slots: NonZeroU32) -> Self {
        if slots.get() > 1 { Self::Simulated } else { Self::ByVendor }
    }
}

impl Config {
    /// The configuration of a process without listeners: another process passes sessions on and makes the
    /// decisions.
    #[must_use]
    pub fn without_listeners(dispatcher: Dispatcher, settings: Settings, store: Arc<BitstreamStore>) -> Self {
        let loads = if dispatcher.slots() > 1 { Loads::Simulated } else { Loads::ByVendor };
        Self {
            loads,
            port: ConfigurationPort::default(),
            devices: BoardDevices::All,
            dispatcher: Arc::new(dispatcher),
            store,
            catalogue: Arc::default(),
            reports: Reports::off(),
            health: Health::new(Duration::MAX),
            trace: Trace::default(),
            tracer: Tracer::off(),
            confinement: Confinement::off(),
            builds: Builds::by_processors(),
            includes: Includes::ignored(),
            settings,
            metrics: Metrics::default(),
            reconfiguration_time: Duration::ZERO,
            model: None,
            board: QuiesceLock::default(),
            abandoned_grace: Duration::MAX,
            gate: Arc::new(MayReconfigure::Always),
            sources: Sources::AsBitstream,
            printed: None,
        }
    }
}
