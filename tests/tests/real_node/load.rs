//! Clients that call a function all the time, and count the requests that fail.

use fpga_test_kit::patience;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tokio::task::JoinHandle;

/// Clients that call a function all the time.
pub struct Load {
    stop: Arc<AtomicBool>,
    cut: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts so many clients of the function at `url`, each with an `http` of its own.
    pub fn start(url: &str, case: &Case, clients: usize, http: fn() -> HttpClient) -> Self {
        let (stop, cut, answered) = (Arc::default(), Arc::default(), Arc::default());
        let clients = (0..clients).map(|_| {
            let (url, case) = (url.to_owned(), case.clone());
            let (stop, cut, answered): (Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>) =
                (Arc::clone(&stop), Arc::clone(&cut), Arc::clone(&answered));
            tokio::spawn(async move {
                let http = http();
                while !stop.load(Ordering::SeqCst) {
                    // The function changes nothing, so that its requests can be sent again.
                    let mut failed: Option<Instant> = None;
                    while let Err(error) = case.invoke_at(&http, &url).await {
                        cut.fetch_add(1, Ordering::SeqCst);
                        println!("a request failed: {error:#}");
                        let first = failed.get_or_insert_with(Instant::now);
                        assert!(first.elapsed() < patience(), "sent again it failed: {error:#}");
                    }
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            })
        });
        let clients = clients.collect();
        Self { stop, cut, answered, clients }
    }

    /// Requests that failed until now.
    pub fn cut(&self) -> usize {
        self.cut.load(Ordering::SeqCst)
    }

    /// Waits until each client has had further answers.
    pub async fn goes_on(&self) {
        let before = self.answered.load(Ordering::SeqCst);
        wait::until("further requests to be answered", async || {
            let now = self.answered.load(Ordering::SeqCst);
            Ok((now >= before + 4 * self.clients.len()).then_some(()))
        })
        .await
        .unwrap();
    }

    /// Ends the load; returns how many requests were answered.
    pub async fn end(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.await.unwrap();
        }
        self.answered.load(Ordering::SeqCst)
    }
}
