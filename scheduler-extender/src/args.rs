//! Command line and wiring.

use crate::admin;
use crate::app::{App, longest_body};
use crate::certificates::CertificatesArgs;
use crate::clock::Clock;
use crate::config::events::{self, PodArgs, SPACING};
use crate::config::watch::POLL_INTERVAL;
use crate::in_use::InUseArgs;
use crate::library::{self, LibraryIndex};
use crate::ports::{PortArgs, Routers};
use crate::record::RecordArgs;
use crate::replay::{self, ReplayArgs};
use crate::routes::{self, Routes};
use crate::rules_args::{PRECEDENCE, RulesArgs};
use crate::stream::IndexReceiver;
use crate::wire::MAX_WORKING_BYTES;
use crate::{pod_reflector, reflector, waking};
use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use fpga_net::http::Budget;
use fpga_net::kube_config;
use fpga_net::log::LogArgs;
use fpga_net::memory::MemoryLimit;
use fpga_net::ready_file;
use fpga_net::signals::Signals;
use fpga_node_stream::server::options::StreamArgs;
use fpga_registry_api::{LibraryRules, OwnBitstreams};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

const EXAMPLES: &str = "Examples:
  fpga-scheduler-extender --kubeconfig ~/.kube/config
  fpga-scheduler-extender serve --listen '[::]:9461' --weights 4-1-1 --stale-usage neutral
  fpga-scheduler-extender --config /etc/fpga/extender.yaml
  fpga-scheduler-extender --tls-cert /tls/tls.crt --tls-key /tls/tls.key --stream-listen '[::]:9463' \\
    --stream-tls-cert /tls/tls.crt --stream-tls-key /tls/tls.key --stream-service-account kube-fpga/fpga-collector
  curl -s localhost:9461/nodes; curl -s localhost:9461/explain/default/my-pod";

fn after_help() -> String {
    format!("{PRECEDENCE}\n\n{EXAMPLES}")
}

/// The kube-scheduler extender of kube-fpga: filters and scores nodes by the measured load of their boards.
#[derive(Debug, Parser)]
#[command(version, after_help = after_help(), args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answers kube-scheduler (the default).
    #[command(after_help = after_help())]
    Serve(Box<ServeArgs>),
    /// Repeats the decisions of a recording and checks that the results are the same, or shows what other rules would
    /// change.
    #[command(after_help = replay::EXAMPLES)]
    Replay(Box<ReplayArgs>),
    /// Fails and names them while pods hold boards. The chart asks before it is uninstalled.
    InUse(InUseArgs),
    /// Makes the certificates of the chart's services, and replaces them before they end. The chart runs it at once and every
    /// day.
    #[command(
        after_help = "Example: fpga-scheduler-extender certificates --namespace kube-fpga --certificate fpga-extender-stream-tls=fpga-scheduler-extender.kube-fpga.svc"
    )]
    Certificates(CertificatesArgs),
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("log", |log| log.default_value("fpga_scheduler_extender=info,warn")))]
struct ServeArgs {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, env = "FPGA_LISTEN", default_value = "127.0.0.1:9461")]
    listen: SocketAddr,
    /// File for the bound address, written when the ports are open; further lines have the other ports as
    /// read:ADDRESS, metrics:ADDRESS and stream:ADDRESS.
    #[arg(long, env = "FPGA_READY_FILE", value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// Namespace whose Bitstreams all pods may name without writing the namespace, for example kube-fpga. A pod's own
    /// namespace comes first.
    #[arg(long, env = "FPGA_LIBRARY_NAMESPACE", value_name = "NAME")]
    library_namespace: Option<String>,
    /// Which Bitstreams of other namespaces count: any, or those that the registry has accepted (condition Accepted).
    #[arg(long, env = "FPGA_OWN_BITSTREAMS", value_name = "RULE", default_value = "any")]
    own_bitstreams: OwnBitstreams,
    /// Path of the kubeconfig; by default KUBECONFIG, ~/.kube/config, or the service account of the pod.
    #[arg(long, env = "FPGA_KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Prefix of a second path to each verb, beside the root.
    #[arg(long, env = "FPGA_PATH_PREFIX", default_value = "/fpga", value_parser = path_prefix)]
    path_prefix: String,
    /// Longest request body in bytes; 5,000 whole nodes take about 31 MB [default: as --max-bytes-in-flight allows,
    /// 38 MiB].
    #[arg(long, env = "FPGA_MAX_BODY_BYTES", value_name = "BYTES")]
    max_body_bytes: Option<usize>,
    /// Bytes that all requests for decisions may hold together: bodies, memory for the decision (up to 25 MiB each)
    /// and answers. Requests beyond are answered with 503. Requests of people (/nodes, /explain) may hold half as
    /// many bytes, on an account of their own [default: 64 MiB, or a quarter of the memory limit if that is less].
    #[arg(long, env = "FPGA_MAX_BYTES_IN_FLIGHT", value_name = "BYTES")]
    max_bytes_in_flight: Option<usize>,
    /// Time after SIGTERM in which requests are still answered while /readyz fails, so that clients can turn to
    /// another replica before the port closes. SIGINT or a second signal ends it.
    #[arg(long, env = "FPGA_SHUTDOWN_DELAY", default_value = "5s", value_parser = fpga_net::duration::parse)]
    shutdown_delay: Duration,
    #[command(flatten)]
    ports: PortArgs,
    #[command(flatten)]
    stream: StreamArgs,
    #[command(flatten)]
    rules: RulesArgs,
    #[command(flatten)]
    pod: PodArgs,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    log: LogArgs,
}

impl Args {
    /// Runs the subcommand until it is done or a signal comes.
    ///
    /// # Errors
    /// Invalid arguments, or the system's error.
    pub fn run(self) -> Result<()> {
        let Self { command, serve } = self;
        let args = match command {
            Some(Command::Replay(args)) => return args.run(),
            Some(Command::InUse(args)) => return args.run(),
            Some(Command::Certificates(args)) => return args.run(),
            Some(Command::Serve(args)) => *args,
            None => serve,
        };
        args.log.init()?;
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(args.run())
    }
}

impl ServeArgs {
    async fn run(self) -> Result<()> {
        let Self {
            listen,
            ready_file,
            library_namespace,
            own_bitstreams,
            kubeconfig,
            path_prefix,
            max_body_bytes,
            max_bytes_in_flight,
            shutdown_delay,
            ports,
            stream,
            rules,
            pod,
            record,
            log: _,
        } = self;
        let budget =
            max_bytes_in_flight.unwrap_or_else(|| Budget::default_bytes(MemoryLimit::of_this_process()));
        let max_body_bytes = max_body(max_body_bytes, budget)?;
        let clock = Clock::system();
        let (config, file) = rules.config(clock.read()).await?;
        let rules = config.policy().rules;
        let mut signals = Signals::install().context("can't take signals")?;
        let client = client(kubeconfig.as_deref()).await?;
        let readers = ports.readers(listen, &client);
        let ports = ports.open(listen)?;
        let stream_port = stream.open(&client).await?;
        let mut addresses = ports.addresses()?;
        if let Some(port) = &stream_port {
            addresses.push(format!("stream:{}", port.address()?));
        }
        info!(
            listen = %addresses.join(" "), tls = ports.protection(), path_prefix, max_body_bytes, max_bytes_in_flight = budget,
            weights = %rules.weights, max_score = %rules.max_score,
            stale_usage = %rules.stale.usage, stale_reconfiguration = %rules.stale.reconfiguration,
            stale_locality = %rules.stale.locality, unlabelled_nodes = %rules.unlabelled,
            anti_herd = %rules.anti_herd,
            version = env!("CARGO_PKG_VERSION"), "Starting"
        );
        let mut state = App::with_config(config, clock.clone()).with_bytes_in_flight(budget);
        state.recorder = record.start(&clock, &mut state.registry)?;
        let rules = LibraryRules { shared: library_namespace, own: own_bitstreams };
        state.library = Arc::new(LibraryIndex::watched(rules));
        let state = Arc::new(state);
        let (index, metrics) = (Arc::clone(&state.index), Arc::clone(&state.metrics));
        let streams = {
            let clock = clock.clone();
            async move {
                match stream_port {
                    Some(port) => port.serve(Arc::new(IndexReceiver { index, metrics, clock })).await,
                    None => std::future::pending().await,
                }
            }
        };
        let pods = {
            let (client, clock, state) = (client.clone(), clock.clone(), Arc::clone(&state));
            async move {
                let App { index, expectations, board_pods, .. } = &*state;
                pod_reflector::run(client, index, expectations, board_pods, &clock).await;
            }
        };
        let config_watch = {
            let (config, clock) = (Arc::clone(&state.config), clock.clone());
            async move {
                match file {
                    Some(file) => file.run(&config, &clock, POLL_INTERVAL).await,
                    None => std::future::pending().await,
                }
            }
        };
        let events = {
            let (client, config) = (client.clone(), Arc::clone(&state.config));
            async move { events::run(client, pod, config.news(), &config.metrics().event_errors, SPACING).await }
        };
        let bitstreams = {
            let (client, state) = (client.clone(), Arc::clone(&state));
            async move { library::run(client, &state.library, &state.metrics).await }
        };
        let wakes = {
            let (client, state, clock) = (client.clone(), Arc::clone(&state), clock.clone());
            async move { waking::run(client, &state.index, &state.library, &state.metrics, &clock).await }
        };
        let reflector = reflector::run(client, Arc::clone(&state.index), Arc::clone(&state.metrics), clock);
        let port_metrics = state.metrics.ports.clone();
        let routers = Routers {
            reading: routes::reading(Arc::clone(&state), readers.reading),
            probes: admin::probes(Arc::clone(&state)),
            all: routes::verbs(Arc::clone(&state), &Routes { prefix: path_prefix, max_body_bytes })
                .merge(routes::reading(Arc::clone(&state), readers.main)),
        };
        let (second, cut) = tokio::sync::oneshot::channel::<()>();
        let stop = async move {
            signals.until_ports_close(shutdown_delay, || state.begin_to_end()).await;
            tokio::spawn(async move {
                signals.next().await;
                // The receiver is gone if the server has ended meanwhile.
                let _ = second.send(());
            });
        };
        let cut = async {
            if cut.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        if let Some(path) = ready_file {
            ready_file::write(&path, &addresses)
                .with_context(|| format!("can't write {}", path.display()))?;
        }
        tokio::select! {
            () = ports.serve(routers, &port_metrics, stop, cut) => Ok(()),
            () = reflector => bail!("the watch on nodes ended"),
            () = pods => bail!("the watch on pods ended"),
            () = bitstreams => bail!("the watch on Bitstreams ended"),
            () = wakes => bail!("the writes of the library's version ended"),
            () = config_watch => bail!("the watch on the configuration ended"),
            () = events => bail!("the events on the configuration ended"),
            ended = streams => {
                ended.context("the streams' listener failed")?;
                bail!("the streams' listener ended")
            }
        }
    }
}

/// The longest body. Fails if the budget has no room for it.
fn max_body(given: Option<usize>, budget: usize) -> Result<usize> {
    let most = longest_body(budget);
    match given {
        None if most == 0 => bail!(
            "--max-bytes-in-flight {budget} leaves no room for a request; write at least {}",
            MAX_WORKING_BYTES + (1 << 20)
        ),
        Some(given) if given > most => bail!(
            "--max-body-bytes {given} needs --max-bytes-in-flight {} or more, and it is {budget}",
            given.saturating_add(MAX_WORKING_BYTES)
        ),
        given => Ok(given.unwrap_or(most)),
    }
}

async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client> {
    Ok(kube::Client::try_from(kube_config::load(kubeconfig, None).await?)?)
}

fn path_prefix(text: &str) -> Result<String, String> {
    let prefix = text.trim_end_matches('/');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    if prefix.is_empty() || (prefix.starts_with('/') && !prefix.contains("//") && prefix.chars().all(plain)) {
        Ok(prefix.to_owned())
    } else {
        Err("write a path such as `/fpga`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<ServeArgs, clap::Error> {
        let args = Args::try_parse_from(std::iter::once("x").chain(args.iter().copied()))?;
        Ok(match args.command {
            Some(Command::Serve(args)) => *args,
            Some(Command::Replay(_) | Command::InUse(_) | Command::Certificates(_)) => {
                unreachable!("no test asks for it")
            }
            None => args.serve,
        })
    }

    #[test]
    fn serve_is_the_default() {
        for args in [["--listen", "127.0.0.1:1"].as_slice(), &["serve", "--listen", "127.0.0.1:1"]] {
            assert_eq!(parse(args).unwrap().listen, "127.0.0.1:1".parse().unwrap());
        }
    }

    #[test]
    fn single_weights_replace_those_of_the_short_form() {
        let weights = |args: &[&str]| {
            let policy = parse(args).unwrap().rules.settings().policy();
            policy.map(|policy| policy.rules.weights.to_string())
        };
        assert_eq!(weights(&["--weights", "4-1-1", "--usage-weight", "0.5"]).unwrap(), "4-0.5-1");
        assert_eq!(weights(&["--weights", "4-1-1", "--queue-weight", "3"]).unwrap(), "4-1-1-0-3-0");
        assert_eq!(weights(&["--weights", "0.5-2-2-1"]).unwrap(), "0.5-2-2-1-0-0");
        assert_eq!(weights(&["--weights", "1-2-3-4-5-6", "--loaded-weight", "0"]).unwrap(), "1-2-3-4-5-0");
        assert!(weights(&["--usage-weight=-1"]).is_err());
    }

    #[test]
    fn bad_values_are_refused_with_what_to_write() {
        for (args, hint) in [
            (["--weights", "1-2"], "`1-2-2`"),
            (["--stale-usage", "ignore"], "`neutral`, `penalise` or `exclude`"),
            (["--unlabelled-nodes", "yes"], "`reject` or `pass`"),
            (["--anti-herd", "yes"], "`on` or `off`"),
            (["--max-score", "0"], "whole number from 1"),
            (["--path-prefix", "fpga"], "`/fpga`"),
            (["--path-prefix", "/{x}"], "`/fpga`"),
        ] {
            let error = parse(&args).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn the_longest_body_fits_into_what_requests_may_hold() {
        let bytes = |mebibytes: usize| mebibytes << 20;
        assert_eq!(max_body(None, bytes(64)).unwrap(), bytes(64) - MAX_WORKING_BYTES);
        assert_eq!(max_body(Some(1000), bytes(64)).unwrap(), 1000);
        let error = max_body(Some(bytes(64)), bytes(64)).unwrap_err().to_string();
        assert!(error.contains("needs --max-bytes-in-flight"), "{error}");
        assert!(max_body(None, bytes(8)).unwrap_err().to_string().contains("write at least"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }
}
