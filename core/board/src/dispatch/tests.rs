use super::policy::{DispatchPolicy, Share, Weight};
use super::*;
use crate::slots::OtherKernels;
use fpga_core::bitstream::Digest;
use proptest::prelude::*;

const A: u64 = 1;
const B: u64 = 2;
const C: u64 = 3;

fn digest(n: u8) -> Digest {
    Digest::from_bytes([n; 32])
}

fn dispatch(slots: u32) -> Dispatch {
    Dispatch::new(NonZeroU32::new(slots).unwrap())
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn task(session: u64, task: u64, bitstreams: &[u8]) -> TaskRequest {
    TaskRequest {
        session: SessionId(session),
        task: TaskId(task),
        tenant: Tenant::new("uid:0"),
        demand: Demand::of(bitstreams.iter().copied().map(digest), OtherKernels::None),
        lanes: Lanes::Any,
        kind: None,
        bytes: 0,
    }
}

fn from_source(session: u64, id: u64) -> TaskRequest {
    TaskRequest { demand: Demand::AnySlot, ..task(session, id, &[]) }
}

fn ids(grants: &[Grant]) -> Vec<u64> {
    grants.iter().map(|grant| grant.task.0).collect()
}

fn started(dispatch: &mut Dispatch, request: TaskRequest) -> bool {
    dispatch.submit(request, Duration::ZERO).unwrap().is_some()
}

#[test]
fn tasks_of_sessions_start_in_the_order_in_which_they_came() {
    let mut dispatch = dispatch(1);
    assert!(started(&mut dispatch, task(A, 1, &[1])));
    assert!(!started(&mut dispatch, task(B, 2, &[2])));
    assert!(!started(&mut dispatch, task(C, 3, &[1])), "1 is resident, but B was first");
    assert_eq!(ids(&dispatch.finish(TaskId(1), ms(1)).grants), [2]);
    assert_eq!(ids(&dispatch.finish(TaskId(2), ms(2)).grants), [3]);
}

#[test]
fn what_is_wanted_often_stays_although_another_was_wanted_later() {
    let mut dispatch = dispatch(2);
    let mut tasks = 0;
    let mut run = |bitstream: u8, at: u64| {
        tasks += 1;
        let grant = dispatch.submit(task(A, tasks, &[bitstream]), ms(at)).unwrap().unwrap();
        dispatch.finish(TaskId(tasks), ms(at + 1));
        usize::from(!grant.load.is_empty())
    };
    // Bitstream 1 is wanted every ten seconds. Between two of its uses come two of twenty others, each of which comes
    // back after 100 s. Eviction by last use alone would always evict bitstream 1.
    let mut cold = 0;
    for turn in 0..200 {
        let at = turn * 10_000;
        let loaded = run(1, at);
        cold += if turn < 100 { 0 } else { loaded };
        let stranger = u8::try_from(2 * turn % 20).unwrap();
        run(10 + stranger, at + 3_000);
        run(11 + stranger, at + 6_000);
    }
    assert!(cold <= 10, "{cold} of 100");
}

#[test]
fn a_second_copy_goes_before_what_comes_less_often() {
    let mut dispatch = dispatch(3);
    // Bitstream 1 comes twice as often as 2. It has two copies because two sessions once wanted it at the same time.
    let mut tasks = 0;
    let mut run = |sessions: &[u64], bitstream: u8, at: u64| {
        let granted = sessions.iter().map(|session| {
            tasks += 1;
            (dispatch.submit(task(*session, tasks, &[bitstream]), ms(at)).unwrap().unwrap(), tasks)
        });
        let granted: Vec<(Grant, u64)> = granted.collect();
        granted.iter().for_each(|(_, id)| drop(dispatch.finish(TaskId(*id), ms(at + 1))));
        dispatch.slots().resident().flatten().collect::<Vec<_>>()
    };
    for turn in 0..20 {
        run(&[A], 1, turn * 20_000);
        run(&[A], 2, turn * 20_000 + 5_000);
        run(&[A], 1, turn * 20_000 + 10_000);
    }
    let copies = |resident: &[Digest], of: u8| resident.iter().filter(|is| **is == digest(of)).count();
    let both = run(&[A, B], 1, 400_000);
    assert_eq!((copies(&both, 1), copies(&both, 2)), (2, 1));
    let with_third = run(&[A], 3, 400_010);
    assert_eq!([1, 2, 3].map(|of| copies(&with_third, of)), [1, 1, 1]);
}

#[test]
fn a_task_without_kernels_waits_for_nobody_else() {
    let mut dispatch = dispatch(1);
    assert!(started(&mut dispatch, task(A, 1, &[1])));
    assert!(!started(&mut dispatch, task(B, 2, &[2])));
    assert!(started(&mut dispatch, task(C, 3, &[])));
    assert!(started(&mut dispatch, task(A, 4, &[])));
    assert!(!started(&mut dispatch, task(B, 5, &[])), "its own session's order holds");
    assert_eq!(ids(&dispatch.finish(TaskId(1), ms(1)).grants), [2, 5]);
}

#[test]
fn a_session_joins_its_own_slots_while_no_other_session_waits() {
    let mut dispatch = dispatch(1);
    assert!(started(&mut dispatch, task(A, 1, &[1])));
    assert!(started(&mut dispatch, task(A, 2, &[1])));
    assert!(started(&mut dispatch, from_source(A, 3)));
    assert!(!started(&mut dispatch, task(B, 4, &[1])));
    assert!(!started(&mut dispatch, task(A, 5, &[1])), "B waits");
    let none: [u64; 0] = [];
    assert_eq!(ids(&dispatch.finish(TaskId(1), ms(1)).grants), none);
    assert_eq!(ids(&dispatch.finish(TaskId(2), ms(1)).grants), none);
    assert_eq!(ids(&dispatch.finish(TaskId(3), ms(1)).grants), [4]);
    assert_eq!(ids(&dispatch.finish(TaskId(4), ms(1)).grants), [5]);
}

#[test]
fn a_task_that_needs_more_bitstreams_than_there_are_slots_is_told_to_split() {
    let mut dispatch = dispatch(2);
    let refusal = dispatch.submit(task(A, 1, &[1, 2, 3]), Duration::ZERO).unwrap_err();
    assert_eq!(refusal, TaskRefusal::TooManyBitstreams { needed: 3, slots: 2 });
    assert!(started(&mut dispatch, task(A, 1, &[1, 2, 1])));
    assert_eq!(dispatch.submit(task(B, 1, &[]), Duration::ZERO), Err(TaskRefusal::Known(TaskId(1))));
}

#[test]
fn a_cancelled_session_frees_the_way_for_those_behind_it() {
    let mut dispatch = dispatch(2);
    assert!(started(&mut dispatch, task(A, 1, &[1])));
    assert!(!started(&mut dispatch, task(B, 2, &[2, 3])));
    assert!(!started(&mut dispatch, task(C, 3, &[4])));
    assert_eq!(ids(&dispatch.cancel(SessionId(B), ms(1))), [3]);
    assert_eq!(dispatch.waiting(), 0);
    assert_eq!(dispatch.cancel(SessionId(A), ms(1)), []);
    assert_eq!(dispatch.running_of(SessionId(A)).collect::<Vec<_>>(), [TaskId(1)], "it runs to its end");
}

#[test]
fn the_times_charged_for_a_shared_slot_add_up_to_the_time_it_was_held() {
    let mut dispatch = dispatch(1);
    dispatch.submit(task(A, 1, &[1]), ms(10)).unwrap().unwrap();
    dispatch.submit(task(A, 2, &[1]), ms(12)).unwrap().unwrap();
    let second = dispatch.finish(TaskId(2), ms(15));
    let first = dispatch.finish(TaskId(1), ms(20));
    let times = |finished: &Finished| (finished.usage[0].from, finished.usage[0].until);
    assert_eq!((times(&second), times(&first)), ((ms(10), ms(15)), (ms(15), ms(20))));
    assert_eq!(first.task.map(|task| (task.waited, task.took)), Some((ms(0), ms(10))));
    dispatch.submit(task(A, 3, &[1]), ms(30)).unwrap().unwrap();
    assert_eq!(times(&dispatch.finish(TaskId(3), ms(31))), (ms(30), ms(31)), "idle time is nobody's");
}

#[test]
fn told_progress_stays_with_its_task_and_nothing_is_charged_twice() {
    let mut dispatch = dispatch(1);
    dispatch.submit(task(A, 1, &[1]), ms(0)).unwrap().unwrap();
    dispatch.submit(task(A, 2, &[1]), ms(2)).unwrap().unwrap();
    assert_eq!(dispatch.progress(ms(10), ms(9)), []);
    let told = dispatch.progress(ms(10), ms(10));
    assert_eq!((told.len(), told[0].task, told[0].until - told[0].from), (1, TaskId(1), ms(10)));
    let second = dispatch.finish(TaskId(2), ms(15));
    assert_eq!(second.usage[0].from, second.usage[0].until, "the first has claimed it");
    let first = dispatch.finish(TaskId(1), ms(20));
    assert_eq!((first.usage[0].from, first.usage[0].until), (ms(0), ms(20)));
    assert_eq!((first.usage[0].hold, second.usage[0].hold), (told[0].hold, told[0].hold + 1));
}

#[test]
fn the_end_of_an_unknown_task_changes_nothing() {
    let mut dispatch = dispatch(1);
    assert!(started(&mut dispatch, task(A, 1, &[1])));
    assert_eq!(dispatch.finish(TaskId(9), ms(1)), Finished::default());
    assert_eq!(dispatch.slots().in_use(), 1);
}

#[test]
fn a_long_queue_is_served_in_order_and_costs_no_more_per_task() {
    let mut dispatch = dispatch(1);
    assert!(started(&mut dispatch, task(A, 1, &[1])));
    // With a cost per task that grows with the queue, this would take minutes.
    const TASKS: u64 = 200_000;
    for id in 2..=TASKS {
        let session = if id % 2 == 0 { B } else { C };
        assert!(!started(&mut dispatch, task(session, id, &[1])));
    }
    for id in 1..TASKS {
        assert_eq!(ids(&dispatch.finish(TaskId(id), ms(id)).grants), [id + 1]);
    }
    assert_eq!(dispatch.waiting(), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Submit { session: u64, bitstreams: Vec<u8>, source: bool },
    FinishOldest,
    FinishNewest,
    Cancel { session: u64 },
    Progress,
    Switch(DispatchPolicy),
}

/// Rules under which the tenants' shares differ.
fn rules(policy: DispatchPolicy) -> DispatchRules {
    let share = |n: u8| Share {
        weight: Weight::new(u32::from(n) + 1).unwrap(),
        priority: n,
        deadline: ms(u64::from(n) * 10),
    };
    let tenants = (0..3).map(|n| (Tenant::new(&format!("uid:{n}")), share(n))).collect();
    DispatchRules { tenants, ..DispatchRules::of(policy) }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4u64, prop::collection::vec(0..5u8, 0..4), any::<bool>())
            .prop_map(|(session, bitstreams, source)| Step::Submit { session, bitstreams, source }),
        1 => prop::sample::select(DispatchPolicy::ALL.to_vec()).prop_map(Step::Switch),
        3 => Just(Step::FinishOldest),
        2 => Just(Step::FinishNewest),
        1 => (0..4u64).prop_map(|session| Step::Cancel { session }),
        1 => Just(Step::Progress),
    ]
}

/// A model of the dispatch, fed with its results only.
#[derive(Default)]
struct Observer {
    policy: DispatchPolicy,
    /// Tasks submitted and not yet granted or dropped, in order.
    waiting: Vec<TaskRequest>,
    running: Vec<(Grant, Demand)>,
}

impl Observer {
    fn granted(&mut self, grants: &[Grant], resident_before: &[Option<Digest>]) {
        for grant in grants {
            let at = self.waiting.iter().position(|other| other.task == grant.task).expect("granted once");
            let request = self.waiting.remove(at);
            let overtaken = self.waiting[..at].iter();
            for other in overtaken {
                assert_ne!(other.session, grant.session, "a session's own order");
                let both = other.demand.slots() > 0 && request.demand.slots() > 0;
                assert!(
                    !both || self.policy != DispatchPolicy::Fifo,
                    "{:?} overtook {:?}",
                    request.task,
                    other.task
                );
            }
            assert_eq!(grant.slots.len(), request.demand.slots(), "all at once");
            for (running, _) in &self.running {
                if running.session != grant.session {
                    assert!(running.slots.iter().all(|slot| !grant.slots.contains(slot)), "held twice");
                }
            }
            for load in &grant.load {
                let idle = |position: usize| {
                    let slot = SlotIndex(u32::try_from(position).unwrap());
                    !self.running.iter().any(|(running, _)| running.slots.contains(&slot))
                };
                let needless = resident_before
                    .iter()
                    .enumerate()
                    .any(|(at, resident)| *resident == Some(load.bitstream) && idle(at));
                assert!(grants.len() > 1 || !needless, "reloaded although it was resident and idle");
            }
            self.running.push((grant.clone(), request.demand));
        }
    }
}

proptest! {
    #[test]
    fn no_slot_is_held_twice_none_idles_in_vain_sessions_keep_their_order_and_all_are_served(
        policy in prop::sample::select(DispatchPolicy::ALL.to_vec()),
        slots in 1..5u32,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut dispatch = dispatch(slots);
        assert_eq!(dispatch.set_rules(rules(policy), Duration::ZERO), []);
        let mut observer = Observer { policy, ..Observer::default() };
        let mut charged = Duration::ZERO;
        for (now, step) in (1..).zip(steps) {
            let now = ms(now);
            let before: Vec<_> = dispatch.slots().resident().collect();
            let grants = match step {
                Step::Submit { session, bitstreams, source } => {
                    let other = if source { OtherKernels::Some } else { OtherKernels::None };
                    let demand = Demand::of(bitstreams.into_iter().map(digest), other);
                    let id = u64::try_from(now.as_millis()).unwrap();
                    // Sessions 0 and 3 belong to tenant 0.
                    let tenant = Tenant::new(&format!("uid:{}", session % 3));
                    let kind = Some(Kind(session));
                    let request = TaskRequest { demand, tenant, kind, ..task(session, id, &[]) };
                    let too_many = request.demand.slots() > slots as usize;
                    let result = dispatch.submit(request.clone(), now);
                    prop_assert_eq!(too_many, result.is_err());
                    if too_many {
                        continue;
                    }
                    observer.waiting.push(request);
                    result.unwrap().into_iter().collect()
                }
                Step::FinishOldest | Step::FinishNewest if observer.running.is_empty() => continue,
                Step::FinishOldest => finish(&mut dispatch, &mut observer, 0, now, &mut charged),
                Step::FinishNewest => {
                    let newest = observer.running.len() - 1;
                    finish(&mut dispatch, &mut observer, newest, now, &mut charged)
                }
                Step::Progress => {
                    let told = dispatch.progress(ms(3), now);
                    prop_assert!(told.iter().all(|usage| charged + (usage.until - usage.from) <= now * slots));
                    continue;
                }
                Step::Switch(policy) => {
                    // The order changes from here on; the invariants hold across the change.
                    observer.policy = if policy == observer.policy { policy } else { DispatchPolicy::RoundRobin };
                    dispatch.set_rules(rules(policy), now)
                }
                Step::Cancel { session } => {
                    observer.waiting.retain(|request| request.session != SessionId(session));
                    dispatch.cancel(SessionId(session), now)
                }
            };
            observer.granted(&grants, &before);
            prop_assert_eq!(dispatch.waiting(), observer.waiting.len());
            prop_assert_eq!(dispatch.running(), observer.running.len());
            // The dispatch conserves work: where all waiting tasks want one slot, no slot idles.
            let wanted: Vec<_> = observer.waiting.iter().filter(|request| request.demand.slots() > 0).collect();
            if !wanted.is_empty() && wanted.iter().all(|request| request.demand.slots() == 1) {
                prop_assert_eq!(dispatch.slots().in_use(), slots as usize);
            }
            for (grant, demand) in &observer.running {
                if let Demand::Bitstreams(wanted) = demand {
                    for (slot, bitstream) in grant.slots.iter().zip(wanted.as_slice()) {
                        prop_assert_eq!(dispatch.slots().resident_in(*slot), Some(*bitstream));
                    }
                }
            }
            prop_assert!(charged <= now * slots);
        }
        let mut now = ms(1000);
        while !observer.running.is_empty() {
            now += ms(1);
            let before: Vec<_> = dispatch.slots().resident().collect();
            let grants = finish(&mut dispatch, &mut observer, 0, now, &mut charged);
            observer.granted(&grants, &before);
        }
        prop_assert_eq!((dispatch.waiting(), dispatch.slots().in_use()), (0, 0));
    }
}

fn finish(
    dispatch: &mut Dispatch,
    observer: &mut Observer,
    at: usize,
    now: Duration,
    charged: &mut Duration,
) -> Vec<Grant> {
    let (grant, _) = observer.running.remove(at);
    let finished = dispatch.finish(grant.task, now);
    assert_eq!(finished.usage.len(), grant.slots.len());
    *charged += finished.usage.iter().map(|usage| usage.until - usage.from).sum::<Duration>();
    finished.grants
}
