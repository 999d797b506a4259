//! A scheduler of our own, the default way in: nodes advertise the resource, so that kube-scheduler itself finds the
//! nodes with boards, and names only these to the extender. The references are a do-nothing extender in the same
//! wiring, and ordinary pods by kube-scheduler's defaults without an extender.

use super::{Args, Arm, Bench, GATE_PODS};
use anyhow::{Context as _, Result};
use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::gate::observe;
use fpga_tests::testbed::scale::nodes::Ground;
use fpga_tests::testbed::scale::pods::Kind;

impl Args {
    pub(super) async fn measure_own(&self) -> Result<()> {
        println!(
            "a scheduler of our own: pods per second, {} pods that wait when kube-scheduler starts, median of {} rounds",
            self.pods, self.rounds
        );
        println!(
            "{:<32} {:>14} {:>10} {:>9} {:>13} {:>14}",
            "", "ordinary pods", "do-nothing", "ours", "ours/nothing", "ours/ordinary"
        );
        for nodes in self.nodes.iter().copied().map(usize::from) {
            let boards = usize::from(self.boards).min(nodes);
            self.check_gate(Ground::advertising(nodes, boards)).await?;
            let pods_per_node = (2 * usize::from(self.pods)).div_ceil(boards).max(110);
            let mut bench =
                Bench::start(Ground { pods_per_node, ..Ground::advertising(nodes, boards) }).await?;
            let kind = Kind::FpgaWithoutAffinity;
            let arms = [
                Arm { name: "ordinary", config: SchedulerConfig::without_extender(), kind: Kind::Ordinary },
                Arm { name: "do-nothing", config: SchedulerConfig::own(&bench.nothing(), nodes)?, kind },
                Arm { name: "ours", config: SchedulerConfig::own(&bench.ours(), nodes)?, kind },
            ];
            let title = format!("{boards} of {nodes} nodes with boards");
            let [ordinary, nothing, ours] = bench.rates(self, &title, arms).await?;
            println!(
                "{title:<32} {ordinary:>14.0} {nothing:>10.0} {ours:>9.0} {:>12.0}% {:>13.0}%",
                100.0 * ours / nothing,
                100.0 * ours / ordinary
            );
            bench.stop().await?;
        }
        Ok(())
    }

    /// Fails unless every pod is offered the node with its bitstream, where only a few of the boards fit.
    async fn check_gate(&self, ground: Ground) -> Result<()> {
        let ground = Ground { wanted: 20.min(ground.boards), ..ground };
        let mut bed = ScaleBed::start(ground).await?;
        bed.start_extender(&[]).await?;
        let own = |url: &str| SchedulerConfig::own(url, ground.nodes);
        let seen = observe(&mut bed, own, Kind::FpgaOfKind, GATE_PODS).await?;
        seen.check().with_context(|| format!("the correctness gate failed with {} nodes", ground.nodes))?;
        bed.stop().await;
        Ok(())
    }
}
