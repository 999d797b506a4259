//! What people and metrics see of the policy.

use super::groups::OpenGroup;
use super::{Job, Policy, Stage, pool_time};
use crate::catalog::SlotKind;
use fpga_cluster::pool::{SlotClass, TenantId};
use fpga_cluster::qos::Goal;
use fpga_cluster::qos::controller::Forecast;
use fpga_core::units::Moment;
use fpga_pool_api::v1;
use std::collections::BTreeMap;
use std::time::Duration;

impl Policy {
    /// What slots of a class have in common.
    pub(super) fn kind_of(&self, class: SlotClass) -> Option<&SlotKind> {
        self.kinds.get(super::class_index(class))?.as_ref().map(|known| &known.kind)
    }

    /// The classes of slots.
    #[must_use]
    pub fn class_views(&self) -> Vec<v1::SlotClass> {
        let classes = self.pool.pool().classes().filter_map(|(class, count)| {
            let kind = self.kind_of(class)?;
            Some(v1::SlotClass {
                kind: kind.kind.as_ref().to_owned(),
                region: kind.region.as_deref().unwrap_or_default().to_owned(),
                slots: count.slots,
                jobs: count.jobs,
                groups: count.groups,
            })
        });
        classes.collect()
    }

    /// What tenants have, of those for which `sees` is true.
    #[must_use]
    pub fn tenant_views(&self, sees: impl Fn(&str) -> bool) -> Vec<v1::TenantUse> {
        let mut waiting: BTreeMap<TenantId, u64> = BTreeMap::new();
        let waits = |job: &&Job| job.stage != Stage::Granted;
        for job in self.jobs.values().filter(waits) {
            *waiting.entry(job.tenant).or_default() += 1;
        }
        let tenants = self.tenants.iter().filter(|(_, name)| sees(name)).map(|(number, name)| {
            let tenant = TenantId(number);
            v1::TenantUse {
                tenant: name.to_owned(),
                waiting: waiting.get(&tenant).copied().unwrap_or(0),
                held: self.pool.pool().held(tenant),
            }
        });
        tenants.collect()
    }

    /// The open groups of the tenants for which `sees` is true, and what becomes of their goals.
    #[must_use]
    pub fn group_views(&self, now: Moment, sees: impl Fn(&str) -> bool) -> Vec<v1::GroupView> {
        let at = pool_time(now.now);
        let progress = self.progress(at);
        let view = |(tenant, uuid, group): (TenantId, u128, &OpenGroup)| {
            let done = progress.get(&group.id).map_or(0, |progress| progress.done);
            let forecast = self.pool.forecast(group.id, at, done);
            let kind = self.kind_of(group.class);
            v1::GroupView {
                group: uuid.to_be_bytes().to_vec(),
                tenant: self.tenants.name(tenant.0).to_owned(),
                kind: kind.map(|kind| kind.kind.as_ref().to_owned()).unwrap_or_default(),
                goal: Some(group.asked.goal.into()),
                held: group.held,
                given: self.pool.given(group.id),
                waiting: group.waiting.len() as u64,
                done,
                forecast: forecast.map(|forecast| forecast_view(forecast, at)),
                outlook: outlook(group.goal, forecast, done, at).into(),
                left_ms: match group.goal {
                    Goal::Deadline { at: deadline, .. } => millis(deadline.saturating_sub(at)),
                    Goal::Throughput(_) => 0,
                },
            }
        };
        self.groups.all().filter(|(tenant, ..)| sees(self.tenants.name(tenant.0))).map(view).collect()
    }
}

/// Whether a goal is reached: a deadline by its own time, without the margin.
fn outlook(goal: Goal, forecast: Option<Forecast>, done: u64, now: Duration) -> v1::Outlook {
    let kept = |is_kept: bool| if is_kept { v1::Outlook::Kept } else { v1::Outlook::Missed };
    match (goal, forecast) {
        (Goal::Deadline { actions, .. }, _) if done >= actions => v1::Outlook::Kept,
        (Goal::Deadline { at, .. }, _) if now >= at => v1::Outlook::Missed,
        (Goal::Deadline { at, .. }, Some(Forecast::Done(done))) => kept(done <= at),
        (Goal::Throughput(goal), Some(Forecast::PerSecond(rate))) => kept(rate >= goal.per_second()),
        _ => v1::Outlook::Unspecified,
    }
}

fn forecast_view(forecast: Forecast, now: Duration) -> v1::Forecast {
    let kind = match forecast {
        Forecast::Done(at) => v1::forecast::Kind::DoneInMs(millis(at.saturating_sub(now))),
        Forecast::PerSecond(rate) => v1::forecast::Kind::ActionsPerHour(per_hour(rate)),
    };
    v1::Forecast { kind: Some(kind) }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; `as` saturates")]
fn per_hour(per_second: f64) -> u64 {
    (per_second * 3600.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_cluster::qos::Rate;

    #[test]
    fn a_goal_is_missed_by_its_forecast_or_when_its_time_is_over() {
        let secs = Duration::from_secs;
        let deadline = Goal::Deadline { at: secs(100), actions: 10 };
        let of = |forecast, done, now| outlook(deadline, forecast, done, secs(now));
        assert_eq!(of(None, 0, 1), v1::Outlook::Unspecified);
        assert_eq!(of(Some(Forecast::Done(secs(100))), 1, 1), v1::Outlook::Kept);
        assert_eq!(of(Some(Forecast::Done(secs(101))), 1, 1), v1::Outlook::Missed);
        assert_eq!(of(None, 9, 100), v1::Outlook::Missed);
        assert_eq!(of(None, 10, 200), v1::Outlook::Kept);
        let throughput = Goal::Throughput(Rate::new(2.0).unwrap());
        let of = |rate| outlook(throughput, Some(Forecast::PerSecond(rate)), 0, secs(1));
        assert_eq!((of(2.0), of(1.9)), (v1::Outlook::Kept, v1::Outlook::Missed));
    }
}
