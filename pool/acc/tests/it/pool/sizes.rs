//! Jobs that have more bytes than they have named.

use crate::limit;
use crate::real::RealBed;
use fpga_acc::{Request, wait};
use fpga_test_kit::until;
use ring::digest::{Context, SHA256, digest};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Zeros until the test has seen enough.
struct Zeros {
    given: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Read for Zeros {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.is_over.load(Ordering::SeqCst) {
            return Ok(0);
        }
        buffer.fill(0);
        self.given.fetch_add(buffer.len() as u64, Ordering::SeqCst);
        Ok(buffer.len())
    }
}

#[test]
fn a_job_that_names_a_byte_and_streams_on_leaves_its_slot_to_the_next_one_and_then_goes_on() {
    let bed = RealBed::new(&["--goal-period", "100ms"], &[1]);
    let (liar, honest) = (super::pool(&bed), super::pool(&bed));
    let mut long = wait(liar.open(Request::new("sha-256", 1)), limit()).unwrap();
    let status = long.status();
    let (given, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let zeros = Zeros { given: Arc::clone(&given), is_over: Arc::clone(&is_over) };
    let streaming = std::thread::spawn(move || {
        let mut output = Vec::new();
        long.stream_blocking(zeros, &mut output, limit()).unwrap();
        output
    });
    until("it is beyond what it has named", || status.borrow().input_bytes > 8_000_000);
    // It has not ended, and does not end before the other one has had its turn.
    let mut short = wait(honest.open(Request::new("sha-256", 5)), limit()).unwrap();
    assert_eq!(wait(short.run(vec![7; 5]), limit()).unwrap(), digest(&SHA256, &[7; 5]).as_ref());
    wait(short.close(), limit()).unwrap();
    until("it has its slot again", || status.borrow().slots >= 2);
    is_over.store(true, Ordering::SeqCst);
    let output = streaming.join().unwrap();
    let mut all = Context::new(&SHA256);
    let mut left = given.load(Ordering::SeqCst);
    while left > 0 {
        let part = left.min(1 << 20);
        all.update(&vec![0; usize::try_from(part).unwrap()]);
        left -= part;
    }
    assert_eq!(output, all.finish().as_ref());
}
