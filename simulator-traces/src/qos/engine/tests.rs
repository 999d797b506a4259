use super::*;
use fpga_cluster::qos::Rate;
use proptest::prelude::*;

fn machine(devices: u32) -> Machine {
    let most_per_second = f64::INFINITY;
    Machine { devices, action: 0.5, spread: 0.0, most_per_second, reconfiguration: 0.0, seed: 1 }
}

fn job(at: u64, actions: u64, deadline: u64) -> Job {
    let goal = Goal::Deadline { at: Duration::from_secs(deadline), actions };
    Job { at: Duration::from_secs(at), actions, goal, limits: Limits::ANY, fixed: 1 }
}

fn throughput(period: u64) -> Policy {
    Policy::Throughput { period: Duration::from_secs(period), rules: GoalRules::printed() }
}

#[test]
fn a_static_split_worked_by_hand() {
    // 10 actions of 0.5 s take 5 s on one device, and 4 rounds of 0.5 s on three.
    let jobs = [job(0, 10, 9), Job { fixed: 3, ..job(0, 10, 9) }];
    let run = simulate(&machine(4), Policy::Fixed, &jobs).unwrap();
    assert_eq!(run.ends, [Some(5.0), Some(2.0)]);
}

#[test]
fn a_full_interconnect_slows_all_alike() {
    // Four devices could do 8 actions/s and get data for 4: each action takes 1 s, until two devices are left, on
    // which actions take 0.5 s.
    let machine = Machine { most_per_second: 4.0, ..machine(4) };
    let jobs = [Job { fixed: 2, ..job(0, 4, 9) }, Job { fixed: 2, ..job(0, 8, 9) }];
    let run = simulate(&machine, Policy::Fixed, &jobs).unwrap();
    assert_eq!(run.ends, [Some(2.0), Some(3.0)]);
}

#[test]
fn the_earliest_deadline_has_all_devices_and_a_group_shrinks_only_between_actions() {
    // The second job arrives at 1.25 s with an earlier deadline. Actions of the first job that began at 1 s are not
    // interrupted.
    let early = Job { at: Duration::from_millis(1250), ..job(1, 4, 5) };
    let run = simulate(&machine(2), Policy::EarliestDeadline, &[job(0, 10, 60), early]).unwrap();
    // First job: 4 actions until 1 s, 2 more until 1.5 s. Second job: 4 actions on two devices from 1.5 to 2.5 s.
    // Last 4 actions of the first job: until 3.5 s.
    assert_eq!(run.ends, [Some(3.5), Some(2.5)]);
}

#[test]
fn a_device_from_another_job_is_reconfigured_first() {
    let machine = Machine { reconfiguration: 0.25, ..machine(1) };
    let run = simulate(&machine, Policy::EarliestDeadline, &[job(0, 2, 5), job(0, 2, 9)]).unwrap();
    assert_eq!(run.ends, [Some(1.25), Some(2.5)]);
}

#[test]
fn a_throughput_goal_is_held_with_just_enough_devices() {
    // A device does 2 actions/s, so 5 actions/s need three devices. The job begins with all 8; the first period
    // corrects that.
    let goal = Goal::Throughput(Rate::new(5.0).unwrap());
    let run = simulate(&machine(8), throughput(1), &[Job { goal, ..job(0, 100, 0) }]).unwrap();
    let given: Vec<u32> =
        run.samples.iter().filter(|one| one.at > 2.5 && one.at < 15.0).map(|one| one.given[0]).collect();
    assert!(given.iter().all(|given| *given == 3), "{given:?}");
}

#[test]
fn a_job_that_finds_no_least_is_rejected() {
    let least = Job { limits: Limits::new(3, 3).unwrap(), ..job(0, 10, 60) };
    let run = simulate(&machine(5), Policy::EarliestDeadline, &[least, least]).unwrap();
    assert!(run.ends[0].is_some() && run.ends[1].is_none());
    let run = simulate(&machine(5), throughput(1), &[least, least]).unwrap();
    assert!(run.ends[0].is_some() && run.ends[1].is_none());
}

#[test]
fn jobs_that_can_never_end_are_told() {
    let error = simulate(&machine(5), Policy::Fixed, &[Job { fixed: 0, ..job(0, 1, 1) }]).unwrap_err();
    assert!(matches!(error, ScenarioError::Invalid(_)), "{error}");
}

proptest! {
    #[test]
    fn every_run_keeps_the_laws_and_ends(
        devices in 1_u32..9, which in 0_u32..3, period in 1_u64..5, spread in 0.0_f64..0.5,
        most_per_second in 1.0_f64..30.0, reconfiguration in 0.0_f64..1.0,
        jobs in prop::collection::vec((0_u64..30, 1_u64..60, 1_u64..60, prop::bool::ANY, 0_u32..3), 1..6),
    ) {
        let machine = Machine { spread, most_per_second, reconfiguration, ..machine(devices) };
        let policy = match which {
            0 => Policy::EarliestDeadline,
            1 => throughput(period),
            _ => Policy::Throughput { period: Duration::from_secs(period), rules: GoalRules::default() },
        };
        let mut jobs: Vec<Job> = jobs
            .into_iter()
            .map(|(at, actions, goal, deadline, least)| {
                let one = Job { limits: Limits::new(least, 9).unwrap(), ..job(at, actions, goal) };
                if deadline || which == 0 { one } else { Job { goal: Goal::Throughput(Rate::new(goal as f64).unwrap()), ..one } }
            })
            .collect();
        jobs.sort_by_key(|job| job.at);
        let run = simulate(&machine, policy, &jobs).unwrap();
        prop_assert_eq!(&run, &simulate(&machine, policy, &jobs).unwrap());
        for (job, end) in jobs.iter().zip(&run.ends) {
            let least = job.actions as f64 * machine.action * (1.0 - spread) / f64::from(devices.min(9));
            prop_assert!(end.is_none_or(|end| end - job.at.as_secs_f64() >= least - 1e-6));
        }
        for sample in &run.samples {
            for (given, job) in sample.given.iter().zip(&jobs) {
                prop_assert!(*given <= job.limits.most());
            }
        }
    }
}
