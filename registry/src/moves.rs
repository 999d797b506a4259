//! Moves of pods that had better be elsewhere (B-8, S-11, T-6).
//!
//! Who is moved is decided by [`fpga_cluster::moves`]. A move is written into the records first ([`records`]), then the
//! pod's node is marked so that the scheduler keeps the workload off it, then the pod is evicted. Where the owner wants
//! it, a replacement is Ready before that ([`fpga_cluster::moves::new_first`]). Each step may be done again: whoever leads
//! next goes on where the last leader ended.

pub mod cold_starts;
mod deletion_cost;
mod events;
pub mod found;
mod judge;
mod marks;
mod places;
pub mod records;
mod replicas;
mod settings;
mod steps;
#[cfg(test)]
mod tests;
mod workloads;

pub use settings::{MoveMode, MoveSettings, NewBeforeOld, Rebalance};

use crate::cluster::{Cluster, NodeStates};
use crate::metrics::Metrics;
use crate::status;
use anyhow::Result;
use events::Events;
use found::{Found, LostBoards, Page};
use fpga_cluster::moves::{COLD_STARTS, Cause, PastMove, Progress, Replacement, decide};
use fpga_core::units::{Millis, WallTime};
use fpga_net::election::Leadership;
use fpga_registry_api::{FpgaPod, HeldMove, MoveOutcome, MoveRecord, ReplicasBefore};
use judge::{Judged, judge};
use kube::Client;
use records::Records;
use std::collections::BTreeMap;
use steps::Steps;
use tracing::{info, warn};

/// Pods that are looked at in one interval; others follow.
const MOST_LOOKED_AT: usize = 64;
/// Most records; beyond, nothing is moved until some have ended.
const MOST_RECORDS: usize = 400;

/// Looks for moves, and does them.
pub struct Mover {
    client: Client,
    settings: MoveSettings,
    metrics: Metrics,
    events: Events,
    steps: Steps,
    lost: LostBoards,
    page: Page,
    states: NodeStates,
}

impl Mover {
    /// A mover of the replica `me`.
    #[must_use]
    pub fn new(client: Client, settings: MoveSettings, metrics: Metrics, me: String) -> Self {
        let events = Events::new(client.clone(), metrics.clone(), me);
        let steps = Steps::new(client.clone(), settings.clone());
        let (lost, page, states) = (LostBoards::default(), Page::default(), NodeStates::default());
        Self { client, settings, metrics, events, steps, lost, page, states }
    }

    /// Forgets what was seen: another replica leads.
    pub fn forget(&mut self) {
        self.lost = LostBoards::default();
        self.metrics.held(std::iter::empty());
    }

    /// Looks once: goes on with what was begun, and begins what is due.
    ///
    /// # Errors
    /// The API server refuses a request, or somebody else has changed the records. Nothing is lost: the next look goes
    /// on.
    pub async fn tick(&mut self, cluster: &Cluster, leadership: &Leadership) -> Result<()> {
        let at = self.steps.moment();
        let nodes = cluster.known_nodes(&mut self.states, at.wall);
        if self.settings.mode == MoveMode::Evict {
            self.steps.marks.end(&nodes, at.wall).await;
        }
        let mut records = Records::read(&self.client, &self.settings.namespace).await?;
        self.follow(&mut records, leadership).await?;
        if self.settings.mode == MoveMode::Off {
            return Ok(());
        }
        let pods = cluster.fpga_pods();
        let mut found = self.lost.find(&pods, &nodes, self.settings.board_grace, at);
        let library = status::library_of(cluster, &self.settings.library);
        let reuse = if self.rebalances(&records, at.wall) { cluster.reuse() } else { BTreeMap::new() };
        if !reuse.is_empty() {
            let least = self.settings.rebalance.least_per_hour;
            let more = cold_starts::find(&pods, &nodes, &reuse, &library, least, at.wall);
            let is_new = |more: &Found<'_>| found.iter().all(|one| one.pod.uid != more.pod.uid);
            let more: Vec<Found<'_>> = more.into_iter().filter(is_new).collect();
            found.extend(more);
        }
        let found = self.page.next(found, MOST_LOOKED_AT);
        let destination = |pod: &FpgaPod| places::destination(pod, &library, &nodes, at.wall);
        let judged = judge(&self.client, found, self.settings.new_before_old, destination).await;
        let candidates: Vec<_> = judged.iter().map(|judged| judged.candidate.clone()).collect();
        let mut policy = self.settings.policy;
        if records.moves().len() >= MOST_RECORDS {
            policy.per_hour = 0;
        }
        let namespaces = pods.iter().map(|pod| pod.namespace.as_str()).collect();
        let decision = decide(&candidates, &past(records.moves()), &namespaces, &policy, at.wall);
        self.metrics.held(decision.held.iter().map(|(_, held)| held));
        for index in &decision.moves {
            if !leadership.is_held() {
                return Ok(());
            }
            self.begin(&judged[*index], &mut records, at.wall).await?;
        }
        let held = decision.held.iter().map(|(index, held)| {
            let Judged { pod, candidate, .. } = &judged[*index];
            HeldMove {
                namespace: pod.namespace.clone(),
                pod: pod.name.clone(),
                node: pod.node.clone().unwrap_or_default(),
                cause: candidate.cause.name().to_owned(),
                reason: held.to_string(),
            }
        });
        records.set_held(held.collect()).await
    }

    /// Whether pods may be moved now to save cold starts.
    fn rebalances(&self, records: &Records, now: WallTime) -> bool {
        let Rebalance { interval, least_per_hour } = self.settings.rebalance;
        let mut moves = records.moves().iter().filter(|record| record.cause == COLD_STARTS);
        least_per_hour > 0 && moves.all(|record| now - WallTime(record.at_ms) >= interval)
    }

    /// Writes a move into the records, and does it.
    async fn begin(&self, judged: &Judged<'_>, records: &mut Records, now: WallTime) -> Result<()> {
        // The decision has such candidates only.
        let Some(record) = self.record(judged, now) else { return Ok(()) };
        info!(
            namespace = record.namespace, pod = record.pod, node = record.node, workload = record.workload,
            mode = ?self.settings.mode, "A pod had better be elsewhere: {}", record.reckoning
        );
        let young = |other: &MoveRecord| now - WallTime(other.at_ms) < self.longest_memory();
        let index = records.push(record.clone(), young).await?;
        self.metrics.moved(&record.outcome);
        if self.settings.mode != MoveMode::Evict {
            self.events.tell(&record, &record.outcome).await;
            return Ok(());
        }
        let done = self.steps.go_on(&record, records.moves()).await;
        let Some(outcome) = self.unless_failed(&record, done) else { return Ok(()) };
        self.events.tell(&record, &outcome).await;
        self.settle(records, index, outcome).await
    }

    fn record(&self, judged: &Judged<'_>, now: WallTime) -> Option<MoveRecord> {
        let Judged { pod, candidate, deployment } = judged;
        let deployment = deployment.as_ref()?;
        let before = match candidate.replacement {
            Replacement::AfterThePod => None,
            // A pod too many, which is about to go, is none to wait for.
            Replacement::BeforeThePod(_) => Some(ReplicasBefore {
                replicas: deployment.wanted,
                ready: deployment.ready.min(deployment.wanted),
            }),
        };
        let serves = match &candidate.cause {
            _ if before.is_some() => "its replacement comes first",
            Cause::NotPrepared => "it serves nobody",
            Cause::BoardLost { .. } | Cause::BoardWanted { .. } | Cause::ColdStarts(_) => {
                "its Deployment has other Ready pods"
            }
        };
        Some(MoveRecord {
            at_ms: now.0,
            namespace: pod.namespace.clone(),
            workload: deployment.name.clone(),
            workload_uid: deployment.uid.clone(),
            controller_uid: pod.controller.as_ref()?.uid.clone(),
            pod: pod.name.clone(),
            pod_uid: pod.uid.clone(),
            node: pod.node.clone()?,
            cause: candidate.cause.name().to_owned(),
            reckoning: format!(
                "{}; {serves} ({} of {} Ready)",
                candidate.cause, deployment.ready, deployment.wanted
            ),
            outcome: match self.settings.mode {
                MoveMode::Evict => MoveOutcome::Begun,
                MoveMode::Off | MoveMode::Suggest => MoveOutcome::Suggested,
            },
            before,
        })
    }

    /// Time for which records matter to decisions.
    fn longest_memory(&self) -> Millis {
        let Self { settings: MoveSettings { policy, rebalance, .. }, .. } = self;
        policy.cool_down.max(rebalance.interval).max(fpga_cluster::moves::HOUR)
    }

    /// The new outcome of a move; `None` if nothing has changed. An error counts as no change, so that other moves go on.
    fn unless_failed(&self, record: &MoveRecord, done: Result<Option<MoveOutcome>>) -> Option<MoveOutcome> {
        done.unwrap_or_else(|error| {
            self.metrics.write_errors.inc();
            let MoveRecord { namespace, pod, .. } = record;
            warn!(namespace, pod, error = format!("{error:#}"), "A move goes on in the next interval");
            None
        })
    }

    /// Goes on with moves that have not ended.
    async fn follow(&self, records: &mut Records, leadership: &Leadership) -> Result<()> {
        let open: Vec<usize> = (0..)
            .zip(records.moves())
            .filter(|(_, record)| record.outcome.is_open())
            .map(|(i, _)| i)
            .collect();
        for index in open {
            if !leadership.is_held() {
                return Ok(());
            }
            let Some(record) = records.moves().get(index).cloned() else { continue };
            let outcome = match record.outcome {
                MoveOutcome::Begun | MoveOutcome::Raised => {
                    let outcome = self.steps.go_on(&record, records.moves()).await;
                    let outcome = self.unless_failed(&record, outcome);
                    // Where the replacement comes first, this is the first to be told of the pod's end.
                    if let (Some(outcome), Some(_)) = (&outcome, record.before) {
                        self.events.tell(&record, outcome).await;
                    }
                    outcome
                }
                // Where moves are off, the registry has no right to read workloads.
                _ if self.settings.mode == MoveMode::Off => None,
                _ => {
                    let outcome = self.steps.recovered(&record, records.moves(), &self.events).await;
                    self.unless_failed(&record, outcome)
                }
            };
            let Some(outcome) = outcome else { continue };
            self.settle(records, index, outcome).await?;
        }
        Ok(())
    }

    async fn settle(&self, records: &mut Records, index: usize, outcome: MoveOutcome) -> Result<()> {
        if let Some(record) = records.moves().get(index) {
            info!(namespace = record.namespace, pod = record.pod, ?outcome, "A move has come to this");
        }
        self.metrics.moved(&outcome);
        records.set_outcome(index, outcome).await
    }
}

/// The moves of the records as decisions see them.
fn past(records: &[MoveRecord]) -> Vec<PastMove> {
    let past = records.iter().map(|record| PastMove {
        namespace: record.namespace.clone(),
        workload: record.workload_uid.clone(),
        at: WallTime(record.at_ms),
        progress: if record.outcome.is_open() { Progress::Underway } else { Progress::Ended },
    });
    past.collect()
}
