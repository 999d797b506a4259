//! Sends the requests of a plan at their times, and checks the answers.

use super::front_door::FrontDoor;
use super::functions::Functions;
use super::plan::{Plan, Planned};
use super::report::Served;
use anyhow::{Context as _, Result, ensure};
use fpga_tests::testbed::envoy::SERVED_BY;
use fpga_tests::testbed::http_client::{Answer, HttpClient};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Longest time of a request.
const REQUEST: Duration = Duration::from_secs(120);

/// Sends all requests, up to the first that fails, at their times after `start`. The results are in the order of the
/// plan.
pub(super) async fn play(
    plan: &Plan,
    start: Instant,
    functions: &Functions,
    door: &FrontDoor,
) -> Result<Vec<Served>> {
    let nodes: HashMap<SocketAddr, u32> =
        functions.replicas.iter().flatten().map(|replica| (replica.address, replica.node)).collect();
    let http = HttpClient::new(REQUEST);
    let mut sent = JoinSet::new();
    let mut answered: Vec<(usize, Answered)> = Vec::with_capacity(plan.requests.len());
    for (number, planned) in plan.requests.iter().copied().enumerate() {
        while let Ok(Some(ended)) = tokio::time::timeout_at(start + planned.at, sent.join_next()).await {
            answered.push(ended.context("a request was lost")??);
        }
        tokio::time::sleep_until(start + planned.at).await;
        let (http, url) = (http.clone(), door.url(planned.function));
        sent.spawn(async move { anyhow::Ok((number, send(&http, &url, planned).await?)) });
    }
    while let Some(ended) = sent.join_next().await {
        answered.push(ended.context("a request was lost")??);
    }
    answered.sort_by_key(|(number, _)| *number);
    let served = plan.requests.iter().zip(answered).map(|(planned, (_, answered))| {
        let Answered { by, before_start, took } = answered;
        let node = *nodes.get(&by).with_context(|| format!("{by} is no replica"))?;
        Ok(Served { planned: *planned, node, before_start, took: Some(took) })
    });
    served.collect()
}

/// The answer to a request.
struct Answered {
    /// Address and port of the replica.
    by: SocketAddr,
    before_start: Duration,
    took: Duration,
}

async fn send(http: &HttpClient, url: &str, planned: Planned) -> Result<Answered> {
    let begin = Instant::now();
    let answer = http.post(url, planned.items.to_le_bytes().to_vec()).await?;
    let took = begin.elapsed();
    ensure!(answer.status.is_success(), "{url} answered {}: {}", answer.status, answer.text().trim());
    let expected = [planned.items, u32::try_from(planned.function)?].map(u32::to_le_bytes).concat();
    ensure!(answer.body == expected, "{url} answered {:?} instead of {expected:?}", answer.body);
    let micros = |name| anyhow::Ok(Duration::from_micros(header(&answer, name)?));
    let kernel = micros("x-opencl-kernel-us")?;
    ensure!(kernel == planned.board(), "{url}: the kernel took {kernel:?} instead of {:?}", planned.board());
    Ok(Answered { by: header(&answer, SERVED_BY)?, before_start: micros("x-opencl-wait-us")?, took })
}

fn header<T: FromStr>(answer: &Answer, name: &str) -> Result<T> {
    let value = answer.headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok());
    value.with_context(|| format!("the answer has no {name}"))
}
