use super::*;

#[test]
fn a_tenant_without_a_quota_leaves_half_of_the_places_to_others() {
    let mut bench = Bench::new("");
    let half = MOST_WAITING as u128 / 2;
    for job in 0..half {
        assert_eq!(cancelled(&bench.run(job)), []);
    }
    let refused = cancelled(&bench.run(half));
    assert!(matches!(refused.as_slice(), [(_, CancelCause::Quota, _)]), "{refused:?}");
    for job in half..2 * half {
        assert_eq!(cancelled(&bench.run_of_another(job)), []);
    }
}
