//! Command line and wiring.

use crate::cluster::Cluster;
use crate::leader::Leader;
use crate::metrics::Metrics;
use crate::moves::{MoveMode, MoveSettings, Mover, NewBeforeOld, Rebalance};
use crate::own_bitstreams::OwnRule;
use crate::probes::Probes;
use anyhow::{Context as _, Result, bail};
use clap::Parser;
use fpga_cluster::moves::MovePolicy;
use fpga_core::moved_off::MAX_MOVED_OFF_TIME;
use fpga_net::election::{Election, Timing};
use fpga_net::listen;
use fpga_net::log::LogArgs;
use fpga_net::signals::Signals;
use fpga_net::{duration, kube_config, ready_file};
use fpga_registry_api::LibraryRules;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch::channel;
use tracing::info;

/// Name of the Lease.
const LEASE: &str = "fpga-registry";

const EXAMPLES: &str = "Examples:
  Suggest moves, and do none:
    fpga-registry --kubeconfig ~/.kube/config --metrics-listen 127.0.0.1:9473
  Move pods off boards that have been lost for two minutes, six pods per hour at most:
    fpga-registry --moves evict --board-grace 2m --moves-per-hour 6
  What it has suggested or done, and why:
    kubectl fpga moves";

/// Tells on each Bitstream where it is valid and who uses it, and moves pods that had better be elsewhere. Of several
/// replicas one works.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
#[command(mut_arg("log", |log| log.default_value("fpga_registry=info,warn")))]
pub struct Args {
    /// Address for probes and metrics, plain HTTP; port 0 takes a free one.
    #[arg(long, env = "FPGA_METRICS_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9473")]
    metrics_listen: SocketAddr,
    /// File for the bound address, written when the port is open.
    #[arg(long, env = "FPGA_READY_FILE", value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// Path of the kubeconfig; by default KUBECONFIG, ~/.kube/config, or the service account of the pod.
    #[arg(long, env = "FPGA_KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the Lease and of the records of moves.
    #[arg(long, env = "FPGA_POD_NAMESPACE", value_name = "NAME", default_value = "kube-fpga")]
    namespace: String,
    /// Name of this replica in the Lease, different for each, for example the name of its pod.
    #[arg(long, env = "FPGA_POD_NAME", value_name = "NAME")]
    identity: Option<String>,
    /// Time after which another replica takes the lead from one that has gone silent, in whole seconds.
    #[arg(long, env = "FPGA_LEASE_DURATION", default_value = "15s", value_parser = duration::parse)]
    lease_duration: Duration,
    /// Namespace whose Bitstreams all pods may name without writing the namespace, as for the extender.
    #[arg(long, env = "FPGA_LIBRARY_NAMESPACE", value_name = "NAME")]
    library_namespace: Option<String>,
    /// What other namespaces may have as Bitstreams: any (nothing is said about them), off, or most Bitstreams and bytes of
    /// each namespace, for example 16,4GiB. Extenders, node plugins and the pool's broker with --own-bitstreams accepted
    /// go by it.
    #[arg(long, env = "FPGA_OWN_BITSTREAMS", value_name = "RULE", default_value = "any")]
    own_bitstreams: OwnRule,
    /// Time between two looks at the statuses of Bitstreams.
    #[arg(long, env = "FPGA_STATUS_INTERVAL", default_value = "10s", value_parser = duration::parse)]
    status_interval: Duration,
    /// What is done about a pod that had better be elsewhere: nothing, an event on its Deployment, or an eviction.
    #[arg(long, env = "FPGA_MOVES", value_enum, default_value_t = MoveMode::Suggest)]
    moves: MoveMode,
    /// Time between two looks for moves.
    #[arg(long, env = "FPGA_MOVES_INTERVAL", default_value = "30s", value_parser = duration::parse)]
    moves_interval: Duration,
    /// Most moves, or suggestions, in one interval.
    #[arg(long, env = "FPGA_MOVES_PER_INTERVAL", value_name = "COUNT", default_value_t = 1)]
    moves_per_interval: usize,
    /// Most moves, or suggestions, in an hour.
    #[arg(long, env = "FPGA_MOVES_PER_HOUR", value_name = "COUNT", default_value_t = 12,
        value_parser = clap::value_parser!(u16).range(0..=200))]
    moves_per_hour: u16,
    /// Least time between two moves of one Deployment.
    #[arg(long, env = "FPGA_MOVES_COOL_DOWN", default_value = "10m", value_parser = duration::parse)]
    moves_cool_down: Duration,
    /// Time for the replicas of a moved Deployment to be Ready again; later an event tells what is missing, and the node
    /// that it was moved off takes it again.
    #[arg(long, env = "FPGA_MOVES_RECOVERY", default_value = "5m", value_parser = duration::parse)]
    moves_recovery: Duration,
    /// Least number of cold starts in an hour that a move to another board must be expected to save; 0 for no moves that
    /// save cold starts.
    #[arg(long, env = "FPGA_MOVES_LEAST_GAIN", value_name = "COUNT", default_value_t = 60)]
    moves_least_gain: u32,
    /// Least time between two decisions to move pods because of cold starts.
    #[arg(long, env = "FPGA_REBALANCE_INTERVAL", default_value = "10m", value_parser = duration::parse)]
    rebalance_interval: Duration,
    /// Time for a board to come back before the pods that hold it are moved.
    #[arg(long, env = "FPGA_BOARD_GRACE", default_value = "1m", value_parser = duration::parse)]
    board_grace: Duration,
    /// Time for which the scheduler places no pod of a moved Deployment on the node that it was moved off; an hour at
    /// most.
    #[arg(long, env = "FPGA_MOVED_OFF_TIME", default_value = "10m", value_parser = duration::parse)]
    moved_off_time: Duration,
    /// Raises the number of replicas of a Deployment by one for a move whose pod has the annotation
    /// fpga-scheduling.io/new-before-old: "true", so that the replacement is Ready before the pod goes. Not where a
    /// HorizontalPodAutoscaler owns the number.
    #[arg(long, env = "FPGA_MOVES_NEW_BEFORE_OLD")]
    moves_new_before_old: bool,
    #[command(flatten)]
    log: LogArgs,
}

impl Args {
    /// Runs the registry until a signal comes.
    ///
    /// # Errors
    /// Invalid arguments, or the system's error.
    pub fn run(self) -> Result<()> {
        self.log.init()?;
        fpga_net::runtime::run(self.serve())?
    }

    fn validate(&self) -> Result<()> {
        let whole_seconds = self.lease_duration.subsec_nanos() == 0;
        if !whole_seconds || !(3..=3_600).contains(&self.lease_duration.as_secs()) {
            bail!("--lease-duration {:?} can't be; write whole seconds from 3s to 1h", self.lease_duration);
        }
        for (flag, interval) in [
            ("--status-interval", self.status_interval),
            ("--moves-interval", self.moves_interval),
            ("--rebalance-interval", self.rebalance_interval),
        ] {
            if interval < Duration::from_millis(100) {
                bail!("{flag} {interval:?} can't be; write 100ms or more, for example 30s");
            }
        }
        if self.moved_off_time > Duration::from(MAX_MOVED_OFF_TIME) {
            bail!("--moved-off-time {:?} can't be; write 1h or less", self.moved_off_time);
        }
        Ok(())
    }

    fn library(&self) -> LibraryRules {
        LibraryRules { shared: self.library_namespace.clone(), own: self.own_bitstreams.for_readers() }
    }

    fn settings(&self) -> MoveSettings {
        MoveSettings {
            mode: self.moves,
            namespace: self.namespace.clone(),
            policy: MovePolicy {
                per_interval: self.moves_per_interval,
                per_hour: self.moves_per_hour.into(),
                cool_down: self.moves_cool_down.into(),
            },
            board_grace: self.board_grace.into(),
            moved_off_time: self.moved_off_time.into(),
            recovery: self.moves_recovery.into(),
            new_before_old: if self.moves_new_before_old {
                NewBeforeOld::Allowed
            } else {
                NewBeforeOld::Never
            },
            rebalance: Rebalance {
                interval: self.rebalance_interval.into(),
                least_per_hour: self.moves_least_gain,
            },
            library: self.library(),
        }
    }

    async fn serve(self) -> Result<()> {
        self.validate()?;
        let mut signals = Signals::install().context("can't take signals")?;
        let mut config = kube_config::load(self.kubeconfig.as_deref(), None).await?;
        // By 429 the Eviction API says that a budget forbids it; all else is tried again by the next look.
        config.default_retry = false;
        let client = kube::Client::try_from(config)?;
        let listener = listen::bind(self.metrics_listen).with_context(|| {
            format!("can't listen on {}; choose another address with --metrics-listen", self.metrics_listen)
        })?;
        let address = listener.local_addr()?.to_string();
        let me = self.identity.clone().unwrap_or_else(|| {
            // Different for each replica, also in one network namespace.
            format!("{}-{address}", std::process::id())
        });
        let mut registry = Registry::with_prefix("fpga_registry");
        let metrics = Metrics::register(&mut registry);
        let (cluster, watch) = Cluster::watch(client.clone(), &metrics);
        let (election, leadership) = Election::new(
            client.clone(),
            &self.namespace,
            LEASE,
            me.clone(),
            Timing::of(self.lease_duration),
        );
        let probes = Probes::new(registry, metrics.clone(), leadership.clone());
        let mover = Mover::new(client.clone(), self.settings(), metrics.clone(), me.clone());
        let leader = Leader {
            client,
            cluster: cluster.clone(),
            leadership,
            metrics,
            library: self.library(),
            own_bitstreams: self.own_bitstreams,
        };
        info!(listen = address, me, moves = ?self.moves, version = env!("CARGO_PKG_VERSION"), "Starting");
        if let Some(path) = &self.ready_file {
            ready_file::write(path, &[address]).with_context(|| format!("can't write {}", path.display()))?;
        }
        let (stop, stopped) = channel(false);
        let work = async {
            tokio::join!(
                leader.keep_statuses(self.status_interval),
                leader.keep_moving(mover, self.moves_interval)
            )
        };
        let ready = async {
            cluster.until_pods_are_known().await;
            probes.set_ready(true);
            std::future::pending::<()>().await;
        };
        // The election outlives the work, so that the Lease is given back after the last write.
        let race = tokio::spawn(election.run(stopped.clone()));
        let ended = tokio::select! {
            _ = work => Ok(()),
            () = ready => Ok(()),
            () = watch => Err(anyhow::anyhow!("a watch on the API server ended")),
            () = std::sync::Arc::clone(&probes).serve(listener, stopped) => {
                Err(anyhow::anyhow!("the port for probes ended"))
            }
            _ = signals.next() => Ok(()),
        };
        info!("Stopping");
        probes.set_ready(false);
        stop.send_replace(true);
        race.await.context("the election failed")?;
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn bad_values_are_refused_with_what_to_write() {
        for (args, hint) in [
            (["--lease-duration", "2s"], "3s to 1h"),
            (["--lease-duration", "4500ms"], "3s to 1h"),
            (["--status-interval", "0"], "for example 30s"),
            (["--moves-interval", "1ms"], "for example 30s"),
            (["--rebalance-interval", "0"], "for example 30s"),
            (["--moved-off-time", "2h"], "1h or less"),
        ] {
            let args = Args::try_parse_from(["x", args[0], args[1]]).unwrap();
            let error = args.validate().unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
        for (args, hint) in [(["--moves", "always"], "suggest"), (["--moves-per-hour", "201"], "0..=200")] {
            let error = Args::try_parse_from(["x", args[0], args[1]]).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }
}
