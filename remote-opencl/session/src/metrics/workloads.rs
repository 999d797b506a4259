//! Metrics by workload: what owns the pod that a session is of, for example a Deployment. Whoever issues a session's token
//! says it.
//!
//! At most [`MAX_WORKLOADS`] are counted. Where another one comes, the one goes that has had no session for longest; if
//! all have sessions, the new one counts for its tenant only.

use fpga_board::dispatch::Tenant;
use fpga_board::slots::SessionId;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Maximum number of workloads that are counted.
pub const MAX_WORKLOADS: usize = 256;

/// The metrics by workload.
#[derive(Debug, Clone, Default)]
pub(super) struct Workloads {
    known: Arc<Mutex<Known>>,
    tasks: Family<WorkloadLabels, Counter>,
    device_seconds: Family<WorkloadLabels, Counter<f64, AtomicU64>>,
    queue_seconds: Family<WorkloadLabels, Counter<f64, AtomicU64>>,
}

#[derive(Debug, Default)]
struct Known {
    workloads: HashMap<WorkloadLabels, OfWorkload>,
    sessions: HashMap<SessionId, WorkloadLabels>,
    /// Number of sessions that have ended, which orders the workloads without sessions.
    ended: u64,
}

/// The counters of one workload.
#[derive(Debug, Clone)]
struct OfWorkload {
    tasks: Counter,
    device_seconds: Counter<f64, AtomicU64>,
    queue_seconds: Counter<f64, AtomicU64>,
    /// Open sessions.
    sessions: usize,
    /// [`Known::ended`] when its last session ended.
    idle_since: u64,
}

/// Labels of the metrics by workload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkloadLabels {
    tenant: String,
    workload: String,
}

/// A session that counts for its workload until this is dropped.
#[derive(Debug)]
pub struct CountedSession {
    workloads: Workloads,
    session: SessionId,
}

impl Drop for CountedSession {
    fn drop(&mut self) {
        self.workloads.leave(self.session);
    }
}

impl Workloads {
    pub(super) fn register(&self, registry: &mut Registry) {
        let Workloads { tasks, device_seconds, queue_seconds, .. } = self;
        registry.register("workload_tasks", "Tasks of a workload that have ended", tasks.clone());
        registry.register_with_unit(
            "workload_device",
            "Time in which a workload held slots, summed over the slots",
            Unit::Seconds,
            device_seconds.clone(),
        );
        registry.register_with_unit(
            "workload_queue",
            "Time in which tasks of a workload waited, summed over the tasks",
            Unit::Seconds,
            queue_seconds.clone(),
        );
    }

    /// Counts a session's tasks for the tenant's `workload` from now on.
    pub(super) fn enter(&self, session: SessionId, tenant: &Tenant, workload: &str) -> CountedSession {
        let labels = WorkloadLabels { tenant: tenant.as_str().to_owned(), workload: workload.to_owned() };
        let mut known = self.known.lock();
        if !known.workloads.contains_key(&labels) && known.workloads.len() >= MAX_WORKLOADS {
            self.forget_one(&mut known);
        }
        let is_known = known.workloads.contains_key(&labels);
        if is_known || known.workloads.len() < MAX_WORKLOADS {
            let of = known.workloads.entry(labels.clone()).or_insert_with(|| OfWorkload {
                tasks: self.tasks.get_or_create(&labels).clone(),
                device_seconds: self.device_seconds.get_or_create(&labels).clone(),
                queue_seconds: self.queue_seconds.get_or_create(&labels).clone(),
                sessions: 0,
                idle_since: 0,
            });
            of.sessions += 1;
            known.sessions.insert(session, labels);
        }
        CountedSession { workloads: self.clone(), session }
    }

    /// Forgets the workload that has had no session for longest.
    fn forget_one(&self, known: &mut Known) {
        let idle = known.workloads.iter().filter(|(_, of)| of.sessions == 0);
        let Some(labels) = idle.min_by_key(|(_, of)| of.idle_since).map(|(labels, _)| labels.clone()) else {
            return;
        };
        known.workloads.remove(&labels);
        self.tasks.remove(&labels);
        self.device_seconds.remove(&labels);
        self.queue_seconds.remove(&labels);
    }

    fn leave(&self, session: SessionId) {
        let mut known = self.known.lock();
        known.ended += 1;
        let ended = known.ended;
        let Some(labels) = known.sessions.remove(&session) else { return };
        if let Some(of) = known.workloads.get_mut(&labels) {
            of.sessions = of.sessions.saturating_sub(1);
            of.idle_since = ended;
        }
    }

    /// Counts a task of the session that has ended.
    pub(super) fn task(&self, session: SessionId, waited: Duration, held: Duration) {
        let known = self.known.lock();
        let Some(of) = known.sessions.get(&session).and_then(|labels| known.workloads.get(labels)) else {
            return;
        };
        of.tasks.inc();
        of.queue_seconds.inc_by(waited.as_secs_f64());
        of.device_seconds.inc_by(held.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lines(workloads: &Workloads) -> Vec<String> {
        let mut registry = Registry::default();
        workloads.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let tasks = text.lines().filter(|line| line.starts_with("workload_tasks_total"));
        tasks.map(str::to_owned).collect()
    }

    #[test]
    fn tasks_count_for_the_workload_of_their_session_until_it_has_ended() {
        let workloads = Workloads::default();
        let shop = Tenant::new("shop");
        let first = workloads.enter(SessionId(1), &shop, "sobel");
        let second = workloads.enter(SessionId(2), &shop, "sobel");
        for session in [1, 2, 3] {
            workloads.task(SessionId(session), SECOND, SECOND);
        }
        drop(first);
        workloads.task(SessionId(1), SECOND, SECOND);
        assert_eq!(lines(&workloads), ["workload_tasks_total{tenant=\"shop\",workload=\"sobel\"} 2"]);
        drop(second);
        assert_eq!(lines(&workloads).len(), 1, "what was counted stays");
    }

    #[test]
    fn a_new_workload_takes_the_place_of_the_one_without_sessions_for_longest() {
        let workloads = Workloads::default();
        let tenant = Tenant::new("shop");
        let mut sessions: Vec<CountedSession> = (0..MAX_WORKLOADS as u64)
            .map(|number| workloads.enter(SessionId(number), &tenant, &format!("job-{number}")))
            .collect();
        let late = workloads.enter(SessionId(5_000), &tenant, "late");
        workloads.task(SessionId(5_000), SECOND, SECOND);
        assert!(!lines(&workloads).iter().any(|line| line.contains("late")), "all have sessions");
        drop(late);
        // The third ends before the first.
        drop(sessions.remove(2));
        drop(sessions.remove(0));
        let _next = workloads.enter(SessionId(5_001), &tenant, "next");
        let lines = lines(&workloads);
        let has = |name: &str| lines.iter().any(|line| line.contains(&format!("workload=\"{name}\"")));
        assert!(has("next") && has("job-0") && !has("job-2"), "{lines:?}");
        assert_eq!(lines.len(), MAX_WORKLOADS);
    }
}
