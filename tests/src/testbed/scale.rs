//! A cluster of a thousand nodes that are API objects and nothing else: written by the test, some of them with boards.
//! A real API server, a real kube-scheduler and a real extender don't see the difference, for pods are only placed.

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

/// Where the first replica of the extender listens, and where for streams; the others ten further each.
const EXTENDER_PORT: u16 = 9461;
const STREAM_PORT: u16 = 9463;
/// What collectors show to replicas.
const TOKEN: &str = "a-token-for-this-test-bed-only";
/// Requests to the API server at once.
const AT_ONCE: usize = 40;
/// How long anything may take.
const LONG: Duration = Duration::from_secs(60);
/// How often a state is written again while pods are waited for: longer than pods take that are not rejected.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A running cluster of that kind. Dropped without [`ScaleBed::stop`], its programs are killed.
pub struct ScaleBed {
    plane: ControlPlane,
    ground: Ground,
    extenders: BTreeMap<u16, Process>,
    http: HttpClient,
}

impl ScaleBed {
    /// Starts an API server and writes the nodes; neither scheduler nor extender run yet.
    ///
    /// # Errors
    /// A program is missing or does not start, or the API server refuses a node.
    pub async fn start(ground: Ground) -> Result<Self> {
        let plane = ControlPlane::start_objects_only().await?;
        let nodes: Api<Node> = Api::all(plane.client().clone());
        // The extender takes a state's age at first sight from the time at which its field manager wrote.
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
        let http = HttpClient::new(Duration::from_secs(10));
        Ok(Self { plane, ground, extenders: BTreeMap::new(), http })
    }

    /// The control plane.
    #[must_use]
    pub const fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// What the nodes are.
    #[must_use]
    pub const fn ground(&self) -> &Ground {
        &self.ground
    }

    /// An HTTP client.
    #[must_use]
    pub const fn http(&self) -> &HttpClient {
        &self.http
    }

    /// The URL of a path on the extender.
    #[must_use]
    pub fn extender_url(&self, path: &str) -> String {
        self.replica_url(0, path)
    }

    /// The URL of a path on a replica of the extender, counted from 0.
    #[must_use]
    pub fn replica_url(&self, replica: u16, path: &str) -> String {
        format!("http://{}{path}", self.on_control_plane(EXTENDER_PORT + 10 * replica))
    }

    fn on_control_plane(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.plane.network().control_plane(), port))
    }

    /// The file with the token of the streams.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.plane.run_dir().path().join("token")
    }

    /// Where a replica takes streams, as collectors are told.
    #[must_use]
    pub fn stream_url(&self, replica: u16) -> String {
        format!("http://{}", self.on_control_plane(STREAM_PORT + 10 * replica))
    }

    /// Starts the extender, in place of the one that runs, and waits until it is ready.
    ///
    /// # Errors
    /// It does not get ready.
    pub async fn start_extender(&mut self, args: &[&str]) -> Result<()> {
        self.start_replica(0, args).await
    }

    /// The same for a replica. It takes streams.
    ///
    /// # Errors
    /// It does not get ready.
    pub async fn start_replica(&mut self, replica: u16, args: &[&str]) -> Result<()> {
        self.kill_replica(replica).await;
        let program = "fpga-scheduler-extender";
        let name = format!("{program}-{replica}");
        let spec = ProcessSpec::new(&name, programs::built(program)?, self.plane.run_dir().log(&name))
            .arg("--listen")
            .arg(self.on_control_plane(EXTENDER_PORT + 10 * replica).to_string())
            .arg("--stream-listen")
            .arg(self.on_control_plane(STREAM_PORT + 10 * replica).to_string())
            .args(["--stream-without-tls", "--stream-token-file"])
            .arg(self.token_file())
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig(&Identity::Admin)?)
            .args(args);
        let process = Process::start(&spec)?;
        let url = self.replica_url(replica, "/readyz");
        wait::until("the extender to be ready", LONG, async || {
            process.check_running()?;
            Ok(self.http.get(&url).await?.status.is_success().then_some(()))
        })
        .await?;
        self.extenders.insert(replica, process);
        Ok(())
    }

    /// Kills the extender, as a crash would.
    pub async fn kill_extender(&mut self) {
        self.kill_replica(0).await;
    }

    /// The same for a replica.
    pub async fn kill_replica(&mut self, replica: u16) {
        if let Some(extender) = self.extenders.remove(&replica) {
            extender.kill().await;
        }
    }

    /// The process of the extender, if it runs.
    #[must_use]
    pub fn extender_pid(&self) -> Option<i32> {
        self.extenders.get(&0).map(Process::pid)
    }

    /// A metric of the extender.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        Ok(self.http.get(&self.extender_url("/metrics")).await?.metric(name))
    }

    /// Waits until something holds for what the extender knows of a node.
    ///
    /// # Errors
    /// It doesn't, in time.
    pub async fn wait_until_known(
        &self,
        node: &str,
        what: &str,
        holds: impl Fn(&serde_json::Value) -> bool,
    ) -> Result<()> {
        let url = self.extender_url("/nodes");
        wait::until(&format!("the extender to know that {node} is {what}"), LONG, async || {
            let known = self.http.get(&url).await?.json()?;
            let mut nodes = known.as_array().into_iter().flatten();
            Ok(nodes.any(|known| known["name"] == node && holds(known)).then_some(()))
        })
        .await
    }

    /// Starts kube-scheduler, in place of the one that runs.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_scheduler(&mut self, config: &SchedulerConfig) -> Result<()> {
        self.plane.start_scheduler(config).await
    }

    /// Stops kube-scheduler.
    pub async fn stop_scheduler(&mut self) {
        self.plane.stop_scheduler().await;
    }

    /// The pods.
    #[must_use]
    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.plane.client().clone())
    }

    /// Creates `count` pods called BATCH-N.
    ///
    /// # Errors
    /// The API server refuses one.
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

    /// Deletes a batch and waits until it is gone.
    ///
    /// # Errors
    /// It does not go.
    pub async fn delete_pods(&self, batch: &str) -> Result<()> {
        let of_batch = ListParams::default().labels(&format!("{BATCH}={batch}"));
        let pods = self.pods();
        wait::until(&format!("the pods of {batch} to be gone"), LONG, async || {
            // Nobody is there to end them, so no grace.
            pods.delete_collection(&DeleteParams::default().grace_period(0), &of_batch).await?;
            let left = pods.list_metadata(&of_batch.clone().limit(1)).await?;
            Ok(left.items.is_empty().then_some(()))
        })
        .await
    }

    /// The nodes of a batch's pods that are placed, by pod.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn placements(&self, batch: &str) -> Result<BTreeMap<String, String>> {
        let of_batch = ListParams::default().labels(&format!("{BATCH}={batch}"));
        let pods = self.pods().list(&of_batch).await?.items.into_iter();
        Ok(pods.filter_map(|pod| Some((pod.metadata.name?, pod.spec?.node_name?))).collect())
    }

    /// How often kube-scheduler said why a pod of the batch is not placed, with one of the messages.
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

    /// Waits until kube-scheduler said of some pod of the batch why it is not placed.
    ///
    /// # Errors
    /// It doesn't, in time.
    pub async fn why_pending(&self, batch: &str) -> Result<String> {
        wait::until(&format!("an event about pods of {batch}"), LONG, async || {
            Ok(self.failed_attempts(batch).await?.pop())
        })
        .await
    }

    /// Waits until all `count` pods of a batch are placed.
    ///
    /// # Errors
    /// They are not, in time.
    pub async fn wait_until_placed(&self, batch: &str, count: usize) -> Result<()> {
        let placed = bound::watch(&self.pods(), batch, count, LONG).await?;
        if placed.len() < count {
            let why = self.failed_attempts(batch).await?;
            bail!("{} of {count} pods of {batch} were placed; kube-scheduler says {why:?}", placed.len());
        }
        self.plane.check_running()
    }

    /// Writes the state of the node that holds the bitstream again and again, as its collector does once a minute at least.
    /// kube-scheduler looks at a pod that the extender rejected again when something happens in the cluster, or after five
    /// minutes: where nothing else happens any more, such a write is what wakes the last one.
    ///
    /// # Errors
    /// The API server refuses it; else it does not end.
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

    /// Stops everything, in order.
    pub async fn stop(mut self) {
        self.stop_scheduler().await;
        for extender in self.extenders.values() {
            extender.stop(Duration::from_secs(5)).await;
        }
        self.plane.stop().await;
    }
}
