//! Sends requests to a function at a constant rate, over a few connections, as the paper's load generator does: a request
//! that is due while all connections are in use is sent when one is free, and one that is due meanwhile, never.

use anyhow::{Context as _, Result};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::invoke::Case;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Longest time of a request.
const REQUEST: Duration = Duration::from_secs(30);

/// A request with the right answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    pub sent: Instant,
    pub took: Duration,
}

/// What a client sends.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    pub case: Arc<Case>,
    /// Address of the pod.
    pub address: String,
    pub per_second: u32,
    pub connections: u8,
    /// Requests are due half a period after this, and then each period.
    pub from: Instant,
}

/// A client that sends until it is stopped.
#[derive(Debug)]
pub(super) struct Client {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<Vec<Answered>>>,
}

impl Client {
    pub fn start(requests: Requests) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(requests.send(stopped)) }
    }

    /// Ends the client and returns all requests with their answers.
    ///
    /// # Errors
    /// A request got no answer, or a wrong one.
    pub async fn stop(self) -> Result<Vec<Answered>> {
        self.stop.send_replace(true);
        self.task.await.context("a client was lost")?
    }
}

impl Requests {
    async fn send(self, mut stopped: watch::Receiver<bool>) -> Result<Vec<Answered>> {
        let (mut in_flight, mut answered) = (JoinSet::new(), Vec::new());
        tokio::select! {
            ended = self.send_for_ever(&mut in_flight, &mut answered) => match ended? {},
            // An error means that nobody waits for the answers any more.
            _ = stopped.wait_for(|stop| *stop) => {}
        }
        while let Some(ended) = in_flight.join_next().await {
            answered.push(ended??);
        }
        Ok(answered)
    }

    async fn send_for_ever(
        &self,
        in_flight: &mut JoinSet<Result<Answered>>,
        answered: &mut Vec<Answered>,
    ) -> Result<Infallible> {
        let period = Duration::from_secs(1) / self.per_second;
        let passed = u32::try_from(self.from.elapsed().as_nanos() / period.as_nanos()).unwrap_or(0);
        let mut due = interval_at(self.from + period * (passed + 1) + period / 2, period);
        due.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let http = HttpClient::new(REQUEST);
        let connections = Arc::new(Semaphore::new(self.connections.into()));
        loop {
            due.tick().await;
            let connection = Arc::clone(&connections).acquire_owned().await?;
            let (http, case, address) = (http.clone(), Arc::clone(&self.case), self.address.clone());
            in_flight.spawn(async move {
                let sent = Instant::now();
                let took = case.invoke(&http, &address).await?.took;
                drop(connection);
                Ok(Answered { sent, took })
            });
            while let Some(ended) = in_flight.try_join_next() {
                answered.push(ended??);
            }
        }
    }
}
