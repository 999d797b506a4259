use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

const IN_ORDER: QueueOrder = QueueOrder::InOrder;

fn item(event: u64, queue: u64, wait: &[u64]) -> Item<u64> {
    Item {
        event: EventId(event),
        queue: QueueId(queue),
        order: IN_ORDER,
        fence: Fence::None,
        wait: wait.iter().copied().map(EventId).collect(),
        body: Ok(event),
    }
}

fn out_of_order(event: u64, fence: Fence, wait: &[u64]) -> Item<u64> {
    Item { order: QueueOrder::OutOfOrder, fence, ..item(event, 9, wait) }
}

fn failures(step: &Step<u64>) -> Vec<(u64, i32)> {
    step.failed.iter().map(|failed| (failed.event.0, failed.status)).collect()
}

fn names(step: &Step<u64>) -> Vec<u64> {
    step.ready.iter().map(|command| command.body).collect()
}

#[test]
fn two_queues_that_wait_for_each_other_run_as_one_task() {
    // Queue 1 holds [A, C waits B], queue 2 holds [B waits A].
    let mut dependencies = DependencyTracker::default();
    let step = dependencies.flush([item(1, 1, &[]), item(2, 2, &[1]), item(3, 1, &[2])]).unwrap();
    assert_eq!(names(&step), [1, 2, 3]);
    assert_eq!(step.ready[1].wait, [EventId(1)]);
    assert_eq!(dependencies.deferred(), 0);
}

#[test]
fn what_waits_for_a_user_event_does_not_hold_back_what_is_before_it() {
    // [A, C waits for user event U], flush, wait for A, then set U.
    let mut dependencies = DependencyTracker::default();
    dependencies.create_user_event(EventId(7)).unwrap();
    let step = dependencies.flush([item(1, 1, &[]), item(2, 1, &[7])]).unwrap();
    assert_eq!(names(&step), [1]);
    dependencies.ended(EventId(1), 0);
    assert_eq!(names(&dependencies.set_user_event(EventId(7), 0).unwrap()), [2]);
}

#[test]
fn an_unset_user_event_holds_back_only_what_depends_on_it() {
    let mut dependencies = DependencyTracker::default();
    dependencies.create_user_event(EventId(7)).unwrap();
    let step =
        dependencies.flush([item(1, 1, &[7]), item(2, 1, &[]), item(3, 2, &[]), item(4, 2, &[2])]).unwrap();
    assert_eq!(names(&step), [3]);
    let later = dependencies.flush([item(5, 1, &[]), item(6, 3, &[])]).unwrap();
    assert_eq!(names(&later), [6], "the queue's order holds across flushes");
    assert_eq!(names(&dependencies.set_user_event(EventId(7), 0).unwrap()), [1, 2, 4, 5]);
}

#[test]
fn a_failed_user_event_fails_all_that_depends_on_it() {
    let mut dependencies = DependencyTracker::default();
    dependencies.create_user_event(EventId(7)).unwrap();
    dependencies.flush([item(1, 1, &[7]), item(2, 1, &[]), item(3, 2, &[1]), item(4, 3, &[])]).unwrap();
    let step = dependencies.set_user_event(EventId(7), -5).unwrap();
    assert_eq!(names(&step), [] as [u64; 0]);
    assert_eq!(failures(&step), [(1, -14), (2, -14), (3, -14)]);
    assert!(step.failed.iter().all(|failed| failed.cause == Cause::UserEvent));
    assert_eq!(names(&dependencies.flush([item(5, 1, &[])]).unwrap()), [5], "the queue goes on afterwards");
}

#[test]
fn an_out_of_order_queue_is_held_by_its_barriers_and_markers_only() {
    let mut dependencies = DependencyTracker::default();
    dependencies.create_user_event(EventId(7)).unwrap();
    let step = dependencies
        .flush([
            out_of_order(1, Fence::None, &[7]),
            out_of_order(2, Fence::None, &[]),
            out_of_order(3, Fence::Marker, &[]),
            out_of_order(4, Fence::Marker, &[2]),
            out_of_order(5, Fence::None, &[]),
            out_of_order(6, Fence::Barrier, &[]),
            out_of_order(8, Fence::None, &[]),
        ])
        .unwrap();
    assert_eq!(names(&step), [2, 4, 5]);
    assert_eq!(names(&dependencies.set_user_event(EventId(7), 0).unwrap()), [1, 3, 6, 8]);
}

#[test]
fn an_event_that_nobody_made_fails_the_command() {
    let mut dependencies = DependencyTracker::default();
    let step = dependencies.flush([item(1, 1, &[99]), item(2, 1, &[]), item(3, 2, &[])]).unwrap();
    assert_eq!(failures(&step), [(1, UNKNOWN_EVENT), (2, DEPENDENCY_FAILED)]);
    assert!(step.failed.iter().all(|failed| failed.cause == Cause::Command));
    assert_eq!(names(&step), [3]);
}

#[test]
fn a_command_can_wait_for_itself_as_little_as_for_the_future() {
    let mut dependencies = DependencyTracker::default();
    assert_eq!(failures(&dependencies.flush([item(1, 1, &[1])]).unwrap()), [(1, UNKNOWN_EVENT)]);
}

#[test]
fn an_event_id_is_taken_once() {
    let mut dependencies = DependencyTracker::default();
    dependencies.flush([item(1, 1, &[])]).unwrap();
    assert_eq!(dependencies.flush([item(1, 1, &[])]).unwrap_err(), UsedTwice(EventId(1)));
    assert_eq!(dependencies.create_user_event(EventId(1)).unwrap_err(), UsedTwice(EventId(1)));
}

#[test]
fn a_user_event_is_set_once() {
    let mut dependencies: DependencyTracker<u64> = DependencyTracker::default();
    dependencies.create_user_event(EventId(1)).unwrap();
    dependencies.set_user_event(EventId(1), 0).unwrap();
    assert_eq!(dependencies.set_user_event(EventId(1), 0), Err(SET_TWICE));
    assert_eq!(dependencies.set_user_event(EventId(2), 0), Err(NO_SUCH_EVENT));
}

#[test]
fn forgotten_events_leave_nothing_behind_once_they_have_ended() {
    let mut dependencies = DependencyTracker::default();
    dependencies.flush([item(1, 1, &[]), item(2, 1, &[])]).unwrap();
    dependencies.forget(EventId(1));
    dependencies.ended(EventId(1), 0);
    dependencies.ended(EventId(2), 0);
    dependencies.forget(EventId(2));
    assert_eq!(dependencies.events(), 0);
}

#[test]
fn a_failure_is_seen_by_those_flushed_before_it_was_forgotten() {
    let mut dependencies = DependencyTracker::default();
    dependencies.create_user_event(EventId(7)).unwrap();
    dependencies.flush([item(1, 1, &[]), item(2, 2, &[1, 7])]).unwrap();
    dependencies.forget(EventId(1));
    dependencies.ended(EventId(1), -5);
    let step = dependencies.set_user_event(EventId(7), 0).unwrap();
    assert_eq!(failures(&step), [(2, -14)]);
    dependencies.forget(EventId(2));
    dependencies.forget(EventId(7));
    assert_eq!(dependencies.events(), 0, "nobody else can ask for it");
}

#[test]
fn failures_that_were_released_leave_nothing_behind() {
    let mut dependencies = DependencyTracker::default();
    let mut refused = item(1, 1, &[]);
    refused.body = Err(-5);
    dependencies.create_user_event(EventId(9)).unwrap();
    dependencies
        .flush([refused, item(2, 2, &[1]), item(3, 3, &[]), item(4, 4, &[3]), item(5, 5, &[9])])
        .unwrap();
    for event in [1, 2, 3, 4, 5, 9] {
        dependencies.forget(EventId(event));
    }
    dependencies.set_user_event(EventId(9), -1).unwrap();
    dependencies.ended(EventId(3), -5);
    assert!(dependencies.has_failed(EventId(3)), "a command that names it has not begun");
    dependencies.begun(&[EventId(3)]);
    dependencies.ended(EventId(4), -14);
    assert_eq!(dependencies.events(), 0);
    dependencies.create_user_event(EventId(10)).unwrap();
    dependencies.forget(EventId(10));
    assert_eq!(dependencies.events(), 0, "a user event that nobody can set any more");
}

#[test]
fn a_command_fails_by_a_user_event_only_where_nothing_else_failed() {
    let mut dependencies = DependencyTracker::default();
    for event in [7, 8] {
        dependencies.create_user_event(EventId(event)).unwrap();
    }
    let step = dependencies.flush([item(1, 1, &[]), item(2, 2, &[1, 7]), item(3, 3, &[7])]).unwrap();
    assert_eq!(names(&step), [1]);
    dependencies.ended(EventId(1), -5);
    let step = dependencies.set_user_event(EventId(7), -1).unwrap();
    let causes: Vec<Cause> = step.failed.iter().map(|failed| failed.cause).collect();
    assert_eq!(causes, [Cause::Command, Cause::UserEvent]);
}

#[test]
fn setting_a_user_event_looks_at_what_waited_for_it_alone() {
    let mut dependencies = DependencyTracker::default();
    let count = 1000;
    for user in 0..count {
        dependencies.create_user_event(EventId(user)).unwrap();
    }
    // A command of an out-of-order queue and one of an in-order queue for each user event.
    for user in 0..count {
        let waits = out_of_order(count + user, Fence::None, &[user]);
        let queued = item(2 * count + user, 100 + user, &[user]);
        dependencies.flush([waits, queued]).unwrap();
    }
    for user in (0..count).rev() {
        let before = dependencies.deferred.looked_at();
        assert_eq!(
            names(&dependencies.set_user_event(EventId(user), 0).unwrap()),
            [count + user, 2 * count + user]
        );
        assert_eq!(dependencies.deferred.looked_at() - before, 2);
    }
}

/// A command of a random program: its queue, its fence, and the earlier events that it waits for.
#[derive(Debug, Clone)]
struct Planned {
    queue: u64,
    fence: Fence,
    waits: Vec<prop::sample::Index>,
    flush_after: bool,
}

fn planned() -> impl Strategy<Value = Planned> {
    let fence = prop_oneof![4 => Just(Fence::None), 1 => Just(Fence::Marker), 1 => Just(Fence::Barrier)];
    (0_u64..4, fence, prop::collection::vec(any::<prop::sample::Index>(), 0..3), any::<bool>())
        .prop_map(|(queue, fence, waits, flush_after)| Planned { queue, fence, waits, flush_after })
}

const USER_EVENTS: u64 = 3;

/// The commands that each command must come after, by OpenCL's rules: its wait list and its queue's order.
fn predecessors(items: &[Item<u64>]) -> Vec<Vec<u64>> {
    let mut all = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let mut of: Vec<u64> = item.wait.iter().map(|event| event.0).collect();
        for before in items[..at].iter().filter(|before| before.queue == item.queue) {
            let ordered = item.order == IN_ORDER
                || before.fence == Fence::Barrier
                || (item.fence != Fence::None && item.wait.is_empty());
            if ordered {
                of.push(before.event.0);
            }
        }
        all.push(of);
    }
    all
}

proptest! {
    #[test]
    fn nothing_is_lost_no_order_is_broken_and_nothing_waits_without_need(
        plan in prop::collection::vec(planned(), 1..24),
        order in Just((1..=USER_EVENTS).collect::<Vec<_>>()).prop_shuffle(),
        forget in any::<bool>(),
    ) {
        let mut dependencies = DependencyTracker::default();
        let users: Vec<u64> = (1..=USER_EVENTS).collect();
        for user in &users {
            dependencies.create_user_event(EventId(*user)).unwrap();
        }
        let mut items: Vec<Item<u64>> = Vec::new();
        for (at, planned) in plan.iter().enumerate() {
            let known: Vec<u64> = users.iter().copied().chain(items.iter().map(|item| item.event.0)).collect();
            items.push(Item {
                event: EventId(100 + at as u64),
                queue: QueueId(planned.queue),
                order: if planned.queue % 2 == 0 { IN_ORDER } else { QueueOrder::OutOfOrder },
                fence: planned.fence,
                wait: planned.waits.iter().map(|index| EventId(*index.get(&known))).collect(),
                body: Ok(100 + at as u64),
            });
        }
        let depends = predecessors(&items);
        let mut done: HashSet<u64> = HashSet::new();
        let mut set: HashSet<u64> = HashSet::new();
        let mut run = |dependencies: &mut DependencyTracker<u64>, step: Step<u64>, set: &HashSet<u64>, flushed: usize| {
            assert!(step.failed.is_empty());
            for command in step.ready {
                let at = usize::try_from(command.event.0 - 100).unwrap();
                for before in &depends[at] {
                    assert!(done.contains(before) || set.contains(before), "{} before {before}", command.event.0);
                }
                assert!(done.insert(command.event.0), "once");
                dependencies.ended(command.event, 0);
                if forget && items[at + 1..].iter().all(|later| !later.wait.contains(&command.event)) {
                    dependencies.forget(command.event);
                }
            }
            // Every command that is left depends on a user event that is not set.
            let mut free: HashSet<u64> = set.clone();
            for (at, of) in depends.iter().enumerate().take(flushed) {
                let event = 100 + at as u64;
                if of.iter().all(|before| free.contains(before)) {
                    free.insert(event);
                    assert!(done.contains(&event), "{event} waits for nothing");
                }
            }
        };
        let mut batch = Vec::new();
        for (at, item) in items.iter().enumerate() {
            batch.push(item.clone());
            if plan[at].flush_after || at + 1 == items.len() {
                let step = dependencies.flush(std::mem::take(&mut batch)).unwrap();
                run(&mut dependencies, step, &set, at + 1);
            }
        }
        for user in order {
            set.insert(user);
            let step = dependencies.set_user_event(EventId(user), 0).unwrap();
            run(&mut dependencies, step, &set, items.len());
        }
        prop_assert_eq!(done.len(), items.len());
        prop_assert_eq!(dependencies.deferred(), 0);
    }
}
