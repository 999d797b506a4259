//! Sends the requests at their times, each to the pod that serves its function at that time.

use super::functions::Functions;
use super::{BOARD_TIME, Requests};
use crate::modelled::ITEM;
use anyhow::{Context as _, Result, ensure};
use fpga_tests::testbed::cluster::Cluster;
use fpga_tests::testbed::http_client::HttpClient;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Longest time of a request.
const REQUEST: Duration = Duration::from_secs(30);
/// Time between two looks at the pods.
const LOOK: Duration = Duration::from_millis(100);
/// Pods that end while a request is under way lose it; a gateway would send it again, and so does this client.
const TRIES: usize = 50;

type Addresses = Arc<Mutex<Vec<Option<SocketAddr>>>>;

/// Sends all requests at their times after `start`, until the last is answered.
pub(super) async fn play(
    requests: &Requests,
    start: Instant,
    functions: &Functions,
    cluster: &Cluster,
) -> Result<()> {
    let addresses: Addresses = Arc::new(Mutex::new(functions.addresses(cluster).await?));
    tokio::select! {
        sent = send(requests, start, &addresses) => sent,
        failed = follow(functions, cluster, &addresses) => failed,
    }
}

/// Looks again and again where functions are served. Returns only if that fails.
async fn follow(functions: &Functions, cluster: &Cluster, addresses: &Addresses) -> Result<()> {
    loop {
        tokio::time::sleep(LOOK).await;
        let now = functions.addresses(cluster).await?;
        *addresses.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

async fn send(requests: &Requests, start: Instant, addresses: &Addresses) -> Result<()> {
    let http = HttpClient::new(REQUEST);
    let mut sent = JoinSet::new();
    for (at, function) in &requests.all {
        tokio::time::sleep_until(start + *at).await;
        while let Some(ended) = sent.try_join_next() {
            ended.context("a request was lost")??;
        }
        sent.spawn(request(http.clone(), Arc::clone(addresses), *function));
    }
    while let Some(ended) = sent.join_next().await {
        ended.context("a request was lost")??;
    }
    Ok(())
}

async fn request(http: HttpClient, addresses: Addresses, function: usize) -> Result<()> {
    let items = u32::try_from(BOARD_TIME.as_micros() / ITEM.as_micros())?;
    let mut last = None;
    for _ in 0..TRIES {
        let address =
            addresses.lock().unwrap_or_else(PoisonError::into_inner).get(function).copied().flatten();
        if let Some(address) = address {
            match http.post(&format!("http://{address}/"), items.to_le_bytes().to_vec()).await {
                Ok(answer) if answer.status.is_success() => return Ok(()),
                Ok(answer) => last = Some(format!("{}: {}", answer.status, answer.text().trim())),
                Err(error) => last = Some(format!("{error:#}")),
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    ensure!(last.is_none(), "function {function} failed {TRIES} times: {}", last.unwrap_or_default());
    anyhow::bail!("function {function} has no pod")
}
