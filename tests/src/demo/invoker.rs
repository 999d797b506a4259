//! Calls the functions as the plan says, verifies every answer, and counts.

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

/// A call may wait behind others: functions serve one at a time.
const CALL: Duration = Duration::from_secs(30);
/// How often a call is tried: the pod may have been scaled away in between, as behind any load balancer.
const TRIES: u32 = 4;
const BETWEEN_TRIES: Duration = Duration::from_millis(300);

/// What has been counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    in_flight: [AtomicUsize; Function::ALL.len()],
    counts: Mutex<Counts>,
}

/// The counts so far.
#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    /// Per function its verified calls' times, in the order of their end.
    pub verified: HashMap<Function, Vec<Invocation>>,
    /// Calls that failed, or whose answer was wrong.
    pub failed: usize,
    /// Calls that were tried again, since their pod was gone.
    pub retried: usize,
    /// What the first failure was.
    pub first_failure: Option<String>,
    /// How often a function was scaled up, and down.
    pub scaled: (usize, usize),
    /// The latest scalings, as text.
    pub scalings: Vec<String>,
}

impl Tally {
    /// Calls under way or waiting.
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

/// Follows the plan to its end.
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

/// One input each, big enough for the board to have something to do, small enough for the CPU to check.
fn cases() -> Result<HashMap<Function, Arc<Case>>> {
    Function::ALL
        .into_iter()
        .map(|function| {
            let case = match function {
                Function::Sobel => Case::with_input(function, super::functions::photograph()?.to_netpbm())?,
                Function::Matmul => Case::new(function, 256, 2)?,
                Function::BlackScholes => Case::new(function, 20_000, 3)?,
                Function::Sha256 => Case::new(function, 2_000, 4)?,
            };
            Ok((function, Arc::new(case)))
        })
        .collect()
}

async fn call(case: &Case, http: &HttpClient, endpoints: &Endpoints, tally: &Tally) {
    let mut failure = None;
    for _ in 0..TRIES {
        let result = match endpoints.next(case.function) {
            Some(address) => case.invoke(http, &address).await,
            None => Err(anyhow::anyhow!("no pod of {} is ready", case.function)),
        };
        match result {
            Ok(invocation) => {
                // The output has been checked; thousands of them need not be kept.
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
