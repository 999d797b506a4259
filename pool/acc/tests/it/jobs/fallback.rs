//! Jobs that the processor does, since no slot comes in time.

use crate::bed::{Bed, Way};
use crate::cipher::{aes, encrypted};
use crate::limit;
use crate::managers::bytes;
use fpga_acc::{ChunkInput, Config, Error, Fallback, Pool, Position, Request, Room, Where, wait};
use fpga_test_kit::{patience, until};
use ring::digest::{SHA256, digest};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(100);

fn hash(bytes: usize) -> Request {
    Request::new("sha-256", bytes as u64)
}

#[test]
fn without_a_slot_in_time_the_processor_does_the_job_and_the_status_says_so() {
    let mut bed = Bed::new(0);
    let pool = bed.pool(Way::Socket);
    let input = bytes(9_000_005);
    let mut job = wait(pool.open(aes(input.len()).or_else(SHORT, Fallback::shipped())), limit()).unwrap();
    let status = job.status();
    assert_eq!(status.borrow().at, Where::OnProcessor);
    // The job has left the pool: a slot that comes now is for others.
    until("the broker hears", || bed.broker().seen().cancelled.len() == 1);
    bed.add_manager();
    let mut output = Vec::new();
    job.stream_blocking(&input[..], &mut output, limit()).unwrap();
    assert!(output == encrypted(&input), "the output is not that of the reference");
    wait(job.close(), limit()).unwrap();
    let status = status.borrow().clone();
    assert_eq!((status.at.clone(), status.slots), (Where::Ended, 0));
    assert_eq!((status.input_bytes, status.processor_bytes), (9_000_005, Some(9_000_005)));
    assert!(status.to_string().contains("9000005 bytes by the processor"), "{status}");
    assert_eq!(bed.broker().seen().leased, 0);
}

#[test]
fn a_job_that_the_broker_refuses_falls_back_at_once() {
    let bed = Bed::new(1);
    let pool = bed.pool(Way::Socket);
    let request = Request::new("fft", 8192).or_else(patience(), Fallback::shipped());
    let mut job = wait(pool.open(request), limit()).unwrap();
    // A one and zeros: all numbers of the transform are ones.
    let mut input = vec![0; 8192];
    input[..4].copy_from_slice(&1_f32.to_le_bytes());
    let output = wait(job.run(input), limit()).unwrap();
    let one = [1_f32.to_le_bytes(), 0_f32.to_le_bytes()].concat();
    assert!(output.chunks_exact(8).all(|number| number == one), "{:?}", &output[..16]);
    assert_eq!(job.status().borrow().processor_bytes, Some(8192));
}

#[test]
fn with_a_slot_in_time_the_processor_does_nothing() {
    let bed = Bed::new(1);
    let pool = bed.pool(Way::Socket);
    let mut job = wait(pool.open(hash(5).or_else(patience(), Fallback::shipped())), limit()).unwrap();
    assert_eq!(wait(job.run(vec![7; 5]), limit()).unwrap(), digest(&SHA256, &[7; 5]).as_ref());
    let status = job.status().borrow().clone();
    assert_eq!((status.slots, status.processor_bytes), (1, None));
}

#[test]
fn the_processor_goes_on_where_a_lost_board_has_ended() {
    for (request, expected) in [(aes as fn(usize) -> Request, true), (hash, false)] {
        let mut bed = Bed::new(1);
        let pool = bed.pool(Way::Tcp);
        let input = bytes(5_000_003);
        let request = request(input.len()).or_else(patience(), Fallback::shipped());
        let mut job = wait(pool.open(request), limit()).unwrap();
        let (first, rest) = input.split_at(2_000_000);
        let mut output = wait(job.run(first.to_vec()), limit()).unwrap().to_vec();
        // The processor does the job as soon as the broker refuses it.
        bed.broker().forget_bitstreams();
        bed.managers[0].kill();
        output.extend(wait(job.run(rest.to_vec()), limit()).unwrap());
        let expected = if expected { encrypted(&input) } else { digest(&SHA256, &input).as_ref().to_vec() };
        assert!(output == expected, "the output is not that of the reference");
        let status = job.status().borrow().clone();
        assert_eq!((status.slots, status.processor_bytes), (1, Some(3_000_003)));
    }
}

#[test]
fn the_processor_needs_no_broker() {
    let config = Config::of("127.0.0.1:1").unwrap();
    let pool = Pool::connect(config).unwrap();
    let mut job = wait(pool.open(hash(0).or_else(SHORT, Fallback::shipped())), limit()).unwrap();
    assert_eq!(wait(job.run(vec![]), limit()).unwrap(), digest(&SHA256, &[]).as_ref());
    assert_eq!(job.status().borrow().processor_bytes, Some(0));
    let own = Request::new("own", 5).or_else(SHORT, Fallback::shipped());
    assert!(matches!(wait(pool.open(own), limit()), Err(Error::NoFallback(_))));
}

#[test]
fn a_function_of_the_program_gets_what_the_kernel_gets_and_its_error_ends_the_job() {
    let bed = Bed::new(0);
    let pool = bed.pool(Way::Socket);
    let run = |compute: fn(&ChunkInput<'_>, Room<'_>) -> Result<(), String>| {
        let request = aes(4_000_020).or_else(Duration::ZERO, Fallback::function(compute));
        let mut job = wait(pool.open(request), limit()).unwrap();
        let mut output = Vec::new();
        job.stream_blocking(&vec![7; 4_000_020][..], &mut output, limit()).map(|_| output)
    };
    let inverted = run(|chunk, room| {
        let before = u64::from_le_bytes(chunk.state.try_into().unwrap());
        let is_last = chunk.position == Position::Last;
        assert_eq!(
            (before, chunk.arguments.len(), room.output.len()),
            match is_last {
                false => (0, 48, 4_000_000),
                true => (5, 48, 20),
            }
        );
        room.output.iter_mut().zip(chunk.bytes).for_each(|(output, input)| *output = !input);
        room.next_state.copy_from_slice(&5_u64.to_le_bytes());
        Ok(())
    });
    assert!(inverted.unwrap().iter().all(|byte| *byte == !7));
    for (wrong, text) in [
        (run(|_, _| Err("not today".to_owned())), "not today"),
        (run(|_, _| panic!("a bug of the program")), "it panicked"),
    ] {
        let error = wrong.unwrap_err();
        assert!(matches!(&error, Error::Processor(why) if why.contains(text)), "{error}");
    }
}
