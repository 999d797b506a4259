//! The demo: runs the whole loop on one machine in less than three minutes, shows it live, verifies the results, and
//! cleans up.
//!
//! The demo uses the test bed like any test, and gets what it shows from the running programs, as a user would.

mod autoscaler;
mod figures;
mod functions;
mod invoker;
mod next;
mod picture;
mod plan;
mod pool;
mod progress;
mod snapshot;
mod stage;
mod summary;

use crate::testbed::cluster::Runtime;
use anyhow::{Context as _, Result, bail};
use clap::Parser;
use figures::{Figures, Settings};
use fpga_net::signals::Signals;
use functions::Functions;
use invoker::Tally;
use next::Demo;
use plan::Plan;
use progress::Progress;
use stage::{Nodes, Routing, StageSpec};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::SignalKind;
use tokio::time::Instant;

/// Interval at which the picture is drawn.
const PERIOD: Duration = Duration::from_secs(5);
/// The window of usage: 5 minutes, compressed like the trace, but not shorter than a person can follow.
const WINDOW: Duration = Duration::from_secs(300);
const SHORTEST_WINDOW: Duration = Duration::from_secs(10);
/// Time that the last invocations may take after the end of the trace.
const LAST: Duration = Duration::from_secs(30);

/// Runs kube-fpga's whole loop on this machine and shows it.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example: fpga-demo --seconds 60; or, set-up included: make demo [ROUTER=0] [NODES=real] [RUNTIME=intel-fpga] [BASELINE=1]; the pool: make demo POOL=1"
)]
pub struct Args {
    /// The kind of nodes: `real` ones have a kubelet and containerd, run the images that the chart installs, and need root.
    #[arg(long, env = "NODES", value_enum, default_value = "modelled")]
    nodes: Nodes,
    /// Whether requests go by the router, Envoy with fpga-endpoint-picker: `0` sends them to each replica in turn. The summary compares
    /// the last runs with and without.
    #[arg(long, env = "ROUTER", default_value = "")]
    router: String,
    /// Uses the weights 0-0-0, which leave the choice to kube-scheduler, for comparison. Any value but an empty one
    /// or 0 means yes.
    #[arg(long, env = "BASELINE", num_args = 0..=1, default_value = "", default_missing_value = "1")]
    baseline: String,
    /// Shows the pool instead: jobs of two tenants wait for slots of two boards. Any value but an empty one or 0 means
    /// yes.
    #[arg(long, env = "POOL", num_args = 0..=1, default_value = "", default_missing_value = "1")]
    pool: String,
    /// Weights of locality, usage and reconfiguration.
    #[arg(long, env = "FPGA_WEIGHTS", default_value = "1-2-2")]
    weights: String,
    /// Length of the compressed trace in seconds; the demo of the pool takes less.
    #[arg(long, env = "FPGA_DEMO_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u16).range(5..=600))]
    seconds: u16,
    /// The trace, in the Azure Functions 2021 schema; the shipped sample if left out.
    #[arg(long, env = "FPGA_TRACE")]
    trace: Option<PathBuf>,
    /// File for the picture that Sobel computes.
    #[arg(long, env = "FPGA_DEMO_PICTURE", default_value = "build/demo/sobel.png")]
    picture: PathBuf,
}

impl Args {
    /// Runs the demo and returns its exit code.
    ///
    /// # Errors
    /// A prerequisite is missing, or a part of the loop failed.
    pub async fn run(self) -> Result<ExitCode> {
        let mut signals = Signals::install().context("can't take signals")?;
        tokio::select! {
            // On a signal this future is dropped; dropping the stage kills all of its processes.
            result = self.play() => result,
            signal = signals.next() => Ok(if signal == SignalKind::interrupt() {
                stopped("Ctrl-C", 130)
            } else {
                stopped("SIGTERM", 143)
            }),
        }
    }

    async fn play(self) -> Result<ExitCode> {
        let Self { nodes, router, baseline, pool, weights, seconds, trace, picture } = self;
        if is_yes(&pool) {
            return pool::play(seconds).await;
        }
        let routing = match router.as_str() {
            "0" => Routing::InTurn,
            "" | "1" => Routing::Router,
            _ => bail!("ROUTER={router} is unknown; write ROUTER=1 or ROUTER=0"),
        };
        let weights = if is_yes(&baseline) { "0-0-0".to_owned() } else { weights };
        let runtime = Runtime::from_env()?;
        let plan = Plan::read(trace.as_deref(), Duration::from_secs(seconds.into()))?;
        let window = WINDOW.mul_f64(plan.scale()).max(SHORTEST_WINDOW);
        let stage = StageSpec { nodes, runtime, weights: weights.clone(), routing, window };
        stage.check()?;
        let nodes_text = stage.describe();
        let window = stage.window();
        let mut progress = Progress::new();
        progress.say(&format!(
            "kube-fpga demo: {nodes_text}, weights {weights}\n\
             requests go {}\n\
             {} invocations of {} functions from {}, {:.0} s compressed into {seconds} s",
            match routing {
                Routing::Router => "by the router to the replica whose board suits best (ROUTER=0: in turn)",
                Routing::InTurn => "to each replica in turn",
            },
            plan.invocations.len(),
            plan.trace_functions,
            plan.source,
            plan.span.as_secs_f64(),
        ));

        progress.step(match nodes {
            Nodes::Modelled => "control plane, extender, three nodes with collector and device manager",
            Nodes::Real => {
                "control plane, images, two nodes with kubelet and containerd, and the chart on them"
            }
        });
        let stage = stage.start().await?;
        progress.say(&format!("    logs: {}", stage.logs().display()));
        let web = stage.web().await?;
        progress.keep(&format!("\n    Watch it live:  {}\n", web.url()));
        progress.step("deploying the functions, one after the other, each called a few times");
        let functions = Functions::deploy(&stage).await?;
        progress.step("a first picture through Sobel");
        let size = functions.sobel_picture(&stage, &picture).await?;
        progress.say(&format!(
            "    {} ({} x {}), verified against the CPU",
            picture.display(),
            size.0,
            size.1
        ));

        progress.step("following the trace");
        let settings =
            Settings { nodes: nodes_text, weights: weights.clone(), trace: plan.source.clone(), seconds };
        let before = snapshot::take(&stage).await?.reconfigurations();
        let tally = Arc::new(Tally::default());
        let mut invoking = tokio::spawn(invoker::follow(plan, functions.endpoints(), Arc::clone(&tally)));
        let scaling = tokio::spawn(autoscaler::run(functions.deployments(), Arc::clone(&tally)));
        let deadline = Instant::now() + Duration::from_secs(seconds.into()) + LAST;
        let ended = loop {
            match tokio::time::timeout(PERIOD, &mut invoking).await {
                Ok(ended) => break ended,
                Err(_) if Instant::now() > deadline => {
                    bail!("the invocations did not end within {LAST:?} after the trace; is a function stuck?")
                }
                Err(_) => progress.draw(&picture::draw(&snapshot::take(&stage).await?, window, &tally)),
            }
            stage.check_running()?;
        };
        ended.context("the invoker failed")??;
        scaling.abort();
        let last = snapshot::take(&stage).await?;
        progress.draw(&picture::draw(&last, window, &tally));
        progress.step("stopping everything");
        let decisions = functions.decisions(&stage).await?;
        web.stop().await;
        stage.stop().await;
        let summary = summary::Summary::new(&weights, &last, &decisions, &tally);
        progress.say(&summary.to_string());
        let cold_starts = last.reconfigurations() - before;
        let figures = Figures::new(settings, routing, cold_starts, &tally.counts());
        progress.say(&figures.to_string());
        let folder = picture.parent().unwrap_or(&picture);
        figures.write(folder)?;
        if let Some(other) = figures.of_other(folder) {
            progress.say(&figures.beside(&other).to_string());
        }
        progress.say(&format!("    picture              {}", picture.display()));
        progress.say(&format!("    the demo took        {:.0} s", progress.elapsed().as_secs_f64()));
        progress.say(&Demo::Functions.what_next());
        Ok(if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Whether the value of a flag means yes.
fn is_yes(value: &str) -> bool {
    !matches!(value, "" | "0")
}

fn stopped(by: &str, code: u8) -> ExitCode {
    eprintln!("\nStopped by {by}: everything that the demo started is ended.");
    ExitCode::from(code)
}
