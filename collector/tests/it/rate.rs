//! The memory that events take: as fast as they are acknowledged, and at 100,000 events a second.

use crate::common::{memory_kib, now_ms, socket, start_collector_with};
use fpga_test_kit::patience;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const EVENTS_PER_SECOND: u64 = 100_000;
const REPORTERS: u64 = 4;
const BATCH: u64 = 500;
/// Number of events of each reporter before the first reading of the memory, and before the last.
const EACH: [u64; 2] = [10_000, 40_000];
/// Maximum growth of memory between the readings, in KiB.
const MORE: u64 = 16 * 1024;
/// Time at the full rate before the first reading of the memory, and between the readings.
const PARTS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(25)];

/// When a reporter ends, and how fast it sends.
#[derive(Clone, Copy)]
enum Until {
    /// At the second moment; paced from the first one so that all reporters together have the rate.
    Moment(Instant, Instant),
    /// After this many events, sent as fast as they are acknowledged.
    Sent(u64),
}

#[test]
fn events_without_end_take_no_more_memory_the_longer_they_come() {
    let dir = tempfile::tempdir().unwrap();
    // A short window, which is soon full and then grows no more.
    let collector = start_collector_with(dir.path(), &["--no-publish", "--window", "1s"]);
    collector.put_board();
    let socket = socket(dir.path());
    let mut read = Vec::new();
    for (part, events) in (0..).zip(EACH) {
        std::thread::scope(|scope| {
            for reporter in 1..=REPORTERS {
                let socket = &socket;
                scope.spawn(move || report(socket, part * REPORTERS + reporter, Until::Sent(events)));
            }
        });
        read.push(memory_kib(&collector, "VmRSS"));
    }
    let accepted = collector.metric("fpga_collector_events_total{result=\"accepted\"}");
    assert_eq!(accepted, (REPORTERS * EACH.iter().sum::<u64>()) as f64);
    assert!(read[1] < read[0] + MORE, "{read:?} KiB");
}

/// Sends arrays of events, each after the acknowledgement of the one before; returns the number of events sent.
fn report(socket: &Path, reporter: u64, until: Until) -> u64 {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(patience())).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut requests = stream;
    let each = Duration::from_secs(1) * u32::try_from(BATCH * REPORTERS).unwrap()
        / u32::try_from(EVENTS_PER_SECOND).unwrap();
    let (mut sent, mut arrays, mut body) = (0, 0, String::new());
    loop {
        match until {
            Until::Moment(_, end) if Instant::now() >= end => return sent,
            Until::Sent(events) if sent >= events => return sent,
            Until::Moment(begin, _) => {
                std::thread::sleep((begin + each * arrays).saturating_duration_since(Instant::now()));
            }
            Until::Sent(_) => {}
        }
        arrays += 1;
        let now = now_ms();
        body.clear();
        for seq in sent + 1..=sent + BATCH {
            let comma = if body.is_empty() { '[' } else { ',' };
            let name = seq % 50;
            write!(
                body,
                r#"{comma}{{"timestamp_ms":{now},"duration_ms":1,"reconfiguration_ms":0,"bitstream_identifier":"b{name}","reporter":{reporter},"seq":{seq},"device":"dm0"}}"#
            )
            .unwrap();
        }
        body.push(']');
        let length = body.len();
        write!(requests, "POST /v1/events HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n")
            .unwrap();
        requests.write_all(body.as_bytes()).unwrap();
        acknowledged(&mut answers);
        sent += BATCH;
    }
}

/// Reads one answer and asserts that all events were taken.
fn acknowledged(answers: &mut impl BufRead) {
    let (mut line, mut length) = (String::new(), 0);
    answers.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    while line != "\r\n" {
        line.clear();
        answers.read_line(&mut line).unwrap();
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
    }
    answers.read_exact(&mut vec![0; length]).unwrap();
}

mod timing {
    use super::*;

    #[test]
    #[ignore = "measures the machine: make test-timing"]
    fn a_hundred_thousand_events_a_second_take_no_more_memory_the_longer_they_come() {
        let dir = tempfile::tempdir().unwrap();
        // A short window, which is soon full and then grows no more.
        let collector = start_collector_with(dir.path(), &["--no-publish", "--window", "10s"]);
        collector.put_board();
        let socket = socket(dir.path());
        let begin = Instant::now();
        let (end, before) = (begin + PARTS[0] + PARTS[1], begin + PARTS[0]);
        let idle = memory_kib(&collector, "VmRSS");
        let (sent, warm) = std::thread::scope(|scope| {
            let socket = &socket;
            let reporters: Vec<_> = (1..=REPORTERS)
                .map(|reporter| scope.spawn(move || report(socket, reporter, Until::Moment(begin, end))))
                .collect();
            std::thread::sleep(before.saturating_duration_since(Instant::now()));
            let warm = memory_kib(&collector, "VmRSS");
            (reporters.into_iter().map(|reporter| reporter.join().unwrap()).sum::<u64>(), warm)
        });
        let took = begin.elapsed().as_secs_f64();
        let last = memory_kib(&collector, "VmRSS");
        let accepted = collector.metric("fpga_collector_events_total{result=\"accepted\"}");
        println!(
            "{sent} events in {took:.1} s, {:.0} a second; memory: {idle} KiB idle, {warm} KiB after {} s, {last} KiB at the end",
            sent as f64 / took,
            PARTS[0].as_secs()
        );
        assert_eq!(accepted, sent as f64);
        assert!(last < warm + MORE, "from {warm} to {last} KiB");
    }
}
