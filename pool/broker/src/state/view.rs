//! What people see of a pool.

use super::State;
use fpga_board::dispatch::Tenant;
use fpga_core::units::Moment;
use fpga_pool_api::limits::MAX_VIEW_JOBS;
use fpga_pool_api::v1;
use fpga_pool_leases::broker::{LeaseStage, Role, SlotRecord, WaitingJob};
use std::collections::BTreeMap;

/// Who looks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Viewer {
    /// Sees everything.
    Operator,
    /// Sees the slots, and the jobs of this tenant.
    Tenant(Tenant),
}

impl State {
    /// What a viewer sees of the pool. Ids of leases are secrets, and are not there.
    #[must_use]
    pub fn view(&self, viewer: &Viewer, now: Moment) -> v1::Pool {
        let term = match self.broker.role() {
            Role::Active { term } | Role::Settling { term, .. } => term.0,
            Role::Standby | Role::Swapping => 0,
        };
        let sees = |tenant: &Tenant| match viewer {
            Viewer::Operator => true,
            Viewer::Tenant(own) => own == tenant,
        };
        let mut slots: BTreeMap<_, Vec<v1::SlotView>> = BTreeMap::new();
        for (manager, _, record) in self.broker.slots() {
            slots.entry(manager).or_default().push(self.slot_view(record, sees));
        }
        let boards = self.boards.iter().map(|(manager, lent)| v1::LentBoard {
            board: Some(lent.board.clone().into()),
            slots: slots.remove(manager).unwrap_or_default(),
        });
        let mut jobs: Vec<WaitingJob<'_>> = self.broker.jobs().filter(|job| sees(job.tenant)).collect();
        let waiting = jobs.len() as u64;
        let order = |job: &WaitingJob<'_>| (job.first_arrival, job.id);
        // The first ones alone are shown, and so sorted: others may be a hundred times as many.
        if jobs.len() > MAX_VIEW_JOBS {
            jobs.select_nth_unstable_by_key(MAX_VIEW_JOBS, order);
            jobs.truncate(MAX_VIEW_JOBS);
        }
        jobs.sort_unstable_by_key(order);
        let job_view = |job: WaitingJob<'_>| {
            let explanation = self.policy.explanation(job.id);
            v1::WaitingJob {
                job: job.id.0.to_be_bytes().to_vec(),
                tenant: job.tenant.as_str().to_owned(),
                accelerator: job.wanted.accelerator.as_ref().to_owned(),
                work: Some(job.wanted.work.into()),
                home: self
                    .jobs
                    .get(&job.id)
                    .and_then(|origin| origin.home.as_deref())
                    .unwrap_or_default()
                    .to_owned(),
                first_arrival_ms: job.first_arrival.0,
                ahead: explanation.as_ref().map_or(0, |explanation| explanation.ahead),
                reason: explanation.map(|explanation| explanation.reason).unwrap_or_default(),
            }
        };
        v1::Pool {
            term,
            classes: self.policy.class_views(),
            boards: boards.collect(),
            tenants: self.policy.tenant_views(|tenant| sees(&Tenant::new(tenant))),
            jobs: jobs.into_iter().map(job_view).collect(),
            waiting,
            groups: self.policy.group_views(now, |tenant| sees(&Tenant::new(tenant))),
        }
    }

    fn slot_view(&self, record: &SlotRecord, sees: impl Fn(&Tenant) -> bool) -> v1::SlotView {
        let lease = match record {
            SlotRecord::Preparing(lease) | SlotRecord::Leased { lease, .. } => Some(lease),
            SlotRecord::Free | SlotRecord::Unknown | SlotRecord::Bad => None,
        };
        let state = state_name(record).to_owned();
        let Some(lease) = lease.filter(|lease| sees(&lease.tenant)) else {
            return v1::SlotView { state, ..v1::SlotView::default() };
        };
        let tenant = lease.tenant.as_str();
        v1::SlotView {
            state,
            tenant: tenant.to_owned(),
            job: lease.job.0.to_be_bytes().to_vec(),
            accelerator: self.catalog.accelerator(tenant, &lease.digest).unwrap_or_default().to_owned(),
            work: Some(lease.work.into()),
        }
    }
}

/// The name of a slot's state in views and metrics.
fn state_name(record: &SlotRecord) -> &'static str {
    match record {
        SlotRecord::Free => "free",
        SlotRecord::Preparing(_) => "preparing",
        SlotRecord::Leased { stage: LeaseStage::Reserved, .. } => "reserved",
        SlotRecord::Leased { stage: LeaseStage::Busy, .. } => "busy",
        SlotRecord::Leased { stage: LeaseStage::Idle, .. } => "idle",
        SlotRecord::Leased { stage: LeaseStage::Draining, .. } => "draining",
        SlotRecord::Unknown => "unknown",
        SlotRecord::Bad => "bad",
    }
}

impl State {
    /// Sets the metrics that show the present.
    pub(super) fn update_metrics(&self, now: Moment) {
        let mut slots: BTreeMap<(String, &'static str), i64> = BTreeMap::new();
        for (manager, _, record) in self.broker.slots() {
            let kind = self.boards.get(&manager).map_or("", |lent| lent.board.kind.as_ref());
            *slots.entry((kind.to_owned(), state_name(record))).or_default() += 1;
        }
        self.metrics.set_slots(slots);
        let tenants = self.policy.tenant_views(|_| true);
        self.metrics.set_tenants(tenants.into_iter().map(|of| (of.tenant, of.waiting, of.held)));
        let groups = self.policy.group_views(now, |_| true);
        self.metrics.set_groups(groups.into_iter().map(|group| (group.outlook(), group.tenant)));
        self.metrics.set_longest_wait(self.broker.jobs().map(|job| now.wall - job.first_arrival).max());
    }
}
