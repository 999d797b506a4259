//! What jobs compute.

use crate::bed::{Bed, Way};
use crate::cipher::{aes, encrypted};
use crate::limit;
use crate::managers::bytes;
use fpga_acc::{Error, Request, Where, wait};
use fpga_accelerators::Accelerator;
use fpga_pool_leases::messages::CancelCause;
use fpga_test_kit::until;
use ring::digest::{SHA256, digest};

#[test]
fn a_stream_is_encrypted_in_pieces_by_the_socket_and_by_tcp() {
    let bed = Bed::new(1);
    let input = bytes(9_000_005);
    let expected = encrypted(&input);
    for way in [Way::Socket, Way::Tcp] {
        let pool = bed.pool(way);
        let mut job = wait(pool.open(aes(input.len())), limit()).unwrap();
        let status = job.status();
        let mut output = Vec::new();
        let streamed = job.stream_blocking(&input[..], &mut output, limit()).unwrap();
        assert_eq!((streamed.input_bytes, streamed.output_bytes), (9_000_005, 9_000_005));
        assert!(output == expected, "the output is not that of the reference");
        wait(job.close(), limit()).unwrap();
        let status = status.borrow().clone();
        assert_eq!((status.at, status.input_bytes, status.slots), (Where::Ended, 9_000_005, 1));
        until("the slot is free", || bed.broker().seen().leased == 0);
    }
}

#[test]
fn a_digest_is_that_of_the_reference_for_all_lengths() {
    let bed = Bed::new(1);
    let pool = bed.pool(Way::Socket);
    for length in [0, 1, 64, 4_000_000, 8_000_001] {
        let input = bytes(length);
        let mut job = wait(pool.open(Request::new("sha-256", length as u64)), limit()).unwrap();
        let mut output = Vec::new();
        job.stream_blocking(&input[..], &mut output, limit()).unwrap();
        assert_eq!(output, digest(&SHA256, &input).as_ref(), "{length} bytes");
    }
}

#[test]
fn runs_are_pieces_of_one_stream_and_the_last_one_is_the_one_that_fills_the_workload() {
    let bed = Bed::new(1);
    let pool = bed.pool(Way::Socket);
    let input = bytes(5_000_010);
    let mut job = wait(pool.open(aes(input.len())), limit()).unwrap();
    assert_eq!(job.buffer_bytes(), 4_000_000);
    let too_long = wait(job.run(input[..4_000_016].to_vec()), limit());
    assert!(matches!(too_long, Err(Error::Size { given: 4_000_016, most: 4_000_000 })), "{too_long:?}");
    let within_a_block = wait(job.run(input[..17].to_vec()), limit());
    assert!(matches!(within_a_block, Err(Error::Block { given: 17, block: 16 })), "{within_a_block:?}");
    let mut output = Vec::new();
    for range in [0..1_600, 1_600..4_001_600, 4_001_600..5_000_010] {
        output.extend_from_slice(&wait(job.run(input[range].to_vec()), limit()).unwrap());
    }
    assert!(output == encrypted(&input), "the output is not that of the reference");
    let after = wait(job.run(vec![1]), limit());
    assert!(matches!(after, Err(Error::Done)), "{after:?}");
    wait(job.close(), limit()).unwrap();
}

#[test]
fn a_last_block_is_filled_with_zeros_where_the_accelerator_wants_that() {
    let bed = Bed::new(1);
    let pool = bed.pool(Way::Socket);
    let coefficients = vec![1; 40];
    let request =
        |bytes: usize| Request::new("reed-solomon", bytes as u64).argument("coefficients", &coefficients);
    let block = Accelerator::ReedSolomon.interface().spec().block_bytes as usize;
    let input = bytes(block + 100);
    let run = |input: Vec<u8>| {
        let mut job = wait(pool.open(request(input.len())), limit()).unwrap();
        wait(job.run(input), limit()).unwrap()
    };
    let short = run(input.clone());
    let mut filled = input;
    filled.resize(2 * block, 0);
    assert_eq!(short, run(filled));
}

#[test]
fn what_is_wrong_with_a_request_is_told() {
    let bed = Bed::new(1);
    let pool = bed.pool(Way::Socket);
    let error = |request| wait(pool.open(request), limit()).err().unwrap();
    assert!(matches!(error(Request::new("sobel", 5)), Error::UnknownAccelerator(_)));
    let no_board = error(Request::new("fft", 5));
    assert!(matches!(no_board, Error::Refused { why: CancelCause::NoFittingSlot, .. }), "{no_board}");
    let no_key = error(Request::new("aes-256-ctr", 5)).to_string();
    assert!(no_key.contains("the argument key is missing"), "{no_key}");
    let superfluous = error(Request::new("sha-256", 5).argument("key", &[1])).to_string();
    assert!(superfluous.contains("no argument of the accelerator"), "{superfluous}");
}
