//! `make bench`: measures kube-fpga against references. Each figure and its reference are measured in one run on one
//! machine, so that their ratio doesn't depend on other load. Whether a goal is reached is printed, and changes no exit status.

#![deny(unsafe_code)]

mod b11;
mod do_nothing_extender;
mod extender;
mod freshness;
mod live_model;
mod load;
mod modelled;
mod moves;
mod opencl;
pub mod picker_load;
mod pool;
mod ready;
mod report;
pub mod soak;
mod throughput;
mod waiting;
mod watched;
mod writes;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::run_dir::RunDir;
use std::net::SocketAddr;
use std::time::Duration;

/// Longest time that a program may take to start.
const START: Duration = Duration::from_secs(60);

const EXAMPLES: &str = "Examples:
  fpga-bench opencl --rows launch,small --runtimes pocl
  fpga-bench speed
  fpga-bench throughput --pods 1500
  fpga-bench live-model --seconds 180
  fpga-bench b11 --loads high
  fpga-bench moves --seconds 150
  fpga-bench pool live-model --seeds 2 --policies fifo,wra
  fpga-bench extender --url http://127.0.0.1:9461 --nodes 5000 --mode names --verb filter --duration 10";

/// Measures kube-fpga, or another extender.
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Opencl(opencl::Args),
    Speed(opencl::speed::Args),
    Extender(extender::Args),
    Nothing(DoNothingExtenderArgs),
    Watched(watched::Args),
    Throughput(throughput::Args),
    Writes(writes::Args),
    Freshness(freshness::Args),
    Waiting(waiting::Args),
    Ready(ready::Args),
    LiveModel(live_model::Args),
    B11(b11::Args),
    Moves(moves::Args),
    Pool(pool::Args),
}

/// Serves an extender that keeps all nodes and scores them all 0, as a reference.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench nothing --listen 127.0.0.1:9471")]
struct DoNothingExtenderArgs {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:9471")]
    listen: SocketAddr,
}

impl Args {
    /// Runs the chosen measurement and prints its results.
    ///
    /// # Errors
    /// A prerequisite is missing, or a step fails.
    pub fn run(self) -> Result<()> {
        let command = match self.command {
            // These wait for one program after the other, or write a file, and need no async runtime.
            Command::Opencl(args) => return args.run(),
            Command::Speed(args) => return args.run(),
            command => command,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("can't start the runtime")?;
        runtime.block_on(async {
            match command {
                Command::Opencl(args) => args.run(),
                Command::Speed(args) => args.run(),
                Command::Extender(args) => args.run().await,
                Command::Nothing(args) => args.run().await,
                Command::Watched(args) => args.run().await,
                Command::Throughput(args) => args.run().await,
                Command::Writes(args) => args.run().await,
                Command::Freshness(args) => args.run().await,
                Command::Waiting(args) => args.run().await,
                Command::Ready(args) => args.run().await,
                Command::LiveModel(args) => args.run().await,
                Command::B11(args) => args.run().await,
                Command::Moves(args) => args.run().await,
                Command::Pool(args) => args.run().await,
            }
        })
    }
}

/// Starts a do-nothing extender in its own process, like ours.
async fn start_do_nothing_extender(address: &str, run_dir: &RunDir) -> Result<Process> {
    let own = std::env::current_exe().context("this program's own path is unknown")?;
    let spec =
        ProcessSpec::new("nothing", own, run_dir.log("nothing")).args(["nothing", "--listen", address]);
    let process = Process::start(&spec)?;
    let (http, url) = (HttpClient::new(START), format!("http://{address}/readyz"));
    process.wait_ready(&http, &url, START).await?;
    Ok(process)
}

impl DoNothingExtenderArgs {
    async fn run(self) -> Result<()> {
        let Self { listen } = self;
        let listener = tokio::net::TcpListener::bind(listen)
            .await
            .with_context(|| format!("can't listen on {listen}; choose another address with --listen"))?;
        do_nothing_extender::serve(listener).await.context("the listener failed")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        super::Args::command().debug_assert();
    }
}
