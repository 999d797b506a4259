//! One pod on a node: its containers' processes and its status, from binding to deletion.
//!
//! ```text
//!            start              all ended, none to be restarted
//!  Pending ─────────► Running ─────────────────────────────────► Succeeded | Failed
//!     │                  │                                               │
//!     └──────────────────┴──── marked as deleted: SIGTERM, grace, SIGKILL ┴──► removed from the API server
//! ```

mod container;

use super::command::Surroundings;
use super::status::{self, Phase, PodView};
use super::{Desired, Shared};
use container::{ContainerRun, RestartPolicy};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

/// Interval at which processes and ports are checked.
const TICK: Duration = Duration::from_millis(50);
/// Time that processes have to end when the node itself stops.
const NODE_STOP_GRACE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(500);

/// Runs the pod until it is gone from the API server or the node stops.
pub(super) async fn run(shared: Arc<Shared>, mut desired: watch::Receiver<Desired>) {
    let Desired::Pod(pod) = desired.borrow_and_update().clone() else { return };
    if status::is_final(&pod) {
        remove_when_deleted(&shared, *pod, desired).await;
        return;
    }
    let Some(address) = shared.take_address() else {
        reject(&shared, &pod, "OutOfpods", "the node has no address left for a pod").await;
        return;
    };
    PodRun::new(Arc::clone(&shared), *pod, address).run(&mut desired).await;
    shared.give_address_back(address);
}

struct PodRun {
    shared: Arc<Shared>,
    pods: Api<Pod>,
    pod: Pod,
    address: Ipv4Addr,
    started: Timestamp,
    init: Vec<ContainerRun>,
    containers: Vec<ContainerRun>,
    /// Time at which SIGKILL follows SIGTERM.
    kill_at: Option<Instant>,
    reported: Option<Value>,
    report_after: Instant,
}

/// Whether the pod's task continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Continue,
    Finished,
}

impl PodRun {
    fn new(shared: Arc<Shared>, pod: Pod, address: Ipv4Addr) -> Self {
        let dir = shared.spec.pods_dir.join(pod.name_any());
        if let Err(error) = std::fs::create_dir_all(&dir) {
            // Starting a container will report that its log can't be written.
            warn!(%error, dir = %dir.display(), "No folder for logs");
        }
        let spec = pod.spec.clone().unwrap_or_default();
        let policy = RestartPolicy::from_spec(spec.restart_policy.as_deref());
        let run = |container, policy| ContainerRun::new(container, policy, &dir);
        let init = spec.init_containers.into_iter().flatten().map(|c| run(c, policy.for_init())).collect();
        let containers = spec.containers.into_iter().map(|c| run(c, policy)).collect();
        let pods = Api::namespaced(shared.client.clone(), &pod.namespace().unwrap_or_default());
        let started = Timestamp::now();
        let report_after = Instant::now();
        Self {
            shared,
            pods,
            pod,
            address,
            started,
            init,
            containers,
            kill_at: None,
            reported: None,
            report_after,
        }
    }

    async fn run(mut self, desired: &mut watch::Receiver<Desired>) {
        while self.step().await == Progress::Continue {
            // If the channel is closed, the node's task is gone, and this one is cancelled at the next await.
            if !matches!(tokio::time::timeout(TICK, desired.changed()).await, Ok(Ok(()))) {
                continue;
            }
            let now = desired.borrow_and_update().clone();
            match now {
                Desired::Pod(pod) => self.pod = *pod,
                Desired::Gone => return self.end_all(Duration::ZERO).await,
                Desired::NodeStops => return self.end_all(NODE_STOP_GRACE).await,
            }
        }
    }

    async fn step(&mut self) -> Progress {
        let now = Instant::now();
        self.all().for_each(ContainerRun::notice_end);
        if self.pod.metadata.deletion_timestamp.is_some() {
            self.terminate(now);
        } else {
            self.start_what_is_due(now);
            let ports_at = self.address;
            for container in &mut self.containers {
                container.probe(ports_at, now).await;
            }
        }
        if self.report(now).await == Progress::Finished {
            self.end_all(Duration::ZERO).await;
            return Progress::Finished;
        }
        let over = self.kill_at.is_some() && !self.all().any(|container| container.is_running());
        if over { self.remove().await } else { Progress::Continue }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut ContainerRun> {
        self.init.iter_mut().chain(&mut self.containers)
    }

    fn start_what_is_due(&mut self, now: Instant) {
        let host_ip = self.shared.spec.network.host();
        let around = Surroundings {
            pod: &self.pod,
            pod_ip: self.address,
            host_ip,
            node: &self.shared.spec.name,
            node_env: &self.shared.spec.env,
        };
        for init in &mut self.init {
            if !init.has_succeeded() {
                return init.start_if_due(now, &around);
            }
        }
        for container in &mut self.containers {
            container.start_if_due(now, &around);
        }
    }

    /// Sends SIGTERM once, and SIGKILL when the grace period is over. A second deletion can shorten the period.
    fn terminate(&mut self, now: Instant) {
        let grace = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        let first = self.kill_at.is_none();
        let kill_at = self.kill_at.map_or(now + grace, |at| at.min(now + grace));
        self.kill_at = Some(kill_at);
        if first {
            info!(?grace, "Ending");
        }
        for container in self.all() {
            container.give_up();
            if now >= kill_at {
                container.signal(Signal::SIGKILL);
            } else if first {
                container.signal(Signal::SIGTERM);
            }
        }
    }

    /// Writes the status if it has changed. Returns `Finished` if the pod doesn't exist any more.
    async fn report(&mut self, now: Instant) -> Progress {
        let view = PodView {
            pod: &self.pod,
            phase: self.phase(),
            pod_ip: self.address,
            host_ip: self.shared.spec.network.host(),
            started: self.started,
            init: self.init.iter().map(ContainerRun::view).collect(),
            containers: self.containers.iter().map(ContainerRun::view).collect(),
        };
        let status = status::build(&view);
        if self.reported.as_ref() == Some(&status) || now < self.report_after {
            return Progress::Continue;
        }
        match patch_status(&self.pods, &self.pod, &status).await {
            Ok(()) => self.reported = Some(status),
            Err(kube::Error::Api(error)) if error.is_not_found() || error.is_conflict() => {
                return Progress::Finished;
            }
            Err(error) => {
                warn!(%error, "Writing the status failed");
                self.report_after = now + RETRY;
            }
        }
        Progress::Continue
    }

    fn phase(&self) -> Phase {
        if self.init.iter().any(ContainerRun::has_failed_for_good) {
            return Phase::Failed;
        }
        if !self.containers.iter().all(ContainerRun::has_ever_started) {
            return Phase::Pending;
        }
        if !self.containers.iter().all(ContainerRun::has_ended_for_good) {
            return Phase::Running;
        }
        if self.containers.iter().all(ContainerRun::has_succeeded) { Phase::Succeeded } else { Phase::Failed }
    }

    /// Deletes the pod, whose processes have ended, from the API server.
    async fn remove(&mut self) -> Progress {
        match delete(&self.pods, &self.pod).await {
            Ok(()) => Progress::Finished,
            Err(error) => {
                warn!(%error, "Removing the pod failed");
                tokio::time::sleep(RETRY).await;
                Progress::Continue
            }
        }
    }

    async fn end_all(&mut self, grace: Duration) {
        let signal = if grace.is_zero() { Signal::SIGKILL } else { Signal::SIGTERM };
        self.all().for_each(|container| container.signal(signal));
        let deadline = Instant::now() + grace;
        for container in self.all() {
            container.wait_or_kill(deadline).await;
        }
    }
}

/// Waits until a pod is deleted that had ended before this node saw it, and removes it.
async fn remove_when_deleted(shared: &Shared, mut pod: Pod, mut desired: watch::Receiver<Desired>) {
    let pods = Api::namespaced(shared.client.clone(), &pod.namespace().unwrap_or_default());
    loop {
        if pod.metadata.deletion_timestamp.is_some() {
            match delete(&pods, &pod).await {
                Ok(()) => return,
                Err(error) => warn!(%error, "Removing the pod failed"),
            }
            tokio::time::sleep(RETRY).await;
        } else if desired.changed().await.is_err() {
            return;
        }
        match desired.borrow_and_update().clone() {
            Desired::Pod(newer) => pod = *newer,
            Desired::Gone | Desired::NodeStops => return,
        }
    }
}

async fn reject(shared: &Shared, pod: &Pod, reason: &str, message: &str) {
    let pods = Api::namespaced(shared.client.clone(), &pod.namespace().unwrap_or_default());
    let status = json!({"phase": "Failed", "reason": reason, "message": message});
    if let Err(error) = patch_status(&pods, pod, &status).await {
        warn!(%error, "Rejecting the pod failed");
    }
}

async fn patch_status(pods: &Api<Pod>, pod: &Pod, status: &Value) -> kube::Result<()> {
    // The UID makes the API server refuse a status for an earlier pod of the same name.
    let patch = json!({"metadata": {"uid": pod.uid()}, "status": status});
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

async fn delete(pods: &Api<Pod>, pod: &Pod) -> kube::Result<()> {
    let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
    let now = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
    match pods.delete(&pod.name_any(), &now).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(error)) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
