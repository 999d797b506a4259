//! Who may read at a port for people, with a stand-in of the API server.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use fpga_net::http::{Peer, serve_probes};
use fpga_net::read_access::{ReadAccess, TOKEN_HEADER, guarded};
use fpga_test_kit::{on_paused_clock, until_async};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt as _;

/// A stand-in for the API server, which counts the requests.
#[derive(Clone)]
struct ApiServer {
    is_down: Arc<AtomicBool>,
    questions: Arc<AtomicUsize>,
    rights: Arc<Mutex<Vec<Value>>>,
    /// Answers for tokens of `junk`, which wait for them.
    junk: Arc<Semaphore>,
    /// Tokens of `junk` that were asked about.
    junk_asked: Arc<AtomicUsize>,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self {
            is_down: Arc::default(),
            questions: Arc::default(),
            rights: Arc::default(),
            junk: Arc::new(Semaphore::new(0)),
            junk_asked: Arc::default(),
        }
    }
}

impl ApiServer {
    fn answer(&self, status: &Value) -> Response {
        self.questions.fetch_add(1, Ordering::SeqCst);
        match self.is_down.load(Ordering::SeqCst) {
            true => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            false => Json(json!({"metadata": {}, "spec": {}, "status": status})).into_response(),
        }
    }

    fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }
}

/// A token NAMESPACE.ACCOUNT.AUDIENCE.
async fn review_token(State(server): State<ApiServer>, body: Bytes) -> Response {
    let review: Value = serde_json::from_slice(&body).unwrap();
    let token = review["spec"]["token"].as_str().unwrap().split('.').collect::<Vec<_>>();
    if token[0] == "junk" {
        server.junk_asked.fetch_add(1, Ordering::SeqCst);
        server.junk.acquire().await.unwrap().forget();
    }
    let user = format!("system:serviceaccount:{}:{}", token[0], token[1]);
    let is_for_us = review["spec"]["audiences"] == json!([token[2]]);
    server.answer(&json!({"authenticated": is_for_us, "audiences": [token[2]], "user": {"username": user}}))
}

/// Administrators may get all pods, and other accounts those of their own namespace.
async fn review_right(State(server): State<ApiServer>, body: Bytes) -> Response {
    let spec: Value = serde_json::from_slice::<Value>(&body).unwrap()["spec"].take();
    let attributes = &spec["resourceAttributes"];
    assert_eq!((&attributes["verb"], &attributes["resource"]), (&json!("get"), &json!("pods")));
    let of_namespace =
        json!(format!("system:serviceaccounts:{}", attributes["namespace"].as_str().unwrap_or("*")));
    let is_own = spec["groups"].as_array().unwrap().contains(&of_namespace);
    let is_administrator = spec["user"] == "system:serviceaccount:ops:admin";
    server.rights.lock().unwrap().push(spec);
    server.answer(&json!({"allowed": is_own || is_administrator}))
}

/// A router of a service, and the API server that it asks.
async fn bed() -> (ApiServer, Router) {
    let server = ApiServer::default();
    let api = Router::new()
        .route("/apis/authentication.k8s.io/v1/tokenreviews", post(review_token))
        .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(review_right))
        .with_state(server.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        let _runs = stop;
        serve_probes(listener, api, stopped).await;
    });
    let client = kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    let secret = Router::new()
        .route("/decisions", get(async || "of all"))
        .route("/explain/{namespace}/{pod}", get(async || "of one"));
    (server, guarded(secret, Some(ReadAccess::new(client, "us"))).route("/healthz", get(async || "ok")))
}

/// Status and text of the answer to a request with these headers.
async fn ask(router: &Router, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let text = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(text.to_vec()).unwrap())
}

#[tokio::test]
async fn a_reader_sees_the_namespaces_whose_pods_it_may_get() {
    let (server, router) = bed().await;
    for (path, token, expected) in [
        ("/healthz", "", 200),
        ("/decisions", "", 401),
        ("/explain/team/pod", "", 401),
        ("/decisions", "no-token", 401),
        ("/decisions", "ops.admin.others", 401),
        ("/decisions", "ops.admin.us", 200),
        ("/explain/team/pod", "ops.admin.us", 200),
        ("/explain/team/pod", "team.default.us", 200),
        ("/explain/rival/pod", "team.default.us", 403),
        ("/explain/rival%2fx/pod", "team.default.us", 403),
        ("/decisions", "team.default.us", 403),
        ("/unknown", "team.default.us", 404),
    ] {
        let headers = [(TOKEN_HEADER, token)];
        let (status, text) = ask(&router, path, if token.is_empty() { &[] } else { &headers }).await;
        assert_eq!(status, expected, "{path} {token}: {text}");
        assert!(status == 200 || !text.starts_with("of "), "{path} {token}: {text}");
    }
    let bearer = ask(&router, "/decisions", &[("authorization", "Bearer ops.admin.us")]).await;
    assert_eq!(bearer, (200, "of all".to_owned()));
    let of_all = server
        .rights
        .lock()
        .unwrap()
        .iter()
        .filter(|spec| spec["resourceAttributes"]["namespace"].is_null())
        .count();
    assert_eq!(of_all, 2, "an administrator's and a tenant's right to all namespaces");
    let (_, text) = ask(&router, "/decisions", &[]).await;
    assert!(text.contains("create token ACCOUNT --audience us"), "{text}");
}

#[tokio::test]
async fn questions_of_one_address_keep_no_other_reader_waiting() {
    on_paused_clock(async {
        let (server, router) = bed().await;
        let ask_from = |last: u8, token: String| {
            let router = router.clone();
            async move {
                let address = std::net::SocketAddr::from(([10, 0, 0, last], 1));
                let mut request =
                    Request::get("/decisions").header(TOKEN_HEADER, token).body(Body::empty()).unwrap();
                request.extensions_mut().insert(Peer::Tcp { address, names: Arc::default() });
                router.oneshot(request).await.unwrap().status().as_u16()
            }
        };
        let junk: Vec<_> =
            (0..64).map(|number| tokio::spawn(ask_from(1, format!("junk.{number}.others")))).collect();
        until_async("junk to be asked about", async || {
            let asked = server.junk_asked.load(Ordering::SeqCst);
            (asked > 0).then_some(()).ok_or(asked)
        })
        .await;
        assert_eq!(ask_from(2, "ops.admin.us".to_owned()).await, 200);
        server.junk.add_permits(64);
        for junk in junk {
            assert_eq!(junk.await.unwrap(), 401);
        }
    })
    .await;
}

#[tokio::test]
async fn verdicts_are_remembered_for_ten_seconds_and_an_outage_lets_nobody_in() {
    on_paused_clock(async {
        let (server, router) = bed().await;
        for (token, status) in [("ops.admin.us", 200), ("team.default.us", 403), ("ops.admin.others", 401)] {
            let before = server.questions();
            for _ in 0..20 {
                assert_eq!(ask(&router, "/decisions", &[(TOKEN_HEADER, token)]).await.0, status);
            }
            assert!(server.questions() - before <= 2, "{token}: {}", server.questions() - before);
        }
        server.is_down.store(true, Ordering::SeqCst);
        assert_eq!(ask(&router, "/decisions", &[(TOKEN_HEADER, "ops.admin.us")]).await.0, 200);
        assert_eq!(ask(&router, "/explain/a/b", &[(TOKEN_HEADER, "ops.admin.us")]).await.0, 503);
        server.is_down.store(false, Ordering::SeqCst);
        assert_eq!(ask(&router, "/explain/a/b", &[(TOKEN_HEADER, "ops.admin.us")]).await.0, 200);
        // The first verdict ends by the service's clock.
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        let before = server.questions();
        assert_eq!(ask(&router, "/decisions", &[(TOKEN_HEADER, "ops.admin.us")]).await.0, 200);
        assert_eq!(server.questions() - before, 2);
    })
    .await;
}
