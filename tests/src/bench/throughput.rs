//! Pods per second of a real kube-scheduler over 1,000 nodes: with its defaults and no extender; with no extender but
//! the shipped configuration's sampling; with a do-nothing extender in the shipped configuration; with our extender
//! in the shipped configuration. A correctness gate comes first, because a configuration that loses candidates is
//! fast and useless.

use super::report::median;
use super::start_do_nothing_extender;
use crate::testbed::control_plane::SchedulerConfig;
use crate::testbed::scale::ScaleBed;
use crate::testbed::scale::bound;
use crate::testbed::scale::gate::observe;
use crate::testbed::scale::nodes::{Advertised, Ground};
use crate::testbed::scale::pods::Kind;
use anyhow::{Context as _, Result, ensure};
use std::io::IsTerminal as _;
use std::time::Duration;

const NOTHING_PORT: u16 = 9471;
/// Longest time for all pods of a run.
const LONG: Duration = Duration::from_secs(120);
const GATE_PODS: usize = 100;

/// Measures how many pods per second kube-scheduler places, with and without extenders.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench throughput --pods 1500 --rounds 3")]
pub struct Args {
    /// Number of pods that wait when kube-scheduler starts.
    #[arg(long, default_value_t = 1_500, value_parser = clap::value_parser!(u16).range(100..=20_000))]
    pods: u16,
    /// Number of rounds; the table has the medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=20))]
    rounds: u16,
    /// percentageOfNodesToScore with both extenders instead of the shipped value; 0 lets kube-scheduler choose.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    sampling: Option<u8>,
    /// Only rows whose title contains this text, such as `--only ordinary`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// The extender and configuration of kube-scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Helper {
    /// No extender, and kube-scheduler's defaults.
    Nobody,
    /// No extender, and the sampling of the shipped configuration.
    Sampling,
    /// The do-nothing extender.
    Nothing,
    /// Our extender.
    Ours,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
struct Case {
    boards: usize,
    kind: Kind,
    title: &'static str,
}

const HELPERS: [Helper; 4] = [Helper::Nobody, Helper::Sampling, Helper::Nothing, Helper::Ours];
const SAMPLING: &str = "percentageOfNodesToScore";
const CASES: [Case; 3] = [
    Case { boards: 20, kind: Kind::Fpga, title: "20 of 1,000 nodes with boards, FPGA pods" },
    Case { boards: 20, kind: Kind::Ordinary, title: "20 of 1,000 nodes with boards, ordinary pods" },
    Case { boards: 1_000, kind: Kind::Fpga, title: "all of 1,000 nodes with boards, FPGA pods" },
];

impl Args {
    /// Checks the correctness gate, measures, and prints the table.
    ///
    /// # Errors
    /// The gate fails, or a program does not start.
    pub async fn run(self) -> Result<()> {
        let mut bed = ScaleBed::start(Ground::of_the_gate()).await?;
        bed.start_extender(&[]).await?;
        let seen = observe(&mut bed, |url| self.shipped(url), Kind::Fpga, GATE_PODS).await?;
        seen.check().context("the correctness gate failed, so there are no figures")?;
        println!(
            "correctness gate: {} of {} pods placed at their first attempt, each offered the node with its bitstream",
            seen.holder_offered, seen.pods
        );
        bed.stop().await;

        println!(
            "\npods per second, {} pods that wait when kube-scheduler starts, median of {} rounds",
            self.pods, self.rounds
        );
        println!(
            "{:<46} {:>9} {:>9} {:>10} {:>9} {:>13} {:>14} {:>14}",
            "",
            "defaults",
            "sampling",
            "do-nothing",
            "ours",
            "ours/nothing",
            "ours/defaults",
            "ours/sampling"
        );
        for boards in [20, 1_000] {
            let asked_for = |case: &Case| case.boards == boards && case.title.contains(&self.only);
            let cases: Vec<Case> = CASES.into_iter().filter(asked_for).collect();
            if !cases.is_empty() {
                self.measure(boards, &cases).await?;
            }
        }
        Ok(())
    }

    fn shipped(&self, url: &str) -> Result<SchedulerConfig> {
        let shipped = SchedulerConfig::shipped(url)?;
        self.sampling.map_or(Ok(shipped.clone()), |percent| shipped.with(SAMPLING, &percent.to_string()))
    }

    async fn measure(&self, boards: usize, cases: &[Case]) -> Result<()> {
        let pods = usize::from(self.pods);
        let pods_per_node = (2 * pods).div_ceil(boards).max(110);
        let ground = Ground { boards, pods_per_node, advertised: Advertised::Yes, ..Ground::of_the_gate() };
        let mut bed = ScaleBed::start(ground).await?;
        bed.start_extender(&[]).await?;
        let address = format!("{}:{NOTHING_PORT}", bed.plane().network().control_plane());
        let nothing = start_do_nothing_extender(&address, bed.plane().run_dir()).await?;
        let mut rates = vec![[const { Vec::new() }; HELPERS.len()]; cases.len()];
        for round in 0..usize::from(self.rounds) {
            for (case, rates) in cases.iter().zip(&mut rates) {
                for turn in 0..HELPERS.len() {
                    // Each helper comes first in some round.
                    let turn = (turn + round) % HELPERS.len();
                    let config = self.config(&bed, HELPERS[turn])?;
                    progress(&format!("{}, round {}, {:?}", case.title, round + 1, HELPERS[turn]));
                    rates[turn].push(one_run(&mut bed, &config, case.kind, pods).await?);
                }
            }
        }
        progress("");
        ensure!(errors(&bed).await? == 0, "requests to our extender failed; the figures are worth nothing");
        for (case, rates) in cases.iter().zip(rates) {
            let [nobody, sampling, nothing, ours] = rates.map(median);
            println!(
                "{:<46} {nobody:>9.0} {sampling:>9.0} {nothing:>10.0} {ours:>9.0} {:>12.0}% {:>13.0}% {:>13.0}%",
                case.title,
                100.0 * ours / nothing,
                100.0 * ours / nobody,
                100.0 * ours / sampling
            );
        }
        drop(nothing);
        bed.stop().await;
        Ok(())
    }

    fn config(&self, bed: &ScaleBed, helper: Helper) -> Result<SchedulerConfig> {
        let config = match helper {
            Helper::Nobody => SchedulerConfig::without_extender(),
            Helper::Sampling => {
                let percent = self.shipped(&nothing_url(bed))?.value(SAMPLING)?;
                SchedulerConfig::without_extender().and(SAMPLING, &percent)
            }
            Helper::Nothing => self.shipped(&nothing_url(bed))?,
            Helper::Ours => self.shipped(&bed.extender_url(""))?,
        };
        config.unthrottled()
    }
}

/// Shows the current step, on a terminal only.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{text:80}\r");
    }
}

/// Pods per second of one run, from the first bound pod to the last.
async fn one_run(bed: &mut ScaleBed, config: &SchedulerConfig, kind: Kind, count: usize) -> Result<f64> {
    const THE_BATCH: &str = "load";
    bed.create_pods(THE_BATCH, kind, count).await?;
    let pods = bed.pods();
    let watch = tokio::spawn(async move { bound::watch(&pods, THE_BATCH, count, LONG).await });
    bed.start_scheduler(config).await?;
    let seen = watch.await.context("the watch failed")??;
    bed.stop_scheduler().await;
    bed.delete_pods(THE_BATCH).await?;
    ensure!(seen.len() == count, "only {} of {count} pods were placed in {LONG:?}", seen.len());
    Ok(bound::rate(&seen))
}

fn nothing_url(bed: &ScaleBed) -> String {
    format!("http://{}:{NOTHING_PORT}", bed.plane().network().control_plane())
}

/// Number of failed requests to our extender, which kube-scheduler would ignore.
async fn errors(bed: &ScaleBed) -> Result<u64> {
    let metrics = bed.http().get(&bed.extender_url("/metrics")).await?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    Ok(metrics.metric("fpga_extender_errors_total") as u64)
}
