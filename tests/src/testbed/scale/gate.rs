//! The correctness gate, which precedes any measurement of speed: every pod is bound at its first attempt, and the
//! node with its bitstream is always among the candidates. A configuration that loses candidates is fast and useless.

use super::ScaleBed;
use super::nodes::name;
use super::pods::Kind;
use crate::testbed::control_plane::SchedulerConfig;
use crate::testbed::observer::{Call, Observer};
use anyhow::{Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Port of the observer.
const OBSERVER_PORT: u16 = 9470;

/// Observations of a batch of pods.
#[derive(Debug, Default)]
pub struct Seen {
    /// Number of pods.
    pub pods: usize,
    /// Pods with exactly one filter call.
    pub asked_once: usize,
    /// Pods whose filter calls all had the holder of the bitstream among the candidates and in the answer.
    pub holder_offered: usize,
    /// Pods with exactly one prioritize call whose answer scores every candidate.
    pub scored: usize,
    /// Pods on a node with a board of kind [`super::nodes::BOARD`].
    pub on_boards: usize,
    /// Pods on the holder.
    pub on_holder: usize,
    /// Most candidates of a call.
    pub most_candidates: usize,
    /// kube-scheduler's messages about pods that it did not place at the first attempt.
    pub failures: Vec<String>,
}

impl Seen {
    /// Checks all properties of the gate.
    ///
    /// # Errors
    /// Names the first property that does not hold.
    pub fn check(&self) -> Result<()> {
        let Self { pods, asked_once, holder_offered, scored, on_boards, .. } = self;
        ensure!(
            self.failures.is_empty(),
            "pods were not placed at their first attempt: {:?}",
            self.failures.first()
        );
        ensure!(
            asked_once == pods,
            "only {asked_once} of {pods} pods were filtered once: they were tried again"
        );
        ensure!(
            holder_offered == pods,
            "the node with the bitstream was among the candidates of only {holder_offered} of {pods} pods"
        );
        ensure!(scored == pods, "only {scored} of {pods} pods were scored on all their candidates");
        ensure!(
            on_boards == pods,
            "only {on_boards} of {pods} pods are on a node with a board that they want"
        );
        Ok(())
    }
}

/// Creates pods, and observes the calls between kube-scheduler and the extender. Deletes the pods and stops
/// kube-scheduler afterwards.
///
/// # Errors
/// Not all pods are placed, or a program does not start. [`Seen::check`] checks the rest.
pub async fn observe(
    bed: &mut ScaleBed,
    config: impl FnOnce(&str) -> Result<SchedulerConfig>,
    kind: Kind,
    pods: usize,
) -> Result<Seen> {
    const THE_BATCH: &str = "gate";
    let address = SocketAddr::from((bed.plane().network().control_plane(), OBSERVER_PORT));
    let observer = Observer::start(address, vec![bed.extender_url("")]).await?;
    bed.create_pods(THE_BATCH, kind, pods).await?;
    bed.start_scheduler(&config(observer.url())?).await?;
    tokio::select! {
        placed = bed.wait_until_placed(THE_BATCH, pods) => placed?,
        failed = bed.heartbeats() => failed?,
    }
    let placements = bed.placements(THE_BATCH).await?;
    let failures = bed.failed_attempts(THE_BATCH).await?;
    bed.stop_scheduler().await;
    bed.delete_pods(THE_BATCH).await?;
    Ok(Seen { failures, ..tell(bed, &observer.stop().await, &placements) })
}

fn tell(bed: &ScaleBed, calls: &[Call], placements: &BTreeMap<String, String>) -> Seen {
    let ground = bed.ground();
    let holder = name(ground.holder());
    let boards: BTreeSet<String> = ground.wanted().map(name).collect();
    let mut seen = Seen { pods: placements.len(), ..Seen::default() };
    for (pod, node) in placements {
        let of = |verb: &str| {
            let verb = verb.to_owned();
            calls.iter().filter(move |call| call.pod == *pod && call.verb == verb)
        };
        let offered = |call: &Call| call.candidates.contains(&holder) && call.answered.contains(&holder);
        seen.asked_once += usize::from(of("filter").count() == 1);
        seen.holder_offered += usize::from(of("filter").count() > 0 && of("filter").all(offered));
        seen.scored += usize::from(
            of("prioritize").count() == 1
                && of("prioritize").all(|call| call.candidates.len() == call.answered.len()),
        );
        seen.on_boards += usize::from(boards.contains(node));
        seen.on_holder += usize::from(*node == holder);
    }
    seen.most_candidates = calls.iter().map(|call| call.candidates.len()).max().unwrap_or_default();
    seen
}
