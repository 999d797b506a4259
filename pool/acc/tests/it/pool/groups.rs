//! Groups with goals.

use crate::bed::{Bed, Way};
use crate::limit;
use crate::managers::bytes;
use crate::real::RealBed;
use fpga_acc::{Action, Error, Forecast, Goal, Group, GroupRequest, Request, Statistics, wait};
use fpga_pool_leases::messages::CancelCause;
use fpga_test_kit::until;
use ring::digest::{SHA256, digest};
use std::time::Duration;

const FAST: Goal = Goal::Throughput { actions_per_hour: 3_600_000 };

fn hashes(slots: std::ops::RangeInclusive<u32>) -> GroupRequest {
    GroupRequest::new("sha-256", FAST, slots)
}

/// Inputs that differ from each other, of about a tenth of a second each.
fn inputs(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|index| bytes(1_000_000 + index)).collect()
}

fn submit(group: &Group, input: &[u8]) -> Action {
    wait(group.submit(input.to_vec()), limit()).unwrap()
}

fn submit_all(group: &Group, inputs: &[Vec<u8>]) -> Vec<Action> {
    inputs.iter().map(|input| submit(group, input)).collect()
}

/// A group that always has actions that wait.
struct Busy<'g> {
    group: &'g Group,
    inputs: Vec<Vec<u8>>,
    actions: Vec<Action>,
}

impl<'g> Busy<'g> {
    fn new(group: &'g Group) -> Self {
        Self { group, inputs: inputs(8), actions: Vec::new() }
    }

    /// Submits actions until the condition holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Statistics) -> bool) {
        let statistics = self.group.statistics();
        until(what, || {
            if statistics.borrow().waiting < 8 {
                self.actions.extend(submit_all(self.group, &self.inputs));
            }
            let now = statistics.borrow();
            if holds(&now) { Ok(()) } else { Err(now.to_string()) }
        });
    }

    /// Checks the outputs, and returns their number.
    fn end(self) -> u64 {
        let count = self.actions.len();
        assert_digests(self.actions, &self.inputs);
        count as u64
    }
}

/// Checks the outputs of actions with these inputs, again and again.
fn assert_digests(actions: Vec<Action>, inputs: &[Vec<u8>]) {
    for (action, input) in actions.into_iter().zip(inputs.iter().cycle()) {
        assert_eq!(wait(action, limit()).unwrap(), digest(&SHA256, input).as_ref());
    }
}

#[test]
fn one_queue_feeds_all_slots_of_all_managers_and_each_action_gets_its_own_output() {
    let bed = RealBed::new(&[], &[1, 1]);
    let pool = super::pool(&bed);
    let group = pool.open_group(hashes(0..=2)).unwrap();
    let mut busy = Busy::new(&group);
    busy.until("both slots work", |now| now.slots == 2 && now.under_way > 2);
    let count = busy.end();
    let end = wait(group.close(), limit()).unwrap();
    assert_eq!((end.done, end.failed, end.repeated, end.lost_slots), (count, 0, 0, 0));
    // Eight inputs have 28 bytes more than eight million.
    assert_eq!((end.input_bytes, end.output_bytes), (count / 8 * 8_000_028, count * 32));
    until("the slots are free", || bed.slots("free") == 2.0);
}

#[test]
fn a_group_gives_a_slot_to_a_job_after_the_running_action_and_takes_it_again() {
    let bed = RealBed::new(&["--goal-period", "100ms"], &[2]);
    let pool = super::pool(&bed);
    let group = pool.open_group(hashes(0..=2)).unwrap();
    let mut busy = Busy::new(&group);
    busy.until("the group has all slots", |now| now.slots == 2);
    // The floor for jobs is a slot.
    let mut job = wait(pool.open(Request::new("sha-256", 5)), limit()).unwrap();
    busy.until("the group has one slot at most", |now| now.slots <= 1);
    assert_eq!(wait(job.run(vec![7; 5]), limit()).unwrap(), digest(&SHA256, &[7; 5]).as_ref());
    busy.until("the group has all slots again", |now| now.slots == 2);
    let count = busy.end();
    let end = wait(group.close(), limit()).unwrap();
    assert_eq!((end.done, end.failed, end.lost_slots), (count, 0, 0));
}

#[test]
fn recalled_slots_lose_no_action_and_none_comes_twice() {
    let bed = Bed::new(2);
    let pool = bed.pool(Way::Tcp);
    let group = pool.open_group(hashes(0..=2)).unwrap();
    let mut busy = Busy::new(&group);
    for part in 1..5 {
        busy.until("a part is done", |now| now.done >= part * 8);
        bed.broker().recall();
    }
    let count = busy.end();
    let end = wait(group.close(), limit()).unwrap();
    assert_eq!((end.done, end.failed, end.lost_slots), (count, 0, 0));
    assert!(bed.broker().seen().wants.len() > 2, "the jobs want slots again");
}

#[test]
fn a_killed_manager_costs_a_group_only_what_is_repeated() {
    let mut bed = RealBed::new(&[], &[1, 1]);
    let pool = super::pool(&bed);
    let group = pool.open_group(hashes(0..=2)).unwrap();
    let mut busy = Busy::new(&group);
    busy.until("both slots work", |now| now.slots == 2 && now.done > 4);
    bed.managers.pop().unwrap().kill();
    busy.until("the slot is lost", |now| now.lost_slots == 1);
    let count = busy.end();
    let end = wait(group.close(), limit()).unwrap();
    assert_eq!((end.done, end.failed, end.lost_slots), (count, 0, 1));
    assert!((1..=2).contains(&end.repeated), "{}", end.repeated);
}

#[test]
fn a_deadline_is_forecast_and_what_was_reached_is_told() {
    let bed = RealBed::new(&[], &[1]);
    let pool = super::pool(&bed);
    // Far enough for a machine that has other work.
    let hour = Duration::from_secs(3_600);
    let goal = Goal::Deadline { actions: 12, within: hour };
    let group = pool.open_group(GroupRequest::new("sha-256", goal, 0..=1)).unwrap();
    let inputs: Vec<Vec<u8>> = (0..12).map(|index| bytes(3_900_000 + index)).collect();
    let actions = submit_all(&group, &inputs);
    let statistics = group.statistics();
    until("there is a forecast", || statistics.borrow().forecast.is_some());
    let forecast = statistics.borrow().forecast.unwrap();
    assert!(forecast.reaches_goal(), "{forecast}");
    assert_digests(actions, &inputs);
    let end = wait(group.wait(), limit()).unwrap();
    let Some(Forecast::Done { after, within }) = end.forecast else { panic!("{:?}", end.forecast) };
    assert!(after <= end.elapsed && within == hour, "{after:?} {end}");
}

#[test]
fn who_has_the_last_output_knows_whether_the_deadline_was_kept() {
    let bed = RealBed::new(&[], &[1]);
    let pool = super::pool(&bed);
    let goal = Goal::Deadline { actions: 1, within: Duration::from_secs(3_600) };
    let group = pool.open_group(GroupRequest::new("sha-256", goal, 0..=1)).unwrap();
    let input = vec![bytes(64)];
    assert_digests(submit_all(&group, &input), &input);
    let statistics = group.statistics().borrow().clone();
    let forecast = statistics.forecast.expect("all actions are done");
    assert!(statistics.done == 1 && forecast.reaches_goal(), "{statistics}");
}

#[test]
fn a_group_that_the_pool_can_not_serve_says_so_by_its_actions_and_at_its_end() {
    let bed = RealBed::new(&[], &[1]);
    let pool = super::pool(&bed);
    let error = |request: GroupRequest| {
        let group = pool.open_group(request).unwrap();
        let early = wait(submit(&group, &[1]), limit()).unwrap_err();
        let late = wait(submit(&group, &[1]), limit()).unwrap_err();
        assert_eq!(early.to_string(), late.to_string());
        assert_eq!(wait(group.close(), limit()).unwrap_err().to_string(), late.to_string());
        late
    };
    let many = error(hashes(5..=5));
    assert!(matches!(many, Error::Refused { why: CancelCause::Quota, .. }), "{many}");
    let unknown = error(GroupRequest::new("sobel", FAST, 0..=1));
    assert!(matches!(unknown, Error::UnknownAccelerator(_)), "{unknown}");
    let no_key = error(GroupRequest::new("aes-256-ctr", FAST, 0..=1)).to_string();
    assert!(no_key.contains("the argument key is missing"), "{no_key}");
}

#[test]
fn a_group_some_of_whose_jobs_a_quota_refuses_goes_on_and_asks_for_them_again() {
    let tenants = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&tenants, "[default]\nwaiting-jobs = 1\n").unwrap();
    let bed = RealBed::new(&["--tenants", tenants.path().to_str().unwrap()], &[2]);
    let pool = super::pool(&bed);
    let jobs = wait(pool.open_many(&Request::new("sha-256", 5), 2), limit()).unwrap();
    // One job of the group waits, and one is refused.
    let group = pool.open_group(hashes(0..=2)).unwrap();
    let statistics = group.statistics();
    until("a job of the group is refused", || {
        statistics.borrow().waits.contains("the quota of waiting jobs")
    });
    drop(jobs);
    // A group without actions is given no slots.
    let mut busy = Busy::new(&group);
    busy.until("the group has all slots", |now| now.slots == 2);
    busy.end();
    assert_eq!(wait(group.close(), limit()).unwrap().failed, 0);
}

#[test]
fn an_action_that_is_wrong_or_given_up_ends_alone_and_a_dropped_group_frees_its_slots() {
    let bed = RealBed::new(&[], &[1]);
    let pool = super::pool(&bed);
    let group = pool.open_group(hashes(0..=1)).unwrap();
    let too_long = wait(submit(&group, &bytes(4_000_064)), limit());
    assert!(matches!(too_long, Err(Error::Size { .. })), "{too_long:?}");
    let empty = wait(submit(&group, &[]), limit()).unwrap();
    assert_eq!(empty, digest(&SHA256, &[]).as_ref());
    // While a job has the slot, no action runs.
    let hold = || wait(pool.open(Request::new("sha-256", 5)), limit()).unwrap();
    let (inputs, job) = (inputs(10), hold());
    let mut actions = submit_all(&group, &inputs);
    drop(actions.split_off(5));
    drop(job);
    assert_digests(actions, &inputs[..5]);
    let end = wait(group.wait(), limit()).unwrap();
    assert_eq!((end.done, end.failed), (6, 6));
    let job = hold();
    let action = submit(&group, &inputs[0]);
    drop(group);
    assert!(matches!(wait(action, limit()), Err(Error::Cancelled)));
    drop(job);
    let other = pool.open_group(hashes(0..=1)).unwrap();
    let mut busy = Busy::new(&other);
    busy.until("the other group has the slot", |now| now.slots == 1);
    let actions = busy.actions;
    drop(other);
    until("the slot is free", || bed.slots("free") == 1.0);
    drop(actions);
}
