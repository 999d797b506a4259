//! Operations of tests on nodes: states that a test writes instead of a collector, and what the extender knows.

use super::Cluster;
use anyhow::Result;
use fpga_core::node_state::ANNOTATION;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

impl Cluster {
    /// Writes `state` as the node's annotation, as its collector would.
    ///
    /// # Errors
    /// The API server refuses the annotation.
    pub async fn annotate(&self, node: &str, state: &str) -> Result<()> {
        let patch = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node, "annotations": {(ANNOTATION): state}},
        });
        let params = PatchParams::apply("fpga-collector").force();
        self.nodes().patch(node, &params, &Patch::Apply(&patch)).await?;
        Ok(())
    }

    /// The nodes as the extender knows them now.
    ///
    /// # Errors
    /// The extender does not answer.
    pub async fn extender_nodes(&self) -> Result<Vec<Value>> {
        match self.http().get(&self.extender_url("/nodes")).await?.json()? {
            Value::Array(nodes) => Ok(nodes),
            other => anyhow::bail!("/nodes has {other}"),
        }
    }
}
