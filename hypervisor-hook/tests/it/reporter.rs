//! The reporter against a real server on the loopback that ends, comes back, refuses and delays.

use fpga_core::device::DeviceStatus;
use fpga_core::event::{Event, Phase};
use fpga_core::units::{Millis, WallTime};
use fpga_hook::{Config, Endpoint, Reporter};
use fpga_test_kit::{CollectorStandIn, Proxy, Shared, patience, until};
use std::time::{Duration, Instant};

fn mk_event(n: u64, bitstream: &str) -> Event {
    Event {
        task: Some(n),
        device: Some("dm0".to_owned()),
        slot: Some(0),
        tenant: Some("uid:0".to_owned()),
        ..Event::of_task(WallTime(1_000_000 + n), Millis(3), bitstream.parse().unwrap())
    }
}

fn mk_device(queued: u32) -> DeviceStatus {
    DeviceStatus { queued, ..DeviceStatus::new("dm0", "intel", 4) }
}

fn mk_config(endpoint: &Endpoint) -> Config {
    Config {
        gather: Duration::from_millis(2),
        idle: Duration::from_millis(5),
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        ..Config::new(endpoint.clone())
    }
}

fn any_port() -> Endpoint {
    Endpoint::Tcp("127.0.0.1:0".to_owned())
}

/// A unix socket in this folder, for a collector that is away at times. No other process takes its address meanwhile.
fn socket(dir: &tempfile::TempDir) -> Endpoint {
    Endpoint::Unix(dir.path().join("collector.sock"))
}

/// The range of numbers of each event, in the order of arrival.
fn ranges(events: &[Event]) -> Vec<(u64, u64)> {
    events
        .iter()
        .map(|event| {
            let seq = event.identity.unwrap().seq;
            (event.merged.map_or(seq, |merged| merged.first_seq), seq)
        })
        .collect()
}

fn assert_no_gaps(events: &[Event]) {
    let mut next = 1;
    for (first, last) in ranges(events) {
        assert_eq!(first, next);
        next = last + 1;
    }
}

#[test]
fn events_arrive_in_order_numbered_without_gaps_over_tcp_and_unix_sockets() {
    let dir = tempfile::tempdir().unwrap();
    for endpoint in [any_port(), socket(&dir)] {
        let seen = Shared::default();
        let server = CollectorStandIn::start(&endpoint, &seen);
        let reporter = Reporter::start(mk_config(&server.endpoint)).unwrap();
        for n in 0..1000 {
            reporter.report(mk_event(n, "sobel"));
        }
        reporter.flush(patience()).unwrap();
        let seen = seen.lock().unwrap();
        assert_eq!(seen.accepted.len(), 1000);
        assert_no_gaps(&seen.accepted);
        assert!(seen.accepted.iter().zip(0..).all(|(event, n)| event.task == Some(n)));
        assert_eq!((reporter.stats().sent, reporter.stats().queued), (1000, 0));
    }
}

#[test]
fn the_same_batch_is_repeated_until_it_is_acknowledged() {
    let seen = Shared::default();
    seen.lock().unwrap().unavailable = 3;
    let server = CollectorStandIn::tcp(&seen);
    let reporter = Reporter::start(mk_config(&server.endpoint)).unwrap();
    reporter.report(mk_event(1, "sobel"));
    reporter.flush(patience()).unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!((seen.bodies.len(), seen.accepted.len()), (4, 1));
    assert!(seen.bodies.iter().all(|body| *body == seen.bodies[0]));
    assert_eq!(reporter.stats().retries, 3);
}

#[test]
fn a_token_is_shown_over_tcp_alone_and_may_come_late_and_change() {
    let dir = tempfile::tempdir().unwrap();
    let token_file = dir.path().join("token");
    let seen = Shared::default();
    seen.lock().unwrap().wanted = Some("Bearer the-first-token-of-two");
    let server = CollectorStandIn::tcp(&seen);
    let with_token = |endpoint| Config { token_file: Some(token_file.clone()), ..mk_config(endpoint) };
    let reporter = Reporter::start(with_token(&server.endpoint)).unwrap();
    reporter.report(mk_event(1, "sobel"));
    // Without the file nothing is sent; with a wrong token the events are refused. Neither loses any event.
    until("it is tried", || reporter.stats().retries >= 2);
    assert_eq!(seen.lock().unwrap().authorizations.len(), 0);
    std::fs::write(&token_file, "another-token-than-that\n").unwrap();
    until("it is refused", || !seen.lock().unwrap().authorizations.is_empty());
    std::fs::write(&token_file, "the-first-token-of-two\n").unwrap();
    reporter.flush(patience()).unwrap();
    seen.lock().unwrap().wanted = Some("Bearer the-second-token");
    std::fs::write(&token_file, "the-second-token").unwrap();
    reporter.report(mk_event(2, "sobel"));
    reporter.flush(patience()).unwrap();
    {
        let seen = seen.lock().unwrap();
        assert_eq!((seen.accepted.len(), reporter.stats().refused), (2, 0));
        assert_no_gaps(&seen.accepted);
    }

    let seen = Shared::default();
    let server = CollectorStandIn::start(&socket(&dir), &seen);
    let reporter = Reporter::start(with_token(&server.endpoint)).unwrap();
    reporter.report(mk_event(1, "sobel"));
    reporter.flush(patience()).unwrap();
    assert_eq!(seen.lock().unwrap().authorizations, [None]);
}

#[test]
fn a_collector_that_asks_for_a_pause_gets_it() {
    let seen = Shared::default();
    seen.lock().unwrap().throttle = Some(1);
    let server = CollectorStandIn::tcp(&seen);
    let reporter = Reporter::start(mk_config(&server.endpoint)).unwrap();
    reporter.report(mk_event(1, "sobel"));
    reporter.flush(patience()).unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!((seen.bodies.len(), seen.accepted.len()), (2, 1));
    let pause = seen.times[1] - seen.times[0];
    assert!(pause >= Duration::from_secs(1), "{pause:?}");
}

#[test]
fn while_the_collector_is_away_events_merge_and_no_time_is_lost() {
    let (seen, dir) = (Shared::default(), tempfile::tempdir().unwrap());
    let endpoint = socket(&dir);
    let reporter = Reporter::start(Config { queue_capacity: 64, ..mk_config(&endpoint) }).unwrap();
    let reports = 20_000_u64;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let reporter = reporter.clone();
            scope.spawn(move || {
                for n in 0..reports / 4 {
                    reporter.report(mk_event(n, ["sobel", "mm"][thread % 2]));
                }
            });
        }
    });
    assert!(reporter.flush(Duration::from_millis(50)).is_err());
    let stats = reporter.stats();
    assert!(stats.merged > reports / 2 && stats.queued <= 256, "{stats:?}");

    let _server = CollectorStandIn::start(&endpoint, &seen);
    reporter.flush(patience()).unwrap();
    let seen = seen.lock().unwrap();
    assert_no_gaps(&seen.accepted);
    assert_eq!(seen.accepted.iter().map(|event| event.duration_ms.0).sum::<u64>(), 3 * reports);
    assert_eq!(ranges(&seen.accepted).last().unwrap().1, reports);
}

#[test]
fn a_collector_that_comes_back_hears_of_the_devices_though_nothing_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let place = socket(&dir);
    let proxy = Proxy::to(&format!("unix:{}", dir.path().join("collector.sock").display()), &[]);
    for endpoint in [Endpoint::Tcp(proxy.address().to_string()), place.clone()] {
        let seen = Shared::default();
        let server = CollectorStandIn::start(&place, &seen);
        let reporter = Reporter::start(mk_config(&endpoint)).unwrap();
        reporter.device(mk_device(1));
        reporter.device(mk_device(2));
        let newest = ("dm0".to_owned(), Some(mk_device(2)));
        until("the newest status arrived", || seen.lock().unwrap().devices.last() == Some(&newest));
        reporter.flush(patience()).unwrap();
        server.kill();
        seen.lock().unwrap().devices.clear();
        let _server = CollectorStandIn::start(&place, &seen);
        until("the status came again", || seen.lock().unwrap().devices.last() == Some(&newest));
        reporter.device_gone("dm0");
        let gone = ("dm0".to_owned(), None);
        until("the device is gone", || seen.lock().unwrap().devices.last() == Some(&gone));
    }
}

#[test]
fn a_device_that_finds_no_room_holds_up_neither_events_nor_other_devices() {
    let seen = Shared::default();
    seen.lock().unwrap().no_room_for = Some("dm16");
    let server = CollectorStandIn::tcp(&seen);
    let reporter = Reporter::start(mk_config(&server.endpoint)).unwrap();
    reporter.device(DeviceStatus { id: "dm16".to_owned(), ..mk_device(0) });
    reporter.device(DeviceStatus { id: "dm17".to_owned(), ..mk_device(0) });
    for n in 0..100 {
        reporter.report(mk_event(n, "sobel"));
    }
    reporter.flush(patience()).unwrap();
    let knows = |device: &str| seen.lock().unwrap().devices.iter().any(|(id, _)| id == device);
    assert_eq!(seen.lock().unwrap().accepted.len(), 100);
    assert!(knows("dm17") && !knows("dm16"));
    until("it is tried again", || seen.lock().unwrap().no_room >= 3);
    seen.lock().unwrap().no_room_for = None;
    until("it is taken once there is room", || knows("dm16"));
}

#[test]
fn a_collector_that_takes_no_events_still_hears_of_the_devices() {
    let seen = Shared::default();
    seen.lock().unwrap().takes_no_events = true;
    let server = CollectorStandIn::tcp(&seen);
    let config = Config { device_interval: Duration::from_millis(20), ..mk_config(&server.endpoint) };
    let reporter = Reporter::start(config).unwrap();
    reporter.device(mk_device(1));
    reporter.report(mk_event(1, "sobel"));
    until("the event is refused", || seen.lock().unwrap().bodies.len() >= 2);
    seen.lock().unwrap().devices.clear();
    until("the status is repeated", || seen.lock().unwrap().devices.len() >= 3);
    reporter.device(mk_device(2));
    let newest = ("dm0".to_owned(), Some(mk_device(2)));
    until("the newest status arrived", || seen.lock().unwrap().devices.last() == Some(&newest));
    assert!(seen.lock().unwrap().accepted.is_empty());
    seen.lock().unwrap().takes_no_events = false;
    reporter.flush(patience()).unwrap();
    assert_eq!(seen.lock().unwrap().accepted.len(), 1);
}

#[test]
fn statuses_are_repeated_though_nothing_changes() {
    let seen = Shared::default();
    let server = CollectorStandIn::tcp(&seen);
    let config = Config { device_interval: Duration::from_millis(20), ..mk_config(&server.endpoint) };
    let reporter = Reporter::start(config).unwrap();
    reporter.device(mk_device(0));
    until("three statuses", || seen.lock().unwrap().devices.len() >= 3);
}

#[test]
fn an_event_after_any_pause_is_sent_soon() {
    let seen = Shared::default();
    let server = CollectorStandIn::tcp(&seen);
    // No refresh of devices wakes the thread.
    let config = Config { device_interval: Duration::from_secs(3600), ..mk_config(&server.endpoint) };
    let reporter = Reporter::start(config).unwrap();
    for n in 1..=500 {
        reporter.report(mk_event(n, "sobel"));
        until("it is sent", || reporter.stats().sent == n);
        // Pauses of different lengths hit every part of the background thread's round, also its falling asleep.
        std::thread::sleep(Duration::from_micros(n * 13 % 5000));
    }
}

#[test]
fn one_refused_event_does_not_hold_up_the_others() {
    let seen = Shared::default();
    seen.lock().unwrap().poison = Some("bad");
    let server = CollectorStandIn::tcp(&seen);
    let reporter = Reporter::start(mk_config(&server.endpoint)).unwrap();
    for n in 0..100 {
        reporter.report(mk_event(n, if n == 37 { "bad" } else { "good" }));
    }
    reporter.flush(patience()).unwrap();
    assert_eq!(seen.lock().unwrap().accepted.len(), 99);
    assert_eq!(reporter.stats().refused, 1);
}

#[test]
fn the_end_of_a_task_whose_progress_was_sent_is_never_merged() {
    let (seen, dir) = (Shared::default(), tempfile::tempdir().unwrap());
    let server = CollectorStandIn::start(&socket(&dir), &seen);
    let config = Config { queue_capacity: 8, ..mk_config(&server.endpoint) };
    let reporter = Reporter::start(config).unwrap();
    reporter.report(Event { phase: Phase::Running, ..mk_event(7, "sobel") });
    reporter.flush(patience()).unwrap();
    let endpoint = server.kill();
    for n in 100..200 {
        reporter.report(mk_event(n, "sobel"));
    }
    reporter.report(mk_event(7, "sobel"));
    assert!(reporter.stats().merged > 0);
    let _server = CollectorStandIn::start(&endpoint, &seen);
    reporter.flush(patience()).unwrap();
    let seen = seen.lock().unwrap();
    let of_seven: Vec<_> =
        seen.accepted.iter().filter(|event| event.task == Some(7)).map(|event| event.phase).collect();
    assert_eq!(of_seven, [Phase::Running, Phase::Final]);
    assert_no_gaps(&seen.accepted);
}

#[test]
fn a_shutdown_ends_in_time_with_or_without_a_collector() {
    let (seen, dir) = (Shared::default(), tempfile::tempdir().unwrap());
    let endpoint = socket(&dir);
    let server = CollectorStandIn::start(&endpoint, &seen);
    let reporter = Reporter::start(mk_config(&endpoint)).unwrap();
    reporter.report(mk_event(1, "sobel"));
    reporter.shutdown(patience()).unwrap();
    assert_eq!(seen.lock().unwrap().accepted.len(), 1);
    drop(server);

    let reporter = Reporter::start(mk_config(&endpoint)).unwrap();
    reporter.report(mk_event(1, "sobel"));
    let begin = Instant::now();
    assert!(reporter.shutdown(Duration::from_millis(100)).is_err());
    assert!(begin.elapsed() < patience());
    // The background thread has ended; reporting still never blocks, even with a full queue.
    for n in 0..10_000 {
        reporter.report(mk_event(n, "sobel"));
    }
    assert!(reporter.flush(patience()).is_err());
}

#[test]
fn a_server_that_never_answers_is_given_up_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(dir.path().join("collector.sock")).unwrap();
    let endpoint = socket(&dir);
    let config = Config { request_timeout: Duration::from_millis(50), ..mk_config(&endpoint) };
    let reporter = Reporter::start(config).unwrap();
    reporter.report(mk_event(1, "sobel"));
    until("two tries", || reporter.stats().retries >= 2);
    drop(listener);
    let seen = Shared::default();
    let _server = CollectorStandIn::start(&endpoint, &seen);
    reporter.flush(patience()).unwrap();
    // A stand-in on a busy machine may take longer to answer, too, and get the event again.
    let seen = seen.lock().unwrap();
    assert!(!seen.accepted.is_empty() && seen.accepted.iter().all(|event| *event == seen.accepted[0]));
}
