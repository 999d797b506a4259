use super::*;
use crate::dispatcher::Dispatcher;
use crate::store::BitstreamStore;
use fpga_board::dispatch::policy::DispatchRules;
use fpga_board::dispatch::{Lanes, TaskRequest};
use fpga_board::slots::{Demand, OtherKernels, SessionId};
use fpga_hook::Config;
use fpga_test_kit::{CollectorStandIn, Shared, until};
use std::num::NonZeroU32;
use std::time::Instant;

/// A stand-in for the collector, the reports that it received, and a reporter for it.
fn collector() -> (CollectorStandIn, Shared, Reporter) {
    let seen = Shared::default();
    let collector = CollectorStandIn::tcp(&seen);
    let reporter = Reporter::start(Config::new(collector.endpoint.clone())).unwrap();
    (collector, seen, reporter)
}

fn facts() -> DeviceFacts {
    DeviceFacts { id: "dm0".into(), vendor: "intel".into(), slots: 2, ..DeviceFacts::default() }
}

fn request(session: u64, task: u64, bitstreams: &[Digest], other: OtherKernels) -> TaskRequest {
    TaskRequest {
        session: SessionId(session),
        task: fpga_board::dispatch::TaskId(task),
        tenant: Tenant::new("uid:7"),
        lanes: Lanes::Any,
        kind: None,
        bytes: 0,
        demand: Demand::of(bitstreams.iter().copied(), other),
    }
}

#[test]
fn the_collector_hears_of_each_use_of_a_slot_each_reconfiguration_and_what_is_loaded() {
    let (_collector, seen, reporter) = collector();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("sobel.bitstream"), "bits").unwrap();
    let catalogue = Arc::new(Catalogue::read(dir.path(), &BitstreamStore::in_memory(100)).unwrap());
    let (sobel, other) = (crate::store::digest_of(b"bits"), Digest::from_bytes([9; 32]));
    let reports =
        Reports::new(Some(reporter.clone()), facts(), catalogue, Metrics::default(), Trace::default());
    let dispatcher = Dispatcher::new(NonZeroU32::new(2).unwrap(), DispatchRules::default(), reports.clone());

    let before = WallTime::of(SystemTime::now());
    let started = Instant::now();
    let grant = dispatcher.submit(request(1, 1, &[sobel, other], OtherKernels::None)).unwrap().unwrap();
    let granted = Instant::now();
    for load in &grant.load {
        let (slot, bitstream) = (load.slot, load.bitstream);
        let took = Duration::from_micros(10_500);
        reports.reconfigured(&Reconfigured { slot, bitstream, took, tenant: Tenant::new("uid:7") });
    }
    while granted.elapsed() < Duration::from_millis(20) {
        std::thread::yield_now();
    }
    dispatcher.finished(grant.task);
    let held = Millis::from(started.elapsed());
    let source = dispatcher.submit(request(1, 2, &[], OtherKernels::Some)).unwrap().unwrap();
    dispatcher.finished(source.task);
    reporter.flush(Duration::from_secs(30)).unwrap();

    let events = seen.lock().unwrap().accepted.clone();
    let reconfigurations: Vec<&Event> =
        events.iter().filter(|event| event.reconfiguration_ms.0 > 0).collect();
    assert_eq!(reconfigurations.len(), 2);
    assert!(reconfigurations.iter().all(|event| event.duration_ms == Millis::ZERO), "{events:?}");
    let total: u64 = reconfigurations.iter().map(|event| event.reconfiguration_ms.0).sum();
    assert_eq!(total, 21, "half milliseconds are not lost");
    let uses: Vec<&Event> = events.iter().filter(|event| event.task.is_some()).collect();
    assert_eq!(uses.len(), 3);
    assert_eq!(uses[0].bitstream_identifier, BitstreamId::Name("sobel".into()));
    assert_eq!((uses[0].digest, uses[0].slot), (Some(sobel), Some(0)));
    assert_eq!(uses[1].bitstream_identifier, BitstreamId::Digest(other));
    assert_eq!(uses[2].bitstream_identifier, BitstreamId::Name(SOURCE_NAME.into()));
    for event in &uses[..2] {
        assert!((20..=held.0 + 1).contains(&event.duration_ms.0), "{event:?}");
        assert!(event.timestamp_ms >= before + Millis(20), "{event:?}");
        assert_eq!((event.tenant.as_deref(), event.device.as_deref()), (Some("uid:7"), Some("dm0")));
    }
    let holds: std::collections::BTreeSet<_> = uses.iter().map(|event| event.task).collect();
    assert_eq!(holds.len(), 3, "a hold of a slot is never taken for another");

    let (id, status) = seen.lock().unwrap().devices.last().cloned().unwrap();
    let status = status.unwrap();
    assert_eq!((id.as_str(), status.queued, status.health), ("dm0", 0, Health::Healthy));
    let loaded: Vec<String> = status.loaded.iter().map(|loaded| loaded.id.to_string()).collect();
    assert_eq!(loaded, ["sobel".to_owned(), other.to_string()]);
    reporter.shutdown(Duration::from_secs(30)).unwrap();
}

#[test]
fn the_collector_hears_the_name_of_a_loaded_bitstream_whose_file_comes_later() {
    let (_collector, seen, reporter) = collector();
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(BitstreamStore::in_memory(100));
    let catalogue = Arc::new(Catalogue::read(dir.path(), &store).unwrap());
    let reports =
        Reports::new(Some(reporter), facts(), Arc::clone(&catalogue), Metrics::default(), Trace::default());
    let dispatcher = Dispatcher::new(NonZeroU32::MIN, DispatchRules::default(), reports.clone());
    dispatcher.preload([crate::store::digest_of(b"bits")]).unwrap();
    std::fs::write(dir.path().join("sobel.bitstream"), "bits").unwrap();
    catalogue.watch(store, move || reports.names_changed()).unwrap();
    until("the collector to hear the name", || {
        let last = seen.lock().unwrap().devices.last().cloned();
        let loaded = last.and_then(|(_, status)| status?.loaded.first().cloned());
        loaded.is_some_and(|loaded| loaded.id == BitstreamId::Name("sobel".into()))
    });
}

#[test]
fn a_long_task_is_heard_of_before_its_end_and_counted_once() {
    let (_collector, seen, reporter) = collector();
    let reports =
        Reports::new(Some(reporter.clone()), facts(), Arc::default(), Metrics::default(), Trace::default());
    let dispatcher = Dispatcher::new(NonZeroU32::MIN, DispatchRules::default(), reports);
    let grant = dispatcher.submit(request(1, 1, &[], OtherKernels::Some)).unwrap().unwrap();
    dispatcher.report_progress(Duration::ZERO);
    dispatcher.finished(grant.task);
    reporter.flush(Duration::from_secs(30)).unwrap();
    let events = seen.lock().unwrap().accepted.clone();
    let told: Vec<_> = events.iter().map(|event| (event.phase, event.task)).collect();
    assert_eq!(told, [(Phase::Running, Some(1)), (Phase::Final, Some(1))]);
}

#[test]
fn what_two_threads_say_in_the_wrong_order_does_not_go_back_in_time() {
    let reports = Reports::off();
    reports.slots_changed(SlotsNow { revision: 2, waiting: 5, ..SlotsNow::default() });
    reports.slots_changed(SlotsNow { revision: 1, waiting: 3, ..SlotsNow::default() });
    assert_eq!(reports.metrics().tasks_waiting.get(), 5);
}
