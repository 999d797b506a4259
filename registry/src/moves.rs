//! Moves of pods that had better be elsewhere (B-8, S-11, T-6).
//!
//! Who is moved is decided by [`fpga_cluster::moves`]. A move is written into the records first ([`records`]), then the
//! pod's node is marked so that the scheduler keeps the workload off it, then the pod is evicted. Each step may be done
//! again: whoever leads next goes on where the last leader ended.

pub mod cold_starts;
mod events;
pub mod found;
mod marks;
pub mod records;
mod workloads;

use crate::cluster::{Cluster, NodeStates};
use crate::metrics::Metrics;
use crate::status;
use anyhow::{Context as _, Result};
use clap::ValueEnum;
use events::Events;
use found::{Found, LostBoards};
use fpga_cluster::moves::{COLD_STARTS, Cause, MovePolicy, PastMove, Progress, decide};
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use fpga_net::election::Leadership;
use fpga_registry_api::{HeldMove, MoveOutcome, MoveRecord};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, Preconditions};
use kube::{Api, Client};
use marks::Marks;
use records::Records;
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};
use tracing::info;
use workloads::{Judged, Recovery};

/// Pods that are looked at in one interval; others follow.
const MOST_LOOKED_AT: usize = 64;
/// Most records; beyond, nothing is moved until some have ended.
const MOST_RECORDS: usize = 400;
/// Age at which a move that was begun and not done is given up: the cluster may be another by then.
const LATEST: Millis = Millis::from_secs(120);

/// What is done about a pod that had better be elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MoveMode {
    /// Nothing.
    Off,
    /// An event on its Deployment says so.
    Suggest,
    /// It is evicted; its Deployment makes a new one.
    Evict,
}

/// The administrator's settings of moves.
#[derive(Debug, Clone)]
pub struct MoveSettings {
    /// What is done.
    pub mode: MoveMode,
    /// The registry's namespace, with the records.
    pub namespace: String,
    /// How much is done.
    pub policy: MovePolicy,
    /// Time for a board to come back.
    pub board_grace: Millis,
    /// Time for which a workload is kept off the node that it was moved off.
    pub moved_off_time: Millis,
    /// Time for a workload to be Ready again; later its node takes it again, and an event tells what is missing.
    pub recovery: Millis,
    /// Moves that save cold starts.
    pub rebalance: Rebalance,
    /// The namespace whose Bitstreams all pods may name without it.
    pub library_namespace: Option<String>,
}

/// When pods are moved to save cold starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebalance {
    /// Least time between two such decisions: demand on a new board is known only after a while.
    pub interval: Millis,
    /// Least number of cold starts in an hour that a move must be expected to save; 0 for no such moves.
    pub least_per_hour: u32,
}

/// Looks for moves, and does them.
pub struct Mover {
    client: Client,
    settings: MoveSettings,
    metrics: Metrics,
    events: Events,
    marks: Marks,
    lost: LostBoards,
    states: NodeStates,
    started: Instant,
}

impl Mover {
    /// A mover of the replica `me`.
    #[must_use]
    pub fn new(client: Client, settings: MoveSettings, metrics: Metrics, me: String) -> Self {
        let events = Events::new(client.clone(), metrics.clone(), me);
        let marks = Marks::new(client.clone(), settings.moved_off_time);
        let (lost, states) = (LostBoards::default(), NodeStates::default());
        Self { client, settings, metrics, events, marks, lost, states, started: Instant::now() }
    }

    /// Forgets what was seen: another replica leads.
    pub fn forget(&mut self) {
        self.lost = LostBoards::default();
        self.metrics.held(std::iter::empty());
    }

    fn moment(&self) -> Moment {
        let now = MonotonicTime::after(self.started.elapsed());
        Moment { now, wall: WallTime::of(SystemTime::now()) }
    }

    /// Looks once: goes on with what was begun, and begins what is due.
    ///
    /// # Errors
    /// The API server refuses a request, or somebody else has changed the records. Nothing is lost: the next look goes
    /// on.
    pub async fn tick(&mut self, cluster: &Cluster, leadership: &Leadership) -> Result<()> {
        let at = self.moment();
        let nodes = cluster.known_nodes(&mut self.states, at.wall);
        if self.settings.mode == MoveMode::Evict {
            self.marks.end(&nodes, at.wall).await?;
        }
        let mut records = Records::read(&self.client, &self.settings.namespace).await?;
        self.follow(&mut records, leadership).await?;
        if self.settings.mode == MoveMode::Off {
            return Ok(());
        }
        let pods = cluster.fpga_pods();
        let mut found = self.lost.find(&pods, &nodes, self.settings.board_grace, at.now);
        let reuse = if self.rebalances(&records, at.wall) { cluster.reuse() } else { BTreeMap::new() };
        if !reuse.is_empty() {
            let library = status::library_of(cluster, self.settings.library_namespace.clone());
            let least = self.settings.rebalance.least_per_hour;
            let more = cold_starts::find(&pods, &nodes, &reuse, &library, least, at.wall);
            let is_new = |more: &Found<'_>| found.iter().all(|one| one.pod.uid != more.pod.uid);
            let more: Vec<Found<'_>> = more.into_iter().filter(is_new).collect();
            found.extend(more);
        }
        found.truncate(MOST_LOOKED_AT);
        let judged = workloads::judge(&self.client, found).await?;
        let candidates: Vec<_> = judged.iter().map(|judged| judged.candidate.clone()).collect();
        let mut policy = self.settings.policy;
        if records.moves().len() >= MOST_RECORDS {
            policy.per_hour = 0;
        }
        let decision = decide(&candidates, &past(records.moves()), &policy, at.wall);
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
        let outcome = self.finish(&record, records.moves()).await?;
        self.events.tell(&record, &outcome).await;
        self.settle(records, index, outcome).await
    }

    fn record(&self, judged: &Judged<'_>, now: WallTime) -> Option<MoveRecord> {
        let Judged { pod, candidate, deployment } = judged;
        let deployment = deployment.as_ref()?;
        let serves = match &candidate.cause {
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
        })
    }

    /// Time for which records matter to decisions.
    fn longest_memory(&self) -> Millis {
        let Self { settings: MoveSettings { policy, rebalance, .. }, .. } = self;
        policy.cool_down.max(rebalance.interval).max(fpga_cluster::moves::HOUR)
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
                MoveOutcome::Begun if self.settings.mode != MoveMode::Evict => {
                    MoveOutcome::GivenUp("evictions were turned off".to_owned())
                }
                MoveOutcome::Begun if self.moment().wall - WallTime(record.at_ms) > LATEST => {
                    self.given_up_late(&record, records.moves()).await?
                }
                MoveOutcome::Begun => self.finish(&record, records.moves()).await?,
                _ => match self.recovered(&record, records.moves()).await? {
                    Some(outcome) => outcome,
                    None => continue,
                },
            };
            self.settle(records, index, outcome).await?;
        }
        Ok(())
    }

    /// What became of a move whose pod is gone, if that is something new.
    async fn recovered(&self, record: &MoveRecord, all: &[MoveRecord]) -> Result<Option<MoveOutcome>> {
        let is_late = self.moment().wall - WallTime(record.at_ms) > self.settings.recovery;
        match workloads::recovery(&self.client, record).await? {
            Recovery::Complete => Ok(Some(MoveOutcome::Ended)),
            Recovery::Waiting(why) if is_late && record.outcome == MoveOutcome::Evicted => {
                // An eviction can't be undone, but nothing keeps the replacement off the node any more.
                if self.settings.mode == MoveMode::Evict {
                    self.marks.take_back(record, all, self.moment().wall).await?;
                }
                let stuck = MoveOutcome::Stuck(why);
                self.events.tell(record, &stuck).await;
                Ok(Some(stuck))
            }
            Recovery::Waiting(_) => Ok(None),
        }
    }

    /// What became of a move that was begun long ago, by a leader that ended then.
    async fn given_up_late(&self, record: &MoveRecord, all: &[MoveRecord]) -> Result<MoveOutcome> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &record.namespace);
        let pod = pods.get_opt(&record.pod).await?;
        let is_there = pod.is_some_and(|pod| {
            pod.metadata.uid.as_ref() == Some(&record.pod_uid) && pod.metadata.deletion_timestamp.is_none()
        });
        if !is_there {
            return Ok(MoveOutcome::Evicted);
        }
        self.marks.take_back(record, all, self.moment().wall).await?;
        Ok(MoveOutcome::GivenUp("the registry was away for too long".to_owned()))
    }

    async fn settle(&self, records: &mut Records, index: usize, outcome: MoveOutcome) -> Result<()> {
        if let Some(record) = records.moves().get(index) {
            info!(namespace = record.namespace, pod = record.pod, ?outcome, "A move has come to this");
        }
        self.metrics.moved(&outcome);
        records.set_outcome(index, outcome).await
    }

    /// Marks the node and evicts the pod, if that is not done yet. Where the eviction is refused the mark is taken back.
    async fn finish(&self, record: &MoveRecord, all: &[MoveRecord]) -> Result<MoveOutcome> {
        self.marks.set(record, self.moment().wall).await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &record.namespace);
        let only = Preconditions { uid: Some(record.pod_uid.clone()), resource_version: None };
        let options = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        let eviction = EvictParams { delete_options: Some(options), ..EvictParams::default() };
        match pods.evict(&record.pod, &eviction).await {
            Ok(_) => Ok(MoveOutcome::Evicted),
            // The pod is gone, or another has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(MoveOutcome::Evicted),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 429) => {
                self.marks.take_back(record, all, self.moment().wall).await?;
                Ok(MoveOutcome::GivenUp(status.message.clone()))
            }
            Err(error) => Err(error).context("the pod is not evicted"),
        }
    }
}

/// The moves of the records as decisions see them.
fn past(records: &[MoveRecord]) -> Vec<PastMove> {
    let past = records.iter().map(|record| PastMove {
        workload: record.workload_uid.clone(),
        at: WallTime(record.at_ms),
        progress: if record.outcome.is_open() { Progress::Underway } else { Progress::Ended },
    });
    past.collect()
}
