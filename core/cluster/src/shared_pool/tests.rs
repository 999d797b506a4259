use super::*;
use crate::pool::ClassSet;
use crate::pool::thresholds::Thresholds;
use crate::qos::controller::ActionQueue;
use crate::qos::{Goal, Limits, Rate};
use proptest::prelude::*;

const ANY: u32 = u32::MAX;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn class(number: u8) -> SlotClass {
    SlotClass::new(number).unwrap()
}

fn job(id: u64) -> Job {
    Job::of_one_tenant(JobId(id), NodeIndex(99), Bytes(1_000_000))
}

/// A shared pool with one node per slot class and this number of slots on each.
fn pool_of(goals: GoalPolicy, slots: &[u32], guaranteed: u32) -> SharedPool {
    let jobs = PoolPolicy::shared(Thresholds::new(Vec::new()).unwrap());
    let parameters = Parameters { jobs, most_waiting: 1000, goals, rules: GoalRules::default() };
    let mut pool = SharedPool::new(parameters);
    for (number, slots) in (0..).zip(slots) {
        for slot in 0..*slots {
            let slot = Slot { node: NodeIndex(u32::from(number)), number: SlotNumber(slot) };
            assert_eq!(pool.add_slot(slot, class(number), secs(0)), Actions::default());
        }
    }
    pool.set_tenant(TenantId(0), TenantRules::default(), guaranteed, secs(0));
    pool
}

/// Opens a group with a deadline.
fn open(pool: &mut SharedPool, id: u64, of: u8, least: u32) -> Result<Actions, GroupError> {
    let goal = Goal::Deadline { at: secs(100_000), actions: 1 };
    let new = NewGroup { tenant: TenantId(0), goal, limits: Limits::new(least, ANY).unwrap() };
    pool.open_group(GroupId(id), new, class(of), AcceleratorId(0), secs(0))
}

fn release(pool: &mut SharedPool, recalled: &[(GroupId, Slot)]) -> Vec<Actions> {
    recalled.iter().map(|(id, slot)| pool.released(*id, *slot, secs(1))).collect()
}

#[test]
fn a_group_has_the_idle_slots_until_jobs_wait_and_jobs_get_their_floor() {
    let mut pool = pool_of(GoalPolicy::Edf, &[8], ANY);
    assert_eq!(open(&mut pool, 1, 0, 1).unwrap().grown.len(), 8);
    // A job waits: the group gives back the floor of two slots, after their current actions.
    let actions = pool.submit(job(1), secs(1)).unwrap();
    assert_eq!((actions.jobs.len(), actions.recalled.len(), pool.given(GroupId(1))), (0, 2, 6));
    // The first released slot goes to the job. No other waits, so the second one goes back to the group.
    let after = release(&mut pool, &actions.recalled);
    assert_eq!((after[0].jobs.len(), after[0].grown.len()), (1, 0));
    assert_eq!((after[1].jobs.len(), after[1].grown.len()), (0, 1));
    assert_eq!(pool.given(GroupId(1)), 7);
    // The job ends: its slot is slack.
    assert_eq!(pool.finish(JobId(1), secs(2)).unwrap().grown.len(), 1);
}

#[test]
fn a_group_without_a_guarantee_has_slack_only() {
    let mut pool = pool_of(GoalPolicy::Edf, &[4], 0);
    assert!(matches!(open(&mut pool, 1, 0, 1), Err(GroupError::Open(OpenError::Guarantee { .. }))));
    assert_eq!(open(&mut pool, 1, 0, 0).unwrap().grown.len(), 4);
    let actions = pool.submit(job(1), secs(1)).unwrap();
    assert_eq!(actions.recalled.len(), 4);
    let after = release(&mut pool, &actions.recalled);
    assert_eq!(after[0].jobs.len(), 1);
    assert_eq!(after.iter().map(|actions| actions.grown.len()).sum::<usize>(), 3);
}

#[test]
fn a_groups_request_comes_before_jobs_beyond_their_floor() {
    let mut pool = pool_of(GoalPolicy::Throughput, &[4], ANY);
    for id in 1..=5 {
        pool.submit(job(id), secs(0)).unwrap();
    }
    let goal = Goal::Throughput(Rate::new(2.0).unwrap());
    let new = NewGroup { tenant: TenantId(0), goal, limits: Limits::new(2, 3).unwrap() };
    let opened = pool.open_group(GroupId(1), new, class(0), AcceleratorId(0), secs(0)).unwrap();
    // Jobs have all slots; the group gets its minimum as they become free, while a job waits.
    assert_eq!((opened, pool.given(GroupId(1))), (Actions::default(), 2));
    for id in 1..=2 {
        let actions = pool.finish(JobId(id), secs(1)).unwrap();
        assert_eq!((actions.jobs.len(), actions.grown.len()), (0, 1), "{id}");
    }
    // The others are the jobs'.
    assert_eq!(pool.finish(JobId(3), secs(2)).unwrap().jobs.len(), 1);
}

#[test]
fn groups_of_a_class_are_divided_for_themselves() {
    let mut pool = pool_of(GoalPolicy::Edf, &[4, 4], ANY);
    assert_eq!(open(&mut pool, 1, 0, 1).unwrap().grown.len(), 4);
    assert_eq!(open(&mut pool, 2, 1, 1).unwrap().grown.len(), 4);
    // A job for the second class concerns the first one not at all.
    let classes: ClassSet = [class(1)].into_iter().collect();
    let actions = pool.submit(Job { classes, ..job(1) }, secs(1)).unwrap();
    assert!(actions.recalled.iter().all(|(id, _)| *id == GroupId(2)) && !actions.recalled.is_empty());
}

#[test]
fn a_group_that_closes_gives_back_all_slots() {
    let mut pool = pool_of(GoalPolicy::Edf, &[4], ANY);
    open(&mut pool, 1, 0, 0).unwrap();
    open(&mut pool, 2, 0, 0).unwrap();
    let actions = pool.close_group(GroupId(1), secs(1));
    assert_eq!(actions.recalled.len(), 4);
    for (index, (id, slot)) in actions.recalled.iter().enumerate() {
        let after = pool.released(*id, *slot, secs(1));
        assert_eq!(after.grown, [(GroupId(2), *slot)], "{index}");
    }
    assert_eq!(pool.released(GroupId(1), actions.recalled[0].1, secs(1)), Actions::default());
    assert_eq!(pool.given(GroupId(1)), 0);
}

#[test]
fn a_job_that_does_not_use_its_slot_is_recalled_for_a_group_too() {
    let mut pool = pool_of(GoalPolicy::Edf, &[2], ANY);
    for id in 1..=2 {
        pool.submit(job(id), secs(0)).unwrap();
    }
    pool.set_use(JobId(2), Use::Unused);
    assert_eq!(pool.recallable_while_wanted(), []);
    open(&mut pool, 1, 0, 1).unwrap();
    assert_eq!(pool.recallable_while_wanted(), [JobId(2)]);
    let actions = pool.recalled(JobId(2), Bytes(1), secs(1)).unwrap();
    assert_eq!((actions.jobs.len(), actions.grown.len()), (0, 1));
}

#[test]
fn a_quota_of_slots_counts_those_of_groups() {
    let mut pool = pool_of(GoalPolicy::Edf, &[4], ANY);
    let rules = TenantRules { held_slots: 2, ..TenantRules::default() };
    pool.set_tenant(TenantId(0), rules, ANY, secs(0));
    let refused = open(&mut pool, 1, 0, 3).unwrap_err();
    assert_eq!(refused, GroupError::Quota(QuotaError::HeldSlots { wanted: 3, quota: 2 }));
    assert_eq!(open(&mut pool, 1, 0, 1).unwrap().grown.len(), 2);
    assert_eq!(pool.submit(job(1), secs(0)).unwrap().jobs, []);
}

#[test]
fn a_group_keeps_the_slots_that_it_held_before_as_far_as_it_may_have_them() {
    let mut pool = pool_of(GoalPolicy::Edf, &[2], ANY);
    assert_eq!(open(&mut pool, 1, 0, 1).unwrap().grown.len(), 2);
    let more = Slot { node: NodeIndex(0), number: SlotNumber(7) };
    assert_eq!(pool.adopt_group_slot(GroupId(1), more, secs(0)), Actions::default());
    assert_eq!((pool.given(GroupId(1)), pool.pool().class(class(0)).groups), (3, 3));
    // A job waits: the group gives back the floor.
    assert_eq!(pool.submit(job(1), secs(1)).unwrap().recalled.len(), 1);
    let held = Slot { node: NodeIndex(0), number: SlotNumber(8) };
    assert_eq!(pool.adopt_job(job(2), held, class(0), secs(1)).jobs, []);
    assert_eq!(pool.pool().class(class(0)).jobs, 1);
    assert_eq!(pool.finish_after(JobId(2), Bytes(1), secs(2)).unwrap().jobs.len(), 1);
}

#[test]
fn a_group_whose_deadline_turns_out_to_be_earlier_gets_slots_before_the_period_ends() {
    let mut pool = pool_of(GoalPolicy::Edf, &[4], ANY);
    assert_eq!(open(&mut pool, 1, 0, 0).unwrap().grown.len(), 4);
    open(&mut pool, 2, 0, 0).unwrap();
    assert_eq!((pool.given(GroupId(1)), pool.given(GroupId(2))), (4, 0));
    pool.set_goal(GroupId(2), Goal::Deadline { at: secs(50), actions: 1 });
    // Any change divides the slots anew: the group with the earlier deadline comes first.
    assert_eq!(pool.wake(secs(1)).recalled.len(), 4);
    assert_eq!((pool.given(GroupId(1)), pool.given(GroupId(2))), (0, 4));
}

#[test]
fn a_group_gives_nothing_back_before_all_slots_are_known() {
    let mut pool = pool_of(GoalPolicy::Throughput, &[], 2);
    pool.learn_slots();
    let goal = Goal::Throughput(Rate::new(1.0).unwrap());
    let new = NewGroup { tenant: TenantId(0), goal, limits: Limits::new(2, ANY).unwrap() };
    pool.reopen_group(GroupId(1), new, class(0), AcceleratorId(0), secs(0)).unwrap();
    let slot = |number| Slot { node: NodeIndex(0), number: SlotNumber(number) };
    for number in 0..3 {
        assert_eq!(pool.adopt_group_slot(GroupId(1), slot(number), secs(0)), Actions::default());
    }
    // Of three slots, one of which is for jobs, the group may have two; the fourth one is for the job.
    assert_eq!(pool.submit(job(1), secs(0)).unwrap(), Actions::default());
    assert_eq!(pool.add_slot(slot(3), class(0), secs(0)).jobs.len(), 1);
    assert_eq!(pool.submit(job(2), secs(0)).unwrap(), Actions::default());
    // All are known: beyond its guarantee of two the group has no right to a slot for which a job waits.
    assert_eq!(pool.knows_all(secs(0)).recalled, [(GroupId(1), slot(2))]);
}

#[test]
fn who_goes_on_after_its_last_byte_is_recalled_for_others_and_teaches_a_true_speed() {
    let mut pool = pool_of(GoalPolicy::Edf, &[1], 0);
    let liar = Job { size: Bytes(1), ..job(1) };
    assert_eq!(pool.submit(liar, secs(0)).unwrap().jobs.len(), 1);
    pool.set_use(JobId(1), Use::BeyondSize);
    assert_eq!(pool.recallable_while_wanted(), []);
    pool.submit(job(2), secs(1)).unwrap();
    assert_eq!(pool.recallable_while_wanted(), [JobId(1)]);
    // 100 MB in 10 s: the price of a job of 1 MB is the time of 1 MB.
    pool.finish_after(JobId(1), Bytes(100_000_000), secs(10)).unwrap();
    assert_eq!(pool.pool().price(AcceleratorId(0), Bytes(1_000_000)), 100_000_000);
}

proptest! {
    #[test]
    fn no_slot_is_held_twice_and_none_idles_that_somebody_may_have(
        edf in prop::bool::ANY, guaranteed in 0_u32..9,
        steps in prop::collection::vec((0_u8..12, 0_u64..40, 0_u32..4), 1..150),
    ) {
        let goals = if edf { GoalPolicy::Edf } else { GoalPolicy::Throughput };
        let mut pool = pool_of(goals, &[5, 3], guaranteed);
        let mut jobs: BTreeMap<JobId, Slot> = BTreeMap::new();
        let mut groups: BTreeSet<(GroupId, Slot)> = BTreeSet::new();
        let mut recalled: Vec<(GroupId, Slot)> = Vec::new();
        let mut done: BTreeMap<GroupId, u64> = BTreeMap::new();
        let mut now = secs(0);
        for (id, (what, number, least)) in (0..).zip(steps) {
            now += Duration::from_millis(number * 100);
            let running = jobs.keys().nth(usize::try_from(number).unwrap() % jobs.len().max(1)).copied();
            let actions = match what {
                0..4 => {
                    let classes = [class(0), class(1)].into_iter().skip((number % 2) as usize).collect();
                    pool.submit(Job { classes, ..job(id) }, now).unwrap()
                }
                4 | 5 if running.is_some() => {
                    let job = running.unwrap();
                    jobs.remove(&job);
                    let rest = Bytes(number % 2 * u64::from(what == 5));
                    pool.recalled(job, rest, now).unwrap()
                }
                6 => open(&mut pool, id, u8::try_from(number % 2).unwrap(), least).unwrap_or_default(),
                7 => pool.close_group(GroupId(number), now),
                8 | 9 if !recalled.is_empty() => {
                    let (id, slot) = recalled.remove(0);
                    groups.remove(&(id, slot));
                    pool.released(id, slot, now)
                }
                10 => pool.cancel(JobId(number), now),
                _ => {
                    let progress = |id: GroupId| {
                        let (devices, done) = (pool.given(id), done.get(&id).copied().unwrap_or(0));
                        let (busy, queue) = (Duration::from_millis(done * 900), ActionQueue::Filled);
                        Some(JobProgress { now, done, devices, busy, queue })
                    };
                    let all: Vec<(GroupId, Option<JobProgress>)> =
                        groups.iter().map(|(id, _)| (*id, progress(*id))).collect();
                    for (id, _) in &groups {
                        *done.entry(*id).or_default() += number;
                    }
                    let progress = |id: GroupId| all.iter().find(|(of, _)| *of == id).and_then(|(_, of)| *of);
                    pool.end_period(progress, now)
                }
            };
            for grant in actions.jobs {
                jobs.insert(grant.job, Slot { node: grant.node, number: grant.slot });
            }
            groups.extend(actions.grown);
            recalled.extend(actions.recalled);
            let held: BTreeSet<Slot> = jobs.values().copied().chain(groups.iter().map(|(_, slot)| *slot)).collect();
            prop_assert_eq!(held.len(), jobs.len() + groups.len(), "a slot held twice");
            prop_assert_eq!(held.len() + pool.pool().idle(), 8);
            for of in [class(0), class(1)] {
                let count = pool.pool().class(of);
                let idle = count.slots - count.jobs - count.groups;
                let members = pool.groups.iter().filter(|(_, group)| group.class == of);
                let lacks = members.clone().any(|(id, group)| (pool.given(*id) as usize) > group.held.len());
                prop_assert!(idle == 0 || !lacks, "a slot idles that a group may have: {:?}", count);
                let given: u32 = members.map(|(id, _)| pool.given(*id)).sum();
                prop_assert!(given <= count.slots);
                if pool.pool().is_wanted(of) {
                    // Jobs wait: groups have no more than their part, and jobs have taken theirs as far as it is idle.
                    prop_assert!(given <= GoalRules::default().floor.slots(count.slots).abs_diff(count.slots));
                    prop_assert!(given <= guaranteed);
                    prop_assert!(idle == 0 || count.jobs >= count.slots - given, "{:?} {}", count, given);
                }
            }
        }
    }
}
