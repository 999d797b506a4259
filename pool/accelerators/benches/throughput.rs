//! Throughput of the shipped accelerators on an OpenCL runtime, beside their references on one core, as a table in Markdown:
//! `cargo bench -p fpga-accelerators`. `RUNTIME` chooses the runtime as in the tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark that fails has no result")]
#![allow(clippy::cast_possible_truncation, reason = "the sizes of the benchmark fit")]

#[path = "../tests/it/board.rs"]
mod board;
#[path = "../tests/it/jobs.rs"]
mod jobs;
#[path = "../tests/it/reference.rs"]
mod reference;

use board::Board;
use fpga_accelerators::{Accelerator, MAX_CHUNK_BYTES};
use jobs::{Job, Random};
use std::time::Instant;

/// Bytes of the streams: four chunks.
const BYTES: usize = 16_000_000;
/// Of so many runs the fastest counts.
const RUNS: usize = 5;

fn main() {
    let board = Board::of_environment().unwrap();
    println!("| accelerator | kernel, MB/s | reference, MB/s | ratio |\n|---|---|---|---|");
    for accelerator in Accelerator::ALL {
        let loaded = board.load(accelerator).unwrap();
        let job = Job::random(accelerator, BYTES, &mut Random(7));
        let arguments = job.arguments();
        let expected = job.reference();
        let found = loaded.run(&arguments, &job.input, MAX_CHUNK_BYTES).unwrap();
        expected.compare(&found).unwrap();

        let megabytes = job.input.len() as f64 / 1e6;
        // In turns, so that a slow moment of the machine meets both.
        let (mut kernel, mut reference) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..RUNS {
            kernel = kernel.min(seconds(|| loaded.run(&arguments, &job.input, MAX_CHUNK_BYTES).unwrap()));
            reference = reference.min(seconds(|| job.reference()));
        }
        let (kernel, reference) = (megabytes / kernel, megabytes / reference);
        println!("| {} | {kernel:.0} | {reference:.0} | {:.2} |", accelerator.name(), kernel / reference);
    }
}

fn seconds<T>(work: impl FnOnce() -> T) -> f64 {
    let since = Instant::now();
    std::hint::black_box(work());
    since.elapsed().as_secs_f64()
}
