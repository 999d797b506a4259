//! Grants of the service over loopback: with 1,000 registered managers, the time from a job's Want to its Offer where a slot
//! is free, without other jobs and while 10,000 wait for other slots, and the number of grants per second while many clients
//! ask.
//!
//! Managers, clients, and the broker share the processors of this machine, so that the service alone is faster.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark")]

#[path = "../tests/it/bed.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod bed;

use bed::{Bed, digest, lease, want};
use fpga_core::bitstream::Digest;
use fpga_pool::catalog::Catalog;
use fpga_pool::state::Input;
use fpga_pool_api::client::{FromClient, ToClient, Want};
use fpga_pool_api::manager::{Board, FromManager, LentBoard, LentSlot};
use fpga_pool_leases::ids::{Incarnation, Term};
use fpga_pool_leases::lease::{Endpoint, Wanted};
use fpga_pool_leases::messages::{Activity, BrokerToManager, ManagerToBroker, SlotStatus};
use std::time::{Duration, Instant};

const MANAGERS: usize = 1000;
const SLOTS: u32 = 4;
/// Jobs whose time is taken, one after the other.
const SINGLE: u128 = 5_000;
/// Clients that have waiting jobs meanwhile, each as many.
const WAITERS: u128 = 10;
/// Waiting jobs of each of them.
const WAITING: u128 = 1_000;
/// Clients that ask for grants as fast as they get them.
const CLIENTS: u128 = 16;
/// Jobs of each of those clients that wait at once: few, and 10,240 together.
const WINDOWS: [u128; 2] = [32, 640];
/// Duration of a run of those clients.
const RUN: Duration = Duration::from_secs(10);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bed = Bed::active().await;
        for node in 0..MANAGERS {
            tokio::spawn(lend(bed.manager(&format!("n{node}"), SLOTS).await));
        }
        latency(&bed, 1 << 100, "no other job").await;
        let manager = wait_elsewhere(&bed).await;
        latency(&bed, 1 << 101, &format!("{} waiting jobs", WAITERS * WAITING)).await;
        for window in WINDOWS {
            throughput(&bed, window).await;
        }
        drop(manager);
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

/// Lets jobs wait for a kind of board of which one slot is lent, and taken.
async fn wait_elsewhere(bed: &Bed) -> bed::Manager {
    let library = |name, board, digest| {
        format!("[[accelerators.{name}]]\nboard = \"{board}\"\ndigest = \"{digest}\"\n")
    };
    let text = library("aes", "a10", digest()) + &library("fft", "s10", Digest::from_bytes([2; 32]));
    bed.desk.tell(Input::Catalog(Catalog::parse(&text).unwrap())).await.unwrap();
    let manager = bed::Manager::hello(bed.connect().await, "", "other").await.unwrap();
    let board = Board { name: "other".into(), kind: "s10".into(), shell: None, node: "other".into() };
    let board = LentBoard { board, slots: vec![LentSlot::default()] };
    let endpoint = Endpoint { address: "other:1".into(), key: None, socket: None };
    let slots = vec![SlotStatus::Held(lease(1 << 120, 0, 1 << 120, "default"), Activity::Busy)];
    let (incarnation, max_term) = (Incarnation(7), Term(0));
    let register = ManagerToBroker::Register { incarnation, max_term, endpoint, slots };
    manager.to.send(FromManager::encode(register, &board)).await.unwrap();
    for number in 0..WAITERS {
        let mut client = bed.client("n0").await;
        for job in 0..WAITING {
            let wanted = Wanted { accelerator: "fft".into(), ..want(0, 1_000_000).wanted };
            client.want(Want { wanted, ..want((2 << 100) + number * WAITING + job, 1_000_000) }).await;
        }
        tokio::spawn(read(client));
    }
    manager
}

/// Reads why jobs wait, as clients do.
async fn read(mut client: bed::Client) {
    while let Ok(Some(_)) = client.from.message().await {}
}

async fn latency(bed: &Bed, first: u128, beside: &str) {
    let mut client = bed.client("n0").await;
    let mut times = Vec::new();
    for job in first..first + SINGLE {
        let began = Instant::now();
        client.want(want(job, 1_000_000)).await;
        client.offered().await;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 1000];
    println!(
        "{MANAGERS} managers, {SLOTS} slots each; a job at a time beside {beside}: from Want to Offer median {:?}, p99 {:?}, \
         p99.9 {:?}, most {:?}",
        at(500),
        at(990),
        at(999),
        times[times.len() - 1]
    );
}

async fn throughput(bed: &Bed, window: u128) {
    let ends = Instant::now() + RUN;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let client = bed.client(&format!("n{number}")).await;
        clients.push(tokio::spawn(load(client, (number + 1 + (window << 16)) << 64, window, ends)));
    }
    let mut grants = 0;
    for client in clients {
        grants += client.await.unwrap();
    }
    let rate = grants as f64 / RUN.as_secs_f64();
    println!("{CLIENTS} clients with {window} waiting jobs each: {rate:.0} grants/s");
}

/// Wants a next job for each offer. Returns the number of offers.
async fn load(mut client: bed::Client, first: u128, window: u128, ends: Instant) -> u64 {
    let (mut next, mut offers) = (first, 0);
    for _ in 0..window {
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
