//! Reports to the node's collector, which publishes them with the node's state: that the plugin is there, which boards
//! it can give, and whose pods it can't serve. So the extender places no pod on a node whose plugin is gone, long before
//! the kubelet has seen the end.

use crate::collector;
use crate::plugin::Plugin;
use fpga_hook::Endpoint;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::{info, warn};

/// Pause between two reports. The collector takes a plugin for late after two missing ones.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reports until the sender of `leaves` is dropped, and then waits for ever: the collector takes the plugin for late.
pub(crate) async fn run(plugin: Arc<Plugin>, endpoint: Endpoint, leaves: oneshot::Receiver<()>) {
    tokio::select! {
        () = report(plugin, endpoint) => {}
        _ = leaves => std::future::pending().await,
    }
}

async fn report(plugin: Arc<Plugin>, endpoint: Endpoint) {
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
        tokio::time::sleep(INTERVAL).await;
    }
}
