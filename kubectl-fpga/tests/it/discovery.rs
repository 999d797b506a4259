//! How replicas are found and asked through the API server, and the messages when that fails. The API server is a
//! stand-in: a real one proxies to no loopback address, and the extender of a test has no other.
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Parser as _;
use fpga_extender_api::NodeView;
use fpga_test_kit::status;
use kube::Client;
use kubectl_fpga::connection::{Cluster, ConnectArgs};
use kubectl_fpga::nodes::{merge, table};
use kubectl_fpga::output::Colours;
use kubectl_fpga::part::Part;
use kubectl_fpga::problem::Problem;
use kubectl_fpga::replicas::{self, Replica};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    connect: ConnectArgs,
}

fn args(args: &[&str]) -> ConnectArgs {
    Command::try_parse_from(["x"].iter().chain(args)).unwrap().connect
}

fn cluster(api_server: Router) -> Cluster {
    let client = Client::new(api_server, "default");
    Cluster { client, server: "https://api".into(), namespace: "default".into() }
}

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/kube-fpga/endpointslices";

fn slices(pods: &[(&str, bool)]) -> Value {
    let endpoint = |(pod, ready): &(&str, bool)| json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "targetRef": {"kind": "Pod", "name": pod}});
    let slice = json!({
        "metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "stream", "port": 9463}, {"name": "http", "port": 9461}],
    });
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "metadata": {}, "items": [slice]})
}

fn view(age: u64, source: &str) -> Value {
    json!([{
        "name": "n1", "freshness": "fresh", "source": source,
        "known": {"ageMs": age, "version": {}, "usageMs": 600_000, "reconfigurationMs": 0, "state": {
            "boot": 1, "seq": 1, "heartbeatMs": 1, "measuredAtMs": 1, "windowMs": 300_000, "usageMs": 0,
            "reconfigurationMs": 0, "devices": [{"id": "dm0", "vendor": "intel", "slots": 4, "loaded": [0], "healthy": true}],
            "bitstreams": [{"name": "sobel", "lastUsedAgoMs": 0}], "window": {"bucketMs": 1},
        }},
    }, {"name": "plain", "freshness": "absent", "source": "none"}])
}

/// Two replicas: one answers over HTTP with an older state, the other over HTTPS only.
fn two_replicas() -> Router {
    let proxied = |Path(pod): Path<String>| async move {
        match pod.as_str() {
            "old:9461" => Json(view(9_000, "watched")).into_response(),
            "https:new:9461" => Json(view(300, "stream")).into_response(),
            _ => status(503, "error trying to reach service: malformed HTTP response"),
        }
    };
    Router::new()
        .route(SLICES, get(async || Json(slices(&[("old", true), ("new", false)]))))
        .route("/api/v1/namespaces/kube-fpga/pods/{pod}/proxy/nodes", get(proxied))
        .route(
            "/api/v1/namespaces/kube-fpga/pods/{pod}/proxy/explain/d/p",
            get(async || (StatusCode::NOT_FOUND, Json(json!({"error": "no decision"})))),
        )
}

async fn find(api_server: Router) -> Result<Vec<Replica>, Problem> {
    replicas::find(Part::Extender, &args(&[]), &cluster(api_server)).await
}

#[tokio::test]
async fn all_replicas_behind_the_service_are_asked_whether_they_speak_http_or_https() {
    let replicas = find(two_replicas()).await.unwrap();
    let found: Vec<_> = replicas.iter().map(|replica| (replica.name.as_str(), replica.ready)).collect();
    assert_eq!(found, [("new", false), ("old", true)]);
    let (nodes, silent) = merge(replicas::ask_all::<Vec<NodeView>>(&replicas, "/nodes").await).unwrap();
    assert!(silent.is_empty());
    assert_eq!(nodes[0].view.source, "stream", "the youngest state is shown");
    assert_eq!((nodes[0].replicas["old"].age_ms, nodes[0].replicas["new"].age_ms), (Some(9_000), Some(300)));
    let text = table(&nodes, false).render(Colours::Off);
    assert!(
        text.contains(
            "n1     1        intel/-/-           3/4 free  50%    0%      sobel   300ms  stream  fresh"
        ),
        "{text}"
    );
    let wide = table(&nodes, true).render(Colours::Off);
    assert!(wide.contains("300ms(stream) 9s(watched)"), "{wide}");
}

#[tokio::test]
async fn a_replica_that_knows_nothing_of_a_pod_is_no_error() {
    let replicas = find(two_replicas()).await.unwrap();
    for replica in replicas {
        assert!(replica.ask::<Value>("/explain/d/p").await.unwrap().is_none());
    }
}

#[tokio::test]
async fn what_is_not_allowed_is_told_with_the_command_that_allows_it() {
    let forbidden = || async { status(403, "endpointslices is forbidden: User \"u\" cannot list") };
    let error = find(Router::new().route(SLICES, get(forbidden))).await.err().unwrap().to_string();
    assert!(error.contains("User \"u\" cannot list"), "{error}");
    let command = "kubectl create role kubectl-fpga -n kube-fpga --verb=list --resource=endpointslices.discovery.k8s.io";
    assert!(error.contains(command), "{error}");

    let api_server = Router::new()
        .route(SLICES, get(async || Json(slices(&[("a", true)]))))
        .fallback(async || status(403, "pods/proxy is forbidden"));
    let replicas = find(api_server).await.unwrap();
    let error = replicas[0].ask::<Value>("/nodes").await.unwrap_err().to_string();
    assert!(error.contains("--verb=get --resource=pods/proxy"), "{error}");
}

/// An API server whose replicas `a` and `b` answer the bearers of its tokens for `kube-fpga/fpga-reader`.
fn with_readers(made: Arc<AtomicUsize>) -> Router {
    let proxied = async |headers: HeaderMap| match headers
        .get("x-fpga-token")
        .map(|token| token.to_str().unwrap())
    {
        Some("token-1") => Json(view(300, "stream")).into_response(),
        Some(_) => {
            (StatusCode::FORBIDDEN, Json(json!({"error": "rival may not get the pods"}))).into_response()
        }
        None => (StatusCode::UNAUTHORIZED, Json(json!({"error": "this port wants a token"}))).into_response(),
    };
    let token = async move |Path(account): Path<String>, request: Json<Value>| {
        let spec = &request.0["spec"];
        assert_eq!(spec["audiences"], json!(["fpga-scheduler-extender-read"]));
        assert_eq!(spec["expirationSeconds"], json!(600));
        match account.as_str() {
            "fpga-reader" => {
                let token = format!("token-{}", made.fetch_add(1, Ordering::SeqCst) + 1);
                let status = json!({"token": token, "expirationTimestamp": "2030-01-01T00:00:00Z"});
                Json(json!({"metadata": {}, "spec": spec, "status": status})).into_response()
            }
            "rival" => {
                let status = json!({"token": "of-a-rival", "expirationTimestamp": "2030-01-01T00:00:00Z"});
                Json(json!({"metadata": {}, "spec": spec, "status": status})).into_response()
            }
            "missing" => status(404, "serviceaccounts \"missing\" not found"),
            _ => status(403, "serviceaccounts \"secret\" is forbidden"),
        }
    };
    Router::new()
        .route(SLICES, get(async || Json(slices(&[("a", true), ("b", true)]))))
        .route("/api/v1/namespaces/kube-fpga/pods/{pod}/proxy/nodes", get(proxied))
        .route("/api/v1/namespaces/kube-fpga/serviceaccounts/{account}/token", post(token))
}

#[tokio::test]
async fn replicas_that_want_to_know_who_reads_are_shown_one_token_of_the_readers_account() {
    let made = Arc::new(AtomicUsize::new(0));
    let replicas = find(with_readers(Arc::clone(&made))).await.unwrap();
    for _ in 0..2 {
        let answers = replicas::ask_all::<Vec<NodeView>>(&replicas, "/nodes").await;
        assert!(answers.iter().all(|answer| matches!(&answer.answer, Ok(Some(_)))), "{answers:?}");
    }
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_reader_without_a_token_or_a_right_is_told_what_to_do() {
    for (account, words) in [
        ("rival", ["rival may not get the pods", "kube-fpga/rival", "--reader NAMESPACE/NAME"]),
        ("missing", ["there is no such service account", "kube-fpga/missing", "--reader NAMESPACE/NAME"]),
        (
            "secret",
            ["is forbidden", "--verb=create --resource=serviceaccounts/token", "--resource-name=fpga-reader"],
        ),
    ] {
        let connect = args(&["--reader", &format!("kube-fpga/{account}")]);
        let cluster = cluster(with_readers(Arc::default()));
        let replicas = replicas::find(Part::Extender, &connect, &cluster).await.unwrap();
        let error = replicas[0].ask::<Value>("/nodes").await.unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[tokio::test]
async fn a_missing_extender_is_told_with_where_it_was_looked_for() {
    let none = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "metadata": {}, "items": []});
    let api_server = Router::new().route(SLICES, get(async move || Json(none)));
    let error = find(api_server).await.err().unwrap().to_string();
    assert!(error.contains("Service kube-fpga/fpga-scheduler-extender is not there"), "{error}");
    assert!(error.contains("--extender URL"), "{error}");
    let api_server = Router::new().route(SLICES, get(async || Json(slices(&[]))));
    let error = find(api_server).await.err().unwrap().to_string();
    assert!(error.contains("has no pods behind it"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_none_names_the_replica_and_the_versions() {
    let api_server =
        Router::new().route(SLICES, get(async || Json(slices(&[("a", true)])))).fallback(async || "hello");
    let replicas = find(api_server).await.unwrap();
    let error = replicas[0].ask::<Vec<NodeView>>("/nodes").await.unwrap_err().to_string();
    assert!(
        error.contains("extender a answers can't be understood") && error.contains("another version"),
        "{error}"
    );
}

#[tokio::test]
async fn addresses_that_are_given_need_no_cluster() {
    let replicas =
        replicas::given(Part::Extender, &args(&["--extender", "http://127.0.0.1:9,http://127.0.0.1:10/"]))
            .unwrap();
    assert_eq!(
        replicas.iter().map(|replica| replica.name.as_str()).collect::<Vec<_>>(),
        ["http://127.0.0.1:9", "http://127.0.0.1:10"]
    );
    assert!(matches!(replicas[0].text("/nodes").await, Err(Problem::Silent { .. })));
    let error =
        replicas::given(Part::Extender, &args(&["--extender", "localhost:9461"])).err().unwrap().to_string();
    assert!(error.contains("http://127.0.0.1:9461"), "{error}");
}
