//! Which broker is active: the holder of a Kubernetes Lease, with the term as its fencing token; or the only one.

use crate::owner::Desk;
use crate::state::Input;
use crate::terms::Swap;
use fpga_net::election::{Fencing, Leadership};
use fpga_pool_leases::broker::SwapOutcome;
use fpga_pool_leases::ids::Term;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;

/// Name of the Lease.
pub const LEASE: &str = "fpga-pool";
/// Time until the Lease's term is read again after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Tells the owner when this broker may lead and when not any more, and replaces terms. Never returns.
pub async fn follow(
    mut leadership: Leadership,
    fencing: Fencing,
    mut swaps: mpsc::Receiver<Swap>,
    desk: Desk,
) {
    let mut leads = false;
    loop {
        let until = leadership.held_until().filter(|until| Instant::now() < *until);
        match (leads, until) {
            (false, Some(_)) => match fencing.read().await {
                Ok(term) => {
                    // What the owner asked for when it led before is over.
                    while swaps.try_recv().is_ok() {}
                    leads = desk.tell(Input::MayLead { term: Term(term) }).await.is_ok();
                }
                Err(error) => {
                    warn!(%error, "The term can't be read, trying again");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            },
            (true, None) => {
                leads = false;
                if desk.stand_by().await.is_err() {
                    return std::future::pending().await;
                }
            }
            (true, Some(_)) | (false, None) => {}
        }
        let expires = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = leadership.changed() => {}
            () = expires => {}
            // An owner that stands by wants no term any more: it would not hear that it leads.
            Some(Swap { expected, next }) = swaps.recv(), if leads => {
                let outcome = match fencing.replace(expected.0, next.0).await {
                    Ok(()) => SwapOutcome::Done,
                    Err(error) => {
                        warn!(%error, "The term is not taken; this broker steps down");
                        SwapOutcome::Failed
                    }
                };
                // A broker that stepped down tries again while it holds the Lease.
                leads = outcome == SwapOutcome::Done;
                let told = desk.tell(Input::Swapped(outcome)).await;
                if told.is_err() {
                    return std::future::pending().await;
                }
                if !leads {
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}
