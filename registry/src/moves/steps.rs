//! The steps of a move that is in the records. Each may be done again.

use super::deletion_cost::DeletionCost;
use super::events::Events;
use super::marks::Marks;
use super::replicas::{Looked, Replicas, Restored};
use super::settings::{MoveMode, MoveSettings, NewBeforeOld};
use super::workloads::{self, Recovery};
use anyhow::{Context as _, Result};
use fpga_cluster::moves::new_first::{NextStep, Raised, TimeLeft};
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use fpga_registry_api::{MoveOutcome, MoveRecord, ReplicasBefore, evict};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use std::time::{Instant, SystemTime};

/// Age at which a move that was begun and not done is given up: the cluster may be another by then.
const LATEST: Millis = Millis::from_secs(120);

/// Does the steps of moves.
pub(super) struct Steps {
    client: Client,
    settings: MoveSettings,
    /// Marks of nodes.
    pub marks: Marks,
    replicas: Replicas,
    cost: DeletionCost,
    started: Instant,
}

/// The answer of the Eviction API.
enum Eviction {
    /// The pod is gone or about to go.
    Done,
    /// The pod stays, for this reason.
    Refused(String),
}

impl Steps {
    pub fn new(client: Client, settings: MoveSettings) -> Self {
        let marks = Marks::new(client.clone(), settings.moved_off_time);
        let (replicas, cost) = (Replicas::new(client.clone()), DeletionCost::new(client.clone()));
        Self { client, settings, marks, replicas, cost, started: Instant::now() }
    }

    /// The moment of now.
    pub fn moment(&self) -> Moment {
        let now = MonotonicTime::after(self.started.elapsed());
        Moment { now, wall: WallTime::of(SystemTime::now()) }
    }

    /// Does what is left of a move that was begun; `None` if it waits.
    pub async fn go_on(&self, record: &MoveRecord, all: &[MoveRecord]) -> Result<Option<MoveOutcome>> {
        if let Some(before) = record.before {
            return self.replace_first(record, before, all).await;
        }
        let age = self.moment().wall - WallTime(record.at_ms);
        Ok(Some(match self.settings.mode {
            MoveMode::Evict if age > LATEST => self.given_up_late(record, all).await?,
            MoveMode::Evict => self.finish(record, all).await?,
            MoveMode::Off | MoveMode::Suggest => MoveOutcome::GivenUp("evictions were turned off".to_owned()),
        }))
    }

    /// Does the next step of a move whose replacement comes first; `None` if the move is where it was.
    async fn replace_first(
        &self,
        record: &MoveRecord,
        before: ReplicasBefore,
        all: &[MoveRecord],
    ) -> Result<Option<MoveOutcome>> {
        let is_on =
            self.settings.mode == MoveMode::Evict && self.settings.new_before_old == NewBeforeOld::Allowed;
        let is_late = self.moment().wall - WallTime(record.at_ms) > self.settings.recovery;
        let time = if is_on && !is_late { TimeLeft::Some } else { TimeLeft::None };
        let looked = self.replicas.look(record, before, time).await;
        let Looked { seen, why, version } = match looked {
            // The rights have gone with the setting.
            Err(error) if !is_on && is_forbidden(&error) => return Ok(Some(not_restored(before))),
            looked => looked?,
        };
        Ok(match seen.next() {
            NextStep::Raise => {
                self.marks.set(record, self.moment().wall).await?;
                self.cost.lower(record).await?;
                self.replicas.raise(record, before, version.as_deref()).await?;
                Some(MoveOutcome::Raised)
            }
            NextStep::Wait => (record.outcome == MoveOutcome::Begun).then_some(MoveOutcome::Raised),
            NextStep::Evict => match self.evict(record).await? {
                Eviction::Done => Some(self.restored(record, before, MoveOutcome::Evicted).await?),
                // A budget may count the new pod a moment later.
                Eviction::Refused(_) => None,
            },
            NextStep::Restore => Some(self.restored(record, before, MoveOutcome::Evicted).await?),
            NextStep::GiveUp => {
                if self.settings.mode == MoveMode::Evict {
                    self.marks.take_back(record, all, self.moment().wall).await?;
                }
                self.cost.take_back(record).await?;
                let why = match (is_on, seen.raised, seen.others_ready >= seen.ready_before) {
                    (false, ..) => "such moves were turned off".to_owned(),
                    (true, Raised::Otherwise, _) => "somebody else changed the number of replicas".to_owned(),
                    (true, _, true) => "the Eviction API did not let it go in time".to_owned(),
                    (true, _, false) => format!("its replacement is not Ready: {why}"),
                };
                Some(self.restored(record, before, MoveOutcome::GivenUp(why)).await?)
            }
        })
    }

    /// Gives the Deployment its number of replicas back, after which the move has come to `outcome`.
    async fn restored(
        &self,
        record: &MoveRecord,
        before: ReplicasBefore,
        outcome: MoveOutcome,
    ) -> Result<MoveOutcome> {
        Ok(match self.replicas.restore(record, before).await? {
            Restored::Yes => outcome,
            Restored::Forbidden => not_restored(before),
        })
    }

    /// What became of a move whose pod is gone, if that is something new.
    pub async fn recovered(
        &self,
        record: &MoveRecord,
        all: &[MoveRecord],
        events: &Events,
    ) -> Result<Option<MoveOutcome>> {
        let is_late = self.moment().wall - WallTime(record.at_ms) > self.settings.recovery;
        match workloads::recovery(&self.client, record).await? {
            Recovery::Complete => Ok(Some(MoveOutcome::Ended)),
            Recovery::Waiting(why) if is_late && record.outcome == MoveOutcome::Evicted => {
                // An eviction can't be undone, but nothing keeps the replacement off the node any more.
                if self.settings.mode == MoveMode::Evict {
                    self.marks.take_back(record, all, self.moment().wall).await?;
                }
                let stuck = MoveOutcome::Stuck(why);
                events.tell(record, &stuck).await;
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

    /// Marks the node and evicts the pod, if that is not done yet. Where the eviction is refused the mark is taken back.
    async fn finish(&self, record: &MoveRecord, all: &[MoveRecord]) -> Result<MoveOutcome> {
        self.marks.set(record, self.moment().wall).await?;
        match self.evict(record).await? {
            Eviction::Done => Ok(MoveOutcome::Evicted),
            Eviction::Refused(why) => {
                self.marks.take_back(record, all, self.moment().wall).await?;
                Ok(MoveOutcome::GivenUp(why))
            }
        }
    }

    async fn evict(&self, record: &MoveRecord) -> Result<Eviction> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &record.namespace);
        match evict(&pods, &record.pod, &record.pod_uid, None).await {
            Ok(()) => Ok(Eviction::Done),
            // The pod is gone, or another has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Eviction::Done),
            // Budgets and admission answer with several codes, for a pod of two budgets with 500.
            Err(kube::Error::Api(status)) => Ok(Eviction::Refused(status.message.clone())),
            Err(error) => Err(error).context("the pod is not evicted"),
        }
    }
}

/// The end of a move whose Deployment keeps one replica more.
fn not_restored(before: ReplicasBefore) -> MoveOutcome {
    MoveOutcome::GivenUp(format!(
        "the registry may not change numbers of replicas any more; it was {}",
        before.replicas
    ))
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 403)
}
