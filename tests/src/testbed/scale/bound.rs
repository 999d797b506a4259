//! Sees when pods are bound, by a watch that costs the API server little: metadata only, and a pod enters it when it
//! gets a node.

use super::pods::BATCH;
use anyhow::{Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// When each pod of a batch was seen bound: until `count` are, or the time is up. Those that were bound before count as
/// bound now.
///
/// # Errors
/// The watch fails.
pub async fn watch(pods: &Api<Pod>, batch: &str, count: usize, time: Duration) -> Result<Vec<Instant>> {
    let deadline = Instant::now() + time;
    let params = WatchParams::default().fields("spec.nodeName!=").labels(&format!("{BATCH}={batch}"));
    let mut seen = HashMap::with_capacity(count);
    'watches: while seen.len() < count && Instant::now() < deadline {
        // From version 0 on: first all that there are. An API server that is short of time ends watches.
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

/// Pods per second from the first to the last that was bound.
#[must_use]
pub fn rate(seen: &[Instant]) -> f64 {
    match seen {
        [first, .., last] if last > first => (seen.len() - 1) as f64 / (*last - *first).as_secs_f64(),
        _ => f64::NAN,
    }
}
