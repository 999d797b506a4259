//! What the page shows, made of what is heard of the cluster. Pure: times are arguments, in milliseconds since the epoch.
//!
//! The tables are a function of the last things that were heard; a test gives the model states and reads the rows.

mod heard;
pub mod moment;
pub mod node_row;
pub mod pod_row;
pub mod source;
pub mod tables;
pub mod trace;

use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::{ANNOTATION, NodeState, decode};
use fpga_extender_api::{DecisionView, NodeChanges};
use fpga_picker_api::FunctionView;
use heard::Heard;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use moment::{Moment, What};
use node_row::{About, NodeRow, Told};
use pod_row::PodRow;
use source::{Source, State};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use tables::{Table, Tables};
use trace::Traces;

/// Moments that are kept.
const MAX_MOMENTS: u64 = 200;
/// Decisions that are kept.
const MAX_DECISIONS: usize = 256;
/// Pods that are kept. A cluster may have more; the source says so.
pub const MAX_PODS: usize = 100_000;

/// All that is known of the cluster, and the tables that follow from it.
#[derive(Debug, Default)]
pub struct Model {
    tables: Tables,
    nodes: HashMap<String, KnownNode>,
    pods: HashMap<String, PodRow>,
    /// Times of the decisions, with their keys.
    decisions: BTreeSet<(u64, String)>,
    /// Number of the next moment.
    moments: u64,
    traces: Traces,
}

/// What is known of a node.
#[derive(Debug, Default)]
struct KnownNode {
    labels: NodeLabels,
    /// The state in the node's annotation, or why it can't be read; `None` without an annotation.
    annotated: Option<Result<NodeState, String>>,
    /// The extender's view.
    heard: Option<Heard>,
    row: Option<NodeRow>,
}

impl Model {
    /// The tables.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Tells whether data comes from a source.
    pub fn source(&mut self, source: Source, state: &State) {
        self.tables.put(Table::Sources, source.name(), state);
    }

    /// A node as the API server has it.
    pub fn node(&mut self, node: &ObjectMeta, now_ms: u64) {
        let Some(name) = node.name.clone() else { return };
        let known = self.nodes.entry(name.clone()).or_default();
        let label = |label: &str| node.labels.as_ref()?.get(label).map(String::as_str);
        known.labels = NodeLabels::of_node(label);
        let text = node.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
        known.annotated = text.map(|text| decode(text).map_err(|error| error.to_string()));
        self.refresh(&name, now_ms);
    }

    /// The API server has no such node any more.
    pub fn node_gone(&mut self, name: &str) {
        self.nodes.remove(name);
        self.tables.remove(Table::Nodes, name);
    }

    /// The API server has these nodes, and no others.
    pub fn only_nodes(&mut self, names: &HashSet<String>) {
        let others: Vec<String> = self.nodes.keys().filter(|name| !names.contains(*name)).cloned().collect();
        others.iter().for_each(|name| self.node_gone(name));
    }

    /// What has changed of the nodes as the extender sees them.
    pub fn heard(&mut self, changes: NodeChanges, now_ms: u64) {
        let mut gone: HashSet<String> = changes.gone.into_iter().collect();
        if changes.is_whole {
            let known = self.nodes.iter().filter(|(_, known)| known.heard.is_some());
            gone.extend(known.map(|(name, _)| name.clone()));
        }
        for view in changes.nodes {
            let name = view.name.clone();
            gone.remove(&name);
            self.nodes.entry(name.clone()).or_default().heard = Some(Heard::new(view, now_ms));
            self.refresh(&name, now_ms);
        }
        self.forget_heard(gone, now_ms);
    }

    /// The extender does not answer: what it said is too old to show.
    pub fn deaf(&mut self, now_ms: u64) {
        let all = self.nodes.keys().cloned().collect();
        self.forget_heard(all, now_ms);
    }

    /// The names of the nodes.
    #[must_use]
    pub fn node_names(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// Looks anew at nodes of which nothing was heard: what is known of them may be too old by now.
    pub fn age(&mut self, names: &[String], now_ms: u64) {
        names.iter().for_each(|name| self.refresh(name, now_ms));
    }

    /// A pod as the API server has it. Returns whether there is room for it.
    pub fn pod(&mut self, pod: &Pod, now_ms: u64) -> bool {
        let key = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        let Some((_, row)) = PodRow::of(pod) else {
            self.pod_gone(&key, now_ms);
            return true;
        };
        if self.pods.len() >= MAX_PODS && !self.pods.contains_key(&key) {
            return false;
        }
        self.happened(moment::of_pod(&key, self.pods.get(&key), Some(&row)), now_ms);
        self.first_pod(key, row);
        true
    }

    /// A pod of the first list, which was there before anybody looked.
    pub fn listed_pod(&mut self, pod: &Pod) -> bool {
        let Some((key, row)) = PodRow::of(pod) else { return true };
        if self.pods.len() >= MAX_PODS && !self.pods.contains_key(&key) {
            return false;
        }
        self.first_pod(key, row);
        true
    }

    /// The API server has no such pod any more.
    pub fn pod_gone(&mut self, key: &str, now_ms: u64) {
        if let Some(before) = self.pods.remove(key) {
            self.tables.remove(Table::Pods, key);
            self.happened(moment::of_pod(key, Some(&before), None), now_ms);
        }
    }

    /// The API server has these pods, and no others.
    pub fn only_pods(&mut self, keys: &HashSet<String>, now_ms: u64) {
        let others: Vec<String> = self.pods.keys().filter(|key| !keys.contains(*key)).cloned().collect();
        others.iter().for_each(|key| self.pod_gone(key, now_ms));
    }

    /// Decisions of the extender; of a pod the latest stays.
    pub fn decided(&mut self, decisions: Vec<DecisionView>) {
        for decision in decisions {
            let key = format!("{}/{}", decision.namespace, decision.name);
            let earlier = self.decisions.iter().find(|(_, pod)| *pod == key).cloned();
            if earlier.as_ref().is_some_and(|(at, _)| *at > decision.at_ms) {
                continue;
            }
            if let Some(earlier) = earlier {
                self.decisions.remove(&earlier);
            }
            self.tables.put(Table::Decisions, &key, &decision);
            self.decisions.insert((decision.at_ms, key));
        }
        while self.decisions.len() > MAX_DECISIONS {
            let Some((_, key)) = self.decisions.pop_first() else { break };
            self.tables.remove(Table::Decisions, &key);
        }
    }

    /// The functions as the pickers know them. Each picker counts the requests that pass it.
    pub fn functions(&mut self, views: Vec<FunctionView>) {
        let mut functions: BTreeMap<String, FunctionView> = BTreeMap::new();
        for view in views {
            let key = format!("{}/{}", view.namespace, view.name);
            match functions.get_mut(&key) {
                None => drop(functions.insert(key, view)),
                Some(function) => add(function, &view),
            }
        }
        for (key, function) in &functions {
            self.tables.put(Table::Functions, key, function);
        }
        self.tables.retain(Table::Functions, |key| functions.contains_key(key));
    }

    /// Spans that came by OTLP.
    pub fn spans(&mut self, request: &serde_json::Value, now_ms: u64) {
        self.traces.take(request);
        let slowest = self.traces.slowest(now_ms);
        for (id, row) in &slowest {
            self.tables.put(Table::Traces, id, row);
        }
        self.tables.retain(Table::Traces, |key| slowest.iter().any(|(id, _)| *id == key));
    }

    fn first_pod(&mut self, key: String, row: PodRow) {
        self.tables.put(Table::Pods, &key, &row);
        self.pods.insert(key, row);
    }

    fn forget_heard(&mut self, names: HashSet<String>, now_ms: u64) {
        for name in names {
            if let Some(known) = self.nodes.get_mut(&name) {
                known.heard = None;
            }
            self.refresh(&name, now_ms);
        }
    }

    /// Makes the row of a node anew.
    fn refresh(&mut self, name: &str, now_ms: u64) {
        let Some(known) = self.nodes.get_mut(name) else { return };
        let row = known.row_at(now_ms);
        let happened = match &row {
            Some(row) => moment::of_node(name, known.row.as_ref(), row),
            None => Vec::new(),
        };
        match &row {
            Some(row) => drop(self.tables.put(Table::Nodes, name, row)),
            None => self.tables.remove(Table::Nodes, name),
        }
        known.row = row;
        self.happened(happened, now_ms);
    }

    fn happened(&mut self, what: impl IntoIterator<Item = What>, now_ms: u64) {
        for what in what {
            self.tables.put(Table::Moments, &moment_key(self.moments), &Moment { at_ms: now_ms, what });
            if let Some(old) = self.moments.checked_sub(MAX_MOMENTS) {
                self.tables.remove(Table::Moments, &moment_key(old));
            }
            self.moments += 1;
        }
    }
}

/// Keys of moments are in their order as texts, too.
fn moment_key(number: u64) -> String {
    format!("{number:012}")
}

fn add(function: &mut FunctionView, other: &FunctionView) {
    function.in_flight += other.in_flight;
    function.per_second += other.per_second;
    function.mean_in_flight += other.mean_in_flight;
    function.recent_in_flight += other.recent_in_flight;
    function.recommended_replicas = function.recommended_replicas.max(other.recommended_replicas);
    for replica in &other.replicas {
        match function.replicas.iter_mut().find(|known| known.address == replica.address) {
            Some(known) => {
                known.in_flight += replica.in_flight;
                known.waiting = known.waiting.max(replica.waiting);
            }
            None => function.replicas.push(replica.clone()),
        }
    }
}

impl KnownNode {
    /// The node's row by the newer of its two states; `None` if the node has nothing to do with boards.
    fn row_at(&self, now_ms: u64) -> Option<NodeRow> {
        let before = self.row.as_ref();
        let annotated = self.annotated.as_ref().and_then(|state| state.as_ref().ok());
        if let Some((heard, told)) = self.heard.as_ref().and_then(|heard| Some((heard, heard.told(now_ms)?)))
            && annotated.is_none_or(|state| state.version() <= told.state.version())
        {
            let about = About {
                labels: heard.labels(),
                freshness: heard.freshness(now_ms),
                source: heard.source(),
                problem: heard.problem(),
            };
            return Some(NodeRow::of(about, Some(told), before, now_ms));
        }
        if let Some(state) = annotated {
            let age_ms = now_ms.saturating_sub(state.measured_at.0);
            let is_fresh = age_ms < state.stale_after().0;
            let told =
                Told { state, age_ms, usage_ms: state.usage.0, reconfiguration_ms: state.reconfiguration.0 };
            let about = About {
                labels: &self.labels,
                freshness: if is_fresh { "fresh" } else { "stale" },
                source: "annotation",
                problem: None,
            };
            return Some(NodeRow::of(about, Some(told), before, now_ms));
        }
        let heard = self.heard.as_ref();
        let unreadable = self.annotated.as_ref().and_then(|state| state.as_ref().err());
        let problem = unreadable.map(String::as_str).or(heard.and_then(Heard::problem));
        let labels = heard.map_or(&self.labels, Heard::labels);
        if problem.is_none() && labels.is_empty() {
            return None;
        }
        let freshness = if problem.is_some() { "unreadable" } else { "absent" };
        let about = About { labels, freshness, source: "", problem };
        Some(NodeRow::of(about, None, before, now_ms))
    }
}

#[cfg(test)]
mod tests;
