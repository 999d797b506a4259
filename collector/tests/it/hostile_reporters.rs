//! The collector with hostile reporters: the memory that it uses, and whether it still serves others.

use crate::common::{StopOnDrop, event, memory_kib, start_collector};
use fpga_test_kit::{patience, until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum length of a body, in bytes.
const BODY_BYTES: usize = 1 << 20;
/// Number of slow uploads at once; together they have more bytes than all requests may hold.
const UPLOADS: usize = 100;
/// Number of normal requests meanwhile, and of uploads that must have been cut off.
const REAL_CALLS: u64 = 100;
const CUT_OFF: usize = 2 * UPLOADS;
/// Maximum memory, in KiB: the bytes that all requests may hold, as many again that the C library retains after
/// another thread freed them, and the program itself. This is well below 256 MiB, of which the requests' bytes are a
/// quarter.
const MOST_KIB: u64 = (2 * 64 + 40) << 10;

/// Sends a body except its end, and waits until the collector cuts the connection.
fn upload_slowly(address: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience()))?;
    write!(stream, "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY_BYTES}\r\n\r\n")?;
    stream.write_all(&vec![b' '; BODY_BYTES - 1])?;
    stream.read(&mut [0; 1024]).map(drop)
}

#[test]
fn slow_uploads_take_little_memory_and_keep_no_reporter_out() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector(dir.path());
    let (stop, cut_off) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..UPLOADS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // The upload is refused or cut off; the test wants either.
                    let _ = upload_slowly(&collector.tcp);
                    cut_off.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = StopOnDrop(&stop);
        let mut seq = 0;
        until("uploads to be cut off", || {
            seq += 1;
            let answer = collector.post(&event(1, seq, 0));
            assert_eq!(answer.status, 200, "{}", answer.text);
            seq >= REAL_CALLS && cut_off.load(Ordering::Relaxed) >= CUT_OFF
        });
    });
    let most = memory_kib(&collector, "VmHWM");
    assert!(most < MOST_KIB, "it had {most} KiB");
}

#[test]
fn a_body_of_events_that_are_none_takes_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector(dir.path());
    let before = memory_kib(&collector, "VmHWM");
    let odd = format!("[{{\"odd\":[{}0]}}]", "0,".repeat(BODY_BYTES / 2 - 16));
    for body in [format!("[{}0]", "0,".repeat(BODY_BYTES / 2 - 2)), odd] {
        for _ in 0..4 {
            assert_eq!(collector.post(&body).status, 400);
        }
    }
    let grown = memory_kib(&collector, "VmHWM") - before;
    assert!(grown < 8 << 10, "{grown} KiB for bodies of 1 MiB");
}
