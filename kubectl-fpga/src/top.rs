//! `kubectl fpga top`: the busiest nodes or devices, or replicas of functions.

mod requests;

use crate::connection::ConnectArgs;
use crate::nodes::{Node, kind_of, loaded_on, merge, share, warn};
use crate::output::{Cell, Colours, Format, Table, print, print_json, span};
use crate::part::Part;
use crate::problem::Problem;
use crate::replicas::{self, Replica};
use anyhow::Result;
use clap::ValueEnum;
use fpga_extender_api::NodeView;
use serde::Serialize;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga top                       # the ten busiest devices
  kubectl fpga top --by node --watch     # nodes, again every two seconds, until Ctrl-C
  kubectl fpga top --by replica          # requests in flight at the replicas of functions
  kubectl fpga top --watch=10 --count 30";

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// Unit of a line.
    #[arg(long, env = "FPGA_TOP_BY", value_enum, default_value_t = By::Device)]
    by: By,
    /// Number of lines.
    #[arg(long, env = "FPGA_TOP_COUNT", default_value_t = 10)]
    count: usize,
    /// Refresh interval in seconds; runs until Ctrl-C.
    #[arg(short, long, env = "FPGA_TOP_WATCH", value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "2", value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
    /// Format of the output.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Unit of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// A device.
    Device,
    /// A node with all its devices.
    Node,
    /// A replica of a function, as the endpoint picker counts its requests.
    Replica,
}

/// The lines of a table.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Lines {
    Boards(Vec<Line>),
    Replicas(Vec<requests::Line>),
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    node: String,
    device: Option<String>,
    kind: String,
    slots: u64,
    queued: u64,
    usage_ms: u64,
    reconfiguration_ms: u64,
    capacity_ms: u64,
    loaded: Vec<String>,
    age_ms: u64,
}

impl TopArgs {
    /// Prints the lines, once or until Ctrl-C.
    ///
    /// # Errors
    /// No replica answers, or standard output can't be written to.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        let part = match self.by {
            By::Device | By::Node => Part::Extender,
            By::Replica => Part::Picker,
        };
        let replicas = replicas::replicas(part, connect).await?;
        let Some(seconds) = self.watch else {
            let (lines, silent) = self.look(&replicas).await?;
            self.show(&lines, "")?;
            warn(&silent);
            return Ok(ExitCode::SUCCESS);
        };
        // On a terminal each table replaces the previous one; otherwise the tables follow each other.
        let replaces = self.output != Format::Json && std::io::stdout().is_terminal();
        let clear = if replaces { "\x1b[H\x1b[2J" } else { "" };
        loop {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => break,
                looked = self.look(&replicas) => match looked {
                    Ok((lines, silent)) => {
                        self.show(&lines, clear)?;
                        warn(&silent);
                    }
                    // The replica may answer at the next refresh. Standard output has tables, or JSON, alone.
                    Err(problem) => {
                        print(clear)?;
                        eprintln!("{problem}");
                    }
                }
            }
            tokio::select! {
                _ = tokio::signal::ctrl_c() => break,
                () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn look(&self, replicas: &[Replica]) -> Result<(Lines, Vec<Problem>), Problem> {
        if self.by == By::Replica {
            let (lines, silent) = requests::look(replicas, self.count).await?;
            return Ok((Lines::Replicas(lines), silent));
        }
        let (nodes, silent) = merge(replicas::ask_all::<Vec<NodeView>>(replicas, "/nodes").await)?;
        Ok((Lines::Boards(busiest(&nodes, self.by, self.count)), silent))
    }

    fn show(&self, lines: &Lines, clear: &str) -> Result<()> {
        if self.output == Format::Json {
            return print_json(&lines);
        }
        let (table, empty) = match lines {
            Lines::Boards(lines) => (boards(lines), "No board has a state.\n"),
            Lines::Replicas(lines) => (requests::table(lines), "No function has a replica.\n"),
        };
        let empty = if table.is_empty() { empty } else { "" };
        Ok(print(&format!("{clear}{}{empty}", table.render(Colours::of_stdout())))?)
    }
}

fn boards(lines: &[Line]) -> Table {
    let mut table = Table::new(&[
        "NODE",
        "DEVICE",
        "VENDOR/BOARD/SHELL",
        "USAGE",
        "RECONF",
        "SLOTS",
        "QUEUED",
        "LOADED",
        "AGE",
    ]);
    for line in lines {
        table.push(vec![
            line.node.as_str().into(),
            line.device.as_deref().unwrap_or("all").into(),
            line.kind.as_str().into(),
            share(line.usage_ms, line.capacity_ms),
            share(line.reconfiguration_ms, line.capacity_ms),
            line.slots.to_string().into(),
            line.queued.to_string().into(),
            Cell::from(if line.loaded.is_empty() { "-".to_owned() } else { line.loaded.join(",") }),
            span(line.age_ms).into(),
        ]);
    }
    table
}

/// The `count` busiest lines, by descending share of usage, then by name.
fn busiest(nodes: &[Node], by: By, count: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = nodes.iter().flat_map(|node| lines(&node.view, by)).collect();
    let busy = |line: &Line| {
        if line.capacity_ms == 0 { 0.0 } else { line.usage_ms as f64 / line.capacity_ms as f64 }
    };
    lines.sort_by(|a, b| {
        let by_name = || (&a.node, &a.device).cmp(&(&b.node, &b.device));
        busy(b).total_cmp(&busy(a)).then_with(by_name)
    });
    lines.truncate(count);
    lines
}

fn lines(view: &NodeView, by: By) -> Vec<Line> {
    let Some(known) = &view.known else { return Vec::new() };
    let (state, window) = (&known.state, known.state.window.0);
    let devices = state.devices.iter().map(|device| Line {
        node: view.name.clone(),
        device: Some(device.id.clone()),
        kind: kind_of(device),
        slots: u64::from(device.slots),
        queued: u64::from(device.queued),
        usage_ms: device.usage.0,
        reconfiguration_ms: device.reconfiguration.0,
        capacity_ms: window.saturating_mul(u64::from(device.slots)),
        loaded: loaded_on(device, state),
        age_ms: known.age_ms,
    });
    if by == By::Device {
        return devices.collect();
    }
    let mut all: Vec<Line> = devices.collect();
    let Some(mut node) = all.pop() else { return Vec::new() };
    for device in all {
        node.slots += device.slots;
        node.queued += device.queued;
        node.loaded.extend(device.loaded);
        if !node.kind.split(',').any(|kind| kind == device.kind) {
            node.kind = format!("{},{}", node.kind, device.kind);
        }
    }
    node.device = None;
    // The window of the whole node is aged until now; a device's values are as they were measured.
    (node.usage_ms, node.reconfiguration_ms) = (known.usage_ms, known.reconfiguration_ms);
    node.capacity_ms = window.saturating_mul(node.slots);
    node.loaded.sort_unstable();
    node.loaded.dedup();
    vec![node]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn node(name: &str, usage: [u64; 2]) -> Node {
        let device = |id: &str, usage: u64| json!({"id": id, "vendor": "intel", "slots": 2, "loaded": [0], "usageMs": usage, "queued": 1, "healthy": true});
        let view = json!({
            "name": name, "freshness": "fresh", "source": "stream",
            "known": {"ageMs": 5, "version": {}, "usageMs": usage[0] + usage[1], "reconfigurationMs": 0, "state": {
                "boot": 1, "seq": 1, "heartbeatMs": 1, "measuredAtMs": 1, "windowMs": 1000, "usageMs": 0, "reconfigurationMs": 0,
                "devices": [device("dm0", usage[0]), device("dm1", usage[1])],
                "bitstreams": [{"name": "sobel", "lastUsedAgoMs": 0}], "window": {"bucketMs": 1},
            }},
        });
        Node { view: serde_json::from_value(view).unwrap(), replicas: BTreeMap::new() }
    }

    #[test]
    fn the_busiest_come_first() {
        let nodes = [node("a", [10, 900]), node("b", [500, 500])];
        let devices = busiest(&nodes, By::Device, 3);
        let named: Vec<_> = devices.iter().map(|line| (line.node.as_str(), line.device.as_deref())).collect();
        assert_eq!(named, [("a", Some("dm1")), ("b", Some("dm0")), ("b", Some("dm1"))]);
        let by_node = busiest(&nodes, By::Node, 10);
        assert_eq!((by_node[0].node.as_str(), by_node[0].slots, by_node[0].queued), ("b", 4, 2));
        assert_eq!(
            (by_node[0].loaded.as_slice(), by_node[0].capacity_ms),
            (["sobel".to_owned()].as_slice(), 4000)
        );
    }
}
