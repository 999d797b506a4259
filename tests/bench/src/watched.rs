//! Compares the extender's answers, while 5,000 nodes are watched and a thousand node states change per second, with
//! those of a do-nothing extender. Compares memory for full-node requests with the requests' size.

use super::extender::names;
use super::load::{self, Mode, Verb};
use super::report::Sorted;
use super::start_do_nothing_extender;
use anyhow::{Context as _, Result, ensure};
use fpga_tests::testbed::fake_api::FakeApi;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::memory::{forget_most_memory, memory_mib};
use fpga_tests::testbed::network::Network;
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::run_dir::RunDir;
use fpga_tests::testbed::{programs, wait};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);
const NOTHING_PORT: u16 = 9471;
const MIB: f64 = 1_048_576.0;

/// Measures the extender's answers while many node states change.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench watched --nodes 5000 --changes 1000")]
pub struct Args {
    /// Number of nodes that the extender watches, and that are in a request.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    nodes: u32,
    /// Number of FPGA pods that the extender watches.
    #[arg(long, default_value_t = 50_000)]
    pods: u32,
    /// Number of node states that change per second.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=50_000))]
    changes: u32,
    /// Length of the measurement of each row in seconds.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

impl Args {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// A program does not start, or a step fails.
    pub async fn run(self) -> Result<()> {
        let Self { nodes, pods, changes, seconds } = self;
        let run_dir = RunDir::new()?;
        let api = FakeApi::start(nodes as usize, pods as usize);
        let (extender, url) = start_extender(&api, &run_dir).await?;
        let network = Network::claim()?;
        let address = format!("{}:{NOTHING_PORT}", network.control_plane());
        let (nothing, nothing_url) =
            (start_do_nothing_extender(&address, &run_dir).await?, format!("http://{address}"));
        println!(
            "{nodes} nodes and {pods} FPGA pods watched, {changes} node states changing per second, one connection"
        );
        println!("memory after the start: {:.0} MiB", memory_mib(extender.pid(), "VmRSS")?);
        api.change(changes);
        let names = names(nodes as usize);
        for mode in [Mode::Names, Mode::Nodes] {
            let body = load::body(&load::pod(), &names, mode, 6_000);
            // Memory that is not freed after the first verb counts for the second verb too.
            let before_all = memory_mib(extender.pid(), "VmRSS")?;
            for verb in [Verb::Filter, Verb::Prioritize] {
                let time = Duration::from_secs(seconds);
                let reference = load::ask(&nothing_url, verb, &body, 1, time).await?;
                forget_most_memory(extender.pid())?;
                let (begin, before) = (Instant::now(), (api.changes(), taken(&url).await?));
                let ours = load::ask(&url, verb, &body, 1, time).await?;
                let passed = begin.elapsed().as_secs_f64();
                let after = (api.changes(), taken(&url).await?);
                ensure!(
                    ours.errors == 0 && ours.named == names.len(),
                    "{} of {} nodes were answered, {} answers were no 200",
                    ours.named,
                    names.len(),
                    ours.errors
                );
                println!(
                    "{:<10} {:<5} do-nothing  {}",
                    verb.name(),
                    mode.name(),
                    Sorted::new(reference.times).told()
                );
                println!(
                    "{:<10} {:<5} ours        {}",
                    verb.name(),
                    mode.name(),
                    Sorted::new(ours.times).told()
                );
                let (most, request) = (memory_mib(extender.pid(), "VmHWM")?, body.len() as f64 / MIB);
                println!(
                    "{:16} {request:.1} MiB a request; memory {before_all:.0} MiB before, at most {most:.0} MiB{}; {:.0} states/s changed, {:.0} states/s taken",
                    "",
                    if mode == Mode::Names {
                        String::new()
                    } else {
                        format!(", {:.1} requests more", (most - before_all) / request)
                    },
                    (after.0 - before.0) as f64 / passed,
                    (after.1 - before.1) / passed
                );
            }
        }
        nothing.stop(LONG).await;
        extender.stop(LONG).await;
        Ok(())
    }
}

async fn start_extender(api: &FakeApi, run_dir: &RunDir) -> Result<(Process, String)> {
    let (kubeconfig, ready) = (run_dir.path().join("kubeconfig"), run_dir.path().join("ready"));
    api.write_kubeconfig(&kubeconfig);
    let name = "fpga-scheduler-extender";
    let spec = ProcessSpec::new(name, programs::built(name)?, run_dir.log(name))
        .args(["--listen", "127.0.0.1:0", "--ready-file"])
        .arg(&ready)
        .arg("--kubeconfig")
        .arg(&kubeconfig);
    let process = Process::start(&spec)?;
    let http = HttpClient::new(LONG);
    let url = wait::until_within("the extender to be ready", LONG, async || {
        process.check_running()?;
        let Ok(text) = std::fs::read_to_string(&ready) else { return Ok(None) };
        let url = format!("http://{}", text.lines().next().context("the ready file is empty")?);
        Ok(http.get(&format!("{url}/readyz")).await?.status.is_success().then_some(url))
    })
    .await?;
    Ok((process, url))
}

/// Number of states that the extender has received so far.
async fn taken(url: &str) -> Result<f64> {
    Ok(HttpClient::new(LONG).get(&format!("{url}/metrics")).await?.metric("fpga_extender_states_total"))
}
