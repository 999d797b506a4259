//! The event loop of one run: jobs arrive, the policy sizes their groups, devices run actions.
//!
//! All working devices share the interconnect equally. Where it is full, all slow down by the same factor, so one
//! virtual clock drives all actions. Every run checks its invariants.

mod deciding;

use crate::error::ScenarioError;
use crate::random::Random;
use fpga_cluster::qos::groups::{GoalPolicy, Groups};
use fpga_cluster::qos::rules::GoalRules;
use fpga_cluster::qos::{Goal, Limits};
use std::time::Duration;

/// The simulated machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Number of devices.
    pub devices: u32,
    /// Mean duration of an action in seconds.
    pub action: f64,
    /// Greatest deviation of an action's duration, as a share of the mean.
    pub spread: f64,
    /// Actions per second that the interconnect can supply with data.
    pub most_per_second: f64,
    /// Seconds to reconfigure a device that comes from another job.
    pub reconfiguration: f64,
    /// Seed of the actions' durations.
    pub seed: u64,
}

/// A job of equal actions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// Time of arrival.
    pub at: Duration,
    /// Number of actions.
    pub actions: u64,
    /// Goal of the job.
    pub goal: Goal,
    /// Least and greatest number of devices.
    pub limits: Limits,
    /// Number of devices under [`Policy::Fixed`].
    pub fixed: u32,
}

/// How the groups are sized.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// Sizes are fixed.
    Fixed,
    /// EDF, whenever a job arrives or ends.
    EarliestDeadline,
    /// Controllers and a broker, once per period.
    Throughput {
        /// Length of a period.
        period: Duration,
        /// The rules of controllers and broker.
        rules: GoalRules,
    },
}

/// The state at a decision or at a full second.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Time in seconds.
    pub at: f64,
    /// Number of devices that each job was given.
    pub given: Vec<u32>,
    /// Number of actions that each job had done.
    pub done: Vec<u64>,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Time at which each job ended, in seconds; `None` if the job was rejected.
    pub ends: Vec<Option<f64>>,
    /// Samples of all decisions, and one sample per second.
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
struct State {
    given: u32,
    running: u32,
    sent: u64,
    done: u64,
    /// Seconds in which devices ran actions of the job, all devices together.
    busy: f64,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Coming,
    Active,
    Ended,
    Rejected,
}

/// An action that runs on a device.
#[derive(Debug, Clone, Copy)]
struct Action {
    job: usize,
    device: usize,
    /// End of the action by the virtual clock.
    ends: f64,
    length: f64,
}

struct Engine<'a> {
    machine: &'a Machine,
    policy: Policy,
    jobs: &'a [Job],
    states: Vec<State>,
    groups: Groups,
    actions: Vec<Action>,
    /// Idle devices, the lowest last; and for each device the job whose bitstream it holds.
    idle: Vec<usize>,
    holds: Vec<Option<usize>>,
    now: f64,
    virtual_now: f64,
    /// Device seconds by the virtual clock: worked, and required by the actions that ended.
    worked: f64,
    lengths: f64,
    random: Random,
    run: Run,
}

/// Most events of a run; more are considered a mistake.
const MOST_EVENTS: u64 = 200_000_000;

/// Simulates all jobs to their ends.
///
/// # Errors
/// [`ScenarioError::Invalid`] if jobs never end, [`ScenarioError::Invariant`] if an invariant was broken.
pub fn simulate(machine: &Machine, policy: Policy, jobs: &[Job]) -> Result<Run, ScenarioError> {
    let state = |_: &Job| State { given: 0, running: 0, sent: 0, done: 0, busy: 0.0, stage: Stage::Coming };
    let devices = machine.devices as usize;
    let (goal_policy, rules) = match policy {
        Policy::Throughput { rules, .. } => (GoalPolicy::Throughput, rules),
        Policy::EarliestDeadline | Policy::Fixed => (GoalPolicy::Edf, GoalRules::printed()),
    };
    let mut engine = Engine {
        machine,
        policy,
        jobs,
        states: jobs.iter().map(state).collect(),
        // The jobs have all devices for themselves.
        groups: Groups::new(goal_policy, rules, u32::MAX),
        actions: Vec::new(),
        idle: (0..devices).rev().collect(),
        holds: vec![None; devices],
        now: 0.0,
        virtual_now: 0.0,
        worked: 0.0,
        lengths: 0.0,
        random: Random::new(machine.seed, 0),
        run: Run { ends: vec![None; jobs.len()], samples: Vec::new() },
    };
    engine.run()?;
    Ok(engine.run)
}

impl Engine<'_> {
    fn run(&mut self) -> Result<(), ScenarioError> {
        let period = match self.policy {
            Policy::Throughput { period, .. } => Some(period.as_secs_f64()),
            Policy::Fixed | Policy::EarliestDeadline => None,
        };
        let (mut periods, mut seconds, mut events) = (1.0, 1.0, 0_u64);
        while self.states.iter().any(|state| matches!(state.stage, Stage::Coming | Stage::Active)) {
            events += 1;
            if events > MOST_EVENTS {
                return Err(ScenarioError::invalid("the jobs don't end: they have too few devices for ever"));
            }
            let speed = self.speed();
            let arrival = self.next_arrival();
            let action = self.actions.iter().map(|action| action.ends).min_by(f64::total_cmp);
            let ends = action.map(|ends| self.now + (ends - self.virtual_now) / speed);
            let control = period.map(|period| period * periods);
            if arrival.is_none() && ends.is_none() && control.is_none() {
                return Err(ScenarioError::invalid("a job has no devices and will never have any"));
            }
            let next = [arrival.map(|(at, _)| at), ends, control, Some(seconds)]
                .into_iter()
                .flatten()
                .fold(f64::INFINITY, f64::min);
            let step = (next - self.now).max(0.0);
            self.worked += step * speed * self.actions.len() as f64;
            for state in &mut self.states {
                state.busy += step * f64::from(state.running);
            }
            self.virtual_now = if ends == Some(next) {
                action.unwrap_or(self.virtual_now)
            } else {
                self.virtual_now + step * speed
            };
            self.now = next.max(self.now);
            let retired = self.end_actions();
            if let Some((at, job)) = arrival
                && at <= self.now
            {
                self.submit(job);
            } else if retired && self.policy == Policy::EarliestDeadline {
                self.sample();
            }
            if control.is_some_and(|control| control <= self.now) {
                periods += 1.0;
                self.control();
            }
            if seconds <= self.now {
                seconds += 1.0;
                self.sample();
            }
            self.start_actions();
            self.check()?;
        }
        if (self.worked - self.lengths).abs() > 1e-6 * self.lengths.max(1.0) {
            let what = format!("devices worked {} s for {} s of actions", self.worked, self.lengths);
            return Err(ScenarioError::Invariant(what));
        }
        Ok(())
    }

    /// The speed of the virtual clock: 1, or less where the interconnect is full.
    fn speed(&self) -> f64 {
        let wanted = self.actions.len() as f64 / self.machine.action;
        if wanted > self.machine.most_per_second { self.machine.most_per_second / wanted } else { 1.0 }
    }

    fn next_arrival(&self) -> Option<(f64, usize)> {
        let job = self.states.iter().position(|state| state.stage == Stage::Coming)?;
        self.jobs.get(job).map(|one| (one.at.as_secs_f64(), job))
    }

    /// Ends the actions that are due. Returns whether a job ended with one of them.
    fn end_actions(&mut self) -> bool {
        let mut retired = Vec::new();
        let mut index = 0;
        while let Some(action) = self.actions.get(index).copied() {
            if action.ends > self.virtual_now {
                index += 1;
                continue;
            }
            self.actions.swap_remove(index);
            self.idle.push(action.device);
            self.lengths += action.length;
            let (Some(state), Some(job)) = (self.states.get_mut(action.job), self.jobs.get(action.job))
            else {
                continue;
            };
            state.running -= 1;
            state.done += 1;
            if state.done == job.actions {
                state.stage = Stage::Ended;
                retired.push(action.job);
                if let Some(end) = self.run.ends.get_mut(action.job) {
                    *end = Some(self.now);
                }
            }
        }
        // The lowest idle device is taken first, so that runs are reproducible.
        self.idle.sort_unstable_by(|a, b| b.cmp(a));
        for job in &retired {
            self.retire(*job);
        }
        !retired.is_empty()
    }

    /// Gives idle devices to groups that have fewer than they were given, in the order of the jobs.
    fn start_actions(&mut self) {
        for job in 0..self.jobs.len() {
            let Some(actions) = self.jobs.get(job).map(|job| job.actions) else { continue };
            while let Some(state) =
                self.states.get_mut(job).filter(|one| one.running < one.given && one.sent < actions)
            {
                // Prefer an idle device that holds the job's bitstream.
                let place = self.idle.iter().rposition(|device| self.holds.get(*device) == Some(&Some(job)));
                let Some(device) = place.map(|place| self.idle.remove(place)).or_else(|| self.idle.pop())
                else {
                    return;
                };
                let Some(holds) = self.holds.get_mut(device) else { return };
                let load = if *holds == Some(job) { 0.0 } else { self.machine.reconfiguration };
                *holds = Some(job);
                state.running += 1;
                state.sent += 1;
                let spread = self.machine.spread * (2.0 * self.random.unit() - 1.0);
                let length = load + self.machine.action * (1.0 + spread);
                self.actions.push(Action { job, device, ends: self.virtual_now + length, length });
            }
        }
    }

    fn clock(&self) -> Duration {
        Duration::from_secs_f64(self.now)
    }

    fn check(&self) -> Result<(), ScenarioError> {
        let given: u32 = self.states.iter().map(|state| state.given).sum();
        let busy = self.actions.len() + self.idle.len();
        if given > self.machine.devices || busy != self.machine.devices as usize {
            let what = format!("{given} devices given and {busy} counted of {}", self.machine.devices);
            return Err(ScenarioError::Invariant(what));
        }
        let lacks = self.states.iter().zip(self.jobs).any(|(state, job)| {
            state.stage == Stage::Active && state.running < state.given && state.sent < job.actions
        });
        if lacks && !self.idle.is_empty() {
            return Err(ScenarioError::Invariant("a device idles that a group lacks".to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
