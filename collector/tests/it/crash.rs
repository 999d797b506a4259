//! A real collector, killed with SIGKILL under load and started again on its checkpoint: no acknowledged event is
//! lost, and no event counts twice.

use crate::common::{PROGRAM, StopOnDrop, event, library, now_ms, socket, start_collector};
use fpga_core::device::DeviceStatus;
use fpga_core::event::Event;
use fpga_core::units::{Millis, WallTime};
use fpga_hook::{Config, Reporter};
use fpga_test_kit::{Collector, http, patience, until};
use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KILLS: u64 = 5;

/// Number of kills at random moments.
const RANDOM_KILLS: u64 = 25;

/// splitmix64, so that a run can be repeated.
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
    let (tries, retries) = (AtomicU64::new(0), AtomicU64::new(0));
    let socket = socket(dir.path());
    let (batches, collector) = std::thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        let reporters: Vec<_> = (1..=4_u64)
            .map(|reporter| {
                let (stop, tries, retries, socket) = (&stop, &tries, &retries, &socket);
                scope.spawn(move || {
                    let mut random = Random(reporter);
                    let (mut next, mut batches) = (1, Vec::new());
                    while !stop.load(Ordering::Relaxed) {
                        let count = 1 + random.below(40);
                        let events: Vec<_> =
                            (next..next + count).map(|seq| event(reporter, seq, 1000)).collect();
                        let batch = events.join(",");
                        let body = format!("[{batch}]");
                        // The last batch as well is sent until it is acknowledged.
                        until("the batch is acknowledged", || {
                            tries.fetch_add(1, Ordering::Relaxed);
                            match http::request_unix(socket, "POST", "/v1/events", body.as_bytes()) {
                                Ok(answer) if answer.status == 200 => {
                                    let counted = answer.json();
                                    let told =
                                        ["accepted", "duplicates"].map(|key| counted[key].as_u64().unwrap());
                                    // A batch is one record of the journal, so all of it or nothing was counted
                                    // before.
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
            // Some kills hit the first requests, others a long journal, and all of them requests under way.
            let collector = start_collector(dir.path());
            let enough = tries.load(Ordering::Relaxed) + random.below(60);
            until("more requests", || tries.load(Ordering::Relaxed) >= enough);
            collector.kill();
        }
        let collector = start_collector(dir.path());
        drop(stopping);
        let batches: Vec<_> = reporters.into_iter().flat_map(|reporter| reporter.join().unwrap()).collect();
        (batches, collector)
    });
    let count = batches.iter().map(|(count, _)| count).sum::<u64>();
    println!("{count} events in {} batches, {} tries in vain", batches.len(), retries.into_inner());
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

/// An event without identity, of 1 ms that ended `ago` milliseconds ago.
fn plain_event(ago: u64) -> String {
    let at = now_ms() - ago;
    format!(
        r#"{{"timestamp_ms":{at},"duration_ms":1,"reconfiguration_ms":0,"bitstream_identifier":"sobel","device":"dm0"}}"#
    )
}

/// Copies a checkpoint as it is on disk at this moment.
fn copy_checkpoint(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    std::fs::create_dir(to.path().join("checkpoint")).unwrap();
    for entry in std::fs::read_dir(from.join("checkpoint")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.path().join("checkpoint").join(entry.file_name())).unwrap();
    }
    to
}

/// Kills its process before a step on disk, by the number in `STEP`: a file that is made, written, synced, renamed or removed.
const KILL_AT_STEP: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void step(void) {
    static int steps;
    if (__atomic_add_fetch(&steps, 1, __ATOMIC_SEQ_CST) == atoi(getenv("STEP"))) kill(getpid(), SIGKILL);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int open64(const char *path, int flags, ...) {
    __builtin_va_list more;
    __builtin_va_start(more, flags);
    mode_t mode = flags & O_CREAT ? __builtin_va_arg(more, mode_t) : 0;
    __builtin_va_end(more);
    if (flags & O_CREAT) step();
    return NEXT(open64)(path, flags, mode);
}
ssize_t write(int file, const void *bytes, size_t count) { step(); return NEXT(write)(file, bytes, count); }
int fsync(int file) { step(); return NEXT(fsync)(file); }
int rename(const char *from, const char *to) { step(); return NEXT(rename)(from, to); }
int unlink(const char *path) { step(); return NEXT(unlink)(path); }
"#;

#[test]
fn killed_at_any_step_of_its_recovery_it_loses_nothing_and_counts_nothing_twice() {
    let origin = tempfile::tempdir().unwrap();
    let collector = start_collector(origin.path());
    collector.put_board();
    let numbered: Vec<_> = (1..=400).map(|seq| event(1, seq, 1000)).collect();
    let mut count = 0;
    for some in numbered.chunks(100) {
        let batch = some.join(",");
        // Plain events have no identity, so only the journal's end shows which were counted.
        let plain = vec![plain_event(1000); some.len()].join(",");
        for body in [format!("[{batch}]"), format!("[{plain}]")] {
            assert_eq!(collector.post(&body).json()["accepted"], some.len(), "{body:.300}");
            count += some.len() as u64;
        }
    }
    collector.kill();

    let library = library(origin.path(), KILL_AT_STEP);
    // Whether a collector on this folder ends at this step. Otherwise it recovers with fewer steps.
    let ends = |folder: &Path, step: u32| {
        let mut command = Command::new(PROGRAM);
        command.env("LD_PRELOAD", &library).env("STEP", step.to_string());
        let mut program = Collector::launch(command, folder, &["--no-publish"]);
        until("an end or a recovery", || {
            let is_ready = folder.join("ready").exists();
            match program.status() {
                Some(status) => {
                    assert_eq!(status.signal(), Some(9));
                    Some(!is_ready)
                }
                None => is_ready.then_some(false),
            }
        })
    };
    let mut step = 1;
    loop {
        let folder = copy_checkpoint(origin.path());
        let is_last = !ends(folder.path(), step);
        // The second recovery begins with what the first one has left.
        ends(folder.path(), 1 + step * 5 % 12);
        let collector = start_collector(folder.path());
        assert_eq!(collector.usage(), count, "step {step}");
        let again = collector.post(&format!("[{}]", numbered[..100].join(",")));
        assert_eq!(again.json(), serde_json::json!({"accepted": 0, "duplicates": 100}));
        if is_last {
            break;
        }
        step += 1;
    }
    println!("a recovery has {} steps", step - 1);
    // At least: a journal and a snapshot are made, written and synced, the snapshot is renamed, and the former journal removed.
    assert!(step > 8, "{step}");
}

#[test]
fn a_checkpoint_that_was_cut_or_damaged_costs_what_was_damaged_and_is_told() {
    let origin = tempfile::tempdir().unwrap();
    let collector = start_collector(origin.path());
    collector.put_board();
    for seq in 1..=20 {
        assert_eq!(collector.post(&event(1, seq, 1000)).status, 200);
    }
    collector.kill();
    let journal = |folder: &Path| {
        let files = std::fs::read_dir(folder.join("checkpoint")).unwrap();
        let mut paths = files.map(|entry| entry.unwrap().path());
        paths.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("journal-")).unwrap()
    };
    let snapshot = |folder: &Path| folder.join("checkpoint/snapshot");
    let cut = |path: &Path, bytes: u64| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len().saturating_sub(bytes)).unwrap();
    };
    let damage = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    type Harm<'a> = &'a dyn Fn(&Path);
    // The name of the harm, the harm, the number of events left, the snapshots renamed, and whether bytes of the
    // journal were ignored.
    let harms: [(&str, Harm<'_>, Range<u64>, f64, bool); 7] = [
        ("nothing", &|_| {}, 20..21, 0.0, false),
        ("the last record is cut", &|folder| cut(&journal(folder), 5), 19..20, 0.0, true),
        ("a record in the middle is damaged", &|folder| damage(&journal(folder)), 5..15, 0.0, true),
        ("the journal is empty", &|folder| cut(&journal(folder), u64::MAX), 0..1, 0.0, false),
        ("the snapshot is cut", &|folder| cut(&snapshot(folder), 10), 0..1, 1.0, false),
        ("the snapshot is empty", &|folder| cut(&snapshot(folder), u64::MAX), 0..1, 1.0, false),
        ("the snapshot is damaged", &|folder| damage(&snapshot(folder)), 0..1, 1.0, false),
    ];
    for (what, harm, left, put_aside, torn) in harms {
        let folder = copy_checkpoint(origin.path());
        harm(folder.path());
        let collector = start_collector(folder.path());
        collector.put_board();
        assert!(left.contains(&collector.usage()), "{what}: {}", collector.usage());
        assert_eq!(collector.metric("fpga_collector_recovered_damaged_snapshots_total"), put_aside, "{what}");
        assert_eq!(collector.metric("fpga_collector_recovered_torn_bytes_total") > 0.0, torn, "{what}");
        // Lost events are taken again, once, and are kept.
        let lost = 20 - collector.usage();
        let all: Vec<_> = (1..=20).map(|seq| event(1, seq, 1000)).collect();
        let again = collector.post(&format!("[{}]", all.join(",")));
        assert_eq!(again.json(), serde_json::json!({"accepted": lost, "duplicates": 20 - lost}), "{what}");
        collector.kill();
        assert_eq!(start_collector(folder.path()).usage(), 20, "{what}");
    }
}

#[test]
fn reporters_carry_every_event_through_kills_exactly_once() {
    let dir = tempfile::tempdir().unwrap();
    let first = start_collector(dir.path());
    let reporters: Vec<_> = (0..3)
        .map(|_| {
            Reporter::start(Config {
                queue_capacity: 256,
                backoff_max: Duration::from_millis(100),
                ..Config::new(first.unix_endpoint().parse().unwrap())
            })
            .unwrap()
        })
        .collect();
    reporters[0].device(DeviceStatus::new("dm0", "intel", 4096));
    let reported = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let collector = std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
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
            until("some more are sent", || {
                reporters.iter().map(|reporter| reporter.stats().sent).sum::<u64>() > before + 500
            });
            collector.kill();
            let merged: u64 = reporters.iter().map(|reporter| reporter.stats().merged).sum();
            until("queues are full", || {
                reporters.iter().map(|reporter| reporter.stats().merged).sum::<u64>() > merged + 500
            });
            collector = start_collector(dir.path());
        }
        collector
    });
    for reporter in &reporters {
        reporter.flush(patience()).unwrap();
        assert_eq!(reporter.stats().refused, 0);
    }
    assert_eq!(collector.usage(), reported.load(Ordering::Relaxed));
}

/// 1 ms of work some seconds ago, far from both ends of the window.
fn mk_event(n: u64) -> Event {
    Event {
        device: Some("dm0".to_owned()),
        ..Event::of_task(WallTime(now_ms() - 1000 - n * 100), Millis(1), "sobel".parse().unwrap())
    }
}

#[test]
fn a_disk_that_refuses_stops_acknowledgements_until_a_snapshot_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    // Files of at most 8 KiB: the journal reaches that size, a snapshot of this state does not.
    let mut command = Command::new("sh");
    let limited = r#"trap "" XFSZ; ulimit -f 16; exec "$0" "$@""#;
    command.args(["-c", limited, PROGRAM]);
    // The log is full as well.
    let log = dir.path().join("log");
    std::fs::write(&log, vec![b' '; 8192]).unwrap();
    command.stderr(OpenOptions::new().append(true).open(&log).unwrap());
    let collector = Collector::start(command, dir.path(), &["--no-publish"]);
    collector.put_board();
    let (mut refused, mut not_ready) = (0, 0);
    for seq in 1..=300 {
        let event = event(7, seq, 1000);
        until("the event is acknowledged", || {
            let answer = collector.post(&event);
            if answer.status == 200 {
                return true;
            }
            assert_eq!(answer.status, 503, "{}", answer.text);
            // The collector tries a snapshot each second, also between the two requests.
            not_ready += u32::from(collector.request("GET", "/readyz", b"").status == 503);
            refused += 1;
            false
        });
    }
    assert!(refused > 0, "the limit was never reached");
    assert!(not_ready > 0, "/readyz never reported the failure");
    assert!(collector.metric("fpga_collector_checkpoint_failures_total") > 0.0);
    assert_eq!(collector.request("GET", "/readyz", b"").status, 200);
    assert_eq!(collector.usage(), 300);
    collector.kill();
    assert_eq!(start_collector(dir.path()).usage(), 300);
}
