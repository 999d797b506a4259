//! Tests of the policies over simulated time: four tenants that always have work, and the share of one slot that each
//! gets.

use super::policy::{DispatchPolicy, DispatchRules, Share, Weight};
use super::*;
use crate::slots::OtherKernels;

/// Weight and task length (ms) of each tenant. The heaviest tenant doesn't have the longest tasks.
const TENANTS: [(u32, u64); 4] = [(1, 8), (2, 1), (3, 4), (4, 2)];

/// Number of tasks of each tenant that wait at any time.
const BACKLOG: usize = 4;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn tenant(at: usize) -> Tenant {
    Tenant::new(&format!("tenant-{at}"))
}

fn rules(policy: DispatchPolicy, share: impl Fn(usize) -> Share) -> DispatchRules {
    DispatchRules {
        tenants: (0..TENANTS.len()).map(|at| (tenant(at), share(at))).collect(),
        ..DispatchRules::of(policy)
    }
}

fn weighted(at: usize) -> Share {
    Share { weight: Weight::new(TENANTS[at].0).unwrap(), ..Share::default() }
}

/// A device with one slot, and tenants that submit a new task whenever one of theirs ends.
struct Device {
    dispatch: Dispatch,
    now: Duration,
    last_task: u64,
    owners: BTreeMap<TaskId, usize>,
    running: Option<TaskId>,
    busy: [Duration; 4],
    /// The tenants of the tasks that ran, in order.
    order: Vec<usize>,
}

impl Device {
    fn new(rules: DispatchRules) -> Self {
        let mut dispatch = Dispatch::new(NonZeroU32::MIN);
        dispatch.set_rules(rules, Duration::ZERO);
        let mut device = Self {
            dispatch,
            now: Duration::ZERO,
            last_task: 0,
            owners: BTreeMap::new(),
            running: None,
            busy: [Duration::ZERO; 4],
            order: Vec::new(),
        };
        for at in (0..TENANTS.len()).cycle().take(TENANTS.len() * BACKLOG) {
            device.submit(at);
        }
        device
    }

    fn submit(&mut self, at: usize) {
        self.last_task += 1;
        let task = TaskId(self.last_task);
        self.owners.insert(task, at);
        // Every task has its own session, so that none joins another's slot.
        let request = TaskRequest {
            session: SessionId(self.last_task),
            task,
            tenant: tenant(at),
            demand: Demand::of([], OtherKernels::Some),
            lanes: Lanes::Any,
            kind: Some(Kind(at as u64)),
            bytes: 0,
        };
        let grant = self.dispatch.submit(request, self.now).unwrap();
        self.start(grant);
    }

    fn start(&mut self, grant: Option<Grant>) {
        if let Some(grant) = grant {
            assert_eq!(self.running.replace(grant.task), None, "one slot, one task");
        }
    }

    /// Runs `tasks` tasks; returns each tenant's share of the busy time.
    fn run(&mut self, tasks: usize) -> [f64; 4] {
        self.busy = [Duration::ZERO; 4];
        self.order.clear();
        for _ in 0..tasks {
            let task = self.running.take().expect("the slot never idles while tasks wait");
            let at = self.owners.remove(&task).unwrap();
            self.order.push(at);
            let length = ms(TENANTS[at].1);
            self.now += length;
            self.busy[at] += length;
            let finished = self.dispatch.finish(task, self.now);
            self.start(finished.grants.into_iter().next());
            self.submit(at);
        }
        let all: Duration = self.busy.iter().sum();
        self.busy.map(|busy| busy.as_secs_f64() / all.as_secs_f64())
    }
}

#[test]
fn under_deficit_round_robin_device_time_follows_the_weights_within_5_percent() {
    let mut device = Device::new(rules(DispatchPolicy::DeficitRoundRobin, weighted));
    let shares = device.run(400);
    for (at, share) in shares.into_iter().enumerate() {
        let due = f64::from(TENANTS[at].0) / 10.0;
        assert!((share / due - 1.0).abs() < 0.05, "tenant {at} has {share:.3} where {due} are due");
    }
}

#[test]
fn first_in_first_out_gives_the_device_to_whom_has_the_longest_tasks() {
    let mut device = Device::new(rules(DispatchPolicy::Fifo, weighted));
    let shares = device.run(400);
    for (at, share) in shares.into_iter().enumerate() {
        // One task of each in turn: shares are in proportion to the task lengths, whatever the weights.
        let length = f64::from(u32::try_from(TENANTS[at].1).unwrap()) / 15.0;
        assert!((share / length - 1.0).abs() < 0.05, "tenant {at} has {share:.3}");
    }
    assert!(shares[0] > 5.0 * 0.1, "more than five times what its weight is worth");
}

#[test]
fn deficit_round_robin_holds_its_shares_where_no_task_is_like_the_one_expected() {
    // The expected times are wrong: the tasks of all tenants have one kind.
    let mut device = Device::new(rules(DispatchPolicy::DeficitRoundRobin, weighted));
    let kind = Some(Kind(0));
    let expect = |device: &mut Device| device.dispatch.profile.measured(kind, ms(50));
    let mut busy = [Duration::ZERO; 4];
    for _ in 0..8000 {
        expect(&mut device);
        device.run(1);
        for (sum, one) in busy.iter_mut().zip(device.busy) {
            *sum += one;
        }
    }
    let all: Duration = busy.iter().sum();
    for (at, busy) in busy.into_iter().enumerate() {
        let (share, due) = (busy.as_secs_f64() / all.as_secs_f64(), f64::from(TENANTS[at].0) / 10.0);
        assert!((share / due - 1.0).abs() < 0.05, "tenant {at} has {share:.3} where {due} are due");
    }
}

#[test]
fn round_robin_gives_each_tenant_a_task_in_turn_whatever_it_takes() {
    let mut device = Device::new(rules(DispatchPolicy::RoundRobin, weighted));
    device.run(40);
    for turn in device.order.chunks(4) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, [0, 1, 2, 3]);
    }
}

#[test]
fn the_highest_priority_goes_first_and_waiting_raises_the_others() {
    let priority = |at| Share { priority: u8::try_from(at).unwrap() * 2, ..Share::default() };
    let mut device = Device::new(rules(DispatchPolicy::Priority, priority));
    let shares = device.run(400);
    assert!(shares[3] > 0.5, "{shares:?}");
    for at in 0..4 {
        assert!(device.order.contains(&at), "tenant {at} starves");
    }
    // Without ageing, the other tenants starve.
    let unaged = DispatchRules { ageing: Duration::MAX, ..rules(DispatchPolicy::Priority, priority) };
    let mut device = Device::new(unaged);
    // Besides tenant 3, only the first task runs, of 8 ms, which tenant 0 submitted when the slot was idle.
    assert_eq!(device.run(400)[3], 1.0 - 8.0 / 806.0, "{:?}", device.busy);
}

#[test]
fn the_shortest_go_first_once_they_are_known_and_nobody_starves() {
    let mut device = Device::new(rules(DispatchPolicy::ShortestFirst, weighted));
    device.run(50);
    device.run(400);
    let count = |at| device.order.iter().filter(|other| **other == at).count();
    assert!(count(1) > count(3) && count(3) > count(2) && count(2) > count(0), "{:?}", device.order);
    assert!(count(0) > 0, "the longest waits, not for ever");
}

#[test]
fn the_earliest_deadline_goes_first() {
    let deadline = |at| Share { deadline: ms(u64::try_from(4 - at).unwrap() * 1000), ..Share::default() };
    let mut device = Device::new(rules(DispatchPolicy::EarliestDeadline, deadline));
    device.run(17);
    // All tasks came at the beginning. Tenant 0 was alone when its first task came; the others go by their deadlines.
    let first: Vec<_> = device.order.iter().take(5).copied().collect();
    assert_eq!(first, [0, 3, 3, 3, 3]);
}

#[test]
fn a_tenant_gets_no_more_by_having_more_sessions() {
    for policy in [DispatchPolicy::RoundRobin, DispatchPolicy::DeficitRoundRobin] {
        let mut device = Device::new(DispatchRules::of(policy));
        for _ in 0..50 {
            device.submit(3);
        }
        device.run(200);
        let count = |at| device.order.iter().filter(|other| **other == at).count();
        let expected = if policy == DispatchPolicy::RoundRobin { 50 } else { 4 * count(0) };
        assert!(count(3).abs_diff(expected) <= 5, "{policy}: {} of {expected}", count(3));
    }
}

#[test]
fn what_a_tenant_did_while_nobody_else_wanted_the_device_is_not_held_against_it() {
    let mut dispatch = Dispatch::new(NonZeroU32::MIN);
    dispatch.set_rules(rules(DispatchPolicy::DeficitRoundRobin, |_| Share::default()), Duration::ZERO);
    let request = |at: usize, task: u64| TaskRequest {
        session: SessionId(task),
        task: TaskId(task),
        tenant: tenant(at),
        demand: Demand::AnySlot,
        lanes: Lanes::Any,
        kind: Some(Kind(0)),
        bytes: 0,
    };
    // Tenant 0 has the device alone for an hour, one task of 100 ms after the other.
    let mut now = Duration::ZERO;
    for task in 1..=36_000 {
        dispatch.submit(request(0, task), now).unwrap().unwrap();
        if task < 36_000 {
            now += ms(100);
            assert_eq!(dispatch.finish(TaskId(task), now).grants, []);
        }
    }
    let mut running = TaskId(36_000);
    for task in 40_000_u64..40_040 {
        assert_eq!(dispatch.submit(request(usize::from(task.is_multiple_of(2)), task), now), Ok(None));
    }
    let mut counts = [0_u32; 2];
    for _ in 0..20 {
        now += ms(100);
        running = dispatch.finish(running, now).grants[0].task;
        counts[usize::from(running.0.is_multiple_of(2))] += 1;
    }
    assert!(counts[0].abs_diff(counts[1]) <= 2, "{counts:?}");
}
