//! The shipped accelerators over a real OpenCL runtime: PoCL, or the one of `RUNTIME`, held against references
//! that compute the same in other ways.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is a panic")]
#![allow(clippy::cast_possible_truncation, reason = "the sizes of the tests fit")]

mod board;
mod jobs;
mod published;
mod reference;

use board::{Board, Loaded};
use fpga_accelerators::{Accelerator, ChunkInput, MAX_CHUNK_BYTES, chunks, chunks_of, reed_solomon};
use jobs::{Job, Random};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::num::NonZeroU32;

/// Runs a job in chunks of at most so many bytes, and compares its output with the reference's.
fn agrees(loaded: &Loaded, job: &Job, most_bytes: NonZeroU32) {
    let found = loaded.run(&job.arguments(), &job.input, most_bytes).unwrap();
    if let Err(difference) = job.reference().compare(&found) {
        panic!("{:?}, {} bytes in chunks of {most_bytes}: {difference}", job.accelerator, job.input.len());
    }
}

#[test]
fn chunks_with_their_state_give_what_the_whole_stream_gives() {
    let board = Board::of_environment().unwrap();
    for accelerator in Accelerator::ALL {
        let loaded = board.load(accelerator).unwrap();
        // Some blocks, and some work-groups of small blocks.
        let bytes = (accelerator.interface().spec().block_bytes * 12).max(20_000);
        let sizes = (0..=bytes, 1..bytes / 2, any::<u64>());
        let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
        TestRunner::new(config)
            .run(&sizes, |(bytes, most_bytes, seed)| {
                let job = Job::random(accelerator, bytes as usize, &mut Random(seed));
                agrees(&loaded, &job, NonZeroU32::new(most_bytes).unwrap());
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn tails_of_every_length_and_empty_streams_agree() {
    let board = Board::of_environment().unwrap();
    for (accelerator, lengths) in [
        (Accelerator::Aes256Ctr, (0..=49).collect::<Vec<usize>>()),
        (Accelerator::Sha256, (0..=130).collect()),
        (Accelerator::ReedSolomon, vec![0, 1, 4_096, 40_959, 40_960, 40_961]),
        (Accelerator::Fft, vec![0, 1, 8, 8_191, 8_192, 8_193]),
        (Accelerator::DynamicTimeWarping, vec![0, 512, 17 * 512]),
        (Accelerator::ValueAtRisk, vec![0, 16, 65 * 16]),
    ] {
        let loaded = board.load(accelerator).unwrap();
        for length in lengths {
            agrees(&loaded, &Job::random(accelerator, length, &mut Random(length as u64)), MAX_CHUNK_BYTES);
        }
    }
}

#[test]
fn streams_around_the_longest_chunk_agree() {
    let board = Board::of_environment().unwrap();
    for accelerator in Accelerator::ALL {
        let loaded = board.load(accelerator).unwrap();
        for bytes in [3_999_999, 4_000_000, 4_000_001] {
            // Where a tail is refused, the lengths are the blocks around 4 MB.
            let job = Job::random(accelerator, bytes, &mut Random(1));
            agrees(&loaded, &job, MAX_CHUNK_BYTES);
        }
        let block = accelerator.interface().spec().block_bytes as usize;
        let longest = 4_000_000 / block * block;
        agrees(&loaded, &Job::random(accelerator, longest + block, &mut Random(2)), MAX_CHUNK_BYTES);
    }
}

#[test]
fn a_chunk_that_is_done_again_gives_the_same() {
    let board = Board::of_environment().unwrap();
    for accelerator in Accelerator::ALL {
        let loaded = board.load(accelerator).unwrap();
        let job = Job::random(accelerator, 100_000, &mut Random(3));
        let interface = accelerator.interface();
        let chunk = chunks(&interface, job.input.len() as u64).unwrap().next().unwrap();
        let state = vec![0x11; interface.spec().state_bytes as usize];
        let input = &job.input[..];
        let once = loaded.step(&job.arguments(), &chunk, input, &state).unwrap();
        let again = loaded.step(&job.arguments(), &chunk, input, &state).unwrap();
        let difference = once.0.iter().zip(&again.0).position(|(a, b)| a != b);
        assert!(once == again, "{accelerator:?}: byte {difference:?}");
    }
}

#[test]
fn a_counter_of_128_bits_carries_over_all_its_bytes() {
    let board = Board::of_environment().unwrap();
    let loaded = board.load(Accelerator::Aes256Ctr).unwrap();
    for counter in [[0xff; 16], [[0x00; 8], [0xff; 8]].concat().try_into().unwrap()] {
        let mut job = Job::random(Accelerator::Aes256Ctr, 16 * 5, &mut Random(4));
        job.values[1].1 = counter.to_vec();
        agrees(&loaded, &job, NonZeroU32::new(32).unwrap());
    }
}

#[test]
fn four_lost_shards_are_made_again_from_the_ten_that_are_left() {
    let board = Board::of_environment().unwrap();
    let loaded = board.load(Accelerator::ReedSolomon).unwrap();
    let interface = Accelerator::ReedSolomon.interface();
    let run = |coefficients: reed_solomon::Coefficients, shards: &[&[u8]]| {
        let arguments = interface.arguments(&[("coefficients", &coefficients.to_bytes())]).unwrap();
        loaded.run(&arguments, &shards.concat(), MAX_CHUNK_BYTES).unwrap()
    };
    let mut data = vec![0; reed_solomon::BLOCK_BYTES as usize];
    Random(5).fill(&mut data);
    let mut shards: Vec<&[u8]> = data.chunks(reed_solomon::SHARD_BYTES as usize).collect();
    let parity = run(reed_solomon::Coefficients::of_parity(), &shards);
    shards.extend(parity.chunks(reed_solomon::SHARD_BYTES as usize));

    let lost = [0, 4, 9, 11];
    let left = [13, 1, 2, 3, 5, 6, 7, 8, 10, 12];
    let coefficients = reed_solomon::Coefficients::rebuilding(lost, left).unwrap();
    let again = run(coefficients, &left.map(|shard| shards[shard]));
    assert!(again == lost.map(|shard| shards[shard]).concat());
}

#[test]
fn a_stream_goes_from_the_board_to_the_processor_and_back_between_any_two_chunks() {
    let board = Board::of_environment().unwrap();
    for accelerator in Accelerator::ALL {
        let loaded = board.load(accelerator).unwrap();
        let (interface, block) = (accelerator.interface(), accelerator.interface().spec().block_bytes);
        for seed in 0..20 {
            let job = Job::random(accelerator, block as usize * 9 + seed, &mut Random(seed as u64));
            let (arguments, most) = (job.arguments(), NonZeroU32::new(block * 2).unwrap());
            let mut state = vec![0; interface.spec().state_bytes as usize];
            let mut output = Vec::new();
            for (index, chunk) in chunks_of(&interface, job.input.len() as u64, most).unwrap().enumerate() {
                let bytes = &job.input[chunk.input.start as usize..chunk.input.end as usize];
                let (bytes, next) = if seed >> (index % 5) & 1 == 1 {
                    loaded.step(&arguments, &chunk, bytes, &state).unwrap()
                } else {
                    let bytes = &[bytes, &vec![0; chunk.zeros as usize]].concat()[..];
                    let (state, arguments) = (&state[..], arguments.expose());
                    let input = ChunkInput { bytes, state, arguments, position: chunk.position };
                    let computed = accelerator.compute(&input).unwrap();
                    (computed.bytes, computed.state)
                };
                output.extend(bytes);
                state = next;
            }
            if let Err(difference) = job.reference().compare(&output) {
                panic!("{accelerator:?}, seed {seed}: {difference}");
            }
        }
    }
}
