//! HTTP responses in JSON.

use crate::metrics::ErrorKind;
use crate::verbs::Refusal;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

/// A response with `body`, which is JSON.
pub fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, JSON)], body.into()).into_response()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self.kind() {
            ErrorKind::Malformed | ErrorKind::Requirement => StatusCode::BAD_REQUEST,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Interrupted | ErrorKind::Abandoned => StatusCode::REQUEST_TIMEOUT,
            ErrorKind::NotSynced | ErrorKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Answer => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut response = json(status, serde_json::json!({ "error": self.to_string() }).to_string());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
