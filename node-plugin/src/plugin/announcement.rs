//! Writes the boards of a pod, and why it has them, into the pod's annotations, for people and for other programs. Nothing on the node depends
//! on it, so a container never waits for it.

use crate::allocations::Owner;
use crate::plugin::Plugin;
use fpga_net::backoff::Backoff;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Number of tries. Afterwards the annotation stays as it was until the kubelet tries again to start a
/// container of the pod.
const TRIES: u32 = 6;

/// Writes the annotation of the pod, with a few tries.
pub(super) async fn announce(plugin: Arc<Plugin>, owner: Owner) {
    let Owner { namespace, pod, uid, .. } = owner;
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
    for remaining in (0..TRIES).rev() {
        // One at a time, and the boards are read when it is this one's turn: the last write has the last boards.
        let turn = plugin.announcing.lock().await;
        let (boards, reasons) = (plugin.boards_of(&uid), plugin.reasons_of(&uid));
        let result = plugin.pods.announce(&namespace, &pod, &uid, &boards, &reasons).await;
        drop(turn);
        match result {
            Ok(()) => return,
            Err(error) if remaining == 0 => {
                warn!(%namespace, %pod, %error, "The pod's annotation does not tell its boards");
            }
            Err(_) => tokio::time::sleep(backoff.pause(0.5..1.0)).await,
        }
    }
}
