//! The correctness gate, before any figure about speed: every pod is bound at its first attempt, and the node that has
//! its bitstream is always among the candidates. A configuration that loses candidates is fast, and useless.

use super::ScaleBed;
use super::nodes::name;
use super::pods::Kind;
use crate::testbed::control_plane::SchedulerConfig;
use crate::testbed::observer::{Call, Observer};
use anyhow::{Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Where the observer listens.
const OBSERVER_PORT: u16 = 9470;

/// What was seen of a batch of pods.
#[derive(Debug, Default)]
pub struct Seen {
    /// How many pods there were.
    pub pods: usize,
    /// Pods that the extender was asked about in exactly one filter call.
    pub asked_once: usize,
    /// Pods of whose filter calls each had the holder of the bitstream among its candidates, and kept it.
    pub holder_offered: usize,
    /// Pods that were scored: in one prioritize call, with an answer about each candidate.
    pub scored: usize,
    /// Pods that are on a node with a board.
    pub on_boards: usize,
    /// Pods that are on the holder.
    pub on_holder: usize,
    /// Nodes named per filter call, at most.
    pub most_candidates: usize,
    /// What kube-scheduler said of pods that were not placed at once.
    pub failures: Vec<String>,
}

impl Seen {
    /// Whether it is as it must be.
    ///
    /// # Errors
    /// What is not.
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
        ensure!(on_boards == pods, "only {on_boards} of {pods} pods are on a node with a board");
        Ok(())
    }
}

/// Lets pods come and tells what happened to them, by what lies between kube-scheduler and the extender. Afterwards
/// neither they nor kube-scheduler are there.
///
/// # Errors
/// Not all are placed, or something does not start. [`Seen::check`] tells what else is wrong.
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
    let boards: BTreeSet<String> = ground.with_boards().map(name).collect();
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
