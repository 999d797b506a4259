use super::*;
use fpga_pool_api::limits::MAX_VIEW_JOBS;

#[test]
fn of_many_waiting_jobs_the_oldest_are_shown_in_order_and_all_are_counted() {
    let mut bench = Bench::new("");
    let half = MOST_WAITING as u128 / 2;
    for job in half..2 * half {
        bench.run_of_another(job);
    }
    for job in 0..half {
        bench.run(job);
    }
    let seen = bench.state.view(&Viewer::Operator, bench.now);
    assert_eq!(seen.waiting, MOST_WAITING as u64);
    let shown: Vec<Vec<u8>> = seen.jobs.into_iter().map(|job| job.job).collect();
    let oldest: Vec<Vec<u8>> = (0..MAX_VIEW_JOBS as u128).map(|job| job.to_be_bytes().to_vec()).collect();
    assert_eq!(shown, oldest);
}
