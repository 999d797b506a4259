//! Calls the functions according to the plan, verifies all answers, and counts them.

use super::functions::Endpoints;
use super::plan::Plan;
use crate::functions::Function;
use crate::testbed::http_client::HttpClient;
use crate::testbed::invoke::{Case, Invocation};
use anyhow::{Context as _, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Timeout of a call. A call may wait for others: functions serve one at a time.
const CALL: Duration = Duration::from_secs(30);
/// Number of attempts of a call: as behind any load balancer, the pod may just have been removed.
const TRIES: u32 = 4;
const BETWEEN_TRIES: Duration = Duration::from_millis(300);

/// The counts of a run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    in_flight: [AtomicUsize; Function::WITH_ONE_KERNEL.len()],
    counts: Mutex<Counts>,
}

/// The counts so far.
#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    /// The verified calls of each function, in the order of their end.
    pub verified: HashMap<Function, Vec<Invocation>>,
    /// Number of calls that failed or whose answer was wrong.
    pub failed: usize,
    /// Number of attempts that were repeated because the pod was gone.
    pub retried: usize,
    /// The first failure.
    pub first_failure: Option<String>,
    /// Number of times that a function was scaled up, and down.
    pub scaled: (usize, usize),
    /// The latest scalings, as text.
    pub scalings: Vec<String>,
}

impl Tally {
    /// Number of bursts of calls of `function` in flight.
    pub fn in_flight(&self, function: Function) -> usize {
        self.in_flight[function as usize].load(Ordering::Relaxed)
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the counts.
    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Calls the functions until the plan ends.
pub(super) async fn follow(plan: Plan, endpoints: Endpoints, tally: Arc<Tally>) -> Result<()> {
    let http = HttpClient::new(CALL);
    let cases = cases()?;
    let start = Instant::now();
    let mut bursts = JoinSet::new();
    for planned in plan.invocations {
        tokio::time::sleep_until(start + planned.at).await;
        let case = cases.get(&planned.function).context("a function without a case")?.clone();
        let (http, endpoints, tally) = (http.clone(), endpoints.clone(), Arc::clone(&tally));
        bursts.spawn(async move {
            tally.in_flight[planned.function as usize].fetch_add(1, Ordering::Relaxed);
            for _ in 0..planned.calls {
                call(&case, &http, &endpoints, &tally).await;
            }
            tally.in_flight[planned.function as usize].fetch_sub(1, Ordering::Relaxed);
        });
    }
    while bursts.join_next().await.is_some() {}
    Ok(())
}

/// One input for each function, large enough to use the board and small enough to be checked on the CPU.
fn cases() -> Result<HashMap<Function, Arc<Case>>> {
    Function::WITH_ONE_KERNEL
        .into_iter()
        .map(|function| {
            let case = match function {
                Function::Sobel => Case::with_input(function, super::functions::photograph()?.to_netpbm())?,
                Function::Matmul => Case::new(function, 256, 2)?,
                Function::BlackScholes => Case::new(function, 20_000, 3)?,
                Function::Sha256 => Case::new(function, 2_000, 4)?,
                Function::Cnn => Case::new(function, 67, 5)?,
                Function::Bfs => Case::new(function, 20_000, 6)?,
            };
            Ok((function, Arc::new(case)))
        })
        .collect()
}

async fn call(case: &Case, http: &HttpClient, endpoints: &Endpoints, tally: &Tally) {
    let mut failure = None;
    for _ in 0..TRIES {
        let result = match endpoints.url(case.function) {
            Some(url) => case.invoke_traced(http, &url).await,
            None => Err(anyhow::anyhow!("no pod of {} is ready", case.function)),
        };
        match result {
            Ok(invocation) => {
                // The output has been verified, so don't keep thousands of them.
                let invocation = Invocation { output: Default::default(), ..invocation };
                tally.count(|counts| counts.verified.entry(case.function).or_default().push(invocation));
                return;
            }
            Err(error) if error.is::<crate::functions::FunctionError>() => {
                failure = Some(error);
                break;
            }
            Err(error) => {
                failure = Some(error);
                tally.count(|counts| counts.retried += 1);
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
        }
    }
    tally.count(|counts| {
        counts.failed += 1;
        counts.first_failure =
            counts.first_failure.take().or_else(|| failure.map(|error| format!("{error:#}")));
    });
}
