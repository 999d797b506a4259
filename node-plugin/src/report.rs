//! Reports to the node's collector, which publishes them with the node's state: that the plugin is there, which boards
//! it can give, and whose pods it can't serve. So the extender places no pod on a node whose plugin is gone, long before
//! the kubelet has seen the end.

use crate::collector::{self, CollectorError};
use crate::plugin::Plugin;
use fpga_hook::Endpoint;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// Pause between two reports. The collector takes a plugin for late after two missing ones.
const INTERVAL: Duration = Duration::from_secs(1);
/// Pause between two tries to say that the plugin ends.
const LEAVE_RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Longest time for which the plugin tries to say that it ends: the collector may be updated at the same time. With the
/// delay after it, this is within the 30 s that the kubelet gives a pod to end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(15);

/// Reports until the future is dropped.
pub(crate) async fn run(plugin: Arc<Plugin>, endpoint: Endpoint) -> Infallible {
    let mut said = None;
    loop {
        let problem = collector::report(&endpoint, &plugin.report()).await.err();
        let problem = problem.map(|error| error.to_string());
        if said.as_ref() != Some(&problem) {
            match &problem {
                Some(error) => {
                    warn!(%error, "The collector takes no report: the extender does not know this plugin");
                }
                None => info!("The collector takes the plugin's reports"),
            }
            said = Some(problem);
        }
        sleep(INTERVAL).await;
    }
}

/// Tells the collector that the plugin ends. Without a collector nobody tells the extender, which would go on placing pods
/// on this node, so a collector that does not answer is asked again for a while.
pub(crate) async fn leave(endpoint: &Endpoint) {
    let told = timeout(LEAVE_TIMEOUT, async {
        loop {
            match collector::leave(endpoint).await {
                Err(CollectorError::Unreachable { .. }) => sleep(LEAVE_RETRY_INTERVAL).await,
                Err(CollectorError::Status(status)) if status.is_server_error() => {
                    sleep(LEAVE_RETRY_INTERVAL).await;
                }
                told => return told,
            }
        }
    });
    match told.await {
        Ok(Ok(())) => info!("The collector knows that the plugin ends"),
        // An older collector sees the end by the missing reports.
        Ok(Err(error)) => warn!(%error, "The collector is not told that the plugin ends"),
        Err(_) => warn!("No collector answers: the extender may not know that the plugin ends"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::delete;
    use tokio::net::UnixListener;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_plugin_that_ends_says_so_to_a_collector_that_is_still_starting() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("collector.sock");
        let endpoint: Endpoint = format!("unix:{}", socket.display()).parse().unwrap();
        let (calls, mut called) = mpsc::unbounded_channel();
        let mut statuses = [503, 200].into_iter();
        let answers = std::sync::Mutex::new(move || statuses.next().unwrap());
        let answers = Arc::new(answers);
        let router = Router::new().route(
            "/v1/plugin",
            delete(async move || {
                calls.send(()).unwrap();
                axum::http::StatusCode::from_u16((answers.lock().unwrap())()).unwrap()
            }),
        );
        let mut leaving = Box::pin(leave(&endpoint));
        tokio::select! {
            () = &mut leaving => panic!("nobody was told"),
            // The first try has found no socket by then.
            () = sleep(LEAVE_RETRY_INTERVAL / 2) => {}
        }
        let serving = tokio::spawn(async { axum::serve(UnixListener::bind(socket).unwrap(), router).await });
        leaving.await;
        assert!(called.try_recv().is_ok(), "the starting collector");
        assert!(called.try_recv().is_ok(), "the collector that has started");
        assert!(called.try_recv().is_err());
        serving.abort();
    }
}
