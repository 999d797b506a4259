//! `fpga-scheduler-extender in-use`: which pods hold boards.

use anyhow::{Context as _, Result, ensure};
use fpga_core::names::ACCELERATED_RESOURCE;
use fpga_net::kube_config;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use std::path::PathBuf;

/// Pods per answer of the API server.
const PAGE: u32 = 500;
/// Number of pods that the error names at most.
const NAMED: usize = 10;

/// Where to look, and for what.
#[derive(Debug, clap::Args)]
pub struct InUseArgs {
    /// Resources by which pods ask for boards, separated by commas.
    #[arg(long, env = "FPGA_RESOURCES", value_name = "NAME", value_delimiter = ',', default_value = ACCELERATED_RESOURCE)]
    resources: Vec<String>,
    /// Path of the kubeconfig; by default KUBECONFIG, ~/.kube/config, or the service account of the pod.
    #[arg(long, env = "FPGA_KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
}

impl InUseArgs {
    /// Asks the API server.
    ///
    /// # Errors
    /// Pods hold boards, or the API server does not answer.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let holders = runtime.block_on(self.holders())?;
        let named = holders.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if holders.len() > NAMED { ", ..." } else { "" };
        ensure!(holders.is_empty(), "{} pods hold boards: {named}{more}. Delete them first", holders.len());
        println!("no pod holds a board");
        Ok(())
    }

    /// The pods with boards, as NAMESPACE/NAME on NODE.
    async fn holders(&self) -> Result<Vec<String>> {
        let config = kube_config::load(self.kubeconfig.as_deref(), None).await?;
        let client = Client::try_from(config).context("can't make a client of the kubeconfig")?;
        let pods: Api<Pod> = Api::all(client);
        let placed = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
        let mut params = ListParams::default().fields(placed).limit(PAGE);
        let mut holders = Vec::new();
        loop {
            let page = pods.list(&params).await.context("can't list pods")?;
            holders.extend(page.items.iter().filter(|pod| self.holds(pod)).map(|pod| {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
                format!("{}/{} on {node}", pod.namespace().unwrap_or_default(), pod.name_any())
            }));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(holders),
            }
        }
    }

    /// Whether a container of the pod asks for a board.
    fn holds(&self, pod: &Pod) -> bool {
        let Some(spec) = &pod.spec else { return false };
        let asks = |container: &Container| {
            let requests = container.resources.iter().flat_map(|resources| &resources.requests);
            let mut requests = requests.flatten();
            requests.any(|(name, quantity)| self.resources.contains(name) && quantity.0 != "0")
        };
        spec.containers.iter().chain(spec.init_containers.iter().flatten()).any(asks)
    }
}
