//! Moves of pods that had better be elsewhere (B-8, S-11, T-6).
//!
//! Who is moved is decided by [`fpga_cluster::moves`]. A move is written into the records first ([`records`]), then the
//! pod's node is marked so that the scheduler keeps the workload off it, then the pod is evicted. Each step may be done
//! again: whoever leads next goes on where the last leader ended.

pub mod found;
pub mod records;
mod workloads;

use crate::cluster::{Cluster, KnownNode, NodeStates};
use crate::lease::election::Leadership;
use crate::metrics::Metrics;
use anyhow::{Context as _, Result};
use clap::ValueEnum;
use found::LostBoards;
use fpga_cluster::moves::{Cause, MovePolicy, PastMove, Progress, decide};
use fpga_core::moved_off::{MOVED_OFF_ANNOTATION, MovedOffAnnotation};
use fpga_core::node_state::controller;
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use fpga_registry_api::{HeldMove, MoveOutcome, MoveRecord};
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use records::Records;
use serde_json::json;
use std::time::{Instant, SystemTime};
use tracing::{info, warn};
use workloads::Judged;

/// The reporting controller of events.
const CONTROLLER: &str = "fpga-scheduling.io/registry";
/// Pods that are looked at in one interval; others follow.
const MOST_LOOKED_AT: usize = 64;
/// Most records; beyond, nothing is moved until some have ended.
const MOST_RECORDS: usize = 400;
/// Longest note of an event that the API server takes, in characters of any length.
const MAX_NOTE: usize = 256;
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
}

/// Looks for moves, and does them.
pub struct Mover {
    client: Client,
    settings: MoveSettings,
    metrics: Metrics,
    events: Recorder,
    lost: LostBoards,
    states: NodeStates,
    started: Instant,
}

impl Mover {
    /// A mover of the replica `me`.
    #[must_use]
    pub fn new(client: Client, settings: MoveSettings, metrics: Metrics, me: String) -> Self {
        let reporter = Reporter { controller: CONTROLLER.into(), instance: Some(me) };
        let events = Recorder::new(client.clone(), reporter);
        let (lost, states) = (LostBoards::default(), NodeStates::default());
        Self { client, settings, metrics, events, lost, states, started: Instant::now() }
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
            self.end_marks(&nodes, at.wall).await?;
        }
        let mut records = Records::read(&self.client, &self.settings.namespace).await?;
        self.follow(&mut records, leadership).await?;
        if self.settings.mode == MoveMode::Off {
            return Ok(());
        }
        let pods = cluster.fpga_pods();
        let mut found = self.lost.find(&pods, &nodes, self.settings.board_grace, at.now);
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
            self.tell(&record, &record.outcome).await;
            return Ok(());
        }
        let outcome = self.finish(&record).await?;
        self.tell(&record, &outcome).await;
        self.settle(records, index, outcome).await
    }

    fn record(&self, judged: &Judged<'_>, now: WallTime) -> Option<MoveRecord> {
        let Judged { pod, candidate, deployment } = judged;
        let deployment = deployment.as_ref()?;
        let serves = match &candidate.cause {
            Cause::NotPrepared => "it serves nobody",
            Cause::BoardLost { .. } | Cause::BoardWanted { .. } => "its Deployment has other Ready pods",
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
        self.settings.policy.cool_down.max(fpga_cluster::moves::HOUR)
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
                    self.given_up_late(&record).await?
                }
                MoveOutcome::Begun => self.finish(&record).await?,
                _ if workloads::has_recovered(&self.client, &record).await? => MoveOutcome::Ended,
                _ => continue,
            };
            self.settle(records, index, outcome).await?;
        }
        Ok(())
    }

    /// What became of a move that was begun long ago, by a leader that ended then.
    async fn given_up_late(&self, record: &MoveRecord) -> Result<MoveOutcome> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &record.namespace);
        let pod = pods.get_opt(&record.pod).await?;
        let is_there = pod.is_some_and(|pod| {
            pod.metadata.uid.as_ref() == Some(&record.pod_uid) && pod.metadata.deletion_timestamp.is_none()
        });
        Ok(match is_there {
            true => MoveOutcome::GivenUp("the registry was away for too long".to_owned()),
            false => MoveOutcome::Evicted,
        })
    }

    async fn settle(&self, records: &mut Records, index: usize, outcome: MoveOutcome) -> Result<()> {
        if let Some(record) = records.moves().get(index) {
            info!(namespace = record.namespace, pod = record.pod, ?outcome, "A move has come to this");
        }
        self.metrics.moved(&outcome);
        records.set_outcome(index, outcome).await
    }

    /// Marks the node and evicts the pod, if that is not done yet.
    async fn finish(&self, record: &MoveRecord) -> Result<MoveOutcome> {
        self.mark(record).await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &record.namespace);
        let only = Preconditions { uid: Some(record.pod_uid.clone()), resource_version: None };
        let options = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        let eviction = EvictParams { delete_options: Some(options), ..EvictParams::default() };
        match pods.evict(&record.pod, &eviction).await {
            Ok(_) => Ok(MoveOutcome::Evicted),
            // The pod is gone, or another has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(MoveOutcome::Evicted),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 429) => {
                Ok(MoveOutcome::GivenUp(status.message.clone()))
            }
            Err(error) => Err(error).context("the pod is not evicted"),
        }
    }

    /// Writes on the node that the pod's workload is kept off it.
    async fn mark(&self, record: &MoveRecord) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let Some(node) = nodes.get_metadata_opt(&record.node).await? else { return Ok(()) };
        let text = node.metadata.annotations.as_ref().and_then(|all| all.get(MOVED_OFF_ANNOTATION));
        let marks = text.map_or_else(MovedOffAnnotation::default, |text| MovedOffAnnotation::parse(text));
        let workload = controller(&record.namespace, &record.controller_uid);
        let until = WallTime(record.at_ms) + self.settings.moved_off_time;
        match marks.with(workload, until, self.moment().wall) {
            Ok(marks) => self.write_marks(&record.node, &marks).await,
            Err(error) => {
                // The pod may come back here, as without a mark; it is moved all the same.
                warn!(node = record.node, %error, "The node is not marked");
                Ok(())
            }
        }
    }

    async fn write_marks(&self, node: &str, marks: &MovedOffAnnotation) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"metadata": {"annotations": {MOVED_OFF_ANNOTATION: marks.text()}}});
        let written = nodes.patch_metadata(node, &PatchParams::default(), &Patch::Merge(patch)).await;
        match written {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).with_context(|| format!("the node {node} is not marked")),
        }
    }

    /// Takes marks off nodes whose time is over, which also has kube-scheduler look at waiting pods again.
    async fn end_marks(&self, nodes: &[KnownNode], now: WallTime) -> Result<()> {
        for node in nodes {
            let Some(text) = &node.moved_off else { continue };
            let marks = MovedOffAnnotation::parse(text);
            let left = marks.clone().without_ended(now);
            if left != marks || left.is_empty() {
                self.write_marks(&node.name, &left).await?;
            }
        }
        Ok(())
    }

    /// Says on the Deployment what was suggested or done. An event that is not written is missing, and nothing else.
    async fn tell(&self, record: &MoveRecord, outcome: &MoveOutcome) {
        let MoveRecord { pod, node, reckoning, .. } = record;
        let (reason, action, note) = match outcome {
            MoveOutcome::Suggested => (
                "MoveSuggested",
                "Suggest",
                format!("The pod {pod} had better not be on the node {node}: {reckoning}"),
            ),
            MoveOutcome::GivenUp(why) => (
                "MoveGivenUp",
                "Evict",
                format!("The pod {pod} had better not be on the node {node}: {reckoning}; it stays: {why}"),
            ),
            MoveOutcome::Begun | MoveOutcome::Evicted | MoveOutcome::Ended => {
                ("Moved", "Evict", format!("The pod {pod} is moved off the node {node}: {reckoning}"))
            }
        };
        let event = Event {
            type_: EventType::Normal,
            reason: reason.to_owned(),
            note: Some(note.chars().take(MAX_NOTE).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        let deployment = ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("Deployment".to_owned()),
            namespace: Some(record.namespace.clone()),
            name: Some(record.workload.clone()),
            uid: Some(record.workload_uid.clone()),
            ..ObjectReference::default()
        };
        if let Err(error) = self.events.publish(&event, &deployment).await {
            self.metrics.write_errors.inc();
            warn!(%error, "An event on a move is not written");
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
