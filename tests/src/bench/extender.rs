//! `fpga-bench extender`: the load generator by itself, for any extender.

use super::load::{self, Mode, Verb};
use super::report::Sorted;
use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Asks an extender as kube-scheduler does and prints how long it took to answer.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: fpga-bench extender --url http://127.0.0.1:9461 --nodes 5000 --mode names --verb filter --duration 10"
)]
pub struct Args {
    /// Where the extender is: urlPrefix of kube-scheduler's configuration.
    #[arg(long)]
    url: String,
    /// How many nodes are in a request, called node-00000 and so on unless --names tells otherwise.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: u32,
    /// File with the names of the nodes, one a line.
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// File with the pod as JSON; else one that wants an Intel board and two bitstreams.
    #[arg(long, value_name = "FILE")]
    pod: Option<PathBuf>,
    /// Whether nodes are told by name or as they are.
    #[arg(long, value_enum, default_value_t = Mode::Names)]
    mode: Mode,
    /// What is asked.
    #[arg(long, value_enum, default_value_t = Verb::Filter)]
    verb: Verb,
    /// Size of a whole node, about.
    #[arg(long, default_value_t = 6_000)]
    node_bytes: usize,
    /// Connections; kube-scheduler has one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    connections: u16,
    /// For how many seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    duration: u64,
}

/// Names of nodes that nobody told.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("node-{index:05}")).collect()
}

impl Args {
    /// Measures and prints.
    ///
    /// # Errors
    /// The extender can't be reached or a file can't be read.
    pub async fn run(self) -> Result<()> {
        let Self { url, nodes, names: file, pod, mode, verb, node_bytes, connections, duration } = self;
        let mut nodes = names(nodes as usize);
        if let Some(file) = file {
            let text =
                std::fs::read_to_string(&file).with_context(|| format!("can't read {}", file.display()))?;
            nodes = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
            ensure!(!nodes.is_empty(), "{} names no node; write one a line", file.display());
        }
        let pod = match pod {
            Some(file) => {
                let text = std::fs::read_to_string(&file)
                    .with_context(|| format!("can't read {}", file.display()))?;
                serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))?
            }
            None => load::pod(),
        };
        let body = load::body(&pod, &nodes, mode, node_bytes);
        println!(
            "{url}/{}, {} nodes ({}), {} bytes a request, {connections} connections, {duration} s",
            verb.name(),
            nodes.len(),
            mode.name(),
            body.len()
        );
        let begin = Instant::now();
        let outcome = load::ask(&url, verb, &body, connections.into(), Duration::from_secs(duration)).await?;
        let per_second = outcome.times.len() as f64 / (begin.elapsed().as_secs_f64() * 0.9);
        println!("{}", Sorted::new(outcome.times).told());
        println!("{per_second:.0} answers per second, {} of them not 200", outcome.errors);
        println!("the first answer named {} of {} nodes", outcome.named, nodes.len());
        Ok(())
    }
}
