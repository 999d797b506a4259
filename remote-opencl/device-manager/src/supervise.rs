//! The command `supervise`: one process per node and kind of boards, which a DaemonSet runs. It finds the boards of a
//! runtime and keeps a manager (`serve`) running for each of them.
//!
//! The supervisor loads no runtime and serves no session, so that a runtime that crashes ends one board's manager and
//! nothing else. Managers take tokens and nothing else.

mod discovery;
mod exposition;
mod limits;
mod manager;
mod plan;
mod probe;
mod server;
mod status;

use crate::log::{DEFAULT_FILTER, LogArgs};
use crate::metrics_server::{self, MetricsAddress};
use crate::serve::{self, KernelSupport};
use anyhow::{Context as _, bail};
use clap::Args;
use fpga_net::duration;
use fpga_net::ready_file;
use fpga_net::signals::Signals;
use fpga_vendor::runtime::Runtime;
use manager::{Common, Phase, keep};
use plan::{Board, Kind, boards};
use status::Statuses;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// Number of successive looks without it after which a board counts as vanished.
const LOOKS_WITHOUT_BOARD: u32 = 2;
/// Longest pause between two looks for devices while the runtime has none.
const LOOK_WITHOUT_DEVICES: Duration = Duration::from_secs(5);
/// Interval at which the readiness of all managers is checked for --ready-file.
const READY_INTERVAL: Duration = Duration::from_millis(100);
/// Flags of `serve` that the supervisor gives itself.
const OWN_FLAGS: [&str; 9] = [
    "--listen",
    "--tokens",
    "--tokens-optional",
    "--device-id",
    "--device",
    "--runtime",
    "--drain-timeout",
    "--metrics-listen",
    "--ready-file",
];

/// Runs a manager for each board of a node: finds the boards of a runtime, and starts managers anew that have ended.
#[derive(Debug, Args)]
#[command(
    after_help = "Example, as a DaemonSet does it:\n  fpga-device-manager supervise --kind pac-a10 --runtime intel-fpga \
                  --metrics-listen '[::]:9462' -- \\\n      --board pac-a10 --shell 1.2 --bitstreams /var/lib/fpga/bitstreams"
)]
#[command(mut_arg("log", |log| log.default_value(DEFAULT_FILTER)))]
pub struct SuperviseArgs {
    /// Kind of the boards, with which their names begin: KIND-PCIADDRESS where the runtime tells the PCI addresses of
    /// its devices, else KIND-INDEX. Different for each supervisor of a node.
    #[arg(long, env = "FPGA_KIND")]
    kind: Kind,

    /// The boards' OpenCL runtime: `pocl`, `intel-fpga`, `intel-cpu`, or the path of an ICD. Each device of it is a
    /// board.
    #[arg(long, env = "FPGA_RUNTIME", default_value = "pocl")]
    runtime: Runtime,

    /// Folder of the node that it shares with the node plugin: a manager's socket is managers/BOARD/dm.sock, and its
    /// tokens are in tokens/BOARD.
    #[arg(long, env = "FPGA_RUN_DIR", value_name = "DIR", default_value = "/run/fpga")]
    run_dir: PathBuf,

    /// Number of boards that each device counts as: for tests, and for runtimes without boards.
    #[arg(long, env = "FPGA_BOARDS_PER_DEVICE", value_name = "NUMBER", default_value = "1")]
    boards_per_device: NonZeroU32,

    /// How often to look for boards that have appeared or vanished: the runtime is loaded each time. 0: only at the
    /// start.
    #[arg(long, env = "FPGA_LOOK_INTERVAL", default_value = "1m", value_parser = duration::parse)]
    look_interval: Duration,

    /// Serve /metrics, with those of all managers, /readyz and /healthz on this address: `ADDRESS:PORT` or
    /// `unix:/PATH`. /readyz says for each board why it is not ready.
    #[arg(long, env = "FPGA_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<MetricsAddress>,

    /// File that gets the addresses of the managers, one per line, when all of them accept sessions for the
    /// first time; the last line is metrics:ADDRESS, if metrics are served.
    #[arg(long, env = "FPGA_READY_FILE", value_name = "PATH")]
    ready_file: Option<PathBuf>,

    /// How long sessions may go on after SIGTERM, as with `serve`. A second signal ends the managers at once.
    #[arg(long, env = "FPGA_DRAIN_TIMEOUT", default_value = "10s", value_parser = duration::parse)]
    drain_timeout: Duration,

    #[command(flatten)]
    log: LogArgs,

    /// Further arguments of `serve` for each manager. By default --isolate process, --confine-builds required, --policy
    /// drr, and limits by each manager's share of the memory.
    #[arg(last = true, value_name = "SERVE ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// A board that has a manager.
struct Kept {
    phase: watch::Sender<Phase>,
    keeper: JoinHandle<()>,
    /// Number of successive looks that did not find the board.
    missed: u32,
}

/// The boards that have managers.
struct Supervisor {
    common: Arc<Common>,
    kind: Kind,
    runtime: Runtime,
    boards_per_device: NonZeroU32,
    kept: BTreeMap<String, Kept>,
}

impl SuperviseArgs {
    /// Runs managers until a signal, and waits for their end.
    ///
    /// # Errors
    /// The cause that keeps the supervisor from starting, and how to remove it.
    pub fn run(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // The managers' lives are bound to the thread that starts them, which is this one.
        runtime.block_on(self.supervise())
    }

    async fn supervise(self) -> anyhow::Result<()> {
        check_own_flags(&self.arguments)?;
        let arguments = with_defaults(self.arguments, &self.kind, &self.log);
        serve::check(&arguments, KernelSupport::of_this_kernel()).context("the arguments after `--`")?;
        self.log.init()?;
        let mut signals = Signals::install().context("cannot take signals")?;
        let private = tempfile::Builder::new().prefix("fpga-supervise-").tempdir();
        let private = private.context("no temporary folder for the managers' sockets for metrics")?;
        let statuses = Statuses::new();
        let metrics = match &self.metrics_listen {
            Some(address) => {
                let bound = metrics_server::serve(address, server::app(statuses.clone()))
                    .with_context(|| format!("--metrics-listen {address}"))?;
                info!(%bound, "Serving metrics");
                Some(bound)
            }
            None => None,
        };
        let common = Common {
            run: self.run_dir,
            private: private.path().to_owned(),
            runtime: self.runtime.to_string(),
            drain_timeout: self.drain_timeout,
            arguments,
            statuses,
        };
        let mut supervisor = Supervisor {
            common: Arc::new(common),
            kind: self.kind,
            runtime: self.runtime,
            boards_per_device: self.boards_per_device,
            kept: BTreeMap::new(),
        };
        let ready = say_ready(self.ready_file, metrics, Arc::clone(&supervisor.common));
        tokio::select! {
            () = supervisor.look_again_and_again(self.look_interval) => {}
            Err(error) = ready => return Err(error),
            _ = signals.next() => {}
        }
        info!(managers = supervisor.kept.len(), "The managers drain");
        let mut phase = Phase::Drain;
        loop {
            tokio::select! {
                () = supervisor.end(phase) => break,
                _ = signals.next() => phase = Phase::EndAtOnce,
            }
        }
        info!("All managers have ended");
        Ok(())
    }
}

impl Supervisor {
    async fn look_again_and_again(&mut self, interval: Duration) {
        loop {
            self.look().await;
            let pause = if self.kept.is_empty() { interval.min(LOOK_WITHOUT_DEVICES) } else { interval };
            if interval.is_zero() && !self.kept.is_empty() {
                return std::future::pending().await;
            }
            tokio::time::sleep(pause.max(READY_INTERVAL)).await;
        }
    }

    /// Gives new boards managers, and ends those of boards that have vanished. Without an answer of the runtime the
    /// boards stay as they are.
    async fn look(&mut self) {
        let devices = match discovery::devices(&self.runtime).await {
            Ok(devices) => devices,
            Err(error) => {
                let reason = error.to_string();
                if self.common.statuses.undiscovered(reason.clone()) {
                    warn!(reason, "The devices are not known");
                }
                return;
            }
        };
        self.common.statuses.discovered();
        let found = boards(&self.kind, &devices, self.boards_per_device);
        let names: BTreeSet<String> = found.iter().map(|board| board.name.clone()).collect();
        // The managers of boards that vanished earlier have drained.
        self.kept.retain(|_, kept| !kept.keeper.is_finished());
        for (name, kept) in &mut self.kept {
            kept.missed = if names.contains(name) { 0 } else { kept.missed + 1 };
            if kept.missed == LOOKS_WITHOUT_BOARD {
                warn!(board = name, "A board has vanished: its manager drains");
                kept.phase.send_replace(Phase::Vanish);
            }
        }
        let managers = names.len().max(self.kept.len());
        for board in found {
            if !self.kept.contains_key(&board.name) {
                self.keep(board, managers);
            }
        }
    }

    fn keep(&mut self, board: Board, managers: usize) {
        info!(board = board.name, device = %board.device, "A board was found");
        let name = board.name.clone();
        self.common.statuses.add(&name, self.common.metrics(&name));
        let mut limits = limits::flags(managers);
        limits.retain(|(flag, _)| !is_said(&self.common.arguments, flag));
        let (phase, of_keeper) = watch::channel(Phase::Serve);
        let keeper = tokio::spawn(keep(board, Arc::clone(&self.common), limits, of_keeper));
        self.kept.insert(name, Kept { phase, keeper, missed: 0 });
    }

    /// Ends all managers and waits for them. May be called again with another phase.
    async fn end(&mut self, phase: Phase) {
        for kept in self.kept.values() {
            let _ = kept.phase.send_if_modified(|current| std::mem::replace(current, phase) != phase);
        }
        for kept in self.kept.values_mut() {
            if !kept.keeper.is_finished() {
                // A keeper does not panic, and nobody aborts it.
                let _ = (&mut kept.keeper).await;
            }
        }
    }
}

/// Writes the managers' addresses and that of the metrics when all managers are ready, and then waits for ever.
async fn say_ready(
    path: Option<PathBuf>,
    metrics: Option<MetricsAddress>,
    common: Arc<Common>,
) -> anyhow::Result<()> {
    if let Some(path) = path {
        while !common.statuses.readiness().0 {
            tokio::time::sleep(READY_INTERVAL).await;
        }
        let boards = common.statuses.boards();
        let metrics = metrics.map(|address| format!("metrics:{address}"));
        ready_file::write(&path, boards.keys().map(|board| common.address(board)).chain(metrics))
            .with_context(|| format!("cannot write --ready-file {}", path.display()))?;
    }
    std::future::pending().await
}

/// Whether an argument is this flag, with or without a value behind `=`.
fn is_flag(argument: &OsString, flag: &str) -> bool {
    let rest = argument.as_encoded_bytes().strip_prefix(flag.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"="))
}

/// Refuses flags that the supervisor gives to each manager itself.
fn check_own_flags(arguments: &[OsString]) -> anyhow::Result<()> {
    for flag in OWN_FLAGS {
        if arguments.iter().any(|argument| is_flag(argument, flag)) {
            bail!(
                "{flag} can't stand after `--`: the supervisor gives it to each manager itself; leave it out"
            );
        }
    }
    Ok(())
}

/// Whether the arguments have this flag, or the environment has its variable.
fn is_said(arguments: &[OsString], flag: &str) -> bool {
    let variable = format!("FPGA_{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase());
    arguments.iter().any(|argument| is_flag(argument, flag)) || std::env::var_os(variable).is_some()
}

/// The arguments of all managers: tenants have processes of their own, which the kernel confines, and turns by device time,
/// unless the arguments say otherwise. The pool must know the kind of a board: without --board it is the supervisor's.
fn with_defaults(mut arguments: Vec<OsString>, kind: &Kind, log: &LogArgs) -> Vec<OsString> {
    let mut defaults = Vec::new();
    if is_said(&arguments, "--pool-slots") && !is_said(&arguments, "--board") {
        defaults.extend(["--board".to_owned(), kind.to_string()].map(OsString::from));
    }
    for [flag, value] in [["--isolate", "process"], ["--confine-builds", "required"], ["--policy", "drr"]] {
        if !is_said(&arguments, flag) {
            defaults.extend([flag, value].map(OsString::from));
        }
    }
    if !["--log", "--log-format"].iter().any(|flag| arguments.iter().any(|argument| is_flag(argument, flag)))
    {
        defaults.extend(log.to_arguments().map(OsString::from));
    }
    defaults.append(&mut arguments);
    defaults
}
