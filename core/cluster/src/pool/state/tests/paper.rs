//! With one tenant the pool decides as the paper's algorithm does.

use super::super::super::reference;
use super::*;
use crate::pool::policy::Aging;

/// Plays the same events to both pools and compares the grants, which are the decisions.
fn compare(
    policy: &PoolPolicy,
    printed: &PoolPolicy,
    slots: &[u32],
    steps: Vec<(u64, Step)>,
) -> Result<(), TestCaseError> {
    prop_assume!(slots.iter().any(|slots| *slots > 0));
    let mut pool = Pool::with_slots(slots, policy.clone(), 1000);
    let mut paper = reference::Pool::new(slots, printed.clone(), 1000);
    let mut now = Duration::ZERO;
    let mut running: Vec<JobId> = Vec::new();
    for (id, (after, step)) in (0..).zip(steps) {
        let then = now + Duration::from_millis(after);
        while let Some(wake) = paper.next_wake().filter(|wake| *wake <= then) {
            prop_assert_eq!(pool.next_wake(), Some(wake));
            let grants = pool.wake(wake);
            prop_assert_eq!(&grants, &paper.wake(wake));
            running.extend(grants.iter().map(|grant| grant.job));
        }
        now = then;
        match step {
            Step::Submit(home, size) => {
                let granted = pool.submit(job(id, home, size), now);
                prop_assert_eq!(&granted, &paper.submit(job(id, home, size), now));
                running.extend(granted.ok().flatten().map(|grant| grant.job));
            }
            Step::Finish(which) if !running.is_empty() => {
                let ended = running.remove(which % running.len());
                let grants = pool.finish(ended, now).unwrap();
                prop_assert_eq!(&grants, &paper.finish(ended, now).unwrap());
                running.extend(grants.iter().map(|grant| grant.job));
            }
            Step::Finish(which) => {
                let waits = JobId(which as u64);
                prop_assert_eq!(pool.cancel(waits), paper.cancel(waits));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn with_one_tenant_every_decision_is_that_of_the_paper(
        policy in policies(), slots in prop::collection::vec(0_u32..4, 6), steps in steps(),
    ) {
        compare(&policy, &policy, &slots, steps)?;
    }

    #[test]
    fn a_shared_pool_decides_as_the_paper_while_no_job_is_old(
        skips in 0_u32..6, slots in prop::collection::vec(3_u32..5, 6), steps in steps(),
    ) {
        // Half of 3 or 4 slots is C = 2, and all steps are within 6 s.
        let queues = Thresholds::new(vec![3_000_000, 9_000_000]).unwrap();
        let rules = ResourceAwareRules { contention: Contention::HalfOfSlots, ..rules(2, skips) };
        let shared = PoolPolicy::workload_and_resource_aware(queues.clone(), rules);
        let shared = PoolPolicy { aging: Aging::DEFAULT, ..shared };
        let printed = PoolPolicy::workload_and_resource_aware(queues, super::rules(2, skips));
        compare(&shared, &printed, &slots, steps)?;
    }
}
