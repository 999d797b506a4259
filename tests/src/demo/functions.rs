//! The demo's functions in the cluster: their Deployments, their ready pods, and the node of each pod.

use super::snapshot::{Decision, decision};
use super::stage::Stage;
use crate::functions::Function;
use crate::functions::netpbm::Picture;
use crate::testbed::invoke::{Case, FUNCTION_PORT};
use crate::testbed::{programs, wait};
use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

/// Functions keep two replicas, as services do that are to outlast a node; only then there is a choice.
pub(super) const LEAST_REPLICAS: usize = 2;
const PERIOD: Duration = Duration::from_millis(250);
/// Longest time until a function is ready. The first start also loads the OpenCL runtime.
const DEPLOY: Duration = Duration::from_secs(60);

/// The deployed functions. Dropping this stops tracking their pods.
pub(super) struct Functions {
    deployments: Api<Deployment>,
    endpoints: Endpoints,
    tracker: AbortHandle,
}

/// Where functions are called: at the router, if there is one, or at the addresses of their ready pods, which a task
/// updates. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Endpoints(Arc<Tracked>);

#[derive(Default)]
struct Tracked {
    /// The router's URL of each function.
    at_router: HashMap<Function, String>,
    ready: Mutex<HashMap<Function, Vec<String>>>,
    turn: AtomicUsize,
    /// Node of each pod that was ever bound.
    placed: Mutex<BTreeMap<String, String>>,
}

/// The photograph that Sobel processes.
pub(super) fn photograph() -> Result<Picture> {
    let path = programs::repository().join("tests/functions/data/astronaut.png");
    let bytes = std::fs::read(&path).with_context(|| format!("can't read {}", path.display()))?;
    Ok(Picture::from_png(&bytes)?)
}

impl Functions {
    /// Deploys each function. Before the next function is deployed, each one is ready, has been called
    /// and is known to the extender, so that each placement has measurements to go by.
    pub async fn deploy(stage: &Stage) -> Result<Self> {
        let deployments = stage.deployments();
        let at_router = Function::WITH_ONE_KERNEL
            .into_iter()
            .filter_map(|function| Some((function, stage.router_url(function)?)));
        let endpoints = Endpoints(Arc::new(Tracked { at_router: at_router.collect(), ..Tracked::default() }));
        let tracker = tokio::spawn(track(stage.pods(), endpoints.clone())).abort_handle();
        let functions = Self { deployments, endpoints, tracker };
        for function in Function::WITH_ONE_KERNEL {
            let deployment = stage.deployment(function, LEAST_REPLICAS.try_into()?)?;
            functions.deployments.create(&PostParams::default(), &deployment).await?;
            stage.create_service(function).await?;
            functions.try_out(stage, function).await?;
        }
        Ok(functions)
    }

    async fn try_out(&self, stage: &Stage, function: Function) -> Result<()> {
        let case = Case::new(function, 64, 1)?;
        let what = format!("{function} to be ready");
        wait::until_within(&what, DEPLOY, async || {
            stage.check_running()?;
            let Some(url) = self.endpoints.next(function).and_then(|_| self.endpoints.url(function)) else {
                return Ok(None);
            };
            // The router hears of a pod from its EndpointSlice, a moment later.
            case.invoke_at(stage.http(), &url).await.map(Some)
        })
        .await?;
        for _ in 0..2 {
            let url = self.endpoints.url(function).context("no pod is ready any more")?;
            case.invoke_at(stage.http(), &url).await?;
        }
        let quoted = format!("\"{function}\"");
        wait::until_within(&format!("the extender to know of {function}"), DEPLOY, async || {
            Ok(stage.known_nodes().await?.to_string().contains(&quoted).then_some(()))
        })
        .await
    }

    /// Sends the photograph to Sobel, checks the result and writes it as PNG. Returns width and height.
    pub async fn sobel_picture(&self, stage: &Stage, path: &Path) -> Result<(usize, usize)> {
        let case = Case::with_input(Function::Sobel, photograph()?.to_netpbm())?;
        let url = self.endpoints.url(Function::Sobel).context("Sobel has no ready pod")?;
        let invocation = case.invoke_at(stage.http(), &url).await?;
        let picture = Picture::from_netpbm(&invocation.output)?;
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).with_context(|| format!("can't make {}", dir.display()))?;
        }
        std::fs::write(path, picture.to_png()?).with_context(|| format!("can't write {}", path.display()))?;
        Ok((picture.width(), picture.height()))
    }

    /// The API for the functions' Deployments.
    pub fn deployments(&self) -> Api<Deployment> {
        self.deployments.clone()
    }

    /// The addresses of the ready pods.
    pub fn endpoints(&self) -> Endpoints {
        self.endpoints.clone()
    }

    /// All placements of the run, as the extender explains them.
    pub async fn decisions(&self, stage: &Stage) -> Result<Vec<Decision>> {
        let placed = self.endpoints.0.placed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut decisions = Vec::new();
        for (pod, node) in placed {
            decisions.extend(decision(stage, &pod, &node).await?);
        }
        Ok(decisions)
    }
}

impl Drop for Functions {
    fn drop(&mut self) {
        self.tracker.abort();
    }
}

impl Endpoints {
    /// The URL for the next call.
    pub fn url(&self, function: Function) -> Option<String> {
        let in_turn = || self.next(function).map(|address| format!("http://{address}:{FUNCTION_PORT}/"));
        self.0.at_router.get(&function).cloned().or_else(in_turn)
    }

    /// The next address of a ready pod, in turn; `None` if no pod is ready.
    fn next(&self, function: Function) -> Option<String> {
        let ready = self.0.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = ready.get(&function).filter(|addresses| !addresses.is_empty())?;
        let turn = self.0.turn.fetch_add(1, Ordering::Relaxed);
        addresses.get(turn % addresses.len()).cloned()
    }

    fn update(&self, pods: &[Pod]) {
        let mut ready: HashMap<Function, Vec<String>> = HashMap::new();
        let mut placed = self.0.placed.lock().unwrap_or_else(PoisonError::into_inner);
        for pod in pods {
            if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
                placed.insert(pod.name_any(), node);
            }
            let function = pod.labels().get("app").and_then(|app| app.parse().ok());
            let status = pod.status.as_ref();
            let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            let is_ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
            let address = status.and_then(|status| status.pod_ip.clone());
            if let (Some(function), Some(address), true, None) =
                (function, address, is_ready, pod.metadata.deletion_timestamp.as_ref())
            {
                ready.entry(function).or_default().push(address);
            }
        }
        *self.0.ready.lock().unwrap_or_else(PoisonError::into_inner) = ready;
    }
}

async fn track(pods: Api<Pod>, endpoints: Endpoints) {
    loop {
        // After an error keep the last known pods and try again soon.
        if let Ok(list) = pods.list(&ListParams::default()).await {
            endpoints.update(&list.items);
        }
        tokio::time::sleep(PERIOD).await;
    }
}
