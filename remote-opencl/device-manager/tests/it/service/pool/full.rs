//! A board that is reconfigured as a whole and lent as a whole.

use super::{Pool, Worker, bitstream};
use crate::harness::digest_of;
use crate::service::INCREASE;
use fpga_pool_leases::ids::LeaseId;
use std::time::Instant;

const FULL: [&str; 8] =
    ["--slots", "1", "--pool-slots", "1", "--reconfiguration", "full", "--reconfiguration-time", "200ms"];

#[tokio::test]
async fn leases_of_a_board_that_is_reconfigured_as_a_whole_follow_one_another_with_right_results() {
    let other = INCREASE.replace("increase", "other");
    let bitstreams = [bitstream(INCREASE).await, bitstream(&other).await];
    for isolate in ["protocol", "process"] {
        let args = [&FULL[..], &["--isolate", isolate]].concat();
        follow_one_another(Pool::start_of(&bitstreams, "", &args).await, &bitstreams).await;
    }
}

async fn follow_one_another(mut pool: Pool, bitstreams: &[Vec<u8>; 2]) {
    for (id, kernel) in (1..).zip(["increase", "other", "other", "increase"]) {
        let bitstream = &bitstreams[usize::from(kernel == "other")];
        let client = pool.holder_of(id, 0, digest_of(bitstream)).await;
        let mut worker = Worker::new(client, bitstream, kernel).await;
        let since = Instant::now();
        for _ in 0..2 {
            let read = worker.step().await;
            worker.ends_well(read).await;
        }
        if id == 2 {
            pool.stream.recall(LeaseId(id)).await;
            worker.client.is_to_yield().await;
        }
        drop(worker);
        let report = pool.stream.freed().await;
        // The session's program, whose making loads the board, is no action, and its time is no time of an action.
        assert_eq!((report.usage.bytes, report.usage.actions), (80, 2), "{kernel}");
        let at_most = u64::try_from(since.elapsed().as_millis()).unwrap();
        assert!(report.usage.busy.0 <= at_most, "{:?} in {at_most} ms", report.usage);
    }
}
