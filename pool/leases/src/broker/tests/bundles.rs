//! Bundles of two jobs, on a manager with two slots.

use super::*;
use crate::ids::BundleUuid;
use crate::lease::Bundle;

/// The jobs. The lease of each has the same number, and is for the slot of the job's place here.
const JOBS: [u128; 2] = [5, 6];

fn want_of(job: u128, bundle: Option<Bundle>, connection: ConnectionId) -> Event {
    let wanted = Wanted { bundle, ..wanted() };
    let want = ClientToBroker::Want { job: JobUuid(job), wanted, ticket: None, attempt: Attempt(1) };
    Event::Client(connection, Tenant::new("a"), want)
}

fn bundle() -> Option<Bundle> {
    Some(Bundle { id: BundleUuid(9), size: 2 })
}

/// Both jobs have been granted slots.
fn granted() -> Bench {
    let mut bench = Bench::active();
    let (incarnation, max_term) = (Incarnation(7), Term(0));
    let slots = vec![SlotStatus::Free; 2];
    let register = ManagerToBroker::Register { incarnation, max_term, endpoint: endpoint(), slots };
    bench.event(Event::Manager(OF_A, A, register));
    for job in JOBS {
        bench.event(want_of(job, bundle(), OF_C));
    }
    grant_all(&mut bench);
    bench
}

fn grant_all(bench: &mut Bench) {
    for (slot, job) in (0..).map(SlotIndex).zip(JOBS) {
        let digest = Digest::from_bytes([1; 32]);
        let (job, lease) = (JobUuid(job), LeaseId(job));
        let grant = Grant { job, manager: A, slot, digest, lease, usage_every: None };
        bench.broker.grant(&grant, bench.now.now).unwrap();
    }
}

fn told(actions: &[Action]) -> (Vec<LeaseId>, Vec<LeaseId>) {
    let offer = |action: &Action| match action {
        Action::ToClient(_, BrokerToClient::Offer { lease, .. }) => Some(*lease),
        _ => None,
    };
    let recall = |action: &Action| match action {
        Action::ToManager(_, BrokerToManager::Recall { lease }) => Some(*lease),
        _ => None,
    };
    (actions.iter().filter_map(offer).collect(), actions.iter().filter_map(recall).collect())
}

fn report(slot: u32, status: SlotStatus, seq: u64) -> Event {
    let (slot, why, usage) = (SlotIndex(slot), SlotCause::NotAttached, crate::lease::Usage::default());
    Event::Manager(OF_A, A, ManagerToBroker::Slot(SlotReport { seq, slot, status, why, usage }))
}

fn waiting(bench: &Bench) -> Vec<u128> {
    bench.broker.jobs().filter(|job| job.preparing.is_none()).map(|job| job.id.0).collect()
}

#[test]
fn the_leases_of_a_bundle_are_offered_when_all_are_prepared() {
    let mut bench = granted();
    assert_eq!(bench.prepared(5), []);
    assert_eq!(waiting(&bench), [0; 0]);
    let offered = bench.prepared(6);
    assert_eq!(told(&offered), (vec![LeaseId(5), LeaseId(6)], vec![]));
    assert_eq!(bench.broker.jobs().count(), 0);
    // From now on each job is one by itself.
    bench.event(want_of(5, None, OF_C));
    assert_eq!(waiting(&bench), [5]);
}

#[test]
fn a_bundle_that_loses_a_job_or_a_slot_gives_the_others_back_and_waits_again() {
    let refused = || ManagerToBroker::Refused { lease: LeaseId(6), why: Refusal::LoadFailed };
    let cancel = || ClientToBroker::Cancel { job: JobUuid(6) };
    let tenant = || Tenant::new("a");
    for (what, event, recalled, left) in [
        ("a refused lease", Event::Manager(OF_A, A, refused()), vec![5], vec![5, 6]),
        ("a lease that ran out", report(0, SlotStatus::Free, 0), vec![], vec![5]),
        ("a cancelled job", Event::Client(OF_C, tenant(), cancel()), vec![5], vec![5]),
        ("a job that asks by itself", want_of(6, None, OF_C), vec![5], vec![5]),
        (
            "a job that asks with another bundle",
            {
                let other = Bundle { id: BundleUuid(8), size: 2 };
                want_of(6, Some(other), OF_C)
            },
            vec![5],
            vec![5],
        ),
        ("a lost manager", Event::ManagerClosed(OF_A), vec![], vec![5, 6]),
    ] {
        let mut bench = granted();
        bench.prepared(5);
        let (offers, recalls) = told(&bench.event(event));
        let recalled: Vec<LeaseId> = recalled.into_iter().map(LeaseId).collect();
        assert_eq!((offers, recalls, waiting(&bench)), (vec![], recalled, left), "{what}");
    }
}

#[test]
fn a_lease_that_is_prepared_after_its_bundle_has_lost_another_one_is_recalled() {
    let mut bench = granted();
    let refused = ManagerToBroker::Refused { lease: LeaseId(5), why: Refusal::LoadFailed };
    bench.event(Event::Manager(OF_A, A, refused));
    assert_eq!(waiting(&bench), [5]);
    assert_eq!(told(&bench.prepared(6)), (vec![], vec![LeaseId(6)]));
    assert_eq!(waiting(&bench), [5, 6]);
    // The slots are free again, and the second attempt succeeds.
    for (seq, slot) in [(0, 0), (1, 1)] {
        bench.event(report(slot, SlotStatus::Free, seq));
    }
    grant_all(&mut bench);
    bench.prepared(6);
    assert_eq!(told(&bench.prepared(5)).0, [LeaseId(5), LeaseId(6)]);
}

#[test]
fn a_bundle_whose_client_is_gone_gets_nothing_and_keeps_its_place() {
    let mut bench = granted();
    bench.prepared(5);
    bench.event(Event::ClientClosed(OF_C));
    let (offers, mut recalls) = told(&bench.prepared(6));
    recalls.sort_unstable();
    assert_eq!((offers, recalls), (vec![], vec![LeaseId(5), LeaseId(6)]));
    let first = |bench: &Bench| bench.broker.job(JobUuid(5)).unwrap().first_arrival;
    let before = first(&bench);
    bench.now.wall = WallTime(99_999);
    bench.event(want_of(5, bundle(), ConnectionId(21)));
    assert_eq!(first(&bench), before);
}
