//! The extender itself, without a port for kube-scheduler and without a cluster: the test says what it hears of nodes and
//! which pods it decides, and the page gets its real answers.

use fpga_core::decide::DecisionRules;
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::Clock;
use fpga_scheduler_extender::index::Shown;
use fpga_scheduler_extender::routes::{self, Routes};
use fpga_tests::testbed::http_client::HttpClient;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const MAX_BODY_BYTES: usize = 16 << 20;
const LONG: Duration = Duration::from_secs(60);

/// An extender that answers.
pub struct Extender {
    app: Arc<App>,
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Extender {
    /// Starts an extender that knows these nodes, without states.
    pub async fn start(names: impl IntoIterator<Item = String>) -> Self {
        let app = Arc::new(App::new(DecisionRules::default(), Clock::system()));
        let names: HashSet<String> = names.into_iter().collect();
        for name in &names {
            let labels = [("fpga-scheduling.io/fpga-vendor".to_owned(), "intel".to_owned())];
            let node = ObjectMeta {
                name: Some(name.clone()),
                uid: Some(name.clone()),
                labels: Some(labels.into()),
                ..ObjectMeta::default()
            };
            app.index.apply(node, Shown::Listed, app.clock.read());
        }
        app.index.listed(&names);
        app.expectations.listed(&HashSet::new());
        let routes = Routes { prefix: String::new(), max_body_bytes: MAX_BODY_BYTES };
        let router = routes::router(Arc::clone(&app), &routes);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            // The server ends with the test, so that an error has no reader.
            let _ = axum::serve(listener, router).await;
        });
        Self { app, address, server }
    }

    /// The address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The collector of a node sends a state.
    pub fn hears(&self, node: &str, state: Value) {
        let state = serde_json::from_value(state).unwrap();
        self.app.index.stream(node, node, state, self.app.clock.read()).unwrap();
    }

    /// kube-scheduler asks for a pod's nodes among these, and for the scores of those that fit.
    pub async fn decide(&self, pod: &Value, nodes: &[String]) {
        let http = HttpClient::new(LONG);
        let ask = async |verb: &str, nodes: &Value| {
            let body = json!({"Pod": pod, "NodeNames": nodes}).to_string();
            let answer = http.post(&format!("{}/{verb}", self.url()), body).await.unwrap();
            assert!(answer.status.is_success(), "{verb}: {}", answer.status);
            answer.json().unwrap()
        };
        let filtered: Value = ask("filter", &json!(nodes)).await;
        ask("prioritize", &filtered["NodeNames"]).await;
    }
}

impl Drop for Extender {
    fn drop(&mut self) {
        self.server.abort();
    }
}
