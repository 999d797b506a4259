//! The end of an Envoy beside the picker. Envoy ends at SIGTERM at once, and cuts the requests that it has. So as soon as
//! the pod is told to end, Envoy is told to drain: each response ends its connection, and clients open new ones, to
//! other pods. Envoy's container then gets SIGTERM after its `preStop` hook, later by the time that requests may take.

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use kube::{Api, Client};
use std::net::SocketAddr;
use std::pin::pin;
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tracing::{info, warn};

/// Longest time that Envoy may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after Envoy did not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest answer of Envoy that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 4_096;

/// The picker's own pod. Text form: `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodName {
    namespace: String,
    name: String,
}

impl PodName {
    /// Namespace and name.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

impl FromStr for PodName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("write NAMESPACE/NAME, for example kube-fpga/fpga-router-0"),
        }
    }
}

/// Waits until the pod is told to end, and tells the Envoy whose administration port is `admin` to drain. Never returns.
pub async fn drain_with(client: Client, pod: PodName, admin: SocketAddr) {
    if until_told_to_end(client, &pod).await {
        info!("The pod is told to end: Envoy drains");
        while let Err(error) = drain(admin).await {
            warn!(%admin, error = format!("{error:#}"), "Envoy does not drain, trying again");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
    std::future::pending::<()>().await;
}

/// Whether the pod is told to end; `false` if nobody can say any more.
async fn until_told_to_end(client: Client, pod: &PodName) -> bool {
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, &pod.namespace);
    let own = Config::default().fields(&format!("metadata.name={}", pod.name));
    let mut events = pin!(watcher(pods, own).default_backoff().applied_objects());
    while let Some(event) = events.next().await {
        match event {
            Ok(pod) if pod.metadata.deletion_timestamp.is_some() => return true,
            Ok(_) => {}
            Err(error) => warn!(%error, "The own pod can't be watched, trying again"),
        }
    }
    false
}

/// Tells Envoy to drain: new connections are still taken, and each response ends its connection.
///
/// # Errors
/// Envoy does not answer, or refuses.
pub async fn drain(admin: SocketAddr) -> Result<()> {
    let asked = async {
        let mut stream = TcpStream::connect(admin).await.context("can't connect")?;
        let request = format!(
            "POST /drain_listeners?graceful&skip_exit HTTP/1.1\r\nhost: {admin}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.lines().next().unwrap_or_default();
        ensure!(status.starts_with("HTTP/1.1 200 "), "Envoy answered {status:?}");
        Ok(())
    };
    match tokio::time::timeout(TIMEOUT, asked).await {
        Ok(result) => result,
        Err(_) => bail!("no answer within {TIMEOUT:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_with_its_namespace() {
        let pod: PodName = "kube-fpga/router-1".parse().unwrap();
        assert_eq!((pod.namespace.as_str(), pod.name.as_str()), ("kube-fpga", "router-1"));
        for text in ["", "router", "/router", "kube-fpga/", "a/b/c"] {
            assert!(text.parse::<PodName>().unwrap_err().contains("NAMESPACE/NAME"), "{text}");
        }
    }
}
