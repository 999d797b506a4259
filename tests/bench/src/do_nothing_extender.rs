//! The do-nothing extender, the reference for ours: it keeps all nodes, scores them all 0, and reads only the names
//! that it must repeat from a request.

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FilterRequest<'a> {
    #[serde(borrow)]
    node_names: Option<&'a RawValue>,
    #[serde(borrow)]
    nodes: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FilterAnswer<'a> {
    node_names: Option<&'a RawValue>,
    nodes: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PrioritizeRequest<'a> {
    #[serde(borrow)]
    node_names: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    nodes: Option<Nodes<'a>>,
}

#[derive(Deserialize)]
struct Nodes<'a> {
    #[serde(borrow)]
    items: Vec<Node<'a>>,
}

#[derive(Deserialize)]
struct Node<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Scored<'a> {
    host: &'a RawValue,
    score: u8,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PreemptRequest<'a> {
    #[serde(borrow)]
    node_name_to_meta_victims: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PreemptAnswer<'a> {
    node_name_to_meta_victims: Option<&'a RawValue>,
}

/// Serves requests until the listener fails.
///
/// # Errors
/// The listener failed.
pub async fn serve(listener: tokio::net::TcpListener) -> std::io::Result<()> {
    let listener = listener.tap_io(|stream| {
        // Without this option the extender would only be slower.
        let _ = stream.set_nodelay(true);
    });
    let router = Router::new()
        .route("/filter", post(|body: Bytes| async move { answer(filter(&body)) }))
        .route("/prioritize", post(|body: Bytes| async move { answer(prioritize(&body)) }))
        .route("/preempt", post(|body: Bytes| async move { answer(preempt(&body)) }))
        .route("/readyz", get(|| async { "ok" }))
        .layer(DefaultBodyLimit::disable());
    axum::serve(listener, router).await
}

fn filter(body: &[u8]) -> serde_json::Result<Vec<u8>> {
    let FilterRequest { node_names, nodes } = serde_json::from_slice(body)?;
    serde_json::to_vec(&FilterAnswer { node_names, nodes })
}

fn prioritize(body: &[u8]) -> serde_json::Result<Vec<u8>> {
    let PrioritizeRequest { node_names, nodes } = serde_json::from_slice(body)?;
    let of_nodes = nodes.iter().flat_map(|nodes| &nodes.items).map(|node| node.metadata.name);
    let names = node_names.iter().flatten().copied();
    serde_json::to_vec(&names.chain(of_nodes).map(|host| Scored { host, score: 0 }).collect::<Vec<_>>())
}

fn preempt(body: &[u8]) -> serde_json::Result<Vec<u8>> {
    let PreemptRequest { node_name_to_meta_victims } = serde_json::from_slice(body)?;
    serde_json::to_vec(&PreemptAnswer { node_name_to_meta_victims })
}

fn answer(result: serde_json::Result<Vec<u8>>) -> Response {
    match result {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: serde_json::Result<Vec<u8>>) -> String {
        String::from_utf8(result.unwrap()).unwrap()
    }

    #[test]
    fn all_nodes_are_kept_and_none_is_better() {
        let names = br#"{"Pod":{},"Nodes":null,"NodeNames":["a","b"]}"#;
        assert_eq!(text(filter(names)), r#"{"NodeNames":["a","b"],"Nodes":null}"#);
        assert_eq!(text(prioritize(names)), r#"[{"Host":"a","Score":0},{"Host":"b","Score":0}]"#);
        let whole =
            br#"{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a"}}]},"NodeNames":null}"#;
        assert_eq!(text(prioritize(whole)), r#"[{"Host":"a","Score":0}]"#);
        assert!(text(filter(whole)).contains(r#""items":[{"#));
    }
}
