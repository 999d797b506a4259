//! The flags of `serve`.

use super::gate::GateArgs;
use super::isolation::IsolationArgs;
use super::listeners::ListenerArgs;
use super::pool::PoolArgs;
use crate::config::SharedMemory;
use crate::log::{DEFAULT_FILTER, LogArgs};
use crate::metrics_server::MetricsAddress;
use crate::tenant_args::TenantArgs;
use clap::{Args, ValueEnum};
use fpga_hook::Endpoint;
use fpga_net::duration;
use fpga_net::size;
use fpga_session::command_ring::CommandRing;
use fpga_session::confine::ConfineBuilds;
use fpga_session::inventory::BoardDevices;
use fpga_traces::args::TraceArgs;
use fpga_vendor::runtime::Runtime;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// Serves sessions until SIGTERM or SIGINT.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  fpga-device-manager serve --listen unix:/run/fpga/dm0.sock --runtime pocl \
                        --bitstreams /var/lib/fpga/bitstreams --collector http://127.0.0.1:9460"
)]
#[command(mut_arg("log", |log| log.default_value(DEFAULT_FILTER)))]
pub struct ServeArgs {
    #[command(flatten)]
    pub(super) listen: ListenerArgs,

    /// File that gets the bound addresses, one per line as in --listen, once sessions are accepted; the last line is
    /// metrics:ADDRESS, if metrics are served.
    #[arg(long, env = "FPGA_READY_FILE", value_name = "PATH")]
    pub(super) ready_file: Option<PathBuf>,

    /// The board's OpenCL runtime: `pocl`, `intel-fpga`, `intel-cpu`, or the path of an ICD.
    #[arg(long, env = "FPGA_RUNTIME", default_value = "pocl")]
    pub(super) runtime: Runtime,

    /// The devices of the runtime that are this board: `all`, an index from 0, or a PCI address. The command `boards`
    /// lists them.
    #[arg(long, env = "FPGA_DEVICE", default_value = "all")]
    pub(super) device: BoardDevices,

    /// Id of the device on its node.
    #[arg(long, env = "FPGA_DEVICE_ID", default_value = "dm0")]
    pub(super) device_id: String,

    /// Vendor as in the node label fpga-scheduling.io/fpga-vendor [default: by the runtime].
    #[arg(long, env = "FPGA_VENDOR")]
    pub(super) vendor: Option<String>,

    /// Board as in the node label fpga-scheduling.io/board.
    #[arg(long, env = "FPGA_BOARD", default_value = "")]
    pub(super) board: String,

    /// Shell version as in the node label fpga-scheduling.io/shell-version.
    #[arg(long, env = "FPGA_SHELL", default_value = "")]
    pub(super) shell: String,

    /// Number of tasks with kernels that run at once, each with its bitstream.
    #[arg(long, env = "FPGA_SLOTS", default_value = "4")]
    pub(super) slots: NonZeroU32,

    /// Simulated time to load a bitstream into a slot.
    #[arg(long, env = "FPGA_RECONFIGURATION_TIME", default_value = "10ms", value_parser = duration::parse)]
    pub(super) reconfiguration_time: Duration,

    /// Stand for another board: FILE (TOML) has the times that it takes for kernels and reconfigurations. A slot is in
    /// use for at least the modelled time, without using a processor, and results are the runtime's. For tests and
    /// demonstrations on machines without boards; metrics, log and the device's platform say so.
    #[arg(long, env = "FPGA_MODEL", value_name = "FILE")]
    pub(super) model: Option<PathBuf>,

    /// How the board is reconfigured.
    #[arg(long, env = "FPGA_RECONFIGURATION", default_value = "partial")]
    pub(super) reconfiguration: Reconfiguration,

    /// Count a program from source as a bitstream: it is loaded into a slot like one.
    #[arg(long, env = "FPGA_SOURCE_AS_BITSTREAM")]
    pub(super) source_as_bitstream: bool,

    /// Pass the commands of clients on this node through shared memory, if the client shares any.
    #[arg(long, env = "FPGA_COMMAND_RING", default_value = "auto")]
    pub(super) command_ring: CommandRing,

    /// Share memory with clients on this node instead of sending all bytes in messages.
    #[arg(long, env = "FPGA_SHARED_MEMORY", default_value = "on")]
    pub(super) shared_memory: SharedMemory,

    /// Folder of accelerators, files NAME.bitstream, which give bitstreams their names. Read again every second.
    #[arg(long, env = "FPGA_BITSTREAMS", value_name = "DIR")]
    pub(super) bitstreams: Option<PathBuf>,

    /// Folder in which bitstreams that clients send outlive the manager [default: memory only].
    #[arg(long, env = "FPGA_STORE", value_name = "DIR")]
    pub(super) store: Option<PathBuf>,

    /// Maximum bytes of bitstreams that are kept, in memory and in --store; with --isolate process by each tenant's
    /// process [default: a quarter of the memory that the cgroup, or the machine, gives, and at most 1GiB].
    #[arg(long, env = "FPGA_STORE_LIMIT", value_name = "SIZE", value_parser = size::parse)]
    pub(super) store_limit: Option<u64>,

    /// The node's collector: `http://HOST:PORT` or `unix:/PATH` [default: nothing is reported].
    #[arg(long, env = "FPGA_COLLECTOR")]
    pub(super) collector: Option<Endpoint>,

    /// File with the token that a collector asks for over TCP (its own --token-file).
    #[arg(long, env = "FPGA_COLLECTOR_TOKEN_FILE", value_name = "PATH", requires = "collector")]
    pub(super) collector_token_file: Option<PathBuf>,

    /// Serve /metrics, /healthz and /readyz on this address: `ADDRESS:PORT` or `unix:/PATH`.
    #[arg(long, env = "FPGA_METRICS_LISTEN", value_name = "ADDRESS")]
    pub(super) metrics_listen: Option<MetricsAddress>,

    /// How long the tasks of a client that has gone may still run, and how long a tenant's process may take to leave a
    /// board that is reconfigured as a whole. After that --isolate process ends the tenant's process. Without it the device is reported unhealthy, and the manager drains and ends with status 1, to be
    /// started anew, since no OpenCL runtime can end a kernel.
    #[arg(long, env = "FPGA_ABANDONED_TIMEOUT", default_value = "1m", value_parser = duration::parse)]
    pub(super) abandoned_timeout: Duration,

    /// How long sessions may go on after SIGTERM. Meanwhile new sessions are refused, /readyz fails and reports how
    /// many are left, the collector is told that the device is unhealthy, and the manager ends with status 0 once
    /// the last session has ended. Sessions that are still open then are ended with an error that says so. A second
    /// signal ends the manager at once.
    #[arg(long, env = "FPGA_DRAIN_TIMEOUT", default_value = "10s", value_parser = duration::parse)]
    pub(super) drain_timeout: Duration,

    /// How long a marker in one of the manager's own queues may take, while no kernel ends, until the runtime
    /// counts as stuck: the device is then reported unhealthy, and /healthz fails. Must be longer than any kernel
    /// if kernels keep all of a runtime's threads busy. 0s: no probes, for a board that with --isolate process has
    /// room for tenants' processes only.
    #[arg(long, env = "FPGA_STUCK_TIMEOUT", default_value = "1m", value_parser = duration::parse)]
    pub(super) stuck_timeout: Duration,

    /// The folder of `exec`, for the manager to remove if `exec` is killed before it can.
    #[arg(long, hide = true, value_name = "DIR")]
    pub(super) own_folder: Option<PathBuf>,

    /// Write a trace of commands and slots to this file, in Chrome's format, up to 256 MiB; with --isolate process
    /// of slots only.
    #[arg(long, env = "FPGA_TRACE", value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,

    #[command(flatten)]
    pub(super) traces: TraceArgs,

    /// Maximum number of programs that are built at a time. One tenant's builds leave a place free for others
    /// [default: the number of processors plus one].
    #[arg(long, env = "FPGA_BUILDS", value_name = "NUMBER")]
    pub(super) builds: Option<std::num::NonZeroUsize>,

    /// Maximum bytes that all clients together make the manager hold: messages, staged data, shared segments, and
    /// sessions themselves [default: three quarters of the memory that the cgroup, or the machine, gives, less
    /// --store-limit].
    #[arg(long, env = "FPGA_CLIENT_MEMORY", value_name = "SIZE", value_parser = size::parse)]
    pub(super) client_memory: Option<u64>,

    /// Maximum of these bytes for one tenant [default: half of --client-memory].
    #[arg(long, env = "FPGA_CLIENT_MEMORY_OF_TENANT", value_name = "SIZE", value_parser = size::parse)]
    pub(super) client_memory_of_tenant: Option<u64>,

    /// Whether programs are built confined, so that sources can include no files of the manager except the
    /// runtime's; with --isolate process also whether each tenant's process is confined, so that kernels can open no
    /// files of the manager.
    #[arg(long, env = "FPGA_CONFINE_BUILDS", default_value = "wanted")]
    pub(super) confine_builds: ConfineBuilds,

    #[command(flatten)]
    pub(super) isolation: IsolationArgs,

    #[command(flatten)]
    pub(super) tenant_args: TenantArgs,

    #[command(flatten)]
    pub(super) gate: GateArgs,

    #[command(flatten)]
    pub(super) pool: PoolArgs,

    #[command(flatten)]
    pub(super) log: LogArgs,
}

/// How a board is reconfigured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Reconfiguration {
    /// One slot at a time, while the others run on.
    Partial,
    /// The whole board, which has one slot. Every context of the vendor is destroyed and made again, with the
    /// contents of its buffers.
    Full,
}
