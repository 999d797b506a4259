//! How a job's time in a slot ends: recalled, silent, or dead, with its task and its process.

use super::{Pool, Worker};
use crate::harness::Client;
use crate::service::health::Collector;
use fpga_core::device::Rotation;
use fpga_pool_leases::ids::LeaseId;
use fpga_pool_leases::messages::{SlotCause, SlotStatus};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use tonic::Code;

/// Status of commands after a Yield.
const LEASE_YIELDS: i32 = -9001;

#[tokio::test]
async fn a_recalled_job_ends_its_step_and_starts_no_other() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1"]).await;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "lasting").await;
    let running = worker.started_step(&mut pool).await;
    pool.stream.recall(LeaseId(7)).await;
    worker.client.is_to_yield().await;
    let refused = worker.step().await;
    assert_eq!(worker.client.status(refused).await, LEASE_YIELDS);
    worker.ends_well(running).await;
    drop(worker);
    pool.stream.freed().await;
}

#[tokio::test]
async fn a_board_out_of_rotation_recalls_its_leases_and_lends_again_when_it_is_back() {
    let (collector, address) = Collector::start();
    let args = ["--slots", "2", "--pool-slots", "1", "--collector", &address];
    let mut pool = Pool::start(&args).await;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "lasting").await;
    // The stream ends with the rotation, so the step begins before.
    let running = worker.started_step(&mut pool).await;
    collector.answers(Rotation::Out);
    worker.client.is_to_yield().await;
    let refused = worker.step().await;
    assert_eq!(worker.client.status(refused).await, LEASE_YIELDS);
    worker.ends_well(running).await;
    drop(worker);
    collector.answers(Rotation::In);
    pool.stream = pool.broker.registered().await;
    pool.holder(8, 0).await;
}

#[tokio::test]
async fn a_job_that_does_not_yield_loses_its_slot() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1", "--pool-longest-step", "100ms"]).await;
    let client = pool.holder(7, 0).await;
    pool.stream.recall(LeaseId(7)).await;
    let report = pool.stream.report_of(SlotCause::YieldOverdue).await;
    assert_eq!(report.status, SlotStatus::Free);
    assert_eq!(client.end().await.unwrap().code(), Code::Aborted);
}

#[tokio::test]
async fn the_slot_of_a_client_that_dies_is_free_when_its_task_has_ended() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1"]).await;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "lasting").await;
    pool.stream.report_of(SlotCause::Idle).await;
    worker.step().await;
    pool.stream.report_of(SlotCause::Busy).await;
    let since = Instant::now();
    drop(worker);
    let draining = pool.stream.report_of(SlotCause::Closed).await;
    assert!(matches!(draining.status, SlotStatus::Draining(_)), "{draining:?}");
    let free = pool.stream.report_of(SlotCause::Drained).await;
    assert_eq!((free.status, free.usage.actions), (SlotStatus::Free, 1));
    assert!(since.elapsed() >= Duration::from_millis(900), "the kernel takes a second");
}

#[tokio::test]
async fn a_client_that_is_silent_loses_its_slot_after_five_seconds() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1"]).await;
    let lease = pool.stream.lease(7, 0, pool.digest());
    pool.stream.prepare(&lease).await;
    // A runtime that nobody drives answers no pings, like a stopped process.
    let frozen = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let manager = &pool.manager;
    let client = std::thread::scope(|scope| {
        let attach =
            || frozen.block_on(async { Client::with_lease(manager.channel().await, 7).await.unwrap() });
        scope.spawn(attach).join().unwrap()
    });
    let since = Instant::now();
    pool.stream.report_of(SlotCause::Attached).await;
    let report = pool.stream.report_of(SlotCause::Silent).await;
    assert_eq!(report.status, SlotStatus::Free);
    let took = since.elapsed();
    assert!(took >= Duration::from_secs(4), "{took:?}");
    drop(client);
    drop(tokio::task::spawn_blocking(move || drop(frozen)).await);
}

#[tokio::test]
async fn a_manager_that_drains_lends_no_more_and_asks_for_its_slots() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1"]).await;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "lasting").await;
    let running = worker.started_step(&mut pool).await;
    pool.manager.signal(Signal::SIGTERM);
    worker.client.is_to_yield().await;
    worker.ends_well(running).await;
    drop(worker);
    assert!(pool.manager.ended_async().await.success());
}

#[tokio::test]
async fn a_leased_session_has_a_process_of_its_own_which_ends_with_it() {
    let mut pool =
        Pool::start_unmodelled(&["--slots", "2", "--pool-slots", "1", "--isolate", "process"]).await;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "increase").await;
    let read = worker.step().await;
    worker.ends_well(read).await;
    pool.manager.counts("fpga_device_manager_tenant_processes 1").await;
    pool.stream.recall(LeaseId(7)).await;
    worker.client.is_to_yield().await;
    let refused = worker.step().await;
    assert_eq!(worker.client.status(refused).await, LEASE_YIELDS);
    drop(worker);
    pool.stream.freed().await;
    pool.manager.counts("fpga_device_manager_tenant_processes 0").await;
    drop(pool.holder(8, 0).await);
}

#[tokio::test]
async fn without_processes_a_slot_whose_task_does_not_end_is_bad_and_pods_go_on() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1"]).await;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "endless").await;
    pool.stream.report_of(SlotCause::Idle).await;
    worker.step().await;
    pool.stream.report_of(SlotCause::Busy).await;
    drop(worker);
    let draining = pool.stream.report_of(SlotCause::Closed).await;
    assert!(matches!(draining.status, SlotStatus::Draining(_)), "{draining:?}");
    assert_eq!(pool.stream.report_of(SlotCause::NotReaped).await.status, SlotStatus::Bad);
    let pods = Client::connect(&pool.manager).await;
    let mut pods = Worker::new(pods, &pool.bitstream, "increase").await;
    let read = pods.step().await;
    pods.ends_well(read).await;
}

#[tokio::test]
async fn a_task_that_does_not_end_is_killed_with_the_process_of_its_lease() {
    let mut pool =
        Pool::start_unmodelled(&["--slots", "2", "--pool-slots", "1", "--isolate", "process"]).await;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "busy").await;
    worker.start_endless(&mut pool).await;
    drop(worker);
    let since = Instant::now();
    let draining = pool.stream.report_of(SlotCause::Closed).await;
    assert!(matches!(draining.status, SlotStatus::Draining(_)), "{draining:?}");
    let free = pool.stream.report().await;
    assert_eq!(free.status, SlotStatus::Free, "{free:?}");
    assert!(since.elapsed() >= Duration::from_secs(28), "{:?}", since.elapsed());
    pool.manager.counts("fpga_device_manager_tenant_processes 0").await;
    drop(pool.holder(8, 0).await);
}
