//! Grants of the service over loopback: with 1,000 registered managers, the time from a job's Want to its Offer where a slot
//! is free, and the number of grants per second while many clients ask.
//!
//! Managers, clients, and the broker share the processors of this machine, so that the service alone is faster.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark")]

#[path = "../tests/service/bed.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod bed;

use bed::{Bed, want};
use fpga_pool_api::client::{FromClient, ToClient};
use fpga_pool_leases::messages::{BrokerToManager, ManagerToBroker};
use std::time::{Duration, Instant};

const MANAGERS: usize = 1000;
const SLOTS: u32 = 4;
/// Jobs of the first part, one after the other.
const SINGLE: u128 = 5_000;
/// Clients of the second part.
const CLIENTS: u128 = 16;
/// Jobs of each client that wait at once.
const WINDOW: u128 = 32;
/// Duration of the second part.
const RUN: Duration = Duration::from_secs(10);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bed = Bed::active().await;
        for node in 0..MANAGERS {
            tokio::spawn(lend(bed.manager(&format!("n{node}"), SLOTS).await));
        }
        latency(&bed).await;
        throughput(&bed).await;
    });
}

/// Gives each lease back at once.
async fn lend(mut manager: bed::Manager) {
    while let Ok(Some(message)) = manager.from.message().await {
        if let Ok(BrokerToManager::Prepare { lease, .. }) = message.try_into() {
            manager.send(ManagerToBroker::Prepared { lease: lease.id }).await;
            manager.free(lease.slot).await;
        }
    }
}

async fn latency(bed: &Bed) {
    let mut client = bed.client("n0").await;
    let mut times = Vec::new();
    for job in 0..SINGLE {
        let began = Instant::now();
        client.want(want(job, 1_000_000)).await;
        client.offered().await;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 1000];
    println!(
        "{MANAGERS} managers, {SLOTS} slots each; a job at a time: median {:?}, p99 {:?}, p99.9 {:?} from Want to Offer",
        at(500),
        at(990),
        at(999)
    );
}

async fn throughput(bed: &Bed) {
    let ends = Instant::now() + RUN;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let client = bed.client(&format!("n{number}")).await;
        clients.push(tokio::spawn(load(client, (number + 1) << 64, ends)));
    }
    let mut grants = 0;
    for client in clients {
        grants += client.await.unwrap();
    }
    let rate = grants as f64 / RUN.as_secs_f64();
    println!("{CLIENTS} clients with {WINDOW} waiting jobs each: {rate:.0} grants/s");
}

/// Wants a next job for each offer. Returns the number of offers.
async fn load(mut client: bed::Client, first: u128, ends: Instant) -> u64 {
    let (mut next, mut offers) = (first, 0);
    for _ in 0..WINDOW {
        client.send(FromClient::Want(want(next, 1_000_000))).await;
        next += 1;
    }
    while Instant::now() < ends {
        if let ToClient::Offer(_) = client.next().await {
            offers += 1;
            client.send(FromClient::Want(want(next, 1_000_000))).await;
            next += 1;
        }
    }
    offers
}
