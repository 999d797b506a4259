use super::super::policy::{DispatchPolicy, DispatchRules};
use super::super::{Dispatch, Grant, Kind, Lanes, TaskId, TaskRequest, Tenant};
use crate::slots::{Demand, OtherKernels, SessionId};
use fpga_core::bitstream::Digest;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

const A: u64 = 1;
/// Interval of the calls to `start_stalled`, in ms.
const INTERVAL: u64 = 10;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn dispatch(slots: u32, policy: DispatchPolicy) -> Dispatch {
    let mut dispatch = Dispatch::new(NonZeroU32::new(slots).unwrap());
    dispatch.set_rules(DispatchRules::of(policy), Duration::ZERO);
    dispatch
}

fn request(session: u64, task: u64, lanes: Lanes) -> TaskRequest {
    TaskRequest {
        session: SessionId(session),
        task: TaskId(task),
        tenant: Tenant::new(&format!("uid:{session}")),
        demand: Demand::of([Digest::from_bytes([u8::try_from(session).unwrap(); 32])], OtherKernels::None),
        lanes,
        kind: Some(Kind(session)),
        bytes: 0,
    }
}

fn on(queue: u64) -> Lanes {
    Lanes::of([Some(queue)])
}

fn ids(grants: &[Grant]) -> Vec<u64> {
    grants.iter().map(|grant| grant.task.0).collect()
}

/// A dispatch with a running task in each slot, session A's in the first, and one task that waits.
fn crowded(slots: u32, policy: DispatchPolicy) -> Dispatch {
    let mut dispatch = dispatch(slots, policy);
    assert!(dispatch.submit(request(A, 1, on(1)), ms(0)).unwrap().is_some());
    for other in 2..=u64::from(slots) + 1 {
        let granted = dispatch.submit(request(other, other, on(1)), ms(0)).unwrap();
        assert_eq!(granted.is_some(), other <= u64::from(slots));
    }
    dispatch
}

#[test]
fn a_task_on_another_queue_joins_the_one_that_waits_for_it_past_another_sessions_head() {
    for policy in DispatchPolicy::ALL {
        for slots in 1..4 {
            let mut dispatch = crowded(slots, policy);
            assert_eq!(dispatch.submit(request(A, 100, on(2)), ms(1)), Ok(None), "another session waits");
            assert_eq!(dispatch.start_stalled(ms(9)), [], "it may still make progress");
            assert_eq!(ids(&dispatch.start_stalled(ms(10))), [100], "{policy} with {slots} slots");
            dispatch.finish(TaskId(100), ms(11));
            let next = dispatch.finish(TaskId(1), ms(11)).grants;
            assert_eq!(ids(&next), [u64::from(slots) + 1], "the one that waited is next");
        }
    }
}

#[test]
fn a_task_behind_the_running_ones_in_their_queue_overtakes_nobody() {
    let mut dispatch = crowded(1, DispatchPolicy::Fifo);
    assert_eq!(dispatch.submit(request(A, 100, on(1)), ms(1)), Ok(None));
    for now in [10, 100, 100_000] {
        assert_eq!(dispatch.start_stalled(ms(now)), []);
    }
    // The tasks before the one that may help start with it.
    assert_eq!(dispatch.submit(request(A, 101, on(2)), ms(100_000)), Ok(None));
    assert_eq!(dispatch.submit(request(A, 102, on(2)), ms(100_000)), Ok(None));
    assert_eq!(ids(&dispatch.start_stalled(ms(200_000))), [100, 101]);
}

#[test]
fn more_tasks_than_share_a_slot_otherwise_join_where_they_may_help() {
    let mut dispatch = dispatch(1, DispatchPolicy::Fifo);
    for task in 1..=100 {
        let granted = dispatch.submit(request(A, task, on(1)), ms(0)).unwrap();
        assert_eq!(granted.is_some(), task <= 64);
    }
    assert_eq!(dispatch.submit(request(A, 101, on(2)), ms(0)), Ok(None));
    assert_eq!(dispatch.start_stalled(ms(10)).len(), 37);
    assert_eq!(dispatch.waiting(), 0);
}

#[test]
fn what_keeps_starting_tasks_beside_its_own_holds_a_head_back_for_nine_of_its_tasks_at_most() {
    for policy in DispatchPolicy::ALL {
        for length in [1, 9, 20, 200, 1000] {
            let mut dispatch = dispatch(1, policy);
            let mut running = vec![(1, length)];
            assert!(dispatch.submit(request(A, 1, Lanes::Any), ms(0)).unwrap().is_some());
            assert_eq!(dispatch.submit(request(2, 2, Lanes::Any), ms(0)), Ok(None));
            let mut last = 2;
            let mut now = 0;
            // Session A submits a task every 7 ms; each of its tasks may run beside the others.
            let started = 'all: loop {
                now += 1;
                if now % 7 == 1 {
                    last += 1;
                    assert_eq!(dispatch.submit(request(A, last, Lanes::Any), ms(now)), Ok(None));
                }
                let mut grants =
                    if now % INTERVAL == 0 { dispatch.start_stalled(ms(now)) } else { Vec::new() };
                let (ended, still): (Vec<_>, Vec<_>) = running.iter().partition(|(_, until)| *until <= now);
                running = still;
                for (task, _) in ended {
                    grants.extend(dispatch.finish(TaskId(task), ms(now)).grants);
                }
                for grant in grants {
                    if grant.session == SessionId(2) {
                        break 'all now;
                    }
                    running.push((grant.task.0, now + length));
                }
                assert!(now <= 9 * length, "{policy}: it waits for {now} ms behind tasks of {length} ms");
            };
            assert!(started >= length);
        }
    }
}

/// A program of one session: tasks on in-order queues, some of which end only after a later one has begun.
#[derive(Debug, Clone)]
struct Program {
    /// The queue of each task, and the task that it waits for.
    tasks: Vec<(u64, Option<usize>)>,
}

impl Program {
    /// The started tasks that end next: those that are first on their queue and whose awaited task has begun.
    fn ends(&self, started: &BTreeSet<usize>, ended: &BTreeSet<usize>) -> Vec<usize> {
        let begun = |at: usize| {
            let before = |other: &usize| self.tasks[*other].0 == self.tasks[at].0 && *other < at;
            started.contains(&at) && (0..at).filter(before).all(|other| ended.contains(&other))
        };
        let can = |at: &usize| begun(*at) && self.tasks[*at].1.is_none_or(&begun);
        started.difference(ended).copied().filter(can).collect()
    }

    /// Whether the program ends if all its tasks start as soon as they are enqueued, as without a device manager.
    fn ends_natively(&self) -> bool {
        let (all, mut ended) = ((0..self.tasks.len()).collect(), BTreeSet::new());
        loop {
            let next = self.ends(&all, &ended);
            if next.is_empty() {
                return ended.len() == self.tasks.len();
            }
            ended.extend(next);
        }
    }
}

fn program() -> impl Strategy<Value = Program> {
    let task = (0..3_u64, prop::option::weighted(0.6, 1..6_usize));
    prop::collection::vec(task, 2..14).prop_map(|tasks| {
        let count = tasks.len();
        let later = |(at, (queue, wait)): (usize, (u64, Option<usize>))| {
            (queue, wait.map(|after| at + after).filter(|other| *other < count))
        };
        Program { tasks: tasks.into_iter().enumerate().map(later).collect() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn programs_that_end_natively_end_while_other_sessions_always_wait(
        program in program().prop_filter("it ends natively", Program::ends_natively),
        policy in prop::sample::select(DispatchPolicy::ALL.to_vec()),
        slots in 1..4_u32,
        others in 1..4_u64,
    ) {
        let mut dispatch = dispatch(slots, policy);
        let (mut started, mut ended) = (BTreeSet::new(), BTreeSet::new());
        // The running tasks of other sessions, and when each ends, in ms.
        let mut running: Vec<(TaskId, SessionId, u64)> = Vec::new();
        let mut last = 1000;
        let mut now = 0;
        let mut pending: Vec<u64> = (2..2 + others * 2 * u64::from(slots)).collect();
        while ended.len() < program.tasks.len() {
            now += 5;
            prop_assert!(now < 10_000_000, "{:?} started, {:?} ended", started, ended);
            let mut grants = Vec::new();
            // Each other session has one task that waits or runs at any time.
            for session in pending.drain(..) {
                last += 1;
                grants.extend(dispatch.submit(request(session, last, on(1)), ms(now)).unwrap());
            }
            // The program enqueues one task after the other.
            let next = usize::try_from(now / 5 - 1).unwrap();
            if let Some((queue, _)) = program.tasks.get(next) {
                grants.extend(dispatch.submit(request(A, next as u64, on(*queue)), ms(now)).unwrap());
            }
            if now % INTERVAL == 0 {
                grants.extend(dispatch.start_stalled(ms(now)));
            }
            for at in program.ends(&started, &ended) {
                ended.insert(at);
                grants.extend(dispatch.finish(TaskId(at as u64), ms(now)).grants);
            }
            let (over, still): (Vec<_>, Vec<_>) = running.iter().partition(|(_, _, until)| *until <= now);
            running = still;
            for (task, session, _) in over {
                grants.extend(dispatch.finish(task, ms(now)).grants);
                pending.push(session.0);
            }
            for grant in grants {
                if grant.session == SessionId(A) {
                    started.insert(usize::try_from(grant.task.0).unwrap());
                } else {
                    running.push((grant.task, grant.session, now + 15));
                }
            }
        }
    }
}
