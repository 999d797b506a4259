//! The forms in which an API server is configured and answers.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

/// The text of a kubeconfig for the API server at `url`, which requires no credentials.
pub fn kubeconfig(url: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    })
    .to_string()
}

/// The answer of an API server that refuses a request.
pub fn status(code: u16, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "Test", "code": code,
    });
    (StatusCode::from_u16(code).unwrap(), Json(status)).into_response()
}
