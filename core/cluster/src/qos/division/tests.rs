use super::*;
use crate::qos::Rate;
use proptest::prelude::*;

fn claim(tenant: u32, devices: u32, performance: f64, least: u32, most: u32, due: Option<u64>) -> Claim {
    let goal = match due {
        Some(due) => Goal::Deadline { at: Duration::from_secs(due), actions: 9 },
        None => Goal::Throughput(Rate::new(1.0).unwrap()),
    };
    Claim {
        tenant: TenantId(tenant),
        goal,
        limits: Limits::new(least, most).unwrap(),
        request: Request { devices, performance, lateness: Lateness::OnTime, usable: None },
        before: Entitlement::default(),
    }
}

fn class(slots: u32, held_by_jobs: u32, jobs: Jobs) -> ClassState {
    ClassState { slots, held_by_jobs, jobs }
}

fn given(claims: &[Claim], class: ClassState, guaranteed: u32) -> Vec<u32> {
    let shares = by_request(claims, class, Floor::Quarter, Shrinking::AtOnce, |_| guaranteed);
    shares.iter().map(|share| share.given).collect()
}

#[test]
fn jobs_keep_their_floor_and_groups_get_slack_only_while_no_job_waits() {
    use Jobs::{HaveSlots, Wait};
    let any = u32::MAX;
    let (due, rate) =
        (|devices| claim(1, devices, 0.9, 0, any, Some(9)), |devices| claim(1, devices, 0.9, 0, any, None));
    // Columns: groups, slots that jobs hold, whether jobs wait, guaranteed slots, slots of the groups; of 8 slots.
    type Row<'a> = (&'a [Claim], u32, Jobs, u32, &'a [u32]);
    let table: [Row; 11] = [
        // A job waits: requests and no more, and of 8 slots jobs keep 2.
        (&[due(3), rate(2)], 2, Wait, any, &[3, 2]),
        (&[due(9), rate(0)], 2, Wait, any, &[6, 0]),
        // No job waits: groups with a deadline get all idle slots.
        (&[due(3), rate(2)], 0, HaveSlots, any, &[6, 2]),
        (&[due(3), rate(2)], 2, HaveSlots, any, &[4, 2]),
        (&[due(9), rate(0)], 0, HaveSlots, any, &[8, 0]),
        (&[rate(2)], 0, HaveSlots, any, &[2]),
        // Jobs hold more than is left for them. They end, nobody gets slack, and requests stay.
        (&[due(3), rate(2)], 5, HaveSlots, any, &[3, 2]),
        // The guarantee of the tenant caps requests; slack is beyond it, requests before surplus.
        (&[due(3), rate(2)], 0, Wait, 3, &[2, 1]),
        (&[due(3), rate(2)], 0, Wait, 0, &[0, 0]),
        (&[due(3), rate(2)], 0, HaveSlots, 0, &[6, 2]),
        (&[due(9), rate(9)], 4, HaveSlots, 0, &[2, 2]),
    ];
    for (claims, held, jobs, guaranteed, expected) in table {
        assert_eq!(given(claims, class(8, held, jobs), guaranteed), expected, "{claims:?} {held} {jobs:?}");
    }
}

#[test]
fn the_guarantee_is_the_tenants_and_its_groups_share_it() {
    let any = u32::MAX;
    let claims =
        [claim(1, 5, 0.2, 0, any, None), claim(1, 5, 0.9, 1, any, None), claim(2, 2, 0.9, 0, any, None)];
    // Tenant 1 has 3: the minimum of its second group, and two for the first, which is farther from its goal.
    assert_eq!(given(&claims, class(12, 0, Jobs::Wait), 3), [2, 1, 2]);
}

#[test]
fn a_late_group_falls_to_its_minimum_and_at_least_one_slot() {
    let late = |least: u32, due: u64| {
        let mut claim = claim(1, 1, 1.0, least, 9, Some(due));
        claim.request.lateness = Lateness::Late;
        claim
    };
    let other = claim(1, 2, 0.5, 0, 9, Some(99));
    let all = class(8, 0, Jobs::HaveSlots);
    // The idle slots go to the group that is not late.
    assert_eq!(given(&[late(0, 9), late(3, 9), other], all, u32::MAX), [1, 3, 4]);
    let by_deadline = |claims: &[Claim]| -> Vec<u32> {
        by_deadline(claims, all, Floor::None, |_| u32::MAX).iter().map(|share| share.given).collect()
    };
    assert_eq!(by_deadline(&[late(0, 1), late(3, 2), other]), [1, 3, 4]);
}

#[test]
fn a_group_whose_queue_ran_empty_leaves_to_jobs_that_wait_what_it_has_no_actions_for() {
    use Jobs::{HaveSlots, Wait};
    // It asks for five slots.
    let group = |least: u32, usable: Option<u32>| {
        let mut claim = claim(1, 5, 0.9, least, 9, Some(9));
        claim.request.usable = usable;
        claim
    };
    // Columns: minimum, slots that it can use, whether jobs wait, its slots by requests and by deadlines; of 8 slots.
    let table = [
        (0, None, Wait, 5, 6),
        (0, Some(2), Wait, 2, 2),
        (3, Some(1), Wait, 3, 3),
        (0, Some(2), HaveSlots, 8, 8),
    ];
    for (least, usable, jobs, by_requests, by_deadlines) in table {
        let (claims, class) = ([group(least, usable)], class(8, 0, jobs));
        assert_eq!(given(&claims, class, u32::MAX), [by_requests], "{least} {usable:?} {jobs:?}");
        let shares = by_deadline(&claims, class, Floor::Quarter, |_| u32::MAX);
        assert_eq!(shares[0].given, by_deadlines, "{least} {usable:?} {jobs:?}");
    }
}

#[test]
fn under_edf_the_floor_the_guarantee_and_slack_hold_as_well() {
    let claims = [claim(1, 0, 0.0, 1, 99, Some(9)), claim(2, 0, 0.0, 1, 99, Some(5))];
    let given = |jobs: Jobs, held: u32, guaranteed: u32| -> Vec<u32> {
        let shares = by_deadline(&claims, class(8, held, jobs), Floor::Quarter, |_| guaranteed);
        shares.iter().map(|share| share.given).collect()
    };
    assert_eq!(given(Jobs::Wait, 2, u32::MAX), [1, 5]);
    assert_eq!(given(Jobs::Wait, 2, 2), [2, 2]);
    assert_eq!(given(Jobs::HaveSlots, 1, 2), [2, 5]);
    assert_eq!(given(Jobs::HaveSlots, 0, u32::MAX), [1, 7]);
}

fn claims() -> impl Strategy<Value = Vec<Claim>> {
    // A job within its margin asks for everything.
    let devices = prop_oneof![9 => 0_u32..12, 1 => Just(u32::MAX)];
    let before = (0_u32..8, 0_u32..8);
    let ran_empty = prop::option::of(1_u32..6);
    let one = (0_u32..3, devices, 0.0_f64..3.0, 0_u32..4, 0_u32..6, 0_u64..20, before, ran_empty);
    let claim =
        one.prop_map(|(tenant, devices, performance, least, more, due, (requested, kept), usable)| {
            let due = (due < 15).then_some(due);
            let mut claim = claim(tenant, devices, performance, least, (least + more).max(1), due);
            claim.request.usable = usable;
            Claim { before: Entitlement { requested, kept: kept.min(claim.limits.most()) }, ..claim }
        });
    prop::collection::vec(claim, 0..9)
}

proptest! {
    #[test]
    fn without_jobs_and_guarantees_the_division_is_the_papers(claims in claims(), slots in 0_u32..40) {
        let all = class(slots, 0, Jobs::HaveSlots);
        let bids: Vec<Bid> = claims.iter().map(|claim| claim.bid(all.jobs)).collect();
        let shares = by_request(&claims, all, Floor::None, Shrinking::AtOnce, |_| u32::MAX);
        let given: Vec<u32> = shares.iter().map(|share| share.given).collect();
        prop_assert_eq!(given, broker::allocate(&bids, slots));
        let dues: Vec<Due> = claims.iter().map(|claim| claim.due(all.jobs)).collect();
        let shares = by_deadline(&claims, all, Floor::None, |_| u32::MAX);
        let given: Vec<u32> = shares.iter().map(|share| share.given).collect();
        prop_assert_eq!(given, edf::allocate(&dues, slots));
    }

    #[test]
    fn floor_guarantees_and_limits_hold_whatever_is_asked(
        claims in claims(), slots in 0_u32..40, held in 0_u32..40, waits in prop::bool::ANY, guaranteed in 0_u32..9,
    ) {
        let jobs = if waits { Jobs::Wait } else { Jobs::HaveSlots };
        let class = class(slots, held.min(slots), jobs);
        for shares in [
            by_request(&claims, class, Floor::Quarter, Shrinking::AfterTwoPeriods, |_| guaranteed),
            by_request(&claims, class, Floor::Quarter, Shrinking::AtOnce, |_| guaranteed),
            by_deadline(&claims, class, Floor::Quarter, |_| guaranteed),
        ] {
            prop_assert_eq!(shares.len(), claims.len());
            let given: u32 = shares.iter().map(|share| share.given).sum();
            let entitled: u32 = shares.iter().map(|share| share.entitled.kept).sum();
            prop_assert!(given <= slots);
            prop_assert!(entitled <= class.for_groups(Floor::Quarter));
            if waits || class.slots - class.held_by_jobs < entitled {
                prop_assert_eq!(given, entitled);
            } else {
                prop_assert!(given + class.held_by_jobs <= slots);
            }
            for tenant in (0..3).map(TenantId) {
                let of_tenant = claims.iter().zip(&shares).filter(|(claim, _)| claim.tenant == tenant);
                let entitled: u32 = of_tenant.map(|(_, share)| share.entitled.kept).sum();
                prop_assert!(entitled <= guaranteed, "{tenant:?}: {entitled}");
            }
            for (claim, share) in claims.iter().zip(&shares) {
                prop_assert!(share.entitled.kept <= share.given && share.given <= claim.limits.most());
            }
        }
    }
}
