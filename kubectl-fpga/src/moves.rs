//! `kubectl fpga moves`: which pods were moved, or had better be elsewhere, and why.

use crate::connection::{Cluster, ConnectArgs};
use crate::output::{Cell, Colours, Format, Style, Table, print, print_json, span};
use crate::problem::{Grant, Problem};
use anyhow::{Context as _, Result};
use fpga_registry_api::{
    HELD_KEY, HeldMove, MOVES_CONFIG_MAP, MOVES_KEY, MoveOutcome, MoveRecord, MoveRecords,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga moves                 # the latest last, with the reckoning
  kubectl fpga moves -n shop
  kubectl fpga moves -o json --registry-namespace kube-fpga";

/// Arguments of `moves`.
#[derive(Debug, clap::Args)]
pub struct MovesArgs {
    /// Namespace of fpga-registry.
    #[arg(long, env = "FPGA_REGISTRY_NAMESPACE", value_name = "NAME", default_value = "kube-fpga")]
    registry_namespace: String,
    /// Format of the output.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// What the registry has written.
#[derive(Debug, Default, Serialize)]
struct Moves {
    moves: Vec<MoveRecord>,
    held: Vec<HeldMove>,
}

impl MovesArgs {
    /// Prints the moves and the pods that stay for now.
    ///
    /// # Errors
    /// The API server does not answer, the user may not read the records, or they can't be understood.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        let cluster = connect.cluster().await?;
        let mut moves = self.read(&cluster).await?;
        if let Some(namespace) = &connect.namespace {
            moves.moves.retain(|record| record.namespace == *namespace);
            moves.held.retain(|held| held.namespace == *namespace);
        }
        match self.output {
            Format::Json => print_json(&moves)?,
            Format::Table | Format::Wide => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
                print(&table(&moves, now).render(Colours::of_stdout()))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn read(&self, cluster: &Cluster) -> Result<Moves> {
        let api: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &self.registry_namespace);
        let found = api.get_opt(MOVES_CONFIG_MAP).await.map_err(|error| {
            let grant = Grant { namespace: Some("kube-fpga"), verbs: "get", resources: "configmaps" };
            Problem::of_api(&error, &cluster.server, "reading the records of moves", &grant)
        })?;
        let found = found.with_context(|| {
            format!(
                "there is no ConfigMap {}/{MOVES_CONFIG_MAP}: fpga-registry has never run there (registry.enabled of \
                 the chart), or is in another namespace (--registry-namespace)",
                self.registry_namespace
            )
        })?;
        let MoveRecords(moves) = parse(&found, MOVES_KEY)?;
        Ok(Moves { moves, held: parse(&found, HELD_KEY)? })
    }
}

fn parse<T: DeserializeOwned + Default>(found: &ConfigMap, key: &str) -> Result<T> {
    match found.data.iter().flatten().find(|(name, _)| *name == key) {
        None => Ok(T::default()),
        Some((_, text)) => serde_json::from_str(text)
            .with_context(|| format!("{key} of the ConfigMap {MOVES_CONFIG_MAP} can't be understood")),
    }
}

fn table(moves: &Moves, now: u64) -> Table {
    let mut table =
        Table::new(&["AGE", "NAMESPACE", "WORKLOAD", "POD", "NODE", "CAUSE", "OUTCOME", "RECKONING"]);
    for record in &moves.moves {
        let outcome = match &record.outcome {
            MoveOutcome::Suggested => Cell::new("suggested", Style::Plain),
            MoveOutcome::Begun => Cell::new("begun", Style::Yellow),
            MoveOutcome::Raised => Cell::new("waits for its replacement", Style::Yellow),
            MoveOutcome::Evicted => Cell::new("evicted", Style::Yellow),
            MoveOutcome::Stuck(why) => Cell::new(format!("stuck: {why}"), Style::Red),
            MoveOutcome::Ended => Cell::new("ended", Style::Green),
            MoveOutcome::GivenUp(why) => Cell::new(format!("given up: {why}"), Style::Red),
        };
        table.push(vec![
            span(now.saturating_sub(record.at_ms)).into(),
            record.namespace.as_str().into(),
            record.workload.as_str().into(),
            record.pod.as_str().into(),
            record.node.as_str().into(),
            record.cause.as_str().into(),
            outcome,
            record.reckoning.as_str().into(),
        ]);
    }
    for held in &moves.held {
        table.push(vec![
            "now".into(),
            held.namespace.as_str().into(),
            "-".into(),
            held.pod.as_str().into(),
            held.node.as_str().into(),
            held.cause.as_str().into(),
            Cell::new("stays", Style::Dim),
            held.reason.as_str().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn moves_and_pods_that_stay_have_a_line_each_with_the_reason() {
        let record = json!([{
            "atMs": 1_000, "namespace": "shop", "workload": "sobel", "workloadUid": "d", "controllerUid": "rs",
            "pod": "sobel-1", "podUid": "p", "node": "n", "cause": "board_lost", "reckoning": "its board is lost",
            "outcome": {"givenUp": "a budget"},
        }]);
        let held = json!([{"namespace": "shop", "pod": "mm-1", "node": "n", "cause": "not_prepared", "reason": "rolls"}]);
        let data = json!({MOVES_KEY: record.to_string(), HELD_KEY: held.to_string()});
        let object: ConfigMap = serde_json::from_value(json!({"data": data})).unwrap();
        let MoveRecords(moves) = parse(&object, MOVES_KEY).unwrap();
        let moves = Moves { moves, held: parse(&object, HELD_KEY).unwrap() };
        let text = table(&moves, 31_000).render(Colours::Off);
        let lines: Vec<String> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "30s shop sobel sobel-1 n board_lost given up: a budget its board is lost",
                "now shop - mm-1 n not_prepared stays rolls",
            ]
        );
        assert!(parse::<MoveRecords>(&ConfigMap::default(), MOVES_KEY).unwrap().0.is_empty());
    }
}
