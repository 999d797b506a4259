//! Replicas of fpga-registry of a test bed's control plane, as child processes with the rights of the chart.

use super::control_plane::ControlPlane;
use super::http_client::HttpClient;
use super::identity::Identity;
use super::manifests::{self, KINDS_WITHOUT_PODS};
use super::process::{Process, ProcessSpec};
use super::programs;
use super::wait;
use anyhow::{Context as _, Result};
use fpga_test_kit::patience;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::Value;

/// A running replica.
#[derive(Debug)]
pub struct Registry {
    process: Process,
    address: String,
}

/// Applies what the chart installs for the registry: rights, lease, and ConfigMap. Policies of other parts of the chart
/// stay away: they hold collectors to tokens of pods, which the test bed's processes have none of.
///
/// # Errors
/// The API server refuses a part of it.
pub async fn install(plane: &ControlPlane) -> Result<()> {
    let is_wanted = |kind: &str, name: &str| {
        let is_own_policy = kind.starts_with("ValidatingAdmissionPolicy") && name.contains("registry");
        KINDS_WITHOUT_PODS.contains(&kind) || is_own_policy
    };
    manifests::apply_where(plane, "registry", is_wanted).await.map(drop)
}

impl Registry {
    /// Starts the replica `name`, and waits until it knows the cluster.
    ///
    /// # Errors
    /// The replica does not become ready.
    pub async fn start(plane: &ControlPlane, http: &HttpClient, name: &str, args: &[&str]) -> Result<Self> {
        let program = "fpga-registry";
        let ready = plane.run_dir().path().join(format!("{name}.ready"));
        // The file of an earlier run has an address that nobody listens at.
        let _ = std::fs::remove_file(&ready);
        let spec = ProcessSpec::new(name, programs::built(program)?, plane.run_dir().log(name))
            .args(["--metrics-listen", &format!("{}:0", plane.network().control_plane()), "--identity", name])
            .arg("--kubeconfig")
            .arg(plane.kubeconfig(&Identity::Registry)?)
            .arg("--ready-file")
            .arg(&ready)
            .args(["--lease-duration", "5s", "--status-interval", "200ms", "--moves-interval", "200ms"])
            .args(args);
        let process = Process::start(&spec)?;
        let address = wait::until("the registry to listen", async || {
            process.check_running()?;
            Ok(std::fs::read_to_string(&ready).ok().and_then(|text| text.lines().next().map(str::to_owned)))
        })
        .await?;
        process.wait_ready(http, &format!("http://{address}/readyz"), patience()).await?;
        Ok(Self { process, address })
    }

    /// The URL of the metrics.
    #[must_use]
    pub fn metrics_url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// The value of a metric without labels.
    ///
    /// # Errors
    /// The replica does not answer.
    pub async fn metric(&self, http: &HttpClient, name: &str) -> Result<f64> {
        self.process.check_running()?;
        let answer = http.get(&self.metrics_url()).await;
        Ok(answer.context("the registry's metrics")?.metric(name))
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// The records of moves, or of pods that stay: a key of the registry's ConfigMap; an empty list while there is none.
///
/// # Errors
/// The API server does not answer, or the key has no JSON.
pub async fn records(client: &Client, key: &str) -> Result<Vec<Value>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), manifests::NAMESPACE);
    let map = maps.get("fpga-registry-moves").await?;
    let text = map.data.as_ref().and_then(|data| data.get(key));
    Ok(text.map(|text| serde_json::from_str(text)).transpose()?.unwrap_or_default())
}
