//! Measures what reporting an event costs the calling thread in three cases: with room in the queue, with a full
//! queue, and after a pause, when the background thread must be woken.
//!
//! `cargo run --release -p fpga-hook --example report_cost`
#![allow(clippy::unwrap_used, reason = "an example ends by panicking")]

use fpga_core::event::Event;
use fpga_core::units::{Millis, WallTime};
use fpga_hook::{Config, Endpoint, Reporter};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const EVENTS: usize = 100_000;

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
    // A collector that acknowledges every request.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buffer = vec![0; 1 << 20];
            let mut text = Vec::new();
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                text.extend_from_slice(&buffer[..read]);
                while let Some(length) = whole_request(&text) {
                    text.drain(..length);
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
                }
            }
        }
    });
    let reporter = Reporter::start(Config { queue_capacity: 2 * EVENTS, ..Config::new(endpoint) }).unwrap();
    measure("room in the queue", &reporter, EVENTS, Duration::ZERO);
    reporter.flush(Duration::from_secs(60)).unwrap();
    measure("after a pause of 50 ms", &reporter, 40, Duration::from_millis(50));

    let nobody = Endpoint::Tcp("127.0.0.1:1".to_owned());
    let full = Reporter::start(Config { queue_capacity: 16, ..Config::new(nobody) }).unwrap();
    measure("full queue, merged", &full, EVENTS, Duration::ZERO);
}

fn measure(case: &str, reporter: &Reporter, events: usize, pause: Duration) {
    let mut costs: Vec<_> = (0..events as u64)
        .map(|n| {
            std::thread::sleep(pause);
            let event = mk_event(n);
            let begin = Instant::now();
            reporter.report(event);
            begin.elapsed()
        })
        .collect();
    costs.sort_unstable();
    let percentile = |percent: usize| costs[(costs.len() - 1) * percent / 100];
    println!("{case}: p50 {:?}, p99 {:?}, largest {:?}", percentile(50), percentile(99), percentile(100));
}

fn whole_request(text: &[u8]) -> Option<usize> {
    let head = text.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let lines = std::str::from_utf8(&text[..head]).ok()?.to_ascii_lowercase();
    let length: usize = lines.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())?;
    (text.len() >= head + length).then_some(head + length)
}

fn mk_event(n: u64) -> Event {
    Event {
        task: Some(n),
        device: Some("dm0".to_owned()),
        slot: Some(0),
        tenant: Some("uid:0".to_owned()),
        ..Event::of_task(WallTime(1_760_000_000_000 + n), Millis(1), "sobel".parse().unwrap())
    }
}
