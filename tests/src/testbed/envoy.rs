//! A real Envoy before functions: it asks the endpoint picker for each request, or sends to each replica in turn.
//! `hack/envoy.sh` brings Envoy.

use super::process::{Process, ProcessSpec};
use super::run_dir::RunDir;
use super::{programs, wait};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Header of the answer: address and port of the replica that served the request.
pub const SERVED_BY: &str = "x-served-by";

/// More connections and requests than a test has at a time.
const NO_LIMIT: u32 = 1 << 20;

const EXT_PROC: &str = "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
const MANAGER: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUND_ROBIN: &str =
    "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin";
const OVERRIDE_HOST: &str =
    "type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost";
const HTTP_OPTIONS: &str = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// The configuration of an Envoy.
#[derive(Debug, Clone)]
pub struct EnvoySpec {
    /// Where clients send their requests, as `/function/NAME`. Replicas get them at `/`.
    pub listen: SocketAddr,
    /// The functions.
    pub functions: Vec<Upstream>,
    /// The picker that chooses replicas. Without one each replica is chosen in turn.
    pub picker: Option<SocketAddr>,
}

/// A function with its replicas.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Name of the function.
    pub name: String,
    /// The replicas.
    pub replicas: Vec<SocketAddr>,
}

impl EnvoySpec {
    /// Starts Envoy with this configuration, and waits until it listens.
    ///
    /// # Errors
    /// As [`start`].
    pub async fn start(&self, run_dir: &RunDir) -> Result<Process> {
        start(&self.bootstrap(), self.listen, run_dir).await
    }

    fn bootstrap(&self) -> Value {
        let mut filters = vec![json!({"name": "router", "typed_config": {"@type": ROUTER}})];
        let mut clusters: Vec<Value> = self.functions.iter().map(|function| self.cluster(function)).collect();
        if let Some(picker) = self.picker {
            filters.insert(0, json!({"name": "ext_proc", "typed_config": ext_proc()}));
            clusters.push(json!({
                "name": "picker", "type": "STATIC", "connect_timeout": "1s",
                "load_assignment": assignment("picker", &[picker]),
                "circuit_breakers": no_limits(),
                "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": HTTP_OPTIONS, "explicit_http_config": {"http2_protocol_options": {}},
                }},
            }));
        }
        let manager = json!({
            "@type": MANAGER,
            "stat_prefix": "functions",
            "route_config": {"virtual_hosts": [{
                "name": "functions", "domains": ["*"],
                "routes": self.functions.iter().map(route).collect::<Vec<_>>(),
            }]},
            "http_filters": filters,
        });
        json!({"static_resources": {
            "listeners": [{
                "name": "functions", "address": socket(self.listen),
                "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
            }],
            "clusters": clusters,
        }})
    }

    fn cluster(&self, function: &Upstream) -> Value {
        let in_turn = json!({"name": "round_robin", "typed_config": {"@type": ROUND_ROBIN}});
        let by_picker = json!({"name": "override_host", "typed_config": {
            "@type": OVERRIDE_HOST,
            // Metadata only: a header could come from a client.
            "override_host_sources": [
                {"metadata": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}},
            ],
            "selected_host_key": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint-served"}]},
            "fallback_policy": {"policies": [{"typed_extension_config": in_turn}]},
        }});
        let policy = if self.picker.is_some() { by_picker } else { in_turn };
        json!({
            "name": function.name, "type": "STATIC", "connect_timeout": "1s",
            "load_assignment": assignment(&function.name, &function.replicas),
            "load_balancing_policy": {"policies": [{"typed_extension_config": policy}]},
            "circuit_breakers": no_limits(),
        })
    }
}

/// The path of Envoy.
///
/// # Errors
/// Envoy is missing.
pub fn program() -> Result<PathBuf> {
    let program = programs::repository().join("build/envoy/envoy");
    ensure!(program.exists(), "{} is missing. Run `make envoy` (once)", program.display());
    Ok(program)
}

/// Starts Envoy with the configuration `bootstrap`, and waits until it listens at `listen`.
///
/// # Errors
/// Envoy is missing or does not start.
pub async fn start(bootstrap: &Value, listen: SocketAddr, run_dir: &RunDir) -> Result<Process> {
    let program = program()?;
    let config = run_dir.path().join("envoy.json");
    std::fs::write(&config, bootstrap.to_string()).context("can't write Envoy's configuration")?;
    let spec = ProcessSpec::new("envoy", program, run_dir.log("envoy"))
        .args(["--concurrency", "1", "--log-level", "warning", "--disable-hot-restart", "--config-path"])
        .arg(config);
    let process = Process::start(&spec)?;
    wait::until("Envoy to listen", async || {
        process.check_running()?;
        Ok(tokio::net::TcpStream::connect(listen).await.ok().map(drop))
    })
    .await?;
    Ok(process)
}

/// The filter that asks the picker. Without the trailers the picker's stream would end at the headers. Envoy goes on without a
/// picker that answers later than in 20 s: on a busy machine it may not run for a while.
fn ext_proc() -> Value {
    json!({
        "@type": EXT_PROC,
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}},
        "failure_mode_allow": true,
        "message_timeout": "20s",
        "processing_mode": {
            "request_header_mode": "SEND", "response_header_mode": "SEND", "response_trailer_mode": "SEND",
        },
        "metadata_options": {
            "forwarding_namespaces": {"untyped": ["envoy.lb"]}, "receiving_namespaces": {"untyped": ["envoy.lb"]},
        },
    })
}

fn route(function: &Upstream) -> Value {
    json!({
        "match": {"path": format!("/function/{}", function.name)},
        "route": {
            "cluster": function.name, "timeout": "0s", "prefix_rewrite": "/",
            "retry_policy": {
                "retry_on": "connect-failure,refused-stream,reset-before-request,retriable-status-codes",
                "retriable_status_codes": [503], "num_retries": 2,
            },
        },
        "response_headers_to_add": [
            {"header": {"key": SERVED_BY, "value": "%UPSTREAM_REMOTE_ADDRESS%"}},
        ],
    })
}

fn no_limits() -> Value {
    json!({"thresholds": [{
        "max_connections": NO_LIMIT, "max_pending_requests": NO_LIMIT, "max_requests": NO_LIMIT, "max_retries": NO_LIMIT,
    }]})
}

fn assignment(name: &str, addresses: &[SocketAddr]) -> Value {
    let endpoint = |address: &SocketAddr| json!({"endpoint": {"address": socket(*address)}});
    let endpoints: Vec<Value> = addresses.iter().map(endpoint).collect();
    json!({"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]})
}

fn socket(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}
