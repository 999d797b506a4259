//! The tenants of a scenario, and what each of them got.

use super::Scenario;
use super::engine::{Record, Tenant};
use super::measures::{Estimate, Measures};
use super::options::PolicyName;
use crate::error::ScenarioError;
use crate::outcome::{Table, number_short};
use fpga_cluster::pool::TenantId;
use fpga_cluster::pool::tenants::TenantRules;
use std::num::NonZeroU32;

/// What a tenant got in a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TenantMeasures {
    /// ACT: mean time from arrival to end of the tenant's jobs, in seconds; not a number without any.
    pub act: f64,
    /// TCT: 95th percentile of the same.
    pub tct: f64,
    /// Share of all slot time.
    pub slot_time: f64,
    /// Share of the slot time in which all tenants had waiting jobs; not a number if there was none.
    pub contended: f64,
    /// The most slots that the tenant held at the same time.
    pub most_slots: u32,
}

impl Scenario {
    /// What the tenants may have, by [`TenantId`].
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if options are out of range.
    pub fn tenants_of_pool(&self) -> Result<Vec<Tenant>, ScenarioError> {
        let mut tenants = Vec::with_capacity(self.tenants.len());
        for (number, tenant) in self.tenants.iter().enumerate() {
            if self.tenants.iter().take(number).any(|other| other.name == tenant.name) {
                return Err(ScenarioError::invalid(format!("two `tenants` have the name {}", tenant.name)));
            }
            let arrivals = tenant.arrivals;
            let (Some(weight), Some(held_slots), true) = (
                NonZeroU32::new(tenant.weight),
                NonZeroU32::new(tenant.held_slots.unwrap_or(u32::MAX)),
                arrivals.is_finite() && arrivals >= 0.0,
            ) else {
                return Err(ScenarioError::invalid(format!(
                    "tenant {}: `weight` and `held_slots` must be at least 1, and `arrivals` at least 0",
                    tenant.name
                )));
            };
            let rules = TenantRules { weight, held_slots: held_slots.get(), ..TenantRules::default() };
            tenants.push(Tenant { rules, guaranteed_slots: tenant.guaranteed_slots });
        }
        if !self.tenants.is_empty() && self.tenants.iter().all(|tenant| tenant.arrivals == 0.0) {
            return Err(ScenarioError::invalid("one of the `tenants` must have `arrivals` above 0"));
        }
        Ok(tenants)
    }

    /// The tenant of a job; `unit` is uniformly distributed in [0, 1).
    pub(super) fn tenant_at(&self, unit: f64) -> TenantId {
        let mut left = unit * self.tenants.iter().map(|tenant| tenant.arrivals).sum::<f64>();
        for (number, tenant) in (0..).zip(&self.tenants) {
            if left < tenant.arrivals {
                return TenantId(number);
            }
            left -= tenant.arrivals;
        }
        TenantId(u32::try_from(self.tenants.len()).unwrap_or(0).saturating_sub(1))
    }
}

/// A moment at which a job arrives, starts, or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    at: u64,
    tenant: usize,
    waiting: i64,
    running: i64,
}

/// The jobs of a tenant at a moment, and its slot time until then, in job nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Course {
    waiting: i64,
    running: i64,
    most: i64,
    slot_time: i128,
    contended: i128,
}

impl TenantMeasures {
    /// What each of so many tenants got.
    #[must_use]
    pub fn of_all(records: &[Record], tenants: usize) -> Vec<Self> {
        let courses = courses(records, tenants);
        let share = |of: &dyn Fn(&Course) -> i128, course: &Course| {
            of(course) as f64 / courses.iter().map(of).sum::<i128>() as f64
        };
        let measures = courses.iter().zip(0..).map(|(course, number)| {
            let own = records.iter().filter(|record| record.job.tenant == TenantId(number));
            let own: Vec<Record> = own.copied().collect();
            let Measures { act, tct, .. } = Measures::of(&own);
            let known = |value| if own.is_empty() { f64::NAN } else { value };
            Self {
                act: known(act),
                tct: known(tct),
                slot_time: share(&|course| course.slot_time, course),
                contended: share(&|course| course.contended, course),
                most_slots: u32::try_from(course.most).unwrap_or(0),
            }
        });
        measures.collect()
    }
}

/// Follows the jobs of all tenants from event to event.
fn courses(records: &[Record], tenants: usize) -> Vec<Course> {
    let mut changes = Vec::with_capacity(3 * records.len());
    for record in records {
        let tenant = record.job.tenant.0 as usize;
        let change = |at, waiting, running| Change { at, tenant, waiting, running };
        changes.push(change(record.job.at, 1, 0));
        changes.push(change(record.started, -1, 1));
        changes.push(change(record.ended, 0, -1));
    }
    // At one moment jobs that end come before those that start.
    changes.sort_unstable_by_key(|change| (change.at, change.running));
    let mut courses = vec![Course::default(); tenants];
    let mut now = 0;
    for change in changes {
        let passed = i128::from(change.at - now);
        now = change.at;
        let all_wait = courses.iter().all(|course| course.waiting > 0);
        for course in &mut courses {
            let slot_time = passed * i128::from(course.running);
            course.slot_time += slot_time;
            course.contended += if all_wait { slot_time } else { 0 };
        }
        if let Some(course) = courses.get_mut(change.tenant) {
            course.waiting += change.waiting;
            course.running += change.running;
            course.most = course.most.max(course.running);
        }
    }
    courses
}

/// The table of what the tenants got: a row for each point, policy, and tenant.
pub(super) fn table(
    scenario: &Scenario,
    points: &[&[f64]],
    policies: &[PolicyName],
    seeds: usize,
    runs: &[Vec<TenantMeasures>],
) -> Table {
    let mut columns: Vec<String> = scenario.vary.iter().map(|vary| vary.parameter.to_string()).collect();
    let heads =
        ["policy", "tenant", "weight", "ACT, s", "TCT, s", "slot time, %", "while all wait, %", "most slots"];
    columns.extend(heads.map(str::to_owned));
    let mut rows = Vec::new();
    let rows_of = points.iter().flat_map(|values| policies.iter().map(move |policy| (values, policy)));
    for ((values, policy), runs) in rows_of.zip(runs.chunks(seeds.max(1))) {
        for (number, tenant) in scenario.tenants.iter().enumerate() {
            let measures: Vec<&TenantMeasures> = runs.iter().filter_map(|run| run.get(number)).collect();
            let each = |of: &dyn Fn(&TenantMeasures) -> f64, digits| {
                let values: Vec<f64> = measures.iter().map(|measures| of(measures)).collect();
                let is_known = values.iter().all(|value| value.is_finite());
                if is_known { Estimate::of(&values).text(digits) } else { "-".to_owned() }
            };
            let mut row: Vec<String> = values.iter().map(|value| number_short(*value)).collect();
            row.extend([policy.to_string(), tenant.name.clone(), tenant.weight.to_string()]);
            row.extend([
                each(&|of| of.act, 3),
                each(&|of| of.tct, 3),
                each(&|of| 100.0 * of.slot_time, 1),
                each(&|of| 100.0 * of.contended, 1),
                measures.iter().map(|of| of.most_slots).max().unwrap_or(0).to_string(),
            ]);
            rows.push(row);
        }
    }
    Table { title: "What the tenants got".to_owned(), columns, rows }
}

#[cfg(test)]
mod tests;
