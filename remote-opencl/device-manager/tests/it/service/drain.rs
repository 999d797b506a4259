//! The end by SIGTERM: the manager takes no new sessions, existing ones continue, and the manager ends with
//! the last of them.

use crate::harness::{Client, Manager, Ready};
use crate::service::health::Collector;
use crate::service::{INCREASE, ints, scalar};
use fpga_core::device::Health;
use fpga_protocol::v1::kernel_arg::Value;
use fpga_test_kit::{patience, until_async};
use nix::sys::signal::Signal;
use tonic::Code;

/// Runs until another command changes the buffer, which never happens here.
const ENDLESS: &str = "kernel void endless(global volatile int *a) { while (a[0] == 0) {} }";

const WAYS: [&[&str]; 2] = [&[], &["--isolate", "process"]];

/// A manager with this drain timeout.
fn manager(way: &[&str], drain_timeout: &str) -> Manager {
    Manager::start(&[way, &["--drain-timeout", drain_timeout]].concat())
}

/// Sends SIGTERM to the manager, and waits until `/readyz` reports the drain.
async fn drain(manager: &Manager) {
    manager.signal(Signal::SIGTERM);
    answers(manager, "draining").await;
}

/// Waits until the answer of `/readyz` contains `what`.
async fn answers(manager: &Manager, what: &str) {
    until_async(format!("{what} at /readyz"), async || {
        let ready = manager.get("/readyz").text;
        if ready.contains(what) { Ok(()) } else { Err(ready) }
    })
    .await;
}

#[tokio::test]
async fn a_draining_manager_takes_no_session_serves_those_it_has_and_ends_with_the_last_one() {
    for way in WAYS {
        let mut manager = manager(way, "1h");
        let mut client = Client::connect(&manager).await;
        let other = Client::connect(&manager).await;
        let Ready { queue, kernel, buffer } = client.ready(INCREASE, "increase", 4).await;
        let write = client.write(queue, buffer, ints([40])).await;
        assert_eq!(client.run(write).await, 0);
        drain(&manager).await;
        answers(&manager, "2 sessions").await;
        assert_eq!(manager.get("/healthz").status, 200, "{way:?}");
        assert!(manager.metrics_text().contains("fpga_device_manager_draining 1"), "{way:?}");

        let refused = Client::refused(manager.channel().await).await;
        assert_eq!(refused.code(), Code::Unavailable, "{way:?}: {refused}");
        let said = refused.message();
        assert!(said.contains("draining") && said.contains("another board"), "{said}");

        drop(other);
        answers(&manager, "1 session ").await;
        let args = vec![Value::Buffer(buffer), scalar(&2_i32.to_le_bytes())];
        let launch = client.launch(queue, kernel, args, 1);
        assert_eq!(client.run(launch).await, 0, "{way:?}");
        let read = client.read(queue, buffer, 4);
        let event = read.event;
        client.flush(vec![read]).await;
        let (read, data) = client.completion(event).await;
        assert_eq!((read.status, data), (0, ints([42])), "{way:?}");
        assert!(manager.is_running());
        drop(client);
        assert_eq!(manager.ended_async().await.code(), Some(0), "{way:?}");
    }
}

#[tokio::test]
async fn sessions_that_outlast_the_drain_hear_why_they_end_even_if_their_kernels_never_do() {
    for way in WAYS {
        let mut manager = manager(way, "200ms");
        let mut client = Client::connect(&manager).await;
        let idle = Client::connect(&manager).await;
        let Ready { queue, kernel, buffer } = client.ready(ENDLESS, "endless", 4).await;
        let write = client.write(queue, buffer, ints([0])).await;
        assert_eq!(client.run(write).await, 0);
        let launch = client.launch(queue, kernel, vec![Value::Buffer(buffer)], 1);
        client.flush(vec![launch]).await;
        manager.counts("fpga_device_manager_slots_in_use 1").await;
        manager.signal(Signal::SIGTERM);
        for client in [idle, client] {
            let status =
                tokio::time::timeout(patience(), client.end()).await.expect("no hang").expect("an error");
            assert_eq!(status.code(), Code::Unavailable, "{way:?}: {status}");
            assert!(status.message().contains("--drain-timeout"), "{way:?}: {status}");
        }
        assert_eq!(manager.ended_async().await.code(), Some(0), "{way:?}");
    }
}

#[tokio::test]
async fn a_client_that_has_said_nothing_keeps_no_manager_from_ending() {
    let mut manager = manager(&[], "1h");
    let _silent = std::os::unix::net::UnixStream::connect(manager.socket()).unwrap();
    let client = Client::connect(&manager).await;
    drain(&manager).await;
    drop(client);
    assert_eq!(manager.ended_async().await.code(), Some(0));
}

#[tokio::test]
async fn the_collector_hears_that_a_draining_device_is_for_nobody() {
    let (collector, address) = Collector::start();
    let mut manager = Manager::start(&["--collector", &address, "--drain-timeout", "1h"]);
    let client = Client::connect(&manager).await;
    collector.hears(Health::Healthy).await;
    manager.signal(Signal::SIGTERM);
    collector.hears(Health::Unhealthy).await;
    drop(client);
    assert_eq!(manager.ended_async().await.code(), Some(0));
}
