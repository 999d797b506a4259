//! `kubectl fpga bitstreams`: the library, and where its bitstreams are.

use crate::connection::ConnectArgs;
use crate::objects;
use crate::output::{Cell, Colours, Format, Style, Table, print, print_json};
use anyhow::Result;
use fpga_registry_api::{Bitstream, FromNamespaces};
use kube::ResourceExt as _;
use std::process::ExitCode;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga bitstreams              # of all namespaces
  kubectl fpga bitstreams -n library -o wide";

/// Arguments of `bitstreams`.
#[derive(Debug, clap::Args)]
pub struct BitstreamsArgs {
    /// Format of the output.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl BitstreamsArgs {
    /// Prints the Bitstreams.
    ///
    /// # Errors
    /// The API server does not answer, or the user may not list Bitstreams.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        let cluster = connect.cluster().await?;
        let api = objects::namespaced::<Bitstream>(&cluster, connect.namespace.as_deref());
        let found = objects::list(&cluster, &api, "bitstreams.fpga-scheduling.io").await?;
        match self.output {
            Format::Json => print_json(&found)?,
            Format::Table | Format::Wide => {
                print(&table(&found, self.output == Format::Wide).render(Colours::of_stdout()))?;
                if found.iter().all(|found| found.status.is_none()) && !found.is_empty() {
                    eprintln!("Nobody counts: fpga-registry does not run (registry.enabled of the chart).");
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The Bitstreams as a table with a line for each, or for each variant if `wide`.
fn table(found: &[Bitstream], wide: bool) -> Table {
    let mut headings = vec!["NAMESPACE", "NAME", "ALLOWED", "VARIANTS", "NODES", "RESIDENT", "PODS"];
    if wide {
        headings.extend(["VENDOR/BOARD/SHELL", "SLOTS", "DIGEST"]);
    }
    let mut table = Table::new(&headings);
    for object in found {
        let status = object.status.clone().unwrap_or_default();
        let count = |count: Option<i32>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
        let nodes = match status.valid_nodes {
            Some(0) => Cell::new("0", Style::Yellow),
            nodes => count(nodes).into(),
        };
        let allowed = match object.spec.allowed_namespaces.from {
            FromNamespaces::Same => "Same",
            FromNamespaces::All => "All",
            FromNamespaces::Selector => "Selector",
        };
        let row: Vec<Cell> = vec![
            object.namespace().unwrap_or_default().into(),
            object.name_any().into(),
            allowed.into(),
            object.spec.variants.len().to_string().into(),
            nodes,
            count(status.resident_nodes).into(),
            count(status.pods).into(),
        ];
        if !wide {
            table.push(row);
            continue;
        }
        for variant in &object.spec.variants {
            let mut row = row.clone();
            let short: String = variant.digest.chars().take("sha256:".len() + 12).collect();
            row.push(format!("{}/{}/{}", variant.vendor, variant.board, variant.shell).into());
            row.push(variant.region_size.to_string().into());
            row.push(short.into());
            table.push(row);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_has_the_registrys_counts_and_question_marks_without_a_registry() {
        let mut object = json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
            "metadata": {"namespace": "library", "name": "sobel"},
            "spec": {"variants": [{
                "vendor": "intel", "board": "a10", "shell": "1", "bytes": 1,
                "digest": format!("sha256:{}", "0a".repeat(32)), "source": {"https": "https://files.example/x"},
            }]},
        });
        let line = |object: &serde_json::Value, wide| {
            let objects = [serde_json::from_value(object.clone()).unwrap()];
            let text = table(&objects, wide).render(Colours::Off);
            text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line(&object, false), "library sobel Same 1 ? ? ?");
        object["status"] = json!({"validNodes": 3, "residentNodes": 1, "pods": 2});
        assert_eq!(line(&object, true), "library sobel Same 1 3 1 2 intel/a10/1 1 sha256:0a0a0a0a0a0a");
    }
}
