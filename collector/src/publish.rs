//! Writes the annotations by server-side apply when [`policy`] decides so, and retries with pauses when the API server
//! fails or asks for them. Events are acknowledged meanwhile.

pub mod labeller;
mod labels;
pub mod policy;

use crate::cordons;
use crate::metrics::{Metrics, PublicationOutcome};
use crate::owner::{Handle, Refusal};
use crate::server::{self, Phase};
use crate::stream::Link;
use fpga_board::reuse::published::REUSE_ANNOTATION;
use fpga_core::node_state::{self, EncodeError, Encoded, NodeState};
use fpga_net::backoff::Backoff;
use fpga_net::jitter::Jitter;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use policy::{Decision, Intervals, Policy};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

/// Maximum time for a call to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum time between two looks at the state, whatever the rate of events, so that many changes share one.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time between two looks at the state: usage decreases and devices become silent without any event.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The first and the longest pause after failures.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Maximum time for the last write, at the end.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Publisher {
    api: Api<Node>,
    node: String,
    owner: Handle,
    metrics: Metrics,
    policy: Policy,
    /// UID of the node object, once it was read.
    uid: Option<String>,
    backoff: Backoff,
    jitter: Jitter,
    /// The intervals between writes while no stream stands in for the annotation.
    alone: Intervals,
    link: Link,
}

/// Reason why the annotation was not written.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("the API server says: {0}")]
    Api(#[source] Box<kube::core::Status>),
    #[error("the API server can't be reached: {0}")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the API server did not answer in time")]
    Timeout,
    #[error("the node {0} has no uid")]
    NoUid(String),
    #[error(transparent)]
    DoesNotFit(#[from] EncodeError),
    #[error(transparent)]
    Owner(#[from] Refusal),
}

impl Publisher {
    /// A publisher for the node called `node`. While streams of `link` are acknowledged, it writes less often.
    pub fn new(
        client: kube::Client,
        node: String,
        owner: Handle,
        metrics: Metrics,
        alone: Intervals,
        link: Link,
    ) -> Self {
        let (policy, api, jitter) = (Policy::new(alone), Api::all(client), Jitter::new());
        Self {
            api,
            node,
            owner,
            metrics,
            policy,
            uid: None,
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
            jitter,
            alone,
            link,
        }
    }

    /// Publishes until `phase` is [`Phase::End`], then once more.
    pub async fn run(mut self, mut phase: watch::Receiver<Phase>) {
        let mut changes = self.owner.changes();
        loop {
            let pause = self.look().await;
            let wait = async {
                // Changes tend to come together.
                sleep(MIN_POLL_INTERVAL.min(pause)).await;
                tokio::select! {
                    () = sleep(pause.saturating_sub(MIN_POLL_INTERVAL)) => {}
                    changed = changes.changed(), if self.backoff.is_reset() => {
                        if changed.is_err() {
                            // The owner has ended, so the collector is ending as well.
                            sleep(MAX_POLL_INTERVAL).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = wait => {}
                () = self.link.recheck.notified() => self.recheck().await,
                () = server::ended(&mut phase) => break,
            }
        }
        // No stream follows this write, so it declares the usual heartbeat, after which readers consider it stale.
        self.policy.set_intervals(self.alone, Instant::now().into_std(), 0.0);
        match timeout(LAST_WRITE_TIMEOUT, self.write()).await {
            Ok(Ok(state)) => info!(boot = state.boot, seq = state.seq, "Last state published"),
            Ok(Err(error)) => warn!(%error, "Last state not published"),
            Err(_) => warn!("Last state not published in time"),
        }
    }

    /// Publishes the state if it is due; returns the time until the next look.
    async fn look(&mut self) -> Duration {
        let state = match self.owner.measure().await {
            Ok(state) => state,
            Err(error) => {
                debug!(%error, "State not read");
                return MAX_POLL_INTERVAL;
            }
        };
        let now = Instant::now().into_std();
        let intervals = self.link.acknowledged.write_interval(now).map_or(self.alone, Intervals::dictated);
        self.policy.set_intervals(intervals, now, self.jitter.fraction());
        match self.policy.decide(&state, now) {
            Decision::Wait(wait) => wait.min(MAX_POLL_INTERVAL),
            Decision::Write(reason) => match self.write().await {
                Ok(state) => {
                    debug!(boot = state.boot, seq = state.seq, ?reason, "State published");
                    let jitter = self.jitter.fraction();
                    self.policy.wrote(state, Instant::now().into_std(), jitter);
                    self.backoff.reset();
                    MIN_POLL_INTERVAL
                }
                Err(error) => {
                    // Changes don't cut this pause short, since the backoff is not reset now.
                    let pause = self.backoff.pause(0.5..1.0);
                    warn!(node = %self.node, %error, ?pause, "State not published");
                    pause
                }
            },
        }
    }

    /// Writes the annotation and counts the outcome.
    async fn write(&mut self) -> Result<NodeState, WriteError> {
        let result = self.try_write().await;
        let outcome = match &result {
            Ok(_) => Some(PublicationOutcome::Written),
            Err(error) => error.outcome(),
        };
        if let Some(outcome) = outcome {
            self.metrics.count_publication(outcome);
        }
        if matches!(outcome, Some(PublicationOutcome::Conflict | PublicationOutcome::NoSuchNode)) {
            // The node was deleted and perhaps created again, so its annotation must be read again.
            self.uid = None;
        }
        result
    }

    async fn try_write(&mut self) -> Result<NodeState, WriteError> {
        let uid = match self.uid.clone() {
            Some(uid) => uid,
            None => self.read_node().await?,
        };
        let (mut state, reuse) = (self.owner.publish().await?, self.owner.reuse().await?);
        state.heartbeat = self.policy.intervals().heartbeat.into();
        let Encoded { text, left_out } = node_state::encode(&state)?;
        self.metrics.truncated.set(i64::from(left_out.total()));
        let annotations = serde_json::json!({ (node_state::ANNOTATION): text, (REUSE_ANNOTATION): reuse });
        let patch = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Node",
            // With the UID, a deleted node is a conflict. Without it, the write would create a new node.
            "metadata": { "name": self.node, "uid": uid, "annotations": annotations },
        });
        let params = PatchParams::apply(node_state::FIELD_MANAGER).force();
        let patch = Patch::Apply(patch);
        within(self.api.patch_metadata(&self.node, &params, &patch)).await?;
        Ok(state)
    }

    /// Reads the node object: its UID, the state in its annotation, and the boards out of rotation, so that no state is
    /// published without them.
    async fn read_node(&mut self) -> Result<String, WriteError> {
        let node: PartialObjectMeta<Node> = within(self.api.get_metadata(&self.node)).await?;
        let text = node.metadata.annotations.as_ref().and_then(|all| all.get(node_state::ANNOTATION));
        match text.map(|text| node_state::decode(text)) {
            Some(Ok(seen)) => self.owner.seen(seen).await?,
            Some(Err(error)) => warn!(node = %self.node, %error, "Annotation unreadable; it is replaced"),
            None => {}
        }
        cordons::take(&node, &self.owner).await;
        let uid = node.metadata.uid.ok_or_else(|| WriteError::NoUid(self.node.clone()))?;
        self.link.uid.send_replace(Some(uid.clone()));
        Ok(self.uid.insert(uid).clone())
    }

    /// Reads the node again, because a replica knows another node object of this name. With streams, a write that
    /// would detect this may be minutes away.
    async fn recheck(&mut self) {
        let before = self.uid.take();
        match self.read_node().await {
            Ok(uid) if before.as_ref() != Some(&uid) => {
                info!(node = %self.node, uid, "The node was made anew; it is told of everything");
                self.policy = Policy::new(self.policy.intervals());
            }
            Ok(_) => {}
            Err(error) => warn!(node = %self.node, %error, "Node not read"),
        }
    }
}

impl WriteError {
    /// The outcome to count; `None` for errors that don't concern the annotation.
    fn outcome(&self) -> Option<PublicationOutcome> {
        Some(match self {
            Self::Api(status) => match status.code {
                409 => PublicationOutcome::Conflict,
                429 => PublicationOutcome::Throttled,
                401 | 403 => PublicationOutcome::Forbidden,
                404 => PublicationOutcome::NoSuchNode,
                code if code >= 500 => PublicationOutcome::ServerError,
                _ => PublicationOutcome::Refused,
            },
            Self::NoUid(_) => PublicationOutcome::Refused,
            Self::Unreachable(_) | Self::Timeout => PublicationOutcome::Unreachable,
            Self::DoesNotFit(_) => PublicationOutcome::DoesNotFit,
            Self::Owner(_) => return None,
        })
    }
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
    match timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => Err(WriteError::Api(status)),
        Ok(Err(error)) => Err(WriteError::Unreachable(Box::new(error))),
        Err(_) => Err(WriteError::Timeout),
    }
}
