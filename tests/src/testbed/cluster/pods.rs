//! Operations of tests on pods: creating, deleting, and waiting until they are placed, ready or ended.

use super::Cluster;
use crate::testbed::wait;
use crate::testbed::workload::Workload;
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};

impl Cluster {
    /// The pods of the default namespace.
    #[must_use]
    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.plane().client().clone())
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.plane().client().clone())
    }

    /// Creates a pod.
    ///
    /// # Errors
    /// The API server refuses the pod.
    pub async fn create(&self, workload: &Workload) -> Result<()> {
        let pod = serde_json::from_value(workload.pod()).context("the workload is no pod")?;
        self.pods().create(&PostParams::default(), &pod).await?;
        Ok(())
    }

    /// Deletes a pod and waits until it is gone.
    ///
    /// # Errors
    /// The time is over.
    pub async fn delete(&self, pod: &str) -> Result<()> {
        self.pods().delete(pod, &DeleteParams::default().grace_period(1)).await?;
        let gone = async || Ok(self.pods().get_opt(pod).await?.is_none().then_some(()));
        wait::until(&format!("the pod {pod} to be gone"), gone).await
    }

    /// Waits until the pod is placed and returns its node.
    ///
    /// # Errors
    /// The time is over.
    pub async fn node_of(&self, pod: &str) -> Result<String> {
        let look = async || {
            self.check_running()?;
            Ok(self.pods().get(pod).await?.spec.and_then(|spec| spec.node_name))
        };
        wait::until(&format!("the pod {pod} to be placed"), look).await
    }

    /// Waits until the pod is ready and returns its address.
    ///
    /// # Errors
    /// The time is over; the error has the pod's status.
    pub async fn ready_address(&self, pod: &str) -> Result<String> {
        let ready = |pod: &Pod| {
            let conditions = pod.status.as_ref()?.conditions.as_ref()?;
            conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True").then_some(())
        };
        let pod = self.wait_for_pod(pod, "ready", |pod| ready(pod).is_some()).await?;
        pod.status.and_then(|status| status.pod_ip).context("a ready pod has no address")
    }

    /// Waits until the pod's only container has ended and returns its exit code.
    ///
    /// # Errors
    /// The time is over; the error has the pod's status.
    pub async fn exit_code(&self, pod: &str) -> Result<i32> {
        let code = |pod: &Pod| {
            let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
            Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
        };
        let pod = self.wait_for_pod(pod, "ended", |pod| code(pod).is_some()).await?;
        code(&pod).context("an ended pod has no exit code")
    }

    /// Waits until `holds` returns true for the pod.
    ///
    /// # Errors
    /// The time is over; the error has the pod's status.
    pub async fn wait_for_pod(&self, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Result<Pod> {
        let mut last = None;
        let look = async || {
            last = self.pods().get_opt(name).await?;
            Ok(last.clone().filter(|pod| holds(pod)))
        };
        let result = wait::until(&format!("the pod {name} to be {what}"), look).await;
        let status = last.and_then(|pod| serde_json::to_string_pretty(&pod.status).ok()).unwrap_or_default();
        result.with_context(|| format!("the status of {name} is {status}"))
    }
}
