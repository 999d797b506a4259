//! What the replica that leads does, at intervals: it writes statuses and moves pods.

use crate::cluster::{Cluster, NodeStates};
use crate::metrics::Metrics;
use crate::moves::Mover;
use crate::own_bitstreams::{OwnRule, verdicts};
use crate::status::{self, StatusChange};
use fpga_core::units::WallTime;
use fpga_net::election::Leadership;
use fpga_registry_api::{Bitstream, LibraryRules};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::time::{Duration, SystemTime};
use tokio::time::MissedTickBehavior;
use tracing::warn;

/// Most statuses that are written in one interval; the others follow in the next.
const MOST_STATUSES: usize = 50;
/// Longest time of a tick. A request that is not answered by then is given up.
const LONGEST_TICK: Duration = Duration::from_secs(60);

/// What the leader works with.
pub struct Leader {
    /// Client of the API server.
    pub client: Client,
    /// What is known of the cluster.
    pub cluster: Cluster,
    /// Whether this replica leads.
    pub leadership: Leadership,
    /// The registry's metrics.
    pub metrics: Metrics,
    /// How Bitstreams become the library.
    pub library: LibraryRules,
    /// What other namespaces may have.
    pub own_bitstreams: OwnRule,
}

impl Leader {
    /// Writes statuses of Bitstreams, once per interval. Never returns.
    pub async fn keep_statuses(&self, interval: Duration) {
        self.cluster.until_bitstreams_are_known().await;
        self.cluster.until_pods_are_known().await;
        let mut states = NodeStates::default();
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !self.leadership.is_held() {
                continue;
            }
            for change in self.status_changes(&mut states).into_iter().take(MOST_STATUSES) {
                if !self.leadership.is_held() {
                    break;
                }
                self.write(change).await;
            }
        }
    }

    fn status_changes(&self, states: &mut NodeStates) -> Vec<StatusChange> {
        let bitstreams = self.cluster.bitstreams.state();
        let library = status::library_of(&self.cluster, &self.library);
        let nodes = self.cluster.known_nodes(states, WallTime::of(SystemTime::now()));
        let now = Timestamp::now();
        // The API server keeps whole seconds.
        let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
        let verdicts = verdicts(&bitstreams, self.library.shared.as_deref(), self.own_bitstreams);
        status::changes(&bitstreams, &library, &verdicts, &nodes, &self.cluster.fpga_pods(), &now)
    }

    /// Writes a status. What has changed meanwhile is looked at again in the next interval.
    async fn write(&self, change: StatusChange) {
        let StatusChange { namespace, name, version, status } = change;
        let api: Api<Bitstream> = Api::namespaced(self.client.clone(), &namespace);
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
        let params = PatchParams::default();
        let written = tokio::time::timeout(LONGEST_TICK, api.patch_status(&name, &params, &patch)).await;
        match written {
            Ok(Ok(_)) => {
                self.metrics.status_writes.inc();
            }
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {}
            Ok(Err(error)) => {
                self.metrics.write_errors.inc();
                warn!(namespace, name, %error, "The status of a Bitstream is not written");
            }
            Err(_) => {
                self.metrics.write_errors.inc();
                warn!(namespace, name, "The API server does not answer for the status of a Bitstream");
            }
        }
    }

    /// Looks for moves, once per interval. Never returns.
    pub async fn keep_moving(&self, mut mover: Mover, interval: Duration) {
        self.cluster.until_bitstreams_are_known().await;
        self.cluster.until_pods_are_known().await;
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !self.leadership.is_held() {
                mover.forget();
                continue;
            }
            match tokio::time::timeout(LONGEST_TICK, mover.tick(&self.cluster, &self.leadership)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    self.metrics.write_errors.inc();
                    warn!(error = format!("{error:#}"), "Moves are looked at again in the next interval");
                }
                Err(_) => {
                    self.metrics.write_errors.inc();
                    warn!("The API server does not answer; moves are looked at again in the next interval");
                }
            }
        }
    }
}
