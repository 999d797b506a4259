//! Two brokers race for a Lease. Its API server is a stand-in that keeps one Lease and refuses writes of old versions, as
//! the real one does.

use crate::bed::{Bed, Options, want};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use fpga_net::election::{Election, FENCING_TOKEN, FencingError, Timing};
use fpga_pool::leadership::{self, LEASE};
use fpga_pool::terms::{Swap, Terms};
use fpga_pool_leases::ids::Term;
use fpga_pool_leases::messages::SlotStatus;
use fpga_test_kit::{Server, on_paused_clock, until_async};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{RwLock, mpsc, watch};
use tokio::time::advance;

/// No Lease ends because a broker or the API server does not run for a while on a busy machine.
const TIMING: Timing = Timing { duration: Duration::from_secs(3600), retry: Duration::from_millis(100) };

#[derive(Debug, Clone, Default)]
struct Lease {
    kept: Arc<Mutex<(u64, Option<Value>)>>,
    /// Who holds it for writing keeps the API server from answering.
    answers: Arc<RwLock<()>>,
}

impl Lease {
    fn serve(&self) -> Server {
        let path = "/apis/coordination.k8s.io/v1/namespaces/test/leases";
        let router = Router::new()
            .route(path, post(write))
            .route(&format!("{path}/{LEASE}"), get(read).put(write))
            .with_state(self.clone());
        Server::tcp("127.0.0.1:0", router)
    }

    fn field(&self, pointer: &str) -> Option<String> {
        let lease = self.kept.lock().1.clone()?;
        lease.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
    }

    fn term(&self) -> Option<String> {
        self.field(&format!("/metadata/annotations/{}", FENCING_TOKEN.replace('/', "~1")))
    }
}

async fn read(State(lease): State<Lease>) -> Response {
    let _answers = lease.answers.read().await;
    match lease.kept.lock().1.clone() {
        Some(lease) => Json(lease).into_response(),
        None => refusal(StatusCode::NOT_FOUND, "NotFound"),
    }
}

async fn write(State(lease): State<Lease>, Json(mut new): Json<Value>) -> Response {
    let _answers = lease.answers.read().await;
    let mut kept = lease.kept.lock();
    let version = kept.1.as_ref().and_then(|lease| lease.pointer("/metadata/resourceVersion").cloned());
    if new.pointer("/metadata/resourceVersion").cloned() != version {
        return refusal(StatusCode::CONFLICT, "Conflict");
    }
    kept.0 += 1;
    new["metadata"]["resourceVersion"] = json!(kept.0.to_string());
    kept.1 = Some(new.clone());
    Json(new).into_response()
}

fn refusal(code: StatusCode, reason: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason, "reason": reason,
        "code": code.as_u16(),
    });
    (code, Json(status)).into_response()
}

/// A broker that races.
struct Racer {
    bed: Bed,
    swaps: mpsc::Sender<Swap>,
    stop: watch::Sender<bool>,
    race: tokio::task::JoinHandle<()>,
}

impl Racer {
    async fn start(api_server: &Server, name: &str) -> Self {
        let config = kube::Config::new(format!("http://{}", api_server.address()).parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let (mut race, leadership) = Election::new(client, "test", LEASE, name.to_owned(), TIMING);
        let (swaps, to_swap) = mpsc::channel(1);
        let bed = Bed::standing_by(Options::default(), Terms::Lease(swaps.clone())).await;
        tokio::spawn(leadership::follow(leadership, race.fencing(), to_swap, bed.desk.clone()));
        let (stop, stopped) = watch::channel(false);
        Self { bed, swaps, stop, race: tokio::spawn(race.run(stopped)) }
    }
}

#[tokio::test]
async fn when_the_active_broker_ends_the_other_one_takes_a_later_term_and_goes_on() {
    let lease = Lease::default();
    let api_server = lease.serve();
    let first = Racer::start(&api_server, "first").await;
    first.bed.until_active().await;
    let second = Racer::start(&api_server, "second").await;
    assert_eq!(
        (lease.term().as_deref(), lease.field("/spec/holderIdentity").as_deref()),
        (Some("1"), Some("first"))
    );
    let mut client = first.bed.client("n1").await;
    let ticket = client.want(want(1, 10)).await;
    assert!(!second.bed.desk.is_in_office());

    let Racer { bed, stop, race, .. } = first;
    bed.stop().await;
    stop.send_replace(true);
    race.await.unwrap();
    second.bed.until_active().await;
    assert_eq!(
        (lease.term().as_deref(), lease.field("/spec/holderIdentity").as_deref()),
        (Some("2"), Some("second"))
    );
    let mut client = second.bed.client("n1").await;
    let shown = fpga_pool_api::client::Want { ticket: Some(ticket), ..want(1, 10) };
    assert_eq!(client.want(shown).await.ticket, ticket.ticket);
    let mut manager = second.bed.manager_with("", "n1", vec![SlotStatus::Free]).await;
    manager.prepared().await;
    client.offered().await;
}

#[tokio::test]
async fn a_broker_that_lost_its_lease_while_it_wanted_a_term_leads_again_when_it_has_the_lease() {
    let lease = Lease::default();
    let api_server = lease.serve();
    let racer = Racer::start(&api_server, "first").await;
    racer.bed.until_active().await;
    on_paused_clock(async {
        let no_answers = lease.answers.write().await;
        advance(TIMING.renew_deadline()).await;
        until_async("an end of the office", async || !racer.bed.desk.is_in_office()).await;
        racer.swaps.send(Swap { expected: Term(1), next: Term(9) }).await.unwrap();
        // All tasks that the message wakes have run after this.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        // The Lease is had again while the broker would wait for the answer to that.
        drop(no_answers);
        until_async("an active broker", async || {
            advance(Duration::from_millis(10)).await;
            racer.bed.desk.is_active()
        })
        .await;
        assert_eq!(lease.term().as_deref(), Some("2"), "the term of before is not taken");
    })
    .await;
}

#[tokio::test]
async fn a_term_is_replaced_only_by_the_holder_and_only_if_it_is_the_expected_one() {
    let lease = Lease::default();
    let api_server = lease.serve();
    let config = kube::Config::new(format!("http://{}", api_server.address()).parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    let (mut race, leadership) = Election::new(client.clone(), "test", LEASE, "me".to_owned(), TIMING);
    let fencing = race.fencing();
    let (mut other, _) = Election::new(client, "test", LEASE, "other".to_owned(), TIMING);
    let of_other = other.fencing();
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(race.run(stopped.clone()));
    until_async("the Lease", async || leadership.is_held()).await;
    tokio::spawn(other.run(stopped));
    assert_eq!(fencing.read().await.unwrap(), 0);
    fencing.replace(0, 5).await.unwrap();
    assert!(matches!(fencing.replace(0, 6).await, Err(FencingError::Other { found: 5 })));
    assert!(matches!(of_other.replace(5, 6).await, Err(FencingError::NotHeld)));
    assert_eq!(lease.term().as_deref(), Some("5"));
}
