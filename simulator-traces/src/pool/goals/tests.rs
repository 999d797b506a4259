use super::*;
use crate::outcome::Outcome;
use crate::pool::engine::{Course, Shared, simulate_shared};
use fpga_cluster::pool::thresholds::Thresholds;

const SECOND: u64 = 1_000_000_000;

/// A board of four slots, whose jobs come as fast as the load says.
fn scenario(load: f64, rest: &str) -> Scenario {
    let text = format!(
        "kind = \"pool\"\nseeds = 2\npolicies = [\"fifo\"]\n{rest}\n[cluster]\nnodes = 1\nboards = 1\nslots = 4\nslot_gbyte = 0.1\n\
         [jobs]\nper_node = 200\nload = {load}\n"
    );
    toml::from_str(&text).unwrap()
}

fn simulate(scenario: &Scenario) -> Course {
    let policy = scenario.policy(PolicyName::Fifo, &Thresholds::new(Vec::new()).unwrap()).unwrap();
    let (tenants, groups) = (scenario.tenants_of_pool().unwrap(), scenario.groups().unwrap());
    let shared = Shared { tenants: &tenants, goals: scenario.goals().unwrap(), groups: &groups };
    let (cluster, jobs) = (scenario.cluster().unwrap(), scenario.arrivals(1).unwrap());
    simulate_shared(&cluster, policy, &shared, &jobs).unwrap()
}

fn mean_wait(course: &Course) -> f64 {
    let waits = course.jobs.iter().map(|job| (job.started - job.job.at) as f64 / SECOND as f64);
    waits.sum::<f64>() / course.jobs.len() as f64
}

/// When the group ended, in seconds, and the mean number of its slots.
fn ended(course: &Course, group: usize, begin: f64) -> (f64, f64) {
    let GroupRecord::Ended { at, slot_time } = course.groups[group] else { panic!("refused") };
    let end = at as f64 / SECOND as f64;
    (end, slot_time as f64 / SECOND as f64 / (end - begin))
}

const DEADLINE: &str =
    "[[groups]]\nname = \"g\"\nat_s = 1e6\nactions = 10\naction_ms = 1000.0\ndeadline_s = 2e6";

#[test]
fn a_group_has_the_whole_pool_while_no_job_waits() {
    // All jobs are over. Ten actions of a second in four slots: the last two slots have none from 2 s on.
    let course = simulate(&scenario(0.8, DEADLINE));
    assert_eq!(ended(&course, 0, 1e6), (1e6 + 3.0, 4.0));
}

#[test]
fn a_group_with_more_than_its_goal_needs_leaves_the_floor_to_jobs_that_wait() {
    let groups = |floor: &str| {
        format!(
            "[[groups]]\nname = \"g\"\nactions = 400\naction_ms = 500.0\ndeadline_s = 100.0\n\
             [goals]\npolicy = \"edf\"\nfloor = \"{floor}\""
        )
    };
    let (quarter, none) =
        (simulate(&scenario(2.0, &groups("quarter"))), simulate(&scenario(2.0, &groups("none"))));
    let alone = simulate(&scenario(2.0, ""));
    // Three of four slots, or all of them.
    let (end, slots) = ended(&quarter, 0, 0.0);
    assert!((66.0..68.0).contains(&end) && (2.9..3.1).contains(&slots), "{end} {slots}");
    let (end, slots) = ended(&none, 0, 0.0);
    assert!((50.0..51.0).contains(&end) && slots > 3.9, "{end} {slots}");
    assert!(mean_wait(&alone) < mean_wait(&quarter) && mean_wait(&quarter) < mean_wait(&none));
}

#[test]
fn a_throughput_goal_is_held_beside_jobs_that_wait_by_no_more_slots_than_it_needs() {
    let goals = "[[groups]]\nname = \"g\"\nactions = 200\naction_ms = 500.0\nper_second = 3.0\n[goals]\nperiod_s = 1.0";
    let outcome = super::super::run(&scenario(2.0, goals)).unwrap();
    let row = &outcome.tables[1].rows[0];
    assert_eq!([&row[1], &row[2], &row[6]], ["g", "3/s", "2 of 2"]);
    let slots = row[5].split(' ').next().unwrap().parse::<f64>().unwrap();
    assert!((1.5..2.5).contains(&slots), "{row:?}");
}

#[test]
fn a_minimum_beyond_the_guarantee_is_refused_and_told() {
    let text = "[[tenants]]\nname = \"a\"\nguaranteed_slots = 1\n\
                [[groups]]\nname = \"g\"\ntenant = \"a\"\nactions = 1\naction_ms = 1.0\nper_second = 1.0\nleast = 2";
    let outcome: Outcome = super::super::run(&scenario(0.5, text)).unwrap();
    let row = outcome.tables[2].rows[0].clone();
    assert_eq!([&row[3], &row[6]], ["-", "0 of 2, 2 refused"]);
}

#[test]
fn groups_that_come_later_than_all_jobs_change_none_of_them() {
    assert_eq!(simulate(&scenario(1.2, "")).jobs, simulate(&scenario(1.2, DEADLINE)).jobs);
}

#[test]
fn groups_that_make_no_sense_are_told() {
    let group = "[[groups]]\nname = \"g\"\nactions = 5\naction_ms = 10.0\n";
    for (wrong, hint) in [
        (group.to_owned(), "either `deadline_s` or `per_second`"),
        (format!("{group}deadline_s = 5.0\nper_second = 1.0"), "either `deadline_s` or `per_second`"),
        (format!("{group}deadline_s = 0.0"), "`deadline_s` must be above 0"),
        (format!("{group}per_second = 0.0"), "group g: "),
        (format!("{group}per_second = 1.0\ntenant = \"a\""), "names one of"),
        (format!("[[tenants]]\nname = \"a\"\n{group}per_second = 1.0"), "names one of"),
        (format!("{group}per_second = 1.0\nleast = 3\nmost = 2"), "group g: "),
        (format!("{group}per_second = 1.0\n[goals]\npolicy = \"edf\""), "write `deadline_s`"),
        (format!("{group}per_second = 1.0\n[goals]\nmargin = 1.0"), "margin"),
        (format!("{group}per_second = 1.0\n[goals]\nperiod_s = 0.0"), "`goals.period_s` must be above 0"),
        (format!("{group}per_second = 1.0\nat_s = 5.0\n{group}per_second = 1.0"), "in the order"),
        (group.replace("= 5", "= 0") + "per_second = 1.0", "`actions` must be"),
    ] {
        let error = super::super::run(&scenario(0.5, &wrong)).unwrap_err().to_string();
        assert!(error.contains(hint), "{wrong}: {error}");
    }
}
