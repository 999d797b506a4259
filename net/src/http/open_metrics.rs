//! The answer to `/metrics`, and the label of a refused connection.

use super::Refusal;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder, text};
use prometheus_client::registry::Registry;
use std::fmt::{self, Write as _};

/// The metrics of `registry` in the OpenMetrics text format.
#[must_use]
pub fn open_metrics(registry: &Registry) -> Response {
    let mut body = String::new();
    match text::encode(&mut body, registry) {
        Ok(()) => {
            let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(CONTENT_TYPE, format)], body).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

impl EncodeLabelValue for Refusal {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_is_told_the_format() {
        let answer = open_metrics(&Registry::default());
        let format = answer.headers()[CONTENT_TYPE].to_str().unwrap();
        assert!(format.starts_with("application/openmetrics-text; version=1.0.0"), "{format}");
    }
}
