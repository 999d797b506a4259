//! The memory budget that requests share.

use super::{ask, node_state, service, show};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use fpga_core::decide::DecisionRules;
use serde_json::json;
use std::collections::HashSet;
use tower::ServiceExt as _;

/// Requests all nodes and does not read the body of the response.
async fn nodes_unread(router: &Router) -> Response {
    router.clone().oneshot(Request::get("/nodes").body(Body::empty()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn who_reads_answers_slowly_takes_no_room_from_decisions() {
    let (router, state) = service(DecisionRules::default());
    let names: HashSet<String> = (0..5000).map(|index| format!("node-{index:04}")).collect();
    for name in &names {
        show(&state, name, &[], Some(&node_state("intel", 1_000, "sobel")));
    }
    state.index.listed(&names);
    let mut unread = Vec::new();
    loop {
        let answer = nodes_unread(&router).await;
        if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
            break;
        }
        unread.push(answer);
        assert!(unread.len() < 1000, "there is room for any number of answers");
    }
    let pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"}});
    let decided = ask(&router, "/filter", &json!({"Pod": pod, "NodeNames": names})).await;
    assert_eq!(decided["NodeNames"].as_array().unwrap().len(), names.len());
    drop(unread);
    assert_eq!((state.budget.taken(), state.reading_budget.taken()), (0, 0));
}
