//! A board that is reconfigured as a whole, and lent as a whole.

use crate::cipher::{aes, encrypted};
use crate::limit;
use crate::managers::bytes;
use crate::real::RealBed;
use fpga_acc::{Request, wait};
use fpga_test_kit::until;
use ring::digest::{SHA256, digest};

#[test]
fn two_accelerators_take_turns_on_a_board_that_is_reconfigured_as_a_whole() {
    for isolate in ["protocol", "process"] {
        take_turns(&["--reconfiguration", "full", "--reconfiguration-time", "20ms", "--isolate", isolate]);
    }
}

fn take_turns(args: &[&str]) {
    let mut bed = RealBed::new(&[], &[]);
    bed.add_manager_with(1, args);
    let pool = super::pool(&bed);
    for length in [5_000_001, 64, 4_000_000] {
        let input = bytes(length);
        let mut job = wait(pool.open(Request::new("sha-256", length as u64)), limit()).unwrap();
        let mut output = Vec::new();
        job.stream_blocking(&input[..], &mut output, limit()).unwrap();
        assert_eq!(output, digest(&SHA256, &input).as_ref());
        wait(job.close(), limit()).unwrap();
        let mut job = wait(pool.open(aes(length)), limit()).unwrap();
        let mut output = Vec::new();
        job.stream_blocking(&input[..], &mut output, limit()).unwrap();
        assert!(output == encrypted(&input), "the output is not that of the reference");
        wait(job.close(), limit()).unwrap();
    }
    until("the board is free", || bed.slots("free") == 1.0);
}
