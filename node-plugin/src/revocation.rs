//! Ends the claims of containers that have ended. The kubelet tells no device plugin of an end, so it is asked.

use crate::plugin::Plugin;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Pause between two questions. The kubelet sees an end within two seconds.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Asks for ever.
pub(crate) async fn run(plugin: Arc<Plugin>) {
    let mut said = None;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let problem = plugin.observe().await.err().map(|error| error.to_string());
        if said != problem {
            match &problem {
                Some(error) => {
                    warn!(%error, "No token is revoked: the kubelet does not answer");
                }
                None => info!("Ends of containers are seen"),
            }
            said = problem;
        }
    }
}
