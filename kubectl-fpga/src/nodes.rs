//! `kubectl fpga nodes`: the boards as the extender sees them.

use crate::connection::ConnectArgs;
use crate::output::{Cell, Colours, Format, Style, Table, print, print_json, span};
use crate::part::Part;
use crate::problem::Problem;
use crate::replicas::{self, Answered};
use anyhow::Result;
use fpga_core::device::Health;
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_extender_api::NodeView;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga nodes
  kubectl fpga nodes -o wide                            # one line per device, and what each replica sees
  kubectl fpga nodes n1 n2 -o json
  kubectl fpga nodes --extender http://127.0.0.1:9461   # without the API server";

/// Arguments of `nodes`.
#[derive(Debug, clap::Args)]
pub struct NodesArgs {
    /// Nodes to show; by default all that have a state or one of our labels.
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// Show also nodes without state and without our labels.
    #[arg(short, long, env = "FPGA_ALL")]
    all: bool,
    /// Format of the output.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// A node as all replicas see it.
#[derive(Debug, Clone, Serialize)]
pub struct Node {
    /// The view of the replica with the youngest state.
    #[serde(flatten)]
    pub view: NodeView,
    /// For each replica, by name, the freshness of its state.
    pub replicas: BTreeMap<String, Seen>,
}

/// The state of a node in one replica, without its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// `fresh`, `stale`, `absent` or `unreadable`.
    pub freshness: String,
    /// Origin of the state.
    pub source: String,
    /// Age of the state; `None` without a state.
    pub age_ms: Option<u64>,
}

impl NodesArgs {
    /// Prints the table of nodes.
    ///
    /// # Errors
    /// No replica answers, or standard output can't be written to.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        let replicas = replicas::replicas(Part::Extender, connect).await?;
        let answers = replicas::ask_all::<Vec<NodeView>>(&replicas, "/nodes").await;
        let (mut nodes, silent) = merge(answers)?;
        nodes.retain(|node| {
            if self.nodes.is_empty() {
                self.all || node.view.is_ours()
            } else {
                self.nodes.contains(&node.view.name)
            }
        });
        match self.output {
            Format::Json => print_json(&nodes)?,
            Format::Table | Format::Wide => {
                let wide = self.output == Format::Wide;
                print(&table(&nodes, wide).render(Colours::of_stdout()))?;
                if nodes.is_empty() {
                    eprintln!(
                        "No node has a board: none has the label fpga-scheduling.io/fpga-vendor, nor a state. \
                         `kubectl label node NODE fpga-scheduling.io/fpga-vendor=VENDOR` makes one known."
                    );
                }
            }
        }
        warn(&silent);
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints a warning for each replica that did not answer.
pub fn warn(silent: &[Problem]) {
    for problem in silent {
        eprintln!("Warning: {problem}");
    }
}

/// The nodes by name, each with the view of the replica that has the youngest state; and the problems of replicas
/// that did not answer.
///
/// # Errors
/// If no replica answered: the problem of the first.
pub fn merge(answers: Vec<Answered<Vec<NodeView>>>) -> Result<(Vec<Node>, Vec<Problem>), Problem> {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    let (mut silent, mut answered) = (Vec::new(), false);
    for Answered { replica, answer } in answers {
        let views = match answer {
            Ok(views) => views.unwrap_or_default(),
            Err(problem) => {
                silent.push(problem);
                continue;
            }
        };
        answered = true;
        for view in views {
            let seen = Seen {
                freshness: view.freshness.clone(),
                source: view.source.clone(),
                age_ms: view.known.as_ref().map(|known| known.age_ms),
            };
            let node = nodes
                .entry(view.name.clone())
                .or_insert_with(|| Node { view: view.clone(), replicas: BTreeMap::new() });
            let age = |view: &NodeView| view.known.as_ref().map_or(u64::MAX, |known| known.age_ms);
            if age(&view) < age(&node.view) {
                node.view = view;
            }
            node.replicas.insert(replica.clone(), seen);
        }
    }
    match silent.first() {
        Some(problem) if !answered => Err(problem.clone()),
        _ => Ok((nodes.into_values().collect(), silent)),
    }
}

/// The nodes as a table with a line per node, or per device if `wide`.
#[must_use]
pub fn table(nodes: &[Node], wide: bool) -> Table {
    let headings: &[&str] = if wide {
        &[
            "NODE",
            "DEVICE",
            "HEALTH",
            "VENDOR/BOARD/SHELL",
            "SLOTS",
            "QUEUED",
            "USAGE",
            "RECONF",
            "LOADED",
            "RECENT",
            "AGE",
            "SOURCE",
            "STATE",
            "REPLICAS",
        ]
    } else {
        &[
            "NODE",
            "DEVICES",
            "VENDOR/BOARD/SHELL",
            "SLOTS",
            "USAGE",
            "RECONF",
            "LOADED",
            "AGE",
            "SOURCE",
            "STATE",
        ]
    };
    let mut table = Table::new(headings);
    for node in nodes {
        if wide {
            wide_rows(node).into_iter().for_each(|row| table.push(row));
        } else {
            table.push(row(node));
        }
    }
    table
}

fn row(node: &Node) -> Vec<Cell> {
    let view = &node.view;
    let Some(known) = &view.known else {
        let labels =
            kind(&[&view.labels.vendor, &view.labels.board, &view.labels.shell].map(Option::as_deref));
        let mut row: Vec<Cell> = vec![view.name.as_str().into(), "-".into(), labels.into()];
        row.extend(["-", "-", "-", "-", "-"].map(Cell::from));
        row.extend([source(view), state(view)]);
        return row;
    };
    let devices = &known.state.devices;
    let healthy = devices.iter().filter(|device| device.health == Health::Healthy).count();
    let count = if healthy == devices.len() {
        devices.len().to_string()
    } else {
        format!("{healthy}/{}", devices.len())
    };
    let style = if healthy == devices.len() { Style::Plain } else { Style::Red };
    let free: u64 = devices.iter().map(free_slots).sum();
    let mut kinds: Vec<String> = devices.iter().map(kind_of).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut loaded: Vec<String> = devices.iter().flat_map(|device| loaded_on(device, &known.state)).collect();
    loaded.sort_unstable();
    loaded.dedup();
    let capacity = known.state.window.0.saturating_mul(view.slots());
    vec![
        view.name.as_str().into(),
        Cell::new(count, style),
        list(&kinds, 2).into(),
        format!("{free}/{} free", view.slots()).into(),
        share(known.usage_ms, capacity),
        share(known.reconfiguration_ms, capacity),
        list(&loaded, 3).into(),
        span(known.age_ms).into(),
        source(view),
        state(view),
    ]
}

fn wide_rows(node: &Node) -> Vec<Vec<Cell>> {
    let view = &node.view;
    let replicas = node.replicas.values().map(|seen| {
        seen.age_ms.map_or_else(|| seen.freshness.clone(), |age| format!("{}({})", span(age), seen.source))
    });
    let replicas = replicas.collect::<Vec<_>>().join(" ");
    let Some(known) = view.known.as_ref().filter(|known| !known.state.devices.is_empty()) else {
        let mut cells = row(node);
        let (state, source) = (cells.pop().unwrap_or_default(), cells.pop().unwrap_or_default());
        let kind = cells.get(2).cloned().unwrap_or_default();
        let mut wide: Vec<Cell> = vec![view.name.as_str().into(), "-".into(), "-".into(), kind];
        wide.extend(std::iter::repeat_n(Cell::from("-"), 7));
        wide.extend([source, state, replicas.into()]);
        return vec![wide];
    };
    let recent = known.state.bitstreams.iter().map(|bitstream| {
        let digest = || bitstream.digest.map(|digest| digest.to_string());
        bitstream.name.clone().or_else(digest).unwrap_or_default()
    });
    let recent = list(&recent.collect::<Vec<_>>(), 4);
    let devices = known.state.devices.iter().map(|device| {
        let capacity = known.state.window.0.saturating_mul(u64::from(device.slots));
        vec![
            view.name.as_str().into(),
            device.id.as_str().into(),
            health(device, &known.state),
            kind_of(device).into(),
            format!("{}/{} free", free_slots(device), device.slots).into(),
            device.queued.to_string().into(),
            share(device.usage.0, capacity),
            share(device.reconfiguration.0, capacity),
            list(&loaded_on(device, &known.state), 4).into(),
            recent.as_str().into(),
            span(known.age_ms).into(),
            source(view),
            state(view),
            replicas.as_str().into(),
        ]
    });
    devices.collect()
}

/// Whether a device answers, and whether it is out of rotation. `device` must belong to `state`.
#[must_use]
pub fn health(device: &DeviceState, state: &NodeState) -> Cell {
    let (text, style) = match state.reported_health(device) {
        Health::Healthy => ("healthy", Style::Green),
        Health::Unhealthy => ("unhealthy", Style::Red),
    };
    match state.cordons.get(&device.id) {
        None => Cell::new(text, style),
        Some(cordoned) => Cell::new(format!("{text}, {}", cordoned.cordon), Style::Yellow),
    }
}

/// Number of empty slots of a device.
#[must_use]
pub fn free_slots(device: &DeviceState) -> u64 {
    u64::from(device.slots).saturating_sub(device.loaded.len() as u64)
}

/// Names of the bitstreams in the slots of a device; the digest of a bitstream without name.
#[must_use]
pub fn loaded_on(device: &DeviceState, state: &NodeState) -> Vec<String> {
    let named =
        device.loaded.iter().filter_map(|index| state.bitstreams.get(*index as usize)).map(|bitstream| {
            let digest = || bitstream.digest.map(|digest| format!("sha256:{digest}…"));
            bitstream.name.clone().or_else(digest).unwrap_or_else(|| "?".to_owned())
        });
    named.collect()
}

/// Vendor, board and shell of a device, separated by slashes.
#[must_use]
pub fn kind_of(device: &DeviceState) -> String {
    kind(&[&device.vendor, &device.board, &device.shell].map(|text| Some(text.as_str())))
}

fn kind(parts: &[Option<&str>]) -> String {
    let known = |part: &Option<&str>| part.filter(|part| !part.is_empty()).unwrap_or("-").to_owned();
    parts.iter().map(known).collect::<Vec<_>>().join("/")
}

/// `part` of `whole` in percent, yellow from 60 and red from 90.
#[must_use]
pub fn share(part: u64, whole: u64) -> Cell {
    let percent = if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 };
    let style = match percent {
        90.0.. => Style::Red,
        60.0.. => Style::Yellow,
        _ => Style::Plain,
    };
    Cell::new(format!("{percent:.0}%"), style)
}

fn source(view: &NodeView) -> Cell {
    if view.source.is_empty() { "none".into() } else { view.source.as_str().into() }
}

fn state(view: &NodeView) -> Cell {
    match (&view.problem, view.freshness.as_str()) {
        (Some(problem), _) => Cell::new(format!("unreadable: {problem}"), Style::Red),
        (None, "fresh") => Cell::new("fresh", Style::Green),
        (None, other) => Cell::new(other, Style::Yellow),
    }
}

/// The first `most` names, and how many more there are.
#[must_use]
pub fn list(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(",");
    match (names.len(), names.len().saturating_sub(most)) {
        (0, _) => "-".to_owned(),
        (_, 0) => shown,
        (_, more) => format!("{shown}+{more}"),
    }
}
