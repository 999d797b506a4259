//! Sends the requests of a plan at their times, and checks the answers.

use super::functions::{Functions, Replica};
use super::plan::{Plan, Planned};
use super::report::Served;
use super::router::Router;
use crate::testbed::http_client::{Answer, HttpClient};
use crate::testbed::invoke::FUNCTION_PORT;
use anyhow::{Context as _, Result, ensure};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Longest time of a request.
const REQUEST: Duration = Duration::from_secs(120);
/// Time until the first request may be sent.
const SOON: Duration = Duration::from_millis(200);

/// Sends requests to the replicas that a router chooses.
#[derive(Debug)]
pub(super) struct Client<'f> {
    functions: &'f Functions,
    router: Arc<Mutex<Router>>,
    http: HttpClient,
}

impl<'f> Client<'f> {
    pub fn new(functions: &'f Functions, router: Router) -> Self {
        Self { functions, router: Arc::new(Mutex::new(router)), http: HttpClient::new(REQUEST) }
    }

    /// Sends all requests. The results are in the order of the plan.
    pub async fn play(&self, plan: &Plan) -> Result<Vec<Served>> {
        let mut sent = JoinSet::new();
        let start = Instant::now() + SOON;
        for (number, planned) in plan.requests.iter().enumerate() {
            tokio::time::sleep_until(start + planned.at).await;
            let replicas = self.functions.replicas.get(planned.function).context("an unknown function")?;
            let mut router = self.router.lock().unwrap_or_else(PoisonError::into_inner);
            let replica = router.choose(number, planned, replicas, start.elapsed())?.clone();
            drop(router);
            let (http, planned, router) = (self.http.clone(), *planned, Arc::clone(&self.router));
            sent.spawn(async move {
                let served = send(&http, planned, &replica).await;
                router.lock().unwrap_or_else(PoisonError::into_inner).answered(number, start.elapsed());
                (number, served)
            });
        }
        let mut served = Vec::with_capacity(plan.requests.len());
        while let Some(ended) = sent.join_next().await {
            let (number, result) = ended.context("a request was lost")?;
            served.push((number, result?));
        }
        served.sort_by_key(|(number, _)| *number);
        Ok(served.into_iter().map(|(_, served)| served).collect())
    }
}

async fn send(http: &HttpClient, planned: Planned, replica: &Replica) -> Result<Served> {
    let url = format!("http://{}:{FUNCTION_PORT}/", replica.address);
    let begin = Instant::now();
    let answer = http.post(&url, planned.items.to_le_bytes().to_vec()).await?;
    let took = begin.elapsed();
    ensure!(answer.status.is_success(), "{url} answered {}: {}", answer.status, answer.text().trim());
    let expected = [planned.items, u32::try_from(planned.function)?].map(u32::to_le_bytes).concat();
    ensure!(answer.body == expected, "{url} answered {:?} instead of {expected:?}", answer.body);
    let kernel = time(&answer, "x-opencl-kernel-us")?;
    ensure!(kernel == planned.board(), "{url}: the kernel took {kernel:?} instead of {:?}", planned.board());
    Ok(Served {
        planned,
        node: replica.node,
        before_start: time(&answer, "x-opencl-wait-us")?,
        took: Some(took),
    })
}

fn time(answer: &Answer, header: &str) -> Result<Duration> {
    let value = answer.headers.get(header).and_then(|value| value.to_str().ok()?.parse().ok());
    value.map(Duration::from_micros).with_context(|| format!("the answer has no {header}"))
}
