//! Observes when pods are bound, with a watch that costs the API server little: it has metadata only, and a pod
//! appears in it when the pod gets a node.

use super::pods::BATCH;
use anyhow::{Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// The times at which the pods of a batch were seen bound, until `count` are bound or the time is over. Pods that
/// were bound earlier count as bound now.
///
/// # Errors
/// The watch fails.
pub async fn watch(pods: &Api<Pod>, batch: &str, count: usize, time: Duration) -> Result<Vec<Instant>> {
    let deadline = Instant::now() + time;
    let params = WatchParams::default().fields("spec.nodeName!=").labels(&format!("{BATCH}={batch}"));
    let mut seen = HashMap::with_capacity(count);
    'watches: while seen.len() < count && Instant::now() < deadline {
        // Version 0 starts with all existing pods. A busy API server ends watches.
        let mut events = pods.watch_metadata(&params, "0").await?.boxed();
        while seen.len() < count {
            match tokio::time::timeout_at(deadline, events.next()).await {
                Ok(Some(Ok(WatchEvent::Added(pod)))) => {
                    seen.entry(pod.metadata.name).or_insert_with(Instant::now);
                }
                Ok(Some(Ok(WatchEvent::Error(status)))) => {
                    bail!("the watch on bound pods failed: {status:?}")
                }
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => return Err(error.into()),
                Ok(None) => continue 'watches,
                Err(_) => break 'watches,
            }
        }
    }
    let mut times: Vec<Instant> = seen.into_values().collect();
    times.sort_unstable();
    Ok(times)
}

/// Pods per second from the first bound pod to the last.
#[must_use]
pub fn rate(seen: &[Instant]) -> f64 {
    match seen {
        [first, .., last] if last > first => (seen.len() - 1) as f64 / (*last - *first).as_secs_f64(),
        _ => f64::NAN,
    }
}
