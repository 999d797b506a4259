//! What every cluster with the chart must do, found out through its API server alone: a cluster of the test bed, or the
//! one of a kubeconfig.

use super::invoke::{Case, FUNCTION_PORT};
use super::restricted::{self, RestrictedPod, is_ready};
use super::wait;
use crate::functions::Function;
use anyhow::{Context as _, Result, bail, ensure};
use fpga_net::kube_config;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use std::time::Duration;

/// Longest time until a pod is ready: the image may have to be pulled.
const READY: Duration = Duration::from_secs(180);
/// Longest time until a namespace is gone.
const GONE: Duration = Duration::from_secs(120);
/// The resource that pods ask for.
const RESOURCE: &str = "fpga-scheduling.io/accelerated";
/// An image with the Sobel function, which the cluster's nodes can pull.
const IMAGE: &str = "FPGA_TEST_IMAGE";
/// What pods write as `schedulerName`, where no policy does it for them.
const SCHEDULER: &str = "FPGA_TEST_SCHEDULER";

/// A cluster with the chart.
#[derive(Clone)]
pub struct AnyCluster {
    client: Client,
    image: String,
    scheduler: Option<String>,
}

impl AnyCluster {
    /// The cluster of `client`, whose nodes have or can pull this image with the Sobel function.
    #[must_use]
    pub fn new(client: Client, image: &str) -> Self {
        Self { client, image: image.to_owned(), scheduler: None }
    }

    /// The cluster of the kubeconfig in `KUBECONFIG`.
    ///
    /// # Errors
    /// A variable is missing, the cluster does not answer, or no node of it offers boards.
    pub async fn from_env() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        ensure!(
            variable("KUBECONFIG").is_some(),
            "KUBECONFIG is not set; write KUBECONFIG=FILE {IMAGE}=IMAGE make test-cluster. For nodes on this machine: make test-node"
        );
        let image = variable(IMAGE).with_context(|| {
            format!("{IMAGE} is not set; write the name of an image with the Sobel function (tests/functions) that the nodes can pull")
        })?;
        let client = Client::try_from(kube_config::load(None, None).await?)?;
        let cluster = Self { client, image, scheduler: variable(SCHEDULER) };
        cluster.check_offers_boards().await?;
        Ok(cluster)
    }

    async fn check_offers_boards(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes =
            nodes.list(&ListParams::default()).await.context("the cluster of KUBECONFIG does not answer")?;
        let allocatable =
            nodes.iter().filter_map(|node| node.status.as_ref()?.allocatable.as_ref()?.get(RESOURCE));
        ensure!(
            allocatable.into_iter().any(|quantity| quantity.0 != "0"),
            "no node of the cluster offers {RESOURCE}; install the chart first, as manifests/README.md says"
        );
        Ok(())
    }

    /// A pod in a restricted namespace gets a board by one line, computes with it, and names it in its annotation.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub async fn a_pod_gets_a_board_by_one_line_and_computes(&self) -> Result<()> {
        let pods = self.namespace("one-line").await?;
        pods.create(&PostParams::default(), &self.sobel("sobel").pod()?).await?;
        wait::until_within("the pod to be ready", READY, async || {
            let pod = pods.get("sobel").await?;
            ensure!(is_ready(&pod), "{:?}", pod.status);
            Ok(Some(()))
        })
        .await?;
        let case = Case::new(Function::Sobel, 64, 1)?;
        let namespace = namespace_name("one-line");
        let url = format!("/api/v1/namespaces/{namespace}/pods/sobel:{FUNCTION_PORT}/proxy/");
        let request = http::Request::post(url).body(case.input.to_vec().into())?;
        let answer = self.client.send(request).await?;
        ensure!(answer.status().is_success(), "the function answers {}", answer.status());
        let output = http_body_util::BodyExt::collect(answer.into_body()).await?.to_bytes();
        case.function.compare(&case.expected, &output).context("the output is wrong")?;
        wait::until_within("the pod's annotation to name its board", READY, async || {
            let annotations = pods.get("sobel").await?.metadata.annotations.unwrap_or_default();
            Ok(annotations.get("fpga-scheduling.io/boards").filter(|boards| !boards.is_empty()).map(drop))
        })
        .await?;
        self.delete_namespace("one-line").await
    }

    /// A pod that sets the address of device managers itself is refused with the line to write.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub async fn a_pod_that_would_pass_us_by_is_refused_with_the_line_to_write(&self) -> Result<()> {
        let pods = self.namespace("passes-by").await?;
        let pod = RestrictedPod::new("by-hand", &self.image).env("FPGA_DEVICE_MANAGERS", "unix:/nowhere");
        let line = format!("resources: {{limits: {{{RESOURCE}: 1}}}}");
        match pods.create(&PostParams::default(), &pod.pod()?).await {
            Ok(_) => bail!("the API server took the pod; podAdmission.validate of the chart is to be true"),
            Err(error) => ensure!(error.to_string().contains(&line), "no such line: {error}"),
        }
        self.delete_namespace("passes-by").await
    }

    /// A pod that asks for a board that no node has waits, with a reason of ours.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub async fn a_pod_that_suits_no_board_waits_with_the_reason(&self) -> Result<()> {
        let pods = self.namespace("suits-none").await?;
        let pod = self.sobel("waits").label("fpga-scheduling.io/fpga-vendor", "nobody-makes-it");
        pods.create(&PostParams::default(), &pod.pod()?).await?;
        wait::until_within("the pod to wait with a reason", READY, async || {
            let conditions = pods.get("waits").await?.status.and_then(|status| status.conditions);
            let messages = conditions.into_iter().flatten().filter_map(|condition| condition.message);
            let messages: Vec<String> = messages.collect();
            ensure!(messages.iter().any(|message| message.contains("FPGA")), "{messages:?}");
            Ok(Some(()))
        })
        .await?;
        self.delete_namespace("suits-none").await
    }

    fn sobel(&self, name: &str) -> RestrictedPod {
        let pod = RestrictedPod::function(name, Function::Sobel, &self.image)
            .with("imagePullPolicy", "IfNotPresent".into());
        match &self.scheduler {
            Some(scheduler) => pod.scheduler(scheduler),
            None => pod,
        }
    }

    async fn namespace(&self, of: &str) -> Result<Api<Pod>> {
        restricted::namespace(&self.client, &namespace_name(of)).await
    }

    async fn delete_namespace(&self, of: &str) -> Result<()> {
        let (namespaces, name): (Api<Namespace>, _) = (Api::all(self.client.clone()), namespace_name(of));
        namespaces.delete(&name, &DeleteParams::default()).await?;
        wait::until_within(&format!("the namespace {name} to be gone"), GONE, async || {
            Ok(namespaces.get_opt(&name).await?.is_none().then_some(()))
        })
        .await
    }
}

/// A name that two test programs do not share.
fn namespace_name(of: &str) -> String {
    format!("fpga-test-{of}-{}", std::process::id())
}
