//! A cluster with a thousand nodes that exist as API objects only, some of them with boards. API server,
//! kube-scheduler and extender are real; to them the nodes look like any others, because pods are placed and never
//! run.

pub mod bound;
pub mod collectors;
pub mod gate;
pub mod nodes;
pub mod pods;

use super::control_plane::{ControlPlane, SchedulerConfig};
use super::http_client::HttpClient;
use super::identity::Identity;
use super::process::{Process, ProcessSpec};
use super::{programs, wait};
use anyhow::{Context as _, Result, bail};
use fpga_core::node_state::ANNOTATION;
use fpga_test_kit::patience;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nodes::Ground;
use pods::{BATCH, Kind};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Ports of the first replica of the extender, for requests and for streams; each further replica adds ten.
const EXTENDER_PORT: u16 = 9461;
const STREAM_PORT: u16 = 9463;
/// Token of the streams from collectors to replicas.
const TOKEN: &str = "a-token-for-this-test-bed-only";
/// Number of concurrent requests to the API server.
const AT_ONCE: usize = 40;
/// Interval between writes of a state while pods are waited for. It exceeds the time in which a pod is placed that is
/// not rejected.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A running cluster. Dropping it without [`ScaleBed::stop`] kills its programs.
pub struct ScaleBed {
    plane: ControlPlane,
    ground: Ground,
    extenders: BTreeMap<u16, Process>,
    http: HttpClient,
}

impl ScaleBed {
    /// Starts an API server and creates the nodes; scheduler and extender don't run yet.
    ///
    /// # Errors
    /// A program is missing or does not start, or the API server refuses a node.
    pub async fn start(ground: Ground) -> Result<Self> {
        let plane = ControlPlane::start_objects_only().await?;
        let nodes: Api<Node> = Api::all(plane.client().clone());
        // At first sight the extender computes a state's age from the time at which this field manager wrote it.
        let written_by = PostParams {
            field_manager: Some(fpga_core::node_state::FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        futures::stream::iter((0..ground.nodes).map(Ok))
            .try_for_each_concurrent(AT_ONCE, |index| {
                let (nodes, written_by) = (&nodes, &written_by);
                async move {
                    let node = serde_json::from_value(ground.node(index))?;
                    nodes.create(written_by, &node).await?;
                    anyhow::Ok(())
                }
            })
            .await?;
        std::fs::write(plane.run_dir().path().join("token"), TOKEN).context("can't write the token")?;
        let http = HttpClient::new(patience());
        Ok(Self { plane, ground, extenders: BTreeMap::new(), http })
    }

    /// The control plane.
    #[must_use]
    pub const fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The specification of the nodes.
    #[must_use]
    pub const fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The HTTP client of the cluster.
    #[must_use]
    pub const fn http(&self) -> &HttpClient {
        &self.http
    }

    /// The URL of a path on the extender.
    #[must_use]
    pub fn extender_url(&self, path: &str) -> String {
        self.replica_url(0, path)
    }

    /// The URL of a path on the replica with this index, from 0.
    #[must_use]
    pub fn replica_url(&self, replica: u16, path: &str) -> String {
        format!("http://{}{path}", self.on_control_plane(EXTENDER_PORT + 10 * replica))
    }

    fn on_control_plane(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.plane.network().control_plane(), port))
    }

    /// Path of the file with the token of the streams.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.plane.run_dir().path().join("token")
    }

    /// The URL for streams to a replica, as collectors get it.
    #[must_use]
    pub fn stream_url(&self, replica: u16) -> String {
        format!("http://{}", self.on_control_plane(STREAM_PORT + 10 * replica))
    }

    /// Starts the extender, after killing the running one, and waits until it is ready.
    ///
    /// # Errors
    /// The extender does not become ready.
    pub async fn start_extender(&mut self, args: &[&str]) -> Result<()> {
        self.start_replica(0, args).await
    }

    /// Starts a replica, which also takes streams, after killing the running one. Waits until it is ready.
    ///
    /// # Errors
    /// The replica does not become ready.
    pub async fn start_replica(&mut self, replica: u16, args: &[&str]) -> Result<()> {
        self.kill_replica(replica).await;
        let program = "fpga-scheduler-extender";
        let name = format!("{program}-{replica}");
        let spec = ProcessSpec::new(&name, programs::built(program)?, self.plane.run_dir().log(&name))
            // No client needs time to turn to another replica.
            .args(["--shutdown-delay", "0s", "--listen"])
            .arg(self.on_control_plane(EXTENDER_PORT + 10 * replica).to_string())
            .arg("--stream-listen")
            .arg(self.on_control_plane(STREAM_PORT + 10 * replica).to_string())
            .args(["--stream-without-tls", "--stream-token-file"])
            .arg(self.token_file())
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig(&Identity::Admin)?)
            .args(args);
        let process = Process::start(&spec)?;
        process.wait_ready(&self.http, &self.replica_url(replica, "/readyz"), patience()).await?;
        self.extenders.insert(replica, process);
        Ok(())
    }

    /// Kills the extender, as a crash would.
    pub async fn kill_extender(&mut self) {
        self.kill_replica(0).await;
    }

    /// Kills a replica, as a crash would.
    pub async fn kill_replica(&mut self, replica: u16) {
        if let Some(extender) = self.extenders.remove(&replica) {
            extender.kill().await;
        }
    }

    /// Process id of the extender, if it runs.
    #[must_use]
    pub fn extender_pid(&self) -> Option<i32> {
        self.extenders.get(&0).map(Process::pid)
    }

    /// The value of a metric of the extender.
    ///
    /// # Errors
    /// The extender does not answer.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        Ok(self.http.get(&self.extender_url("/metrics")).await?.metric(name))
    }

    /// Waits until `holds` returns true for the extender's knowledge of a node.
    ///
    /// # Errors
    /// The time is over.
    pub async fn wait_until_known(
        &self,
        node: &str,
        what: &str,
        holds: impl Fn(&serde_json::Value) -> bool,
    ) -> Result<()> {
        let url = self.extender_url("/nodes");
        wait::until(&format!("the extender to know that {node} is {what}"), async || {
            let known = self.http.get(&url).await?.json()?;
            let mut nodes = known.as_array().into_iter().flatten();
            Ok(nodes.any(|known| known["name"] == node && holds(known)).then_some(()))
        })
        .await
    }

    /// Starts kube-scheduler, after stopping the running one.
    ///
    /// # Errors
    /// kube-scheduler does not start.
    pub async fn start_scheduler(&mut self, config: &SchedulerConfig) -> Result<()> {
        self.plane.start_scheduler(config).await
    }

    /// Stops kube-scheduler if it runs.
    pub async fn stop_scheduler(&mut self) {
        self.plane.stop_scheduler().await;
    }

    /// The API for pods.
    #[must_use]
    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.plane.client().clone())
    }

    /// Creates `count` pods named BATCH-N.
    ///
    /// # Errors
    /// The API server refuses a pod.
    pub async fn create_pods(&self, batch: &str, kind: Kind, count: usize) -> Result<()> {
        let pods = self.pods();
        futures::stream::iter((0..count).map(Ok))
            .try_for_each_concurrent(AT_ONCE, |index| {
                let pods = &pods;
                async move {
                    let pod = serde_json::from_value(kind.pod(batch, index))?;
                    pods.create(&PostParams::default(), &pod).await?;
                    anyhow::Ok(())
                }
            })
            .await
    }

    /// Deletes a batch of pods and waits until they are gone.
    ///
    /// # Errors
    /// The time is over.
    pub async fn delete_pods(&self, batch: &str) -> Result<()> {
        let of_batch = ListParams::default().labels(&format!("{BATCH}={batch}"));
        let pods = self.pods();
        wait::until(&format!("the pods of {batch} to be gone"), async || {
            // No node ends the pods, so they need no grace period.
            pods.delete_collection(&DeleteParams::default().grace_period(0), &of_batch).await?;
            let left = pods.list_metadata(&of_batch.clone().limit(1)).await?;
            Ok(left.items.is_empty().then_some(()))
        })
        .await
    }

    /// The node of each placed pod of a batch.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn placements(&self, batch: &str) -> Result<BTreeMap<String, String>> {
        let of_batch = ListParams::default().labels(&format!("{BATCH}={batch}"));
        let pods = self.pods().list(&of_batch).await?.items.into_iter();
        Ok(pods.filter_map(|pod| Some((pod.metadata.name?, pod.spec?.node_name?))).collect())
    }

    /// The messages of kube-scheduler's events about pods of the batch that it could not place.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn failed_attempts(&self, batch: &str) -> Result<Vec<String>> {
        let events: Api<k8s_openapi::api::core::v1::Event> =
            Api::default_namespaced(self.plane.client().clone());
        let failed = ListParams::default().fields("reason=FailedScheduling");
        let prefix = format!("{batch}-");
        let of_batch = events.list(&failed).await?.items.into_iter().filter(|event| {
            event.involved_object.name.as_ref().is_some_and(|name| name.starts_with(&prefix))
        });
        Ok(of_batch.map(|event| event.message.unwrap_or_default()).collect())
    }

    /// Waits for an event that says why a pod of the batch is not placed, and returns its message.
    ///
    /// # Errors
    /// The time is over.
    pub async fn why_pending(&self, batch: &str) -> Result<String> {
        wait::until(&format!("an event about pods of {batch}"), async || {
            Ok(self.failed_attempts(batch).await?.pop())
        })
        .await
    }

    /// Waits until all `count` pods of a batch are placed.
    ///
    /// # Errors
    /// The time is over.
    pub async fn wait_until_placed(&self, batch: &str, count: usize) -> Result<()> {
        let placed = bound::watch(&self.pods(), batch, count, patience()).await?;
        if placed.len() < count {
            let why = self.failed_attempts(batch).await?;
            bail!("{} of {count} pods of {batch} were placed; kube-scheduler says {why:?}", placed.len());
        }
        self.plane.check_running()
    }

    /// Writes the state of the node with the bitstream again and again, as its collector does at least once a minute.
    /// kube-scheduler tries a rejected pod again when something in the cluster changes, or after five minutes.
    /// Without other changes these writes wake the last pods.
    ///
    /// # Errors
    /// The API server refuses a write; otherwise the function never returns.
    pub async fn heartbeats(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.plane.client().clone());
        let holder = nodes::name(self.ground.holder());
        let manager = Some(fpga_core::node_state::FIELD_MANAGER.to_owned());
        let params = PatchParams { field_manager: manager, ..PatchParams::default() };
        for seq in 2.. {
            tokio::time::sleep(HEARTBEAT).await;
            let state = self.ground.state(self.ground.holder(), seq).to_string();
            let patch = json!({"metadata": {"annotations": {(ANNOTATION): state}}});
            nodes.patch_metadata(&holder, &params, &Patch::Merge(&patch)).await?;
        }
        Ok(())
    }

    /// Stops all programs in order.
    pub async fn stop(mut self) {
        self.stop_scheduler().await;
        for extender in self.extenders.values() {
            extender.stop(Duration::from_secs(5)).await;
        }
        self.plane.stop().await;
    }
}
