//! The cluster's scheduler over 1,000 nodes: with its defaults and no extender; with no extender but the shipped
//! configuration's sampling; with a do-nothing extender in the shipped configuration; with our extender in it.

use super::{Args, Arm, Bench, GATE_PODS};
use anyhow::{Context as _, Result};
use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::gate::observe;
use fpga_tests::testbed::scale::nodes::{Advertised, Ground};
use fpga_tests::testbed::scale::pods::Kind;

const SAMPLING: &str = "percentageOfNodesToScore";

/// A row of the table.
#[derive(Debug, Clone, Copy)]
struct Case {
    boards: usize,
    kind: Kind,
    title: &'static str,
}

const CASES: [Case; 3] = [
    Case { boards: 20, kind: Kind::Fpga, title: "20 of 1,000 nodes with boards, FPGA pods" },
    Case { boards: 20, kind: Kind::Ordinary, title: "20 of 1,000 nodes with boards, ordinary pods" },
    Case { boards: 1_000, kind: Kind::Fpga, title: "all of 1,000 nodes with boards, FPGA pods" },
];

impl Args {
    pub(super) async fn measure_cluster(&self) -> Result<()> {
        let mut bed = ScaleBed::start(Ground::of_the_gate()).await?;
        bed.start_extender(&[]).await?;
        let seen = observe(&mut bed, |url| self.shipped(url), Kind::Fpga, GATE_PODS).await?;
        seen.check().context("the correctness gate failed, so there are no figures")?;
        println!(
            "\nthe cluster's scheduler; correctness gate: {} of {} pods placed at their first attempt, each offered the \
             node with its bitstream",
            seen.holder_offered, seen.pods
        );
        bed.stop().await;

        println!(
            "pods per second, {} pods that wait when kube-scheduler starts, median of {} rounds",
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
            let asked_for = |case: &&Case| case.boards == boards && case.title.contains(&self.only);
            let cases: Vec<&Case> = CASES.iter().filter(asked_for).collect();
            if cases.is_empty() {
                continue;
            }
            let pods_per_node = (2 * usize::from(self.pods)).div_ceil(boards).max(110);
            let advertised = Advertised::Yes;
            let ground =
                Ground { boards, wanted: boards, pods_per_node, advertised, ..Ground::of_the_gate() };
            let mut bench = Bench::start(ground).await?;
            for Case { kind, title, .. } in cases {
                self.measure_case(&mut bench, *kind, title).await?;
            }
            bench.stop().await?;
        }
        Ok(())
    }

    fn shipped(&self, url: &str) -> Result<SchedulerConfig> {
        let shipped = SchedulerConfig::shipped(url)?;
        self.sampling.map_or(Ok(shipped.clone()), |percent| shipped.with(SAMPLING, &percent.to_string()))
    }

    async fn measure_case(&self, bench: &mut Bench, kind: Kind, title: &str) -> Result<()> {
        let nothing = self.shipped(&bench.nothing())?;
        let sampling = SchedulerConfig::without_extender().and(SAMPLING, &nothing.value(SAMPLING)?);
        let arms = [
            Arm { name: "defaults", config: SchedulerConfig::without_extender(), kind },
            Arm { name: "sampling", config: sampling, kind },
            Arm { name: "do-nothing", config: nothing, kind },
            Arm { name: "ours", config: self.shipped(&bench.ours())?, kind },
        ];
        let [defaults, sampling, nothing, ours] = bench.rates(self, title, arms).await?;
        println!(
            "{title:<46} {defaults:>9.0} {sampling:>9.0} {nothing:>10.0} {ours:>9.0} {:>12.0}% {:>13.0}% {:>13.0}%",
            100.0 * ours / nothing,
            100.0 * ours / defaults,
            100.0 * ours / sampling
        );
        Ok(())
    }
}
