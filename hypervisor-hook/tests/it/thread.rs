//! The background thread as the system sees it. This test is alone in its process, so that there is one such thread.

use fpga_core::event::Event;
use fpga_core::units::{Millis, WallTime};
use fpga_hook::{Config, Endpoint, Reporter};
use fpga_test_kit::{patience, until};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

/// Signals that can't be blocked (KILL, STOP), and those that the C library reserves (32, 33, 34).
const UNBLOCKABLE: u64 = 1 << 8 | 1 << 18 | 1 << 31 | 1 << 32 | 1 << 33;

fn hook_threads() -> Vec<PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    tasks
        .filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "fpga-hook"))
        .collect()
}

/// Processor time of a thread so far.
fn processor_time(task: &std::path::Path) -> Duration {
    let text = fs::read_to_string(task.join("schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn mk_event() -> Event {
    Event::of_task(WallTime(1), Millis(1), "sobel".parse().unwrap())
}

#[test]
fn it_takes_no_signals_does_not_spin_when_the_collector_leaves_and_ends_with_the_last_handle() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
    let reporter = Reporter::start(Config::new(endpoint)).unwrap();
    reporter.report(mk_event());
    let (mut connection, _) = listener.accept().unwrap();
    let mut request = [0; 4096];
    assert!(connection.read(&mut request).unwrap() > 0);
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
    reporter.flush(patience()).unwrap();

    let thread = hook_threads().pop().unwrap();
    let status = fs::read_to_string(thread.join("status")).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
    assert_eq!(!blocked & !UNBLOCKABLE, 0, "{blocked:x}");

    drop((connection, listener));
    let before = processor_time(&thread);
    std::thread::sleep(Duration::from_millis(500));
    let used = processor_time(&thread) - before;
    assert!(used < Duration::from_millis(100), "{used:?} in half a second of nothing to do");

    drop(reporter);
    until("the end of the thread without a handle", || hook_threads().is_empty());
}
