//! The groups of a scenario, and what became of their goals.

use super::Scenario;
use super::engine::{Goals, GroupArrival, GroupRecord};
use super::measures::Estimate;
use super::options::{FloorName, GoalPolicyName, GroupOptions, PolicyName};
use crate::error::ScenarioError;
use crate::outcome::{Table, number_short};
use fpga_cluster::pool::TenantId;
use fpga_cluster::qos::groups::GoalPolicy;
use fpga_cluster::qos::rules::{Floor, GoalRules, Margin};
use fpga_cluster::qos::{Goal, Limits, Rate};
use std::time::Duration;

/// Longest time in a scenario, in seconds.
const MOST_SECONDS: f64 = 1e7;
/// Most groups of a scenario, and most actions of a group.
const MOST_GROUPS: usize = 1000;
const MOST_ACTIONS: u64 = 10_000_000;

impl Scenario {
    /// How groups pursue their goals.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if options are out of range.
    pub fn goals(&self) -> Result<Goals, ScenarioError> {
        let options = self.goals;
        let rules = GoalRules::default();
        let margin = options.margin.map_or(Ok(rules.margin), Margin::new);
        let margin = margin.map_err(|error| ScenarioError::invalid(error.to_string()))?;
        let floor = match options.floor {
            FloorName::Quarter => Floor::Quarter,
            FloorName::None => Floor::None,
        };
        let policy = match options.policy {
            GoalPolicyName::Throughput => GoalPolicy::Throughput,
            GoalPolicyName::Edf => GoalPolicy::Edf,
        };
        Ok(Goals {
            policy,
            rules: GoalRules { margin, floor, ..rules },
            period: nanos_above_0(options.period_s, "goals.period_s")?,
        })
    }

    /// The groups in the order of their arrival.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if options are out of range, a group does not have exactly one goal, or the order is wrong.
    pub fn groups(&self) -> Result<Vec<GroupArrival>, ScenarioError> {
        if self.groups.len() > MOST_GROUPS {
            return Err(ScenarioError::invalid(format!("at most {MOST_GROUPS} `[[groups]]` are simulated")));
        }
        let groups: Vec<GroupArrival> =
            self.groups.iter().map(|group| self.group(group)).collect::<Result<_, _>>()?;
        if !groups.is_sorted_by_key(|group| group.at) {
            return Err(ScenarioError::invalid(
                "`[[groups]]` stand in the order in which they come (`at_s`)",
            ));
        }
        Ok(groups)
    }

    fn group(&self, group: &GroupOptions) -> Result<GroupArrival, ScenarioError> {
        let wrong = |what: &str| ScenarioError::invalid(format!("group {}: {what}", group.name));
        if !(1..=MOST_ACTIONS).contains(&group.actions) {
            return Err(wrong(&format!("`actions` must be 1 to {MOST_ACTIONS}")));
        }
        let goal = match (group.deadline_s, group.per_second) {
            (Some(deadline), None) => {
                let at = Duration::from_nanos(nanos_above_0(deadline, "deadline_s")?);
                Goal::Deadline { at, actions: group.actions }
            }
            (None, Some(rate)) => {
                Goal::Throughput(Rate::new(rate).map_err(|error| wrong(&error.to_string()))?)
            }
            _ => return Err(wrong("a group has a goal: either `deadline_s` or `per_second`")),
        };
        if self.goals.policy == GoalPolicyName::Edf && group.deadline_s.is_none() {
            return Err(wrong("`goals.policy = \"edf\"` knows no throughput: write `deadline_s`"));
        }
        let limits = Limits::new(group.least, group.most.unwrap_or(u32::MAX));
        Ok(GroupArrival {
            at: nanos(group.at_s, "at_s")?,
            tenant: self.tenant_of(group).ok_or_else(|| wrong("`tenant` names one of `[[tenants]]`"))?,
            goal,
            limits: limits.map_err(|error| wrong(&error.to_string()))?,
            actions: group.actions,
            action: nanos_above_0(group.action_ms / 1e3, "action_ms")?,
        })
    }

    fn tenant_of(&self, group: &GroupOptions) -> Option<TenantId> {
        match &group.tenant {
            None => self.tenants.is_empty().then_some(TenantId(0)),
            Some(name) => {
                let (id, _) =
                    (0..).map(TenantId).zip(&self.tenants).find(|(_, tenant)| tenant.name == *name)?;
                Some(id)
            }
        }
    }
}

/// The table of what became of the groups' goals: a row for each point, policy, and group.
pub(super) fn table(
    scenario: &Scenario,
    groups: &[GroupArrival],
    points: &[&[f64]],
    policies: &[PolicyName],
    seeds: usize,
    runs: &[Vec<GroupRecord>],
) -> Table {
    let mut columns: Vec<String> = scenario.vary.iter().map(|vary| vary.parameter.to_string()).collect();
    let heads = ["policy", "group", "goal", "end, s", "actions/s", "slots, mean", "goal met"];
    columns.extend(heads.map(str::to_owned));
    let mut rows = Vec::new();
    let rows_of = points.iter().flat_map(|values| policies.iter().map(move |policy| (values, policy)));
    for ((values, policy), runs) in rows_of.zip(runs.chunks(seeds.max(1))) {
        for (number, (named, group)) in scenario.groups.iter().zip(groups).enumerate() {
            let ended: Vec<Ended> =
                runs.iter().filter_map(|run| Ended::of(group, *run.get(number)?)).collect();
            let each = |of: fn(&Ended) -> f64, digits| match ended.as_slice() {
                [] => "-".to_owned(),
                ended => Estimate::of(&ended.iter().map(of).collect::<Vec<_>>()).text(digits),
            };
            let refused = runs.len() - ended.len();
            let met = ended.iter().filter(|ended| ended.is_met).count();
            let refused = if refused == 0 { String::new() } else { format!(", {refused} refused") };
            let mut row: Vec<String> = values.iter().map(|value| number_short(*value)).collect();
            row.extend([policy.to_string(), named.name.clone(), goal_text(group.goal)]);
            row.extend([
                each(|ended| ended.end, 1),
                each(|ended| ended.per_second, 2),
                each(|ended| ended.slots, 2),
                format!("{met} of {}{refused}", runs.len()),
            ]);
            rows.push(row);
        }
    }
    Table { title: "What became of the goals".to_owned(), columns, rows }
}

/// What became of a group that opened.
struct Ended {
    /// Seconds from the beginning of the run to the last action's end.
    end: f64,
    per_second: f64,
    /// Mean number of slots that the group had.
    slots: f64,
    is_met: bool,
}

impl Ended {
    fn of(group: &GroupArrival, record: GroupRecord) -> Option<Self> {
        let GroupRecord::Ended { at, slot_time } = record else { return None };
        let lasted = at - group.at;
        let per_second = group.actions as f64 / (lasted as f64 / 1e9);
        let is_met = match group.goal {
            Goal::Deadline { at: deadline, .. } => Duration::from_nanos(at) <= deadline,
            Goal::Throughput(rate) => per_second >= rate.per_second(),
        };
        Some(Self { end: at as f64 / 1e9, per_second, slots: slot_time as f64 / lasted as f64, is_met })
    }
}

fn goal_text(goal: Goal) -> String {
    match goal {
        Goal::Deadline { at, actions } => {
            format!("{actions} by {} s", number_short(at.as_secs_f64()))
        }
        Goal::Throughput(rate) => format!("{}/s", number_short(rate.per_second())),
    }
}

/// Converts seconds of a scenario to nanoseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just before")]
fn nanos(seconds: f64, what: &str) -> Result<u64, ScenarioError> {
    if (0.0..=MOST_SECONDS).contains(&seconds) {
        Ok((seconds * 1e9).round() as u64)
    } else {
        Err(ScenarioError::invalid(format!("`{what}` must be 0 to {MOST_SECONDS} seconds")))
    }
}

fn nanos_above_0(seconds: f64, what: &str) -> Result<u64, ScenarioError> {
    match nanos(seconds, what)? {
        0 => Err(ScenarioError::invalid(format!("`{what}` must be above 0"))),
        nanos => Ok(nanos),
    }
}

#[cfg(test)]
mod tests;
