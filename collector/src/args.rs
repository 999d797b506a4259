//! The command line, and the start and end of the collector's tasks.

use crate::checkpoint::Checkpoint;
use crate::clock::Clock;
use crate::cordons;
use crate::http::{App, Limits};
use crate::intake;
use crate::metrics::Metrics;
use crate::owner;
use crate::peers::PeerArgs;
use crate::publish::Publisher;
use crate::publish::labeller::Labeller;
use crate::publish::policy::Intervals;
use crate::server::{Listeners, Phase};
use crate::state::Silence;
use crate::stream::options::StreamArgs;
use crate::stream::{Link, Streamer};
use anyhow::{Context, bail};
use clap::Parser;
use fpga_core::node_state::codec::MAX_HEARTBEAT;
use fpga_core::units::Millis;
use fpga_net::http::Budget;
use fpga_net::kube_config::{self, KubeConfigError};
use fpga_net::log::LogArgs;
use fpga_net::memory::MemoryLimit;
use fpga_net::signals::Signals;
use fpga_net::{duration, ready_file, runtime};
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;
use tracing::info;

const DEFAULT_LISTEN: &str = "127.0.0.1:9460";
/// Maximum for `--max-body-bytes`.
const MAX_BODY_BYTES: usize = 16 << 20;
const DEFAULT_BODY_BYTES: usize = 1 << 20;
const KUBE_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "Examples:
  On a cluster, as a DaemonSet does it:
    fpga-collector --node-name worker-1 --checkpoint-dir /var/lib/fpga-collector --listen-unix /run/fpga/collector.sock \
      --extenders dns:fpga-scheduler-extender.kube-fpga.svc:9463 --stream-ca /etc/fpga/ca.crt \
      --stream-token-file /var/run/secrets/fpga/token
  To try it without Kubernetes:
    fpga-collector --no-publish --node-name me --checkpoint-dir /tmp/fpga-collector
    curl -d '{\"timestamp_ms\":1760000000000,\"duration_ms\":12,\"reconfiguration_ms\":0,\"bitstream_identifier\":\"sobel\"}' \\
      http://127.0.0.1:9460/v1/events";

/// Collects the usage of a node's FPGA boards and publishes it as the node's annotation
/// `fpga-scheduling.io/node-state`.
#[derive(Debug, Parser)]
#[command(name = "fpga-collector", version, after_help = EXAMPLES)]
#[command(mut_arg("log", |log| log.default_value("fpga_collector=info,warn")))]
pub struct Args {
    /// Name of the node whose annotation is written.
    #[arg(long, env = "FPGA_NODE_NAME")]
    node_name: String,

    /// TCP address to listen on; port 0 takes a free one. Default: 127.0.0.1:9460, or none if --listen-unix is given.
    #[arg(long, env = "FPGA_LISTEN")]
    listen: Option<SocketAddr>,

    /// Unix socket to listen on, for the collector's own user and group.
    #[arg(long, env = "FPGA_LISTEN_UNIX", value_name = "PATH")]
    listen_unix: Option<PathBuf>,

    /// TCP address for probes and metrics only, to which untrusted clients may connect; port 0 takes a free one.
    #[arg(long, env = "FPGA_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,

    /// Folder for the state that survives a restart. Each collector needs its own, on a local disk.
    #[arg(long, env = "FPGA_CHECKPOINT_DIR", value_name = "DIR")]
    checkpoint_dir: PathBuf,

    /// Length of the window in which usage is counted.
    #[arg(long, env = "FPGA_WINDOW", default_value = "5m", value_parser = duration::parse)]
    window: Duration,

    /// Maximum time between two writes of the annotation; readers consider a state stale after three of these.
    #[arg(long, env = "FPGA_HEARTBEAT", default_value = "60s", value_parser = duration::parse)]
    heartbeat: Duration,

    /// Minimum time between two writes of the annotation on change. A board that appears or recovers is written at
    /// once.
    #[arg(long, env = "FPGA_MIN_WRITE_INTERVAL", default_value = "10s", value_parser = duration::parse)]
    min_write_interval: Duration,

    /// A device that does not report for this time counts as unhealthy. Reporters report every 15 s.
    #[arg(long, env = "FPGA_DEVICE_TIMEOUT", default_value = "45s", value_parser = duration::parse)]
    device_timeout: Duration,

    /// Kubeconfig to reach the API server with. Default: $KUBECONFIG, ~/.kube/config, or the pod's service account.
    #[arg(long, env = "FPGA_KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// Never talk to an API server: for a single node without Kubernetes. The state is then at GET /v1/state, and
    /// sent to the --extenders.
    #[arg(long, env = "FPGA_NO_PUBLISH", conflicts_with = "kubeconfig")]
    no_publish: bool,

    /// Label the node with what its device managers report: fpga-scheduling.io/fpga-vendor, /shell-version and
    /// /board, where all devices agree. A label written by hand is replaced. The labels are removed when the devices
    /// have been gone for --device-timeout.
    #[arg(long, env = "FPGA_LABEL_NODE", conflicts_with = "no_publish")]
    label_node: bool,

    #[command(flatten)]
    stream: StreamArgs,

    /// File that gets the bound addresses, one per line, once requests are accepted.
    #[arg(long, env = "FPGA_READY_FILE", value_name = "PATH")]
    ready_file: Option<PathBuf>,

    /// Maximum request body [default: 1 MiB, or as much as --max-bytes-in-flight has room for].
    #[arg(long, env = "FPGA_MAX_BODY_BYTES", value_name = "BYTES")]
    max_body_bytes: Option<usize>,

    /// Bytes that all requests may hold together: bodies, and up to 12 times as much for parsing them. When they are
    /// used up, slow senders give way; otherwise the answer is 429 [default: 64 MiB, or a quarter of the memory limit
    /// if that is less].
    #[arg(long, env = "FPGA_MAX_BYTES_IN_FLIGHT", value_name = "BYTES")]
    max_bytes_in_flight: Option<usize>,

    /// Bytes of reports accepted per second; more are answered with 429. 100,000 events have about 20 MB.
    #[arg(long, env = "FPGA_MAX_BYTES_PER_SECOND", default_value_t = 64 * 1024 * 1024)]
    max_bytes_per_second: u32,

    #[command(flatten)]
    peers: PeerArgs,

    #[command(flatten)]
    log: LogArgs,
}

/// Whether the state is published to an API server.
enum Publishing {
    Off,
    On(Box<kube::Config>),
}

impl Args {
    /// Runs the collector until SIGINT or SIGTERM.
    ///
    /// # Errors
    /// The reason why the collector could not start or end properly, with what to do about it.
    pub fn run(self) -> anyhow::Result<()> {
        // Parsing, HTTP and publishing need little processor time; the owner has a thread of its own.
        runtime::run(self.serve()).context("cannot start the runtime")?
    }

    async fn serve(self) -> anyhow::Result<()> {
        let Self {
            node_name,
            listen,
            listen_unix,
            metrics_listen,
            checkpoint_dir,
            window,
            heartbeat,
            min_write_interval,
            device_timeout,
            kubeconfig,
            no_publish,
            label_node,
            stream,
            ready_file,
            max_body_bytes,
            max_bytes_in_flight,
            max_bytes_per_second,
            peers,
            log,
        } = self;
        log.init()?;
        let bytes_in_flight =
            max_bytes_in_flight.unwrap_or_else(|| Budget::default_bytes(MemoryLimit::of_this_process()));
        let body_bytes = max_body(max_body_bytes, bytes_in_flight)?;
        check(heartbeat, min_write_interval)?;
        let streaming = stream.check(no_publish)?;
        let peers = peers.check(listen)?;
        let limits = Limits { body_bytes, bytes_in_flight, bytes_per_second: max_bytes_per_second.max(1) };
        let publishing = if no_publish {
            Publishing::Off
        } else {
            Publishing::On(Box::new(api_server(kubeconfig.as_deref()).await?))
        };
        let mut signals = Signals::install().context("cannot take signals")?;

        let length = Millis::from(window);
        let (checkpoint, recovered) = Checkpoint::open(&checkpoint_dir, length, Clock::start().now().0)?;
        info!(
            records = recovered.records,
            torn_bytes = recovered.torn_bytes,
            damaged = recovered.damaged,
            "Checkpoint recovered"
        );
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let silence = Silence { unhealthy_after: device_timeout.into() };
        let config = owner::Config { heartbeat: heartbeat.into(), silence };
        let (handle, owner) =
            owner::start(config, checkpoint, recovered, &metrics).context("cannot start")?;

        let default = if listen_unix.is_none() { Some(DEFAULT_LISTEN.parse()?) } else { None };
        let listeners = Listeners::bind(listen.or(default), listen_unix.as_deref(), metrics_listen).await?;
        let addresses = listeners.addresses()?;
        let (phase, phases) = watch::channel(Phase::Serve);
        let (publishing_phase, publishing_phases) = watch::channel(Phase::Serve);
        let link = Link::new();
        link.uid.send_replace(stream.node_uid);
        let streamer = streaming.map(|streaming| {
            let link = link.clone();
            let streamer = Streamer::new(node_name.clone(), handle.clone(), metrics.clone(), link, streaming);
            tokio::spawn(streamer.run(phases.clone()))
        });
        let mut labeller = None;
        let publisher = match publishing {
            Publishing::Off => None,
            Publishing::On(config) => {
                let client =
                    kube::Client::try_from(*config).context("cannot make a client of the kubeconfig")?;
                if label_node {
                    let new = Labeller::new(
                        client.clone(),
                        node_name.clone(),
                        handle.clone(),
                        metrics.clone(),
                        device_timeout,
                        link.clone(),
                    );
                    labeller = Some(tokio::spawn(new.run(publishing_phases.clone())));
                }
                let (watched, phases) = (node_name.clone(), publishing_phases.clone());
                tokio::spawn(cordons::follow(client.clone(), watched, handle.clone(), phases));
                let intervals = Intervals { min: min_write_interval, heartbeat };
                let publisher = Publisher::new(
                    client,
                    node_name.clone(),
                    handle.clone(),
                    metrics.clone(),
                    intervals,
                    link,
                );
                Some(tokio::spawn(publisher.run(publishing_phases)))
            }
        };
        let app = App::new(handle.clone(), metrics.clone(), registry, limits, peers).routers();
        let mut server = tokio::spawn(listeners.serve(app, metrics, phases));
        if let Some(path) = &ready_file {
            ready_file::write(path, &addresses)
                .with_context(|| format!("--ready-file {} can't be written", path.display()))?;
        }
        info!(node = %node_name, addresses = %addresses.join(" "), "Collector is ready");

        let ended_early = tokio::select! {
            _ = signals.next() => false,
            _ = &mut server => true,
        };
        info!("Ending");
        phase.send_replace(Phase::End);
        let in_order = async {
            if !ended_early {
                server.await?;
            }
            if let Some(streamer) = streamer {
                streamer.await?;
            }
            // After the server, so that the last published state has everything that was acknowledged.
            publishing_phase.send_replace(Phase::End);
            for task in [publisher, labeller].into_iter().flatten() {
                task.await?;
            }
            tokio::task::spawn_blocking(move || {
                handle.stop();
                owner.join()
            })
            .await?
            .map_err(|_| anyhow::anyhow!("the owner of the state failed; the log says why"))
        };
        tokio::select! {
            result = in_order => result?,
            _ = signals.next() => bail!("ended by a second signal; what was acknowledged is safe"),
        }
        if ended_early { bail!("the server failed; the log says why") } else { Ok(()) }
    }
}

/// Maximum length of a body, checked against the budget.
fn max_body(given: Option<usize>, budget: usize) -> anyhow::Result<usize> {
    let most = intake::longest_body(budget);
    match given {
        Some(given) if given == 0 || given > MAX_BODY_BYTES => {
            bail!(
                "--max-body-bytes {given} can't be; write 1 to {MAX_BODY_BYTES}, for example {DEFAULT_BODY_BYTES}"
            )
        }
        Some(given) if given > most => bail!(
            "--max-body-bytes {given} needs --max-bytes-in-flight {} or more, and it is {budget}",
            given + intake::events_working_bytes(given)
        ),
        None if most == 0 => bail!(
            "--max-bytes-in-flight {budget} leaves no room for a request; write at least {}",
            DEFAULT_BODY_BYTES + intake::events_working_bytes(DEFAULT_BODY_BYTES)
        ),
        given => Ok(given.unwrap_or(DEFAULT_BODY_BYTES.min(most))),
    }
}

fn check(heartbeat: Duration, min: Duration) -> anyhow::Result<()> {
    if heartbeat < Duration::from_secs(1) || Millis::from(heartbeat) > MAX_HEARTBEAT {
        bail!("--heartbeat {heartbeat:?} can't be; write 1s to 1h, for example `60s`");
    }
    if min > heartbeat {
        bail!(
            "--min-write-interval {min:?} is longer than --heartbeat {heartbeat:?}; write a shorter one, for example `10s`"
        );
    }
    Ok(())
}

async fn api_server(path: Option<&Path>) -> anyhow::Result<kube::Config> {
    let mut config = match kube_config::load(path, None).await {
        Err(error @ KubeConfigError::Nowhere(_)) => {
            return Err(error).context("write --no-publish for a node without Kubernetes");
        }
        loaded => loaded?,
    };
    config.connect_timeout = Some(KUBE_CONNECT_TIMEOUT);
    // The publisher has a backoff of its own, with metrics.
    config.default_retry = false;
    Ok(config)
}
