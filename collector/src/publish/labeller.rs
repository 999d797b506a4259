//! Writes the labels that [`labels`](super::labels) determines, by server-side apply. It uses a field manager of its
//! own, so that writing the annotation removes no label and the other way round.

use super::labels::{KEYS, Labels, Memory, Skipped, Wanted};
use super::{BACKOFF, WriteError, within};
use crate::metrics::{Metrics, PublicationOutcome};
use crate::owner::Handle;
use crate::server::{self, Phase};
use crate::stream::Link;
use fpga_net::backoff::Backoff;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// Field manager of the labels.
const FIELD_MANAGER: &str = "fpga-collector-labels";
/// Interval at which the devices' reports are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub struct Labeller {
    api: Api<Node>,
    node: String,
    owner: Handle,
    metrics: Metrics,
    memory: Memory,
    skipped: Vec<Skipped>,
    backoff: Backoff,
    link: Link,
}

impl Labeller {
    /// A labeller for the node called `node`. Labels of devices that are gone are removed after `removal_delay`.
    pub fn new(
        client: kube::Client,
        node: String,
        owner: Handle,
        metrics: Metrics,
        removal_delay: Duration,
        link: Link,
    ) -> Self {
        let (api, memory) = (Api::all(client), Memory::new(removal_delay));
        Self {
            api,
            node,
            owner,
            metrics,
            memory,
            skipped: Vec::new(),
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
            link,
        }
    }

    /// Labels the node until `phase` is [`Phase::End`]. The labels stay then, since the devices are still there and
    /// the collector may soon be back.
    pub async fn run(mut self, mut phase: watch::Receiver<Phase>) {
        let mut uids = self.link.uid.subscribe();
        // UID of the node object whose labels were read.
        let mut known = None;
        loop {
            // The publisher sets a new UID if the node object was created again.
            let uid = uids.borrow_and_update().clone();
            let pause = match uid {
                None => POLL_INTERVAL,
                Some(uid) => match self.look(&uid, &mut known).await {
                    Ok(()) => {
                        self.backoff.reset();
                        POLL_INTERVAL
                    }
                    Err(error) => {
                        let pause = self.backoff.pause(0.5..1.0);
                        warn!(node = %self.node, %error, ?pause, "Node not labelled");
                        // The result of a failed write is unknown, so the labels are read again.
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

    /// The node's labels with our keys, whoever set them.
    async fn read(&self) -> Result<Labels, WriteError> {
        let node: PartialObjectMeta<Node> = within(self.api.get_metadata(&self.node)).await?;
        let mut labels = node.metadata.labels.unwrap_or_default();
        Ok(KEYS.iter().filter_map(|&key| labels.remove(key).map(|value| (key, value))).collect())
    }

    /// Replaces the collector's labels of the node by `labels`.
    async fn write(&self, uid: &str, labels: &Labels) -> Result<(), WriteError> {
        let patch = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Node",
            // With the UID, a deleted node is a conflict. Without it, the write would create a new node.
            "metadata": { "name": self.node, "uid": uid, "labels": labels },
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        within(self.api.patch_metadata(&self.node, &params, &Patch::Apply(patch))).await?;
        Ok(())
    }
}
