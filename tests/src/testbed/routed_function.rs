//! A function with replicas in this process, behind a real Envoy and a real endpoint picker. API server and etcd are real;
//! nodes exist as objects only, and the test bed publishes the states of their boards.

use super::control_plane::ControlPlane;
use super::envoy::{EnvoySpec, Upstream};
use super::function_service::{self, FunctionEndpoint};
use super::http_client::HttpClient;
use super::identity::Identity;
use super::picker::Picker;
use super::process::Process;
use super::wait;
use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use fpga_core::node_state::{ANNOTATION, FIELD_MANAGER};
use fpga_test_kit::patience;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Name of the function, and of its bitstream.
pub const NAME: &str = "echo";
/// Header of an answer: the node of the replica.
pub const NODE: &str = "x-node";

/// Ports of Envoy and of replicas.
const ENVOY_PORT: u16 = 8081;
const REPLICA_PORT: u16 = 8080;

/// The function, and what is before it.
pub struct RoutedFunction {
    /// The picker; it may be killed and started again.
    pub picker: Picker,
    /// Envoy.
    pub envoy: Process,
    /// The control plane.
    pub plane: ControlPlane,
    /// A client for metrics.
    pub http: HttpClient,
    nodes: u8,
    /// The replicas' servers, which end with the test bed.
    _replicas: JoinSet<()>,
    seq: u64,
}

/// Name of the node with this number, from 0.
#[must_use]
pub fn node_name(number: u8) -> String {
    format!("n{number}")
}

impl RoutedFunction {
    /// Starts all, with a replica on each of `nodes` nodes.
    ///
    /// # Errors
    /// A program is missing or does not start.
    pub async fn start(nodes: u8) -> Result<Self> {
        let plane = ControlPlane::start_objects_only().await?;
        let http = HttpClient::new(patience());
        let (mut endpoints, mut replicas) = (Vec::new(), JoinSet::new());
        let objects: Api<Node> = Api::all(plane.client().clone());
        for number in 0..nodes {
            let name = node_name(number);
            let node = serde_json::from_value(json!({"metadata": {"name": name}})).context("no Node")?;
            objects.create(&PostParams::default(), &node).await?;
            let ip = plane.network().node(number).pods().next().context("a node without addresses")?;
            let address = SocketAddr::new(ip.into(), REPLICA_PORT);
            let listener =
                TcpListener::bind(address).await.with_context(|| format!("can't listen on {address}"))?;
            replicas.spawn(serve(listener, name.clone()));
            endpoints.push(FunctionEndpoint { address, node: name });
        }
        function_service::create(plane.client(), NAME, NAME, &endpoints).await?;
        let picker = start_picker(&plane, &http).await?;
        let spec = EnvoySpec {
            listen: (plane.network().control_plane(), ENVOY_PORT).into(),
            functions: vec![Upstream {
                name: NAME.to_owned(),
                replicas: endpoints.iter().map(|endpoint| endpoint.address).collect(),
            }],
            picker: Some(picker.address()),
        };
        let envoy = spec.start(plane.run_dir()).await?;
        Ok(Self { picker, envoy, plane, http, nodes, _replicas: replicas, seq: 0 })
    }

    /// Where Envoy listens.
    #[must_use]
    pub fn envoy_address(&self) -> SocketAddr {
        (self.plane.network().control_plane(), ENVOY_PORT).into()
    }

    /// The URL of the function.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/function/{NAME}", self.envoy_address())
    }

    /// Publishes the states of all boards, which have 2 slots each: that of the node `holder` holds the function's
    /// bitstream, the others another one. Waits until the picker knows them.
    ///
    /// # Errors
    /// The API server refuses a state, or the picker does not learn it.
    pub async fn publish(&mut self, holder: u8, heartbeat: Duration) -> Result<()> {
        self.seq += 1;
        let nodes: Api<Node> = Api::all(self.plane.client().clone());
        for number in 0..self.nodes {
            let bitstream = if number == holder { NAME } else { "other" };
            let state = json!({
                "v": 1, "boot": 1, "seq": self.seq, "heartbeatMs": u64::try_from(heartbeat.as_millis())?,
                "windowMs": 300_000, "measuredAtMs": Timestamp::now().as_millisecond(),
                "usageMs": 0, "reconfigurationMs": 0,
                "devices": [{"id": "dm0", "vendor": "none", "board": "emulated", "shell": "1.0", "slots": 2,
                    "loaded": [0], "usageMs": 0, "queued": 0, "healthy": true}],
                "bitstreams": [{"name": bitstream, "lastUsedAgoMs": 10}],
                "window": {"bucketMs": 10_000, "usageMs": [], "reconfigurationMs": []},
            });
            // As the collector writes it: the age of a state follows from the time that the API server keeps of its author.
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": node_name(number), "annotations": {(ANNOTATION): state.to_string()}},
            });
            let author = PatchParams::apply(FIELD_MANAGER).force();
            nodes.patch(&node_name(number), &author, &Patch::Apply(node)).await?;
        }
        let boards = f64::from(self.nodes);
        wait::until("the picker to know all boards", async || {
            let known = self.picker.labelled(&self.http, "fpga_picker_boards", "fresh").await?;
            Ok((known >= boards).then_some(()))
        })
        .await
    }

    /// Kills the picker and starts another one.
    ///
    /// # Errors
    /// The new one does not become ready.
    pub async fn restart_picker(&mut self) -> Result<()> {
        self.picker.process().kill().await;
        self.picker = start_picker(&self.plane, &self.http).await?;
        Ok(())
    }

    /// Stops all programs.
    pub async fn stop(self) {
        self.envoy.kill().await;
        self.picker.process().kill().await;
        self.plane.stop().await;
    }
}

async fn start_picker(plane: &ControlPlane, http: &HttpClient) -> Result<Picker> {
    let kubeconfig = plane.kubeconfig(&Identity::Admin)?;
    Picker::start(plane.network().control_plane(), kubeconfig, plane.run_dir(), http, &[]).await
}

/// Serves a replica, which answers with the body of the request and the name of its node.
async fn serve(listener: TcpListener, node: String) {
    let echo = async move |request: Request| {
        let answer = Response::builder().header(NODE, node).body(request.into_body());
        // The node's name is a header's value.
        answer.unwrap_or_else(|_| Response::new(Body::empty()))
    };
    // The server ends with the test bed only.
    let _ = axum::serve(listener, Router::new().fallback(echo)).await;
}
