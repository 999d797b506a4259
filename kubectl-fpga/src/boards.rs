//! `kubectl fpga boards`: every board with the pods that have it, as the nodes' annotations and the pods say.

use crate::connection::ConnectArgs;
use crate::nodes::{free_slots, health, kind_of, loaded_on, share};
use crate::objects;
use crate::output::{Cell, Colours, Format, Table, print, print_json};
use anyhow::Result;
use fpga_core::node_state::{ANNOTATION, CordonedBoard, DeviceState, NodeState, decode};
use fpga_registry_api::FpgaPod;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use std::process::ExitCode;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga boards
  kubectl fpga boards -n shop     # only boards that pods of the namespace have
  kubectl fpga boards -o json";

/// Arguments of `boards`.
#[derive(Debug, clap::Args)]
pub struct BoardsArgs {
    /// Format of the output.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// A board, and who has it.
#[derive(Debug, Serialize)]
struct Board {
    node: String,
    #[serde(flatten)]
    device: DeviceState,
    /// Whether it answers, and whether it is out of rotation.
    #[serde(skip)]
    health: Cell,
    /// Why it is out of rotation, and since when; `None` if it is in rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    cordon: Option<CordonedBoard>,
    /// Names of the bitstreams in its slots.
    holds: Vec<String>,
    #[serde(rename = "windowMs")]
    window: u64,
    /// Containers that have it and may have it, where a node plugin gives it.
    instances: Option<(u32, u32)>,
    /// `NAMESPACE/NAME` of the pods that have it.
    pods: Vec<String>,
}

impl BoardsArgs {
    /// Prints the boards.
    ///
    /// # Errors
    /// The API server does not answer, or the user may not list nodes or pods.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        let cluster = connect.cluster().await?;
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        let nodes = objects::list(&cluster, &nodes, "nodes").await?;
        let pods = objects::namespaced::<Pod>(&cluster, connect.namespace.as_deref());
        let pods = objects::list(&cluster, &pods, "pods").await?;
        let pods: Vec<FpgaPod> = pods.iter().filter_map(FpgaPod::of).collect();
        let mut boards: Vec<Board> = nodes.iter().flat_map(|node| boards_of(node, &pods)).collect();
        if connect.namespace.is_some() {
            boards.retain(|board| !board.pods.is_empty());
        }
        match self.output {
            Format::Json => print_json(&boards)?,
            Format::Table | Format::Wide => {
                let most = if self.output == Format::Wide { usize::MAX } else { 2 };
                print(&table(&boards, most).render(Colours::of_stdout()))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn boards_of(node: &Node, pods: &[FpgaPod]) -> Vec<Board> {
    let name = node.name_any();
    let state = node.annotations().get(ANNOTATION).and_then(|text| decode(text).ok());
    let Some(state) = state else { return Vec::new() };
    let board = |device: &DeviceState| {
        let has_it = |pod: &&FpgaPod| pod.node.as_deref() == Some(&name) && pod.boards.contains(&device.id);
        let instances = |state: &NodeState| {
            let boards = &state.plugin.as_ref()?.report.boards;
            boards.get(&device.id).map(|instances| (instances.used, instances.limit))
        };
        Board {
            node: name.clone(),
            device: device.clone(),
            health: health(device, &state),
            cordon: state.cordons.get(&device.id).cloned(),
            holds: loaded_on(device, &state),
            window: state.window.0,
            instances: instances(&state),
            pods: pods.iter().filter(has_it).map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect(),
        }
    };
    state.devices.iter().map(board).collect()
}

fn table(boards: &[Board], most: usize) -> Table {
    let mut table = Table::new(&[
        "NODE",
        "BOARD",
        "VENDOR/BOARD/SHELL",
        "HEALTH",
        "SLOTS",
        "USAGE",
        "LOADED",
        "INSTANCES",
        "PODS",
    ]);
    for board in boards {
        let device = &board.device;
        let instances = board.instances.map(|(used, limit)| format!("{used}/{limit}"));
        table.push(vec![
            board.node.as_str().into(),
            device.id.as_str().into(),
            kind_of(device).into(),
            board.health.clone(),
            format!("{}/{} free", free_slots(device), device.slots).into(),
            share(device.usage.0, board.window.saturating_mul(device.slots.into())),
            crate::nodes::list(&board.holds, 3).into(),
            instances.unwrap_or_else(|| "-".to_owned()).into(),
            crate::nodes::list(&board.pods, most).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_board_has_a_line_with_the_pods_that_have_it() {
        let state = json!({
            "v": 1, "boot": 1, "seq": 1, "heartbeatMs": 60_000, "measuredAtMs": 5, "windowMs": 100, "usageMs": 200,
            "reconfigurationMs": 0, "window": {"bucketMs": 10_000},
            "devices": [{"id": "dm0", "vendor": "intel", "board": "a10", "shell": "1", "slots": 4, "loaded": [0],
                         "usageMs": 200, "healthy": true}],
            "bitstreams": [{"name": "sobel", "lastUsedAgoMs": 0}],
            "plugin": {"boards": {"dm0": [3, 16]}},
            "cordons": {"dm0": {"reason": "fan", "sinceMs": 5, "healthy": true}},
        });
        let node = json!({"metadata": {"name": "n", "annotations": {ANNOTATION: state.to_string()}}});
        let node: Node = serde_json::from_value(node).unwrap();
        let pod = |name: &str, node: &str, board: &str| {
            let pod = json!({
                "metadata": {"namespace": "shop", "name": name, "uid": name, "annotations": {
                    "fpga-scheduling.io/boards": board, "fpga-scheduling.io/bitstreams": "sobel"}},
                "spec": {"nodeName": node, "containers": []},
            });
            FpgaPod::of(&serde_json::from_value(pod).unwrap()).unwrap()
        };
        let pods =
            [pod("a", "n", "dm0"), pod("b", "n", "dm1"), pod("c", "m", "dm0"), pod("d", "n", "dm1,dm0")];
        let text = table(&boards_of(&node, &pods), 2).render(Colours::Off);
        let line = text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(line, "n dm0 intel/a10/1 healthy, cordoned: fan 3/4 free 50% sobel 3/16 shop/a,shop/d");
    }
}
