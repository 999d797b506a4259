//! Clients that send requests, of which some are killed at a random moment.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use fpga_tests::testbed::chance::Chance;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Longest time of a request.
const REQUEST: Duration = Duration::from_secs(60);
/// Longest body, in bytes.
const BODY: u64 = 4_096;
/// Longest life of a client that is killed, in microseconds.
const LIFE: u64 = 4_000;

/// Clients of one function.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    pub url: String,
    pub address: SocketAddr,
    /// Number of clients at a time.
    pub clients: u16,
    /// Of how many requests one is cut.
    pub cut: u64,
}

/// What became of requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcomes {
    /// Requests with the right answer.
    pub answered: u64,
    /// Requests without, whose client lived.
    pub failed: u64,
    /// Requests whose client was killed.
    pub cut: u64,
}

impl AddAssign for Outcomes {
    fn add_assign(&mut self, other: Self) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.cut += other.cut;
    }
}

impl Clients {
    /// Sends so many requests, all clients at the same time.
    pub async fn send(&self, requests: u64, chance: Chance) -> Result<Outcomes> {
        let left = Arc::new(AtomicU64::new(requests));
        let mut running = JoinSet::new();
        for client in 0..self.clients {
            running.spawn(self.clone().run(Arc::clone(&left), chance.of_client(client.into())));
        }
        let mut all = Outcomes::default();
        while let Some(ended) = running.join_next().await {
            all += ended.context("a client ended")?;
        }
        Ok(all)
    }

    async fn run(self, left: Arc<AtomicU64>, mut chance: Chance) -> Outcomes {
        let http = Client::builder(TokioExecutor::new()).build_http();
        let mut outcomes = Outcomes::default();
        let take = |left: u64| left.checked_sub(1);
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            let body = Bytes::from(vec![b'x'; usize::try_from(chance.below(BODY)).unwrap_or(0)]);
            if chance.below(self.cut) == 0 {
                // That the client did not get far is what is wanted.
                let _ = self.cut(body, &mut chance).await;
                outcomes.cut += 1;
            } else {
                match self.ask(&http, body).await {
                    Ok(()) => outcomes.answered += 1,
                    Err(error) => {
                        if outcomes.failed == 0 {
                            eprintln!("a request failed: {error:#}");
                        }
                        outcomes.failed += 1;
                    }
                }
            }
        }
        outcomes
    }

    async fn ask(&self, http: &Client<HttpConnector, Full<Bytes>>, body: Bytes) -> Result<()> {
        let request = Request::put(&self.url).body(Full::new(body.clone()))?;
        let exchange = async {
            let (head, answer) = http.request(request).await?.into_parts();
            anyhow::Ok((head.status, answer.collect().await?.to_bytes()))
        };
        let (status, answer) =
            tokio::time::timeout(REQUEST, exchange).await.context("no answer in time")??;
        anyhow::ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&answer));
        anyhow::ensure!(answer == body, "{} bytes instead of {}", answer.len(), body.len());
        Ok(())
    }

    /// Sends a part of a request, or all of it, and closes the connection at a random moment.
    async fn cut(&self, body: Bytes, chance: &mut Chance) -> Result<()> {
        let path = self.url.splitn(4, '/').nth(3).context("a URL without path")?;
        let head = format!("PUT /{path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        let whole = [head.as_bytes(), &body].concat();
        let sent = usize::try_from(chance.below(whole.len() as u64 + 1))?;
        let mut stream = TcpStream::connect(self.address).await?;
        // A reset, as a killed client's system sends it where data is unread, leaves no port in TIME_WAIT.
        stream.set_zero_linger()?;
        stream.write_all(whole.get(..sent).unwrap_or(&whole)).await?;
        tokio::time::sleep(Duration::from_micros(chance.below(LIFE))).await;
        Ok(())
    }
}
