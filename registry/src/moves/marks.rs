//! The annotation `moved-off` of nodes, by which the scheduler keeps a workload off the node that it was moved off.

use crate::cluster::KnownNode;
use anyhow::{Context as _, Result};
use fpga_core::moved_off::{MOVED_OFF_ANNOTATION, MovedOffAnnotation};
use fpga_core::node_state::controller;
use fpga_core::units::{Millis, WallTime};
use fpga_registry_api::{MoveOutcome, MoveRecord};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tracing::warn;

/// Writes the annotation.
pub(super) struct Marks {
    nodes: Api<Node>,
    /// Time for which a workload is kept off.
    time: Millis,
}

impl Marks {
    /// Marks that keep a workload off for `time`.
    pub fn new(client: Client, time: Millis) -> Self {
        Self { nodes: Api::all(client), time }
    }

    async fn of(&self, node: &str) -> Result<MovedOffAnnotation> {
        let node = self.nodes.get_metadata_opt(node).await.context("the marks of a node")?;
        let annotations = node.and_then(|node| node.metadata.annotations);
        let text = annotations.as_ref().and_then(|all| all.get(MOVED_OFF_ANNOTATION));
        Ok(text.map_or_else(MovedOffAnnotation::default, |text| MovedOffAnnotation::parse(text)))
    }

    /// Writes on the node that the workload of a move is kept off it.
    pub async fn set(&self, record: &MoveRecord, now: WallTime) -> Result<()> {
        let until = WallTime(record.at_ms) + self.time;
        match self.of(&record.node).await?.with(workload(record), until, now) {
            Ok(marks) => self.write(&record.node, &marks).await,
            Err(error) => {
                // The pod may come back here, as without a mark; it is moved all the same.
                warn!(node = record.node, %error, "The node is not marked");
                Ok(())
            }
        }
    }

    /// Takes the mark of a move off its node, unless another of `all` moves needs it as well.
    pub async fn take_back(&self, record: &MoveRecord, all: &[MoveRecord], now: WallTime) -> Result<()> {
        let needs_it = |other: &MoveRecord| {
            let is_of_both = other.controller_uid == record.controller_uid && other.node == record.node;
            let is_done = matches!(other.outcome, MoveOutcome::Evicted | MoveOutcome::Ended);
            other.pod_uid != record.pod_uid
                && is_of_both
                && is_done
                && WallTime(other.at_ms) + self.time > now
        };
        if all.iter().any(needs_it) {
            return Ok(());
        }
        let marks = self.of(&record.node).await?;
        let left = marks.clone().without(&workload(record));
        if left == marks { Ok(()) } else { self.write(&record.node, &left).await }
    }

    /// Takes marks off nodes whose time is over, which also has kube-scheduler look at waiting pods again.
    pub async fn end(&self, nodes: &[KnownNode], now: WallTime) {
        for node in nodes {
            let Some(text) = &node.moved_off else { continue };
            let marks = MovedOffAnnotation::parse(text);
            let left = marks.clone().without_ended(now);
            if (left != marks || left.is_empty())
                && let Err(error) = self.write(&node.name, &left).await
            {
                warn!(node = node.name, error = format!("{error:#}"), "Marks stay for an interval more");
            }
        }
    }

    async fn write(&self, node: &str, marks: &MovedOffAnnotation) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {MOVED_OFF_ANNOTATION: marks.text()}}});
        let written = self.nodes.patch_metadata(node, &PatchParams::default(), &Patch::Merge(patch)).await;
        match written {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).with_context(|| format!("the node {node} is not marked")),
        }
    }
}

fn workload(record: &MoveRecord) -> String {
    controller(&record.namespace, &record.controller_uid)
}
