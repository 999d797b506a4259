//! Labels the node when it is asked to, as [`labels`] says: by server-side apply under a field manager of its own, so that
//! neither annotation nor labels are lost when the other is written.

use super::labels::{KEYS, Labels, Memory, Skipped, Wanted};
use super::{BACKOFF, WriteError, within};
use crate::jitter::Jitter;
use crate::metrics::{Metrics, PublicationOutcome};
use crate::owner::Handle;
use crate::server::{self, Phase};
use crate::stream::Link;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// Who owns the labels of the node object.
const FIELD_MANAGER: &str = "fpga-collector-labels";
/// The devices are looked at this often.
const LOOK: Duration = Duration::from_secs(1);

/// Labels one node.
pub struct Labeller {
    api: Api<Node>,
    node: String,
    owner: Handle,
    metrics: Metrics,
    memory: Memory,
    skipped: Vec<Skipped>,
    backoff: Duration,
    jitter: Jitter,
    link: Link,
}

impl Labeller {
    /// A labeller for the node called `node`; labels of devices that are gone go after `patience`.
    pub fn new(
        client: kube::Client,
        node: String,
        owner: Handle,
        metrics: Metrics,
        patience: Duration,
        link: Link,
    ) -> Self {
        let (api, memory, jitter) = (Api::all(client), Memory::new(patience), Jitter::new());
        Self { api, node, owner, metrics, memory, skipped: Vec::new(), backoff: BACKOFF.0, jitter, link }
    }

    /// Labels until `phase` says to end. The labels stay: the collector may be back in a moment, and the devices are there.
    pub async fn run(mut self, mut phase: watch::Receiver<Phase>) {
        let mut uids = self.link.uid.subscribe();
        // The node object that the labels belong to, once they were read.
        let mut known = None;
        loop {
            // The publisher tells of a node that was made anew.
            let uid = uids.borrow_and_update().clone();
            let pause = match uid {
                None => LOOK,
                Some(uid) => match self.look(&uid, &mut known).await {
                    Ok(()) => {
                        self.backoff = BACKOFF.0;
                        LOOK
                    }
                    Err(error) => {
                        let pause = self.backoff.mul_f64(0.5 + self.jitter.fraction() / 2.0);
                        warn!(node = %self.node, %error, ?pause, "Node not labelled");
                        self.backoff = (self.backoff * 2).min(BACKOFF.1);
                        // Whatever became of it, the node tells.
                        known = None;
                        pause
                    }
                },
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = server::ended(&mut phase) => break,
            }
        }
    }

    async fn look(&mut self, uid: &str, known: &mut Option<String>) -> Result<(), WriteError> {
        let state = self.owner.measure().await?;
        let wanted = Wanted::of(&state.devices);
        if wanted.skipped != self.skipped {
            for skipped in &wanted.skipped {
                warn!(node = %self.node, %skipped, "A label is not given");
            }
            self.skipped = wanted.skipped;
        }
        if known.as_deref() != Some(uid) {
            let labels = self.read().await?;
            self.memory.has(labels);
            *known = Some(uid.to_owned());
        }
        let Some(labels) = self.memory.due(&wanted.labels, Instant::now().into_std()) else {
            return Ok(());
        };
        let result = self.write(uid, &labels).await;
        let outcome = match &result {
            Ok(()) => Some(PublicationOutcome::Written),
            Err(error) => error.outcome(),
        };
        if let Some(outcome) = outcome {
            self.metrics.count_labelling(outcome);
        }
        result?;
        info!(node = %self.node, ?labels, "Node labelled");
        self.memory.has(labels);
        Ok(())
    }

    /// The labels that the node has, whoever gave them.
    async fn read(&self) -> Result<Labels, WriteError> {
        let node: PartialObjectMeta<Node> = within(self.api.get_metadata(&self.node)).await?;
        let mut labels = node.metadata.labels.unwrap_or_default();
        Ok(KEYS.iter().filter_map(|&key| labels.remove(key).map(|value| (key, value))).collect())
    }

    /// Has the node's labels of ours be exactly `labels`: what is not among them goes, where it was ours.
    async fn write(&self, uid: &str, labels: &Labels) -> Result<(), WriteError> {
        let patch = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Node",
            // With the uid, a node that is gone is a conflict; without it, a write would make a new one.
            "metadata": { "name": self.node, "uid": uid, "labels": labels },
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        within(self.api.patch_metadata(&self.node, &params, &Patch::Apply(patch))).await?;
        Ok(())
    }
}
