//! The HTTP client with which tests and the demo call our programs and functions.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::time::Duration;

/// An HTTP client; cheap to clone.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: Client<HttpConnector, Full<Bytes>>,
    time: Duration,
}

/// An answer with its complete body.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl HttpClient {
    /// A client with the timeout `time` for each request.
    #[must_use]
    pub fn new(time: Duration) -> Self {
        // Functions serve one connection after another, so keep no idle connections.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Self { client, time }
    }

    /// A client that sends one request after another over the same connection, which the server must be able to serve
    /// beside others.
    #[must_use]
    pub fn keeping_connections(time: Duration) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), time }
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// There was no answer; an answer with any status is a success.
    pub async fn get(&self, url: &str) -> Result<Answer> {
        self.send(Method::GET, url, &[], Bytes::new()).await
    }

    /// Sends a GET request with headers.
    ///
    /// # Errors
    /// There was no answer; an answer with any status is a success.
    pub async fn get_with(&self, url: &str, headers: &[(&str, &str)]) -> Result<Answer> {
        self.send(Method::GET, url, headers, Bytes::new()).await
    }

    /// Sends a POST request with a body.
    ///
    /// # Errors
    /// There was no answer; an answer with any status is a success.
    pub async fn post(&self, url: &str, body: impl Into<Bytes>) -> Result<Answer> {
        self.post_with(url, &[], body).await
    }

    /// Sends a POST request with headers and a body.
    ///
    /// # Errors
    /// There was no answer; an answer with any status is a success.
    pub async fn post_with(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer> {
        self.send(Method::POST, url, headers, body.into()).await
    }

    /// Sends a PUT request with a body.
    ///
    /// # Errors
    /// There was no answer; an answer with any status is a success.
    pub async fn put(&self, url: &str, body: impl Into<Bytes>) -> Result<Answer> {
        self.send(Method::PUT, url, &[], body.into()).await
    }

    async fn send(&self, method: Method, url: &str, headers: &[(&str, &str)], body: Bytes) -> Result<Answer> {
        let exchange = async {
            let mut request = Request::builder().method(method).uri(url);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.header("content-type", "application/json").body(Full::new(body))?;
            let (head, body) = self.client.request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok(Answer { status: head.status, headers: head.headers, body })
        };
        let answer = tokio::time::timeout(self.time, exchange).await;
        answer
            .with_context(|| format!("{url} did not answer in {:?}", self.time))?
            .with_context(|| format!("{url} failed"))
    }
}

impl Answer {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// The body is not JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }

    /// The value of a Prometheus sample by its name and labels, as they are written; 0 if there is none.
    #[must_use]
    pub fn sample(&self, name: &str) -> f64 {
        let text = self.text();
        let values =
            text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
        values.sum()
    }

    /// The value of an unlabelled Prometheus metric in the body, or the sum of a labelled one; 0 if there is none.
    #[must_use]
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.text();
        let samples = text.lines().filter_map(|line| {
            let (key, value) = line.rsplit_once(' ')?;
            let bare = key.split_once('{').map_or(key, |(bare, _)| bare);
            (bare == name).then(|| value.parse::<f64>().ok())?
        });
        samples.sum()
    }
}
