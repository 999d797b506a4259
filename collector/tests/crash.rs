//! A real collector, killed with SIGKILL under load and started again on its checkpoint: no acknowledged event is lost,
//! none counts twice.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Collector, DEADLINE, event, now_ms, try_request_unix, wait_until};
use fpga_core::device::{DeviceStatus, Health};
use fpga_core::event::{Event, Phase};
use fpga_core::units::Millis;
use fpga_hook::{Config, Reporter};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KILLS: u64 = 5;

#[test]
fn what_was_acknowledged_before_a_kill_is_a_duplicate_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let acknowledged = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    let socket = dir.path().join("collector.sock");
    std::thread::scope(|scope| {
        for reporter in 1..=4_u64 {
            let (acknowledged, stop, socket) = (&acknowledged, &stop, &socket);
            scope.spawn(move || {
                for seq in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let event = event(reporter, seq, 1000);
                    // As a reporter does: the same again until it is acknowledged.
                    while !stop.load(Ordering::Relaxed) {
                        match try_request_unix(socket, "POST", "/v1/events", event.as_bytes()) {
                            Ok(answer) => {
                                assert_eq!(answer.status, 200, "{}", answer.text);
                                acknowledged.lock().unwrap().push(event);
                                break;
                            }
                            Err(_) => std::thread::sleep(Duration::from_millis(5)),
                        }
                    }
                }
            });
        }
        for _ in 0..KILLS {
            let collector = Collector::start(dir.path());
            let before = acknowledged.lock().unwrap().len();
            wait_until("some more are acknowledged", || acknowledged.lock().unwrap().len() > before + 50);
            collector.kill();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    let collector = Collector::start(dir.path());
    collector.put_board();
    let usage = collector.usage();
    // At most one event per reporter and kill was taken and not acknowledged.
    let count = acknowledged.len() as u64;
    assert!((count..=count + 4).contains(&usage), "{count} acknowledged, {usage} counted");
    let again = collector.post(&format!("[{}]", acknowledged.join(",")));
    assert_eq!(again.json(), serde_json::json!({"accepted": 0, "duplicates": count}));
    assert_eq!(collector.usage(), usage);
}

/// Kills of the test at random moments.
const RANDOM_KILLS: u64 = 25;

/// splitmix64, so that a run can be had again.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

#[test]
fn killed_25_times_at_random_moments_it_loses_nothing_acknowledged_and_counts_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let retries = AtomicU64::new(0);
    let socket = dir.path().join("collector.sock");
    let (batches, collector) = std::thread::scope(|scope| {
        let reporters: Vec<_> = (1..=4_u64)
            .map(|reporter| {
                let (stop, retries, socket) = (&stop, &retries, &socket);
                scope.spawn(move || {
                    let mut random = Random(reporter);
                    let (mut next, mut batches) = (1, Vec::new());
                    while !stop.load(Ordering::Relaxed) {
                        let count = 1 + random.below(40);
                        let events: Vec<_> =
                            (next..next + count).map(|seq| event(reporter, seq, 1000)).collect();
                        let batch = events.join(",");
                        let body = format!("[{batch}]");
                        // The last one, too: until it is acknowledged.
                        wait_until("the batch is acknowledged", || {
                            match try_request_unix(socket, "POST", "/v1/events", body.as_bytes()) {
                                Ok(answer) if answer.status == 200 => {
                                    let counted = answer.json();
                                    let told =
                                        ["accepted", "duplicates"].map(|key| counted[key].as_u64().unwrap());
                                    // All of a batch is in one record of the journal, or nothing.
                                    assert!(told == [count, 0] || told == [0, count], "{counted}");
                                    true
                                }
                                _ => {
                                    retries.fetch_add(1, Ordering::Relaxed);
                                    false
                                }
                            }
                        });
                        next += count;
                        batches.push((count, batch));
                    }
                    batches
                })
            })
            .collect();
        let mut random = Random(25);
        for _ in 0..RANDOM_KILLS {
            // Counted from when it listens: some kills hit the first requests, others a long journal.
            let collector = Collector::start(dir.path());
            std::thread::sleep(Duration::from_millis(random.below(150)));
            collector.kill();
        }
        let collector = Collector::start(dir.path());
        stop.store(true, Ordering::Relaxed);
        let batches: Vec<_> = reporters.into_iter().flat_map(|reporter| reporter.join().unwrap()).collect();
        (batches, collector)
    });
    let count = batches.iter().map(|(count, _)| count).sum::<u64>();
    println!("{count} events in {} batches, {} tries in vain", batches.len(), retries.into_inner());
    assert!(batches.len() > 100, "that was no load");
    collector.put_board();
    assert_eq!(collector.usage(), count);
    for some in batches.chunks(50) {
        let events: Vec<_> = some.iter().map(|(_, batch)| batch.as_str()).collect();
        let count = some.iter().map(|(count, _)| count).sum::<u64>();
        let again = collector.post(&format!("[{}]", events.join(",")));
        assert_eq!(again.json(), serde_json::json!({"accepted": 0, "duplicates": count}));
    }
    assert_eq!(collector.usage(), count);
}

#[test]
fn reporters_carry_every_event_through_kills_exactly_once() {
    let dir = tempfile::tempdir().unwrap();
    let first = Collector::start(dir.path());
    let reporters: Vec<_> = (0..3)
        .map(|_| {
            Reporter::start(Config {
                queue_capacity: 256,
                backoff_max: Duration::from_millis(100),
                ..Config::new(first.endpoint())
            })
            .unwrap()
        })
        .collect();
    reporters[0].device(DeviceStatus {
        id: "dm0".to_owned(),
        vendor: "intel".to_owned(),
        platform: String::new(),
        board: String::new(),
        shell: String::new(),
        slots: 4096,
        loaded: Vec::new(),
        queued: 0,
        health: Health::Healthy,
    });
    let reported = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let collector = std::thread::scope(|scope| {
        for reporter in &reporters {
            let (reported, stop) = (&reported, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for n in 0..50 {
                        reporter.report(mk_event(n));
                    }
                    reported.fetch_add(50, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let mut collector = first;
        for _ in 0..KILLS {
            let before: u64 = reporters.iter().map(|reporter| reporter.stats().sent).sum();
            wait_until("some more are sent", || {
                reporters.iter().map(|reporter| reporter.stats().sent).sum::<u64>() > before + 500
            });
            collector.kill();
            let merged: u64 = reporters.iter().map(|reporter| reporter.stats().merged).sum();
            wait_until("queues are full", || {
                reporters.iter().map(|reporter| reporter.stats().merged).sum::<u64>() > merged + 500
            });
            collector = Collector::start(dir.path());
        }
        stop.store(true, Ordering::Relaxed);
        collector
    });
    for reporter in &reporters {
        reporter.flush(DEADLINE).unwrap();
        assert_eq!(reporter.stats().refused, 0);
    }
    assert_eq!(collector.usage(), reported.load(Ordering::Relaxed));
}

/// 1 ms of work, some seconds ago: far from both ends of the window.
fn mk_event(n: u64) -> Event {
    Event {
        timestamp_ms: Millis(now_ms() - 1000 - n * 100),
        duration_ms: Millis(1),
        reconfiguration_ms: Millis::ZERO,
        bitstream_identifier: "sobel".parse().unwrap(),
        digest: None,
        identity: None,
        task: None,
        phase: Phase::Final,
        merged: None,
        device: Some("dm0".to_owned()),
        slot: None,
        tenant: None,
    }
}

#[test]
fn a_disk_that_refuses_stops_acknowledgements_until_a_snapshot_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    // Files of at most 8 KiB: the journal reaches that, a snapshot of this state does not.
    let mut command = Command::new("sh");
    let limited = r#"trap "" XFSZ; ulimit -f 16; exec "$0" "$@""#;
    command.args(["-c", limited, env!("CARGO_BIN_EXE_fpga-collector")]);
    let collector = Collector::spawn(dir.path(), command, &["--no-publish"]);
    collector.put_board();
    let mut refused = 0;
    for seq in 1..=300 {
        let event = event(7, seq, 1000);
        wait_until("the event is acknowledged", || {
            let answer = collector.post(&event);
            if answer.status == 200 {
                return true;
            }
            assert_eq!(answer.status, 503, "{}", answer.text);
            assert_eq!(collector.request("GET", "/readyz", b"").status, 503);
            refused += 1;
            false
        });
    }
    assert!(refused > 0, "the limit was never reached");
    assert!(collector.metric("fpga_collector_checkpoint_failures_total") > 0.0);
    assert_eq!(collector.request("GET", "/readyz", b"").status, 200);
    assert_eq!(collector.usage(), 300);
    collector.kill();
    assert_eq!(Collector::start(dir.path()).usage(), 300);
}
