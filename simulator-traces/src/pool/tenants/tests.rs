use super::super::engine::{Arrival, Shared, simulate_shared};
use super::*;
use crate::outcome::Outcome;
use fpga_cluster::pool::{Bytes, NodeIndex, Place};

/// An overload of small jobs in two boards of two slots.
const OVERLOAD: &str = r#"
kind = "pool"
seeds = 2
policies = ["wra"]
[cluster]
nodes = 4
boards = 2
slots = 2
[jobs]
per_node = 250
load = 2.0
[queues]
count = 5
first_of_mean = 0.3
growth = 1.41
linear_from = 2
linear_to = 3
"#;

fn scenario(tenants: &str) -> Scenario {
    toml::from_str(&format!("{OVERLOAD}\n{tenants}")).unwrap()
}

fn run(tenants: &str) -> Outcome {
    super::super::run(&scenario(tenants)).unwrap()
}

/// What the tenants got in the run of seed 1 under FIFO.
fn fifo(tenants: &str) -> Vec<TenantMeasures> {
    let scenario = scenario(tenants);
    let tenants = scenario.tenants_of_pool().unwrap();
    let thresholds = fpga_cluster::pool::thresholds::Thresholds::new(Vec::new()).unwrap();
    let policy = scenario.policy(PolicyName::Fifo, &thresholds).unwrap();
    let (cluster, jobs) = (scenario.cluster().unwrap(), scenario.arrivals(1).unwrap());
    let shared = Shared { tenants: &tenants, ..Shared::default() };
    let course = simulate_shared(&cluster, policy, &shared, &jobs).unwrap();
    TenantMeasures::of_all(&course.jobs, tenants.len())
}

#[test]
fn what_two_tenants_got_by_hand() {
    let record = |tenant, at, started, ended| Record {
        job: Arrival { at, tenant: TenantId(tenant), home: NodeIndex(0), size: Bytes(1) },
        started,
        ended,
        place: Place::Local,
    };
    // Tenant 0 has the only slot to 40, then tenant 1. Both wait from 10 to 20, while tenant 0 has it.
    let records = [record(0, 0, 0, 20), record(1, 10, 40, 60), record(0, 10, 20, 40)];
    let [first, second] = TenantMeasures::of_all(&records, 2).try_into().unwrap();
    let near = |is: f64, should: f64| (is - should).abs() < 1e-12;
    assert!(near(first.act, 25e-9) && near(second.act, 50e-9), "{first:?} {second:?}");
    assert!(near(first.slot_time, 2.0 / 3.0) && near(second.slot_time, 1.0 / 3.0), "{first:?} {second:?}");
    assert_eq!((first.contended, second.contended, first.most_slots), (1.0, 0.0, 1));
}

#[test]
fn one_tenant_is_none() {
    let without = run("");
    let with = run("[[tenants]]\nname = \"a\"\nweight = 7\n");
    assert_eq!((without.tables.len(), with.tables.len()), (1, 2));
    assert_eq!((&without.tables[0], &without.series), (&with.tables[0], &with.series));
    let shares: Vec<&str> = with.tables[1].rows.iter().map(|row| row[6].as_str()).collect();
    assert_eq!((with.tables[1].columns[6].as_str(), shares), ("while all wait, %", vec!["100.0 ± 0.0"; 2]));
}

#[test]
fn slot_time_goes_by_weight_while_all_wait_and_not_by_arrivals() {
    let [a, b] = fifo(
        "[[tenants]]\nname = \"a\"\narrivals = 2.0\n[[tenants]]\nname = \"b\"\nweight = 3\narrivals = 3.0\n",
    )
    .try_into()
    .unwrap();
    assert!((a.contended - 0.25).abs() < 0.03, "{a:?} {b:?}");
    assert!((a.slot_time - 0.4).abs() < 0.05, "{a:?} {b:?}");
    assert!(a.act > b.act, "{a:?} {b:?}");
}

#[test]
fn a_quota_of_slots_is_kept_and_the_other_tenant_has_the_rest() {
    let [a, b] =
        fifo("[[tenants]]\nname = \"a\"\nheld_slots = 1\n[[tenants]]\nname = \"b\"\n").try_into().unwrap();
    assert_eq!((a.most_slots, b.most_slots), (1, 4));
    assert!(a.act > b.act, "{a:?} {b:?}");
}

#[test]
fn the_jobs_are_the_same_whatever_tenants_there_are() {
    let two = "[[tenants]]\nname = \"a\"\n[[tenants]]\nname = \"b\"\narrivals = 3.0\n";
    let (without, with) = (scenario("").arrivals(1).unwrap(), scenario(two).arrivals(1).unwrap());
    let same = |job: &Arrival| Arrival { tenant: TenantId(0), ..*job };
    assert_eq!(without, with.iter().map(same).collect::<Vec<_>>());
    let of_b = with.iter().filter(|job| job.tenant == TenantId(1)).count();
    assert!((700..800).contains(&of_b), "{of_b} of 1000 jobs");
}

#[test]
fn tenants_that_make_no_sense_are_told() {
    for (wrong, hint) in [
        ("name = \"a\"\nweight = 0", "at least 1"),
        ("name = \"a\"\nheld_slots = 0", "at least 1"),
        ("name = \"a\"\narrivals = -1.0", "at least 0"),
        ("name = \"a\"\narrivals = 0.0", "above 0"),
        ("name = \"a\"\n[[tenants]]\nname = \"a\"", "the name a"),
    ] {
        let error = scenario(&format!("[[tenants]]\n{wrong}")).tenants_of_pool().unwrap_err().to_string();
        assert!(error.contains(hint), "{wrong}: {error}");
    }
}
