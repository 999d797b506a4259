//! The time from the creation of a pod to its readiness, with a board and without one. Kubelet, containerd, control plane
//! and our programs are real: the chart with our images on two nodes of this machine.

use super::report::Sorted;
use anyhow::{Context as _, Result};
use fpga_tests::testbed::real_cluster::{RealCluster, RealClusterSpec};
use fpga_tests::testbed::real_node::RunMount;
use fpga_tests::testbed::restricted::{self, RestrictedPod, is_ready};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use std::time::{Duration, Instant};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);
/// The median of pods with a board is to be at most this.
const GOAL_MEDIAN: Duration = Duration::from_secs(2);
/// Pods with a board are to take at most this times what the same pods take without one, by the medians.
const GOAL_RATIO: f64 = 1.2;

/// Measures how long a pod takes to become ready with a board, against the same pod without one, on real nodes (as root).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench ready --pairs 50")]
pub struct Args {
    /// Number of pairs of pods. The two of a pair take turns at being first, and only one pod runs at a time.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pairs: u16,
}

/// What a pod asks for.
#[derive(Debug, Clone, Copy)]
enum Asks {
    Nothing,
    OneBoard,
}

impl Args {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// This machine can't have real nodes, a program does not start, or a pod does not become ready.
    pub async fn run(self) -> Result<()> {
        let image = restricted::idle_image()?;
        let nodes = [("n1", RunMount::Executable), ("n2", RunMount::NoExec)];
        let cluster = RealCluster::start(RealClusterSpec {
            nodes: nodes.map(|(name, run_mount)| (name.to_owned(), run_mount)).to_vec(),
            images: vec![image.clone()],
            values: Vec::new(),
        })
        .await?;
        let pods = restricted::namespace(cluster.plane().client(), "ready").await?;
        let [mut without, mut with] = [const { Vec::new() }; 2];
        for pair in 0..=self.pairs {
            let order = [Asks::Nothing, Asks::OneBoard];
            for asks in if pair % 2 == 0 { order } else { [order[1], order[0]] } {
                cluster.check_running()?;
                let pod = RestrictedPod::new(&format!("{asks:?}-{pair}").to_lowercase(), image.name());
                let (pod, times) = match asks {
                    Asks::Nothing => (pod, &mut without),
                    Asks::OneBoard => (pod.boards("fpga-scheduling.io/accelerated", 1), &mut with),
                };
                let time = creation_to_readiness(&pods, &pod.pod()?).await?;
                // The first pair finds caches empty.
                if pair > 0 {
                    times.push(time);
                }
            }
        }
        cluster.stop().await;
        println!("{}", Results { without: Sorted::new(without), with: Sorted::new(with) }.told());
        Ok(())
    }
}

/// Creates the pod, and returns the time until a watch tells that the pod is ready. The pod is gone afterwards.
async fn creation_to_readiness(pods: &Api<Pod>, pod: &Pod) -> Result<Duration> {
    let name = pod.metadata.name.as_deref().context("the pod has no name")?;
    let begin = Instant::now();
    let created = pods.create(&PostParams::default(), pod).await?;
    let ready = await_condition(pods.clone(), name, |pod: Option<&Pod>| pod.is_some_and(is_ready));
    timeout(LONG, ready).await.with_context(|| format!("{name} does not become ready"))??;
    let time = begin.elapsed();
    pods.delete(name, &DeleteParams::default()).await?;
    let uid = created.metadata.uid.context("the pod has no UID")?;
    let gone = await_condition(pods.clone(), name, conditions::is_deleted(&uid));
    timeout(LONG, gone).await.with_context(|| format!("{name} does not end"))??;
    Ok(time)
}

/// The times of pods with a board and of the same pods without one.
struct Results {
    without: Sorted,
    with: Sorted,
}

impl Results {
    fn ratio(&self, percent: usize) -> f64 {
        self.with.percentile(percent).as_secs_f64() / self.without.percentile(percent).as_secs_f64()
    }

    fn told(&self) -> String {
        let [without, with] = [&self.without, &self.with].map(Sorted::told);
        let (p50, p99) = (self.ratio(50), self.ratio(99));
        let reached = |is_reached| if is_reached { "reached" } else { "missed" };
        let median = reached(self.with.percentile(50) <= GOAL_MEDIAN);
        let ratio = reached(p50 <= GOAL_RATIO);
        format!(
            "from the creation of a pod to its readiness, on two real nodes\n\
             without a board   {without}\n\
             with a board      {with}\n\
             with ÷ without    p50 {p50:.2}  p99 {p99:.2}\n\
             goals: with a board p50 at most {GOAL_MEDIAN:?}: {median}; p50 at most {GOAL_RATIO} times that without: {ratio}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_goal_is_judged_by_the_medians() {
        let of = |millis: [u64; 3]| Sorted::new(millis.map(Duration::from_millis).to_vec());
        let told = |without, with| Results { without: of(without), with: of(with) }.told();
        let text = told([1000, 1000, 1000], [1000, 1200, 9000]);
        assert!(text.contains("2s: reached") && text.ends_with("without: reached"), "{text}");
        assert!(text.contains("p50 1.20  p99 9.00"), "{text}");
        let text = told([1500, 1600, 1700], [1500, 2001, 2500]);
        assert!(text.contains("2s: missed") && text.ends_with("without: missed"), "{text}");
    }
}
