//! The state of the running programs at one time: the nodes as the extender sees them, the pods, and the reasons for
//! their placement.

use super::stage::Stage;
use anyhow::Result;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::Value;

/// The state of the cluster at one time.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub nodes: Vec<NodeLine>,
    pub pods: Vec<PodLine>,
}

/// A node as the extender sees it, and the counters of its device manager.
#[derive(Debug)]
pub(super) struct NodeLine {
    pub name: String,
    pub freshness: String,
    pub usage_ms: u64,
    pub reconfiguration_ms: u64,
    /// Names of the bitstreams in the slots.
    pub loaded: Vec<String>,
    /// Counted by the device manager since its start.
    pub tasks: f64,
    pub reconfigurations: f64,
    pub sessions: f64,
}

/// A pod and the decision about it.
#[derive(Debug)]
pub(super) struct PodLine {
    pub name: String,
    pub node: String,
    pub phase: String,
    pub decision: Option<Decision>,
}

/// The node that was chosen for a pod, and the scores of all nodes.
#[derive(Debug, Clone)]
pub(super) struct Decision {
    pub node: String,
    pub scores: Vec<Score>,
}

/// The score of a node and its terms.
#[derive(Debug, Clone)]
pub(super) struct Score {
    pub node: String,
    pub score: u64,
    pub locality: f64,
    pub usage: f64,
    pub reconfiguration: f64,
}

impl Snapshot {
    /// Number of bitstreams that were loaded since the start.
    pub fn reconfigurations(&self) -> f64 {
        self.nodes.iter().map(|node| node.reconfigurations).sum()
    }
}

impl Decision {
    /// The score of the chosen node.
    pub fn chosen(&self) -> Option<&Score> {
        self.scores.iter().find(|score| score.node == self.node)
    }
}

/// Collects the state of all programs.
pub(super) async fn take(stage: &Stage) -> Result<Snapshot> {
    let known = stage.known_nodes().await?;
    let mut nodes = Vec::new();
    for (name, metrics_url) in stage.managers_metrics_urls().await? {
        let entries = known.as_array().map(Vec::as_slice).unwrap_or_default();
        let view = entries.iter().find(|entry| entry["name"] == name.as_str()).unwrap_or(&Value::Null);
        let metrics = stage.http().get(&metrics_url).await?;
        nodes.push(NodeLine {
            freshness: view["freshness"].as_str().unwrap_or("unknown").to_owned(),
            usage_ms: view["known"]["usageMs"].as_u64().unwrap_or(0),
            reconfiguration_ms: view["known"]["reconfigurationMs"].as_u64().unwrap_or(0),
            loaded: loaded(&view["known"]["state"]),
            tasks: metrics.metric("fpga_device_manager_tasks_total"),
            reconfigurations: metrics.metric("fpga_device_manager_reconfigurations_total"),
            sessions: metrics.metric("fpga_device_manager_sessions"),
            name,
        });
    }
    let mut pods = Vec::new();
    for pod in stage.pods().list(&ListParams::default()).await? {
        let name = pod.name_any();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let leaving = pod.metadata.deletion_timestamp.is_some();
        let phase = if leaving { "Leaving".to_owned() } else { phase };
        let decision = if node.is_empty() { None } else { decision(stage, &name, &node).await? };
        pods.push(PodLine { name, node, phase, decision });
    }
    Ok(Snapshot { nodes, pods })
}

/// The names of the bitstreams in a node's slots, in the order of its devices.
fn loaded(state: &Value) -> Vec<String> {
    let devices = state["devices"].as_array().into_iter().flatten();
    let indexes = devices.flat_map(|device| device["loaded"].as_array().into_iter().flatten());
    let name = |index: &Value| {
        let bitstream = &state["bitstreams"][usize::try_from(index.as_u64()?).ok()?];
        let text = bitstream["name"].as_str().or_else(|| bitstream["digest"].as_str())?;
        Some(text.chars().take(16).collect())
    };
    indexes.filter_map(name).collect()
}

/// The extender's explanation; `None` if it doesn't remember the pod.
pub(super) async fn decision(stage: &Stage, pod: &str, node: &str) -> Result<Option<Decision>> {
    let explanation = stage.explanation(pod).await?;
    Ok(explanation.map(|explanation| Decision { node: node.to_owned(), scores: scores(&explanation) }))
}

fn scores(explanation: &Value) -> Vec<Score> {
    let rows = explanation["prioritize"]["nodes"].as_array().into_iter().flatten();
    let score = |row: &Value| {
        Some(Score {
            node: row["node"].as_str()?.to_owned(),
            score: row["score"].as_u64()?,
            locality: row["locality"]["value"].as_f64()?,
            usage: row["usage"]["value"].as_f64()?,
            reconfiguration: row["reconfiguration"]["value"].as_f64()?,
        })
    };
    rows.filter_map(score).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn slots_are_named_by_what_they_hold() {
        let state = json!({
            "devices": [{"loaded": [1, 0, 7]}],
            "bitstreams": [{"digest": "00112233445566778899aabbccddeeff"}, {"name": "sobel"}],
        });
        assert_eq!(loaded(&state), ["sobel", "0011223344556677"]);
        assert!(loaded(&Value::Null).is_empty());
    }

    #[test]
    fn an_explanation_gives_the_terms_of_every_node() {
        let term = |value: f64| json!({"value": value, "basis": "measured"});
        let row = json!({"node": "a", "score": 8, "locality": term(1.0), "usage": term(0.5), "reconfiguration": term(0.25)});
        let decision =
            Decision { node: "a".into(), scores: scores(&json!({"prioritize": {"nodes": [row]}})) };
        assert!(decision.chosen().is_some_and(|score| score.score == 8 && score.locality > 0.9));
        assert!(scores(&json!({"prioritize": null})).is_empty());
    }
}
