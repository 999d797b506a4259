//! `kubectl fpga functions`: the workloads whose pods have boards, or wait for them.

use crate::connection::ConnectArgs;
use crate::nodes::list;
use crate::objects;
use crate::output::{Cell, Colours, Format, Style, Table, print, print_json};
use anyhow::Result;
use fpga_registry_api::FpgaPod;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga functions           # of all namespaces
  kubectl fpga functions -n shop -o wide";

/// Arguments of `functions`.
#[derive(Debug, clap::Args)]
pub struct FunctionsArgs {
    /// Format of the output.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// The pods of one owner that ask for boards.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Function {
    namespace: String,
    /// Kind and name of the owner, or `Pod/NAME`.
    owner: String,
    pods: usize,
    ready: usize,
    /// Pods without a node.
    waiting: usize,
    bitstreams: BTreeSet<String>,
    /// `NODE/BOARD`, or `NODE` of pods whose boards are not known.
    boards: BTreeSet<String>,
}

impl FunctionsArgs {
    /// Prints the functions.
    ///
    /// # Errors
    /// The API server does not answer, or the user may not list pods.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        let cluster = connect.cluster().await?;
        let pods = objects::namespaced::<Pod>(&cluster, connect.namespace.as_deref());
        let pods = objects::list(&cluster, &pods, "pods").await?;
        let functions = functions(&pods.iter().filter_map(FpgaPod::of).collect::<Vec<_>>());
        match self.output {
            Format::Json => print_json(&functions)?,
            Format::Table | Format::Wide => {
                let most = if self.output == Format::Wide { usize::MAX } else { 3 };
                print(&table(&functions, most).render(Colours::of_stdout()))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn functions(pods: &[FpgaPod]) -> Vec<Function> {
    let mut functions: BTreeMap<(String, String), Function> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.is_ending) {
        let owner = pod.controller.as_ref();
        let owner = owner.map_or_else(|| format!("Pod/{}", pod.name), |o| format!("{}/{}", o.kind, o.name));
        let function = functions.entry((pod.namespace.clone(), owner.clone())).or_default();
        function.namespace.clone_from(&pod.namespace);
        function.owner = owner;
        function.pods += 1;
        function.ready += usize::from(pod.is_ready);
        function.bitstreams.extend(pod.requirement.bitstreams.iter().map(ToString::to_string));
        match &pod.node {
            None => function.waiting += 1,
            Some(node) if pod.boards.is_empty() => {
                function.boards.insert(node.clone());
            }
            Some(node) => function.boards.extend(pod.boards.iter().map(|board| format!("{node}/{board}"))),
        }
    }
    functions.into_values().collect()
}

fn table(functions: &[Function], most: usize) -> Table {
    let mut table = Table::new(&["NAMESPACE", "OWNER", "READY", "WAITING", "BITSTREAMS", "BOARDS"]);
    for function in functions {
        let all = |texts: &BTreeSet<String>| list(&texts.iter().cloned().collect::<Vec<_>>(), most);
        let style = if function.ready == function.pods { Style::Green } else { Style::Yellow };
        table.push(vec![
            function.namespace.as_str().into(),
            function.owner.as_str().into(),
            Cell::new(format!("{}/{}", function.ready, function.pods), style),
            function.waiting.to_string().into(),
            all(&function.bitstreams).into(),
            all(&function.boards).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, owner: Option<&str>, node: Option<&str>, boards: Option<&str>) -> FpgaPod {
        let owners = owner.map(|owner| json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true}]));
        let pod = json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": owners,
                         "annotations": {"fpga-scheduling.io/bitstreams": "sobel",
                                         "fpga-scheduling.io/boards": boards.unwrap_or_default()}},
            "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": if boards.is_some() { "True" } else { "False" }}]},
        });
        FpgaPod::of(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    #[test]
    fn pods_of_one_owner_are_one_function() {
        let pods = [
            pod("a", Some("sobel"), Some("n"), Some("dm0")),
            pod("b", Some("sobel"), Some("m"), None),
            pod("c", Some("sobel"), None, None),
            pod("bare", None, Some("n"), Some("dm0")),
        ];
        let text = table(&functions(&pods), 3).render(Colours::Off);
        let lines: Vec<String> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines, ["shop Pod/bare 1/1 0 sobel n/dm0", "shop ReplicaSet/sobel 1/3 1 sobel m,n/dm0"]);
    }
}
