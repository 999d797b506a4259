use super::super::Rate;
use super::super::controller::ActionQueue;
use super::super::rules::Smoothing;
use super::*;
use std::collections::BTreeSet;

const ALL: u32 = u32::MAX;

/// Groups whose slots do one action a second, times `speed`, in periods of ten seconds.
struct Play {
    groups: Groups,
    class: ClassState,
    now: Duration,
    speed: f64,
    done: BTreeMap<JobId, f64>,
    busy: BTreeMap<JobId, f64>,
    /// Groups without actions.
    idle: BTreeSet<JobId>,
}

impl Play {
    fn new(policy: GoalPolicy, slots: u32, jobs: Jobs, guarantee: u32) -> Self {
        let rules = GoalRules { smoothing: Smoothing::new(1.0).unwrap(), ..GoalRules::default() };
        Self {
            groups: Groups::new(policy, rules, guarantee),
            class: ClassState { slots, held_by_jobs: 0, jobs },
            now: Duration::ZERO,
            speed: 1.0,
            done: BTreeMap::new(),
            busy: BTreeMap::new(),
            idle: BTreeSet::new(),
        }
    }

    fn open(&mut self, id: u64, goal: Goal, least: u32) -> Result<u32, OpenError> {
        let new = NewGroup { tenant: TenantId(0), goal, limits: Limits::new(least, ALL).unwrap() };
        self.groups.open(JobId(id), new, self.class, self.now)?;
        Ok(self.groups.given(JobId(id)))
    }

    /// Lets a period pass and returns the slots of all groups.
    fn period(&mut self) -> Vec<u32> {
        self.now += Duration::from_secs(10);
        for (id, _, given) in self.groups.all() {
            let used = if self.idle.contains(&id) { 0.0 } else { f64::from(given) };
            *self.busy.entry(id).or_default() += 10.0 * used;
            *self.done.entry(id).or_default() += 10.0 * used * self.speed;
        }
        let progress = |id: JobId| {
            Some(JobProgress {
                now: self.now,
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
                done: self.done[&id] as u64,
                devices: self.groups.given(id),
                busy: Duration::from_secs_f64(self.busy[&id]),
                queue: if self.idle.contains(&id) { ActionQueue::RanEmpty } else { ActionQueue::Filled },
            })
        };
        // The closure reads the groups of before the period's end.
        let all: BTreeMap<JobId, Option<JobProgress>> =
            self.groups.all().map(|(id, ..)| (id, progress(id))).collect();
        self.groups.end_period(|id| all[&id], self.class);
        self.groups.all().map(|(_, _, given)| given).collect()
    }
}

fn rate(per_second: f64) -> Goal {
    Goal::Throughput(Rate::new(per_second).unwrap())
}

fn due(at: u64, actions: u64) -> Goal {
    Goal::Deadline { at: Duration::from_secs(at), actions }
}

#[test]
fn shrinking_takes_two_periods() {
    let mut play = Play::new(GoalPolicy::Throughput, 8, Jobs::Wait, ALL);
    play.open(1, rate(4.0), 0).unwrap();
    assert_eq!(play.period(), [4]);
    // Twice as fast: two slots are enough, and the group keeps four for one period more.
    play.speed = 2.0;
    assert_eq!(play.period(), [4]);
    assert_eq!(play.period(), [2]);
    // Growing takes one.
    play.speed = 1.0;
    assert_eq!(play.period(), [4]);
    // A single period of less changes nothing.
    play.speed = 2.0;
    assert_eq!(play.period(), [4]);
    play.speed = 1.0;
    assert_eq!(play.period(), [4]);
    assert_eq!(play.period(), [4]);
}

#[test]
fn groups_do_not_exchange_slots_in_every_period() {
    // 6 slots for groups, and requests of 5 and 2. Who gets a slot more depends on who was behind in the last period.
    let slots = |rules: GoalRules| {
        let mut play = Play::new(GoalPolicy::Throughput, 8, Jobs::Wait, ALL);
        play.groups.rules = GoalRules { smoothing: Smoothing::new(1.0).unwrap(), ..rules };
        play.open(1, rate(4.6), 0).unwrap();
        play.open(2, rate(1.6), 0).unwrap();
        (0..12).map(|_| play.period()).collect::<Vec<_>>()
    };
    let changes = |given: &[Vec<u32>]| given.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let kept = slots(GoalRules::default());
    let at_once =
        slots(GoalRules { shrinking: super::super::rules::Shrinking::AtOnce, ..GoalRules::default() });
    assert!(changes(&kept[2..]) * 2 <= changes(&at_once[2..]), "{kept:?} {at_once:?}");
    assert!(kept.iter().all(|given| given.iter().sum::<u32>() <= 6));
}

#[test]
fn slack_ends_at_once_when_a_job_waits() {
    let mut play = Play::new(GoalPolicy::Throughput, 8, Jobs::HaveSlots, ALL);
    assert_eq!(play.open(1, due(103, 300), 0), Ok(8));
    // 220 actions in 90 s, less the margin: 3 slots; the rest is slack.
    assert_eq!(play.period(), [8]);
    assert_eq!(play.groups.most_jobs(play.class), 0);
    play.class.jobs = Jobs::Wait;
    play.groups.divide(play.class);
    assert_eq!(play.groups.given(JobId(1)), 3);
    assert_eq!(play.groups.most_jobs(play.class), 5);
    play.class = ClassState { held_by_jobs: 1, jobs: Jobs::HaveSlots, ..play.class };
    play.groups.divide(play.class);
    assert_eq!(play.groups.given(JobId(1)), 7);
}

#[test]
fn a_late_group_has_its_minimum_and_at_least_one_slot_until_it_closes() {
    for (least, expected) in [(0, 1), (2, 2)] {
        let mut play = Play::new(GoalPolicy::Throughput, 8, Jobs::HaveSlots, ALL);
        play.open(1, due(20, 100_000), least).unwrap();
        assert_eq!(play.period(), [8]);
        assert_eq!(play.period(), [expected]);
        assert_eq!(play.period(), [expected]);
    }
}

#[test]
fn guaranteed_slots_cap_minima_and_requests() {
    let mut play = Play::new(GoalPolicy::Throughput, 8, Jobs::Wait, 0);
    // By default nothing is guaranteed.
    let refused = OpenError::Guarantee { least: 1, others: 0, guaranteed: 0 };
    assert_eq!(play.open(1, rate(4.0), 1), Err(refused));
    assert!(refused.to_string().contains("smaller minimum"), "{refused}");
    assert_eq!(play.open(1, rate(4.0), 0), Ok(0));
    assert_eq!(play.period(), [0]);
    // While no job waits the group gets what it asks for.
    play.class.jobs = Jobs::HaveSlots;
    assert_eq!(play.period(), [1]);
    assert_eq!(play.period(), [4]);
    play.class.jobs = Jobs::Wait;
    play.groups.set_guarantee(TenantId(0), 3);
    play.groups.divide(play.class);
    assert_eq!(play.groups.given(JobId(1)), 3);
    let refused = OpenError::Guarantee { least: 4, others: 0, guaranteed: 3 };
    assert_eq!(play.open(2, rate(1.0), 4), Err(refused));
    assert_eq!(play.open(2, rate(1.0), 3), Ok(3));
    assert_eq!(play.period(), [0, 3]);
}

#[test]
fn a_group_is_refused_whose_minimum_leaves_jobs_less_than_their_floor() {
    for policy in [GoalPolicy::Throughput, GoalPolicy::Edf] {
        let mut play = Play::new(policy, 8, Jobs::HaveSlots, ALL);
        assert_eq!(play.open(1, due(99, 9), 7), Err(OpenError::TooFew { missing: 1 }));
        assert!(play.open(1, due(99, 9), 4).is_ok());
        assert_eq!(play.open(2, due(99, 9), 3), Err(OpenError::TooFew { missing: 1 }));
        assert_eq!(play.open(1, due(99, 9), 0), Err(OpenError::Known(JobId(1))));
        assert!(play.open(2, due(99, 9), 2).is_ok());
    }
}

#[test]
fn edf_divides_when_a_group_opens_and_closes() {
    let mut play = Play::new(GoalPolicy::Edf, 8, Jobs::HaveSlots, ALL);
    assert_eq!(play.open(1, rate(5.0), 0), Err(OpenError::NoDeadline));
    assert_eq!(play.open(1, due(195, 3000), 1), Ok(8));
    assert_eq!(play.open(2, due(50, 3000), 1), Ok(7));
    assert_eq!(play.groups.given(JobId(1)), 1);
    play.groups.close(JobId(2), play.class);
    assert_eq!((play.groups.given(JobId(1)), play.groups.given(JobId(2))), (8, 0));
}

#[test]
fn a_forecast_follows_from_the_slots_that_a_group_has() {
    let mut play = Play::new(GoalPolicy::Throughput, 4, Jobs::HaveSlots, ALL);
    play.open(1, due(200, 400), 0).unwrap();
    assert_eq!(play.groups.forecast(JobId(1), play.now, 0), None);
    assert_eq!(play.period(), [4]);
    let forecast = play.groups.forecast(JobId(1), play.now, 40);
    assert_eq!(forecast, Some(Forecast::Done(Duration::from_secs(100))));
}

#[test]
fn a_group_without_actions_keeps_a_slot_while_jobs_wait_and_gets_the_others_when_actions_come() {
    let mut play = Play::new(GoalPolicy::Throughput, 8, Jobs::Wait, ALL);
    let goal = Goal::Throughput(Rate::new(4.0).unwrap());
    play.open(1, goal, 0).unwrap();
    play.period();
    assert_eq!(play.period(), [4]);
    play.idle.insert(JobId(1));
    // Shrinking takes two periods.
    assert_eq!([play.period(), play.period(), play.period()], [[4], [1], [1]]);
    play.idle.clear();
    assert_eq!(play.period(), [4]);
    // While no job waits it keeps what its goal needs.
    play.class.jobs = Jobs::HaveSlots;
    play.idle.insert(JobId(1));
    assert_eq!([play.period(), play.period(), play.period()], [[4], [4], [4]]);
}

#[test]
fn a_group_that_was_open_before_has_its_minimum_and_keeps_its_slots_however_many_are_known() {
    let mut groups = Groups::new(GoalPolicy::Throughput, GoalRules::default(), 3);
    let goal = Goal::Throughput(Rate::new(1.0).unwrap());
    let group = |least| NewGroup { tenant: TenantId(0), goal, limits: Limits::new(least, ALL).unwrap() };
    let class = |slots| ClassState { slots, held_by_jobs: 0, jobs: Jobs::Wait };
    assert!(matches!(
        groups.open(JobId(1), group(2), class(0), Duration::ZERO),
        Err(OpenError::TooFew { .. })
    ));
    groups.reopen(JobId(1), group(2), class(0), Duration::ZERO).unwrap();
    assert!(matches!(
        groups.reopen(JobId(2), group(2), class(0), Duration::ZERO),
        Err(OpenError::Guarantee { others: 2, .. })
    ));
    let mut given = |slots| {
        groups.divide(class(slots));
        groups.given(JobId(1))
    };
    assert_eq!((given(1), given(8)), (0, 2));
    groups.holds(JobId(1), 3);
    groups.divide(class(8));
    assert_eq!(groups.given(JobId(1)), 3);
}
