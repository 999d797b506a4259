//! `fpga-bench extender`: the load generator alone, for any extender.

use super::load::{self, Mode, Verb};
use super::report::Sorted;
use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Sends requests to an extender as kube-scheduler does and prints the times to the answers.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: fpga-bench extender --url http://127.0.0.1:9461 --nodes 5000 --mode names --verb filter --duration 10"
)]
pub struct Args {
    /// URL of the extender: urlPrefix of kube-scheduler's configuration.
    #[arg(long)]
    url: String,
    /// Number of nodes in a request, called node-00000 and so on without --names.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: u32,
    /// File with the names of the nodes, one per line.
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// File with the pod as JSON; by default a pod that wants an Intel board and two bitstreams.
    #[arg(long, value_name = "FILE")]
    pod: Option<PathBuf>,
    /// Whether requests have the nodes' names or whole nodes.
    #[arg(long, value_enum, default_value_t = Mode::Names)]
    mode: Mode,
    /// The verb of the requests.
    #[arg(long, value_enum, default_value_t = Verb::Filter)]
    verb: Verb,
    /// Approximate size of a whole node in bytes.
    #[arg(long, default_value_t = 6_000)]
    node_bytes: usize,
    /// Number of connections; kube-scheduler has one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    connections: u16,
    /// Length of the measurement in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    duration: u64,
}

/// Generates the names of `count` nodes.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("node-{index:05}")).collect()
}

impl Args {
    /// Measures and prints the results.
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
