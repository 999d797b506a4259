//! Scales the functions by the number of invocations in flight, like OpenFaaS or Knative: up at once, down after some
//! time.

use super::functions::LEAST_REPLICAS;
use super::invoker::Tally;
use crate::functions::Function;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const PERIOD: Duration = Duration::from_millis(500);
/// Target number of invocations in flight per replica.
const PER_REPLICA: usize = 3;
const MOST_REPLICAS: usize = 3;
/// Time for which fewer replicas must suffice before a function is scaled down.
const DOWN_AFTER: Duration = Duration::from_secs(6);

/// Scales until the task is aborted.
pub(super) async fn run(deployments: Api<Deployment>, tally: Arc<Tally>) {
    let mut states = Function::WITH_ONE_KERNEL.map(|function| State {
        function,
        replicas: LEAST_REPLICAS,
        enough_since: Instant::now(),
    });
    loop {
        for state in &mut states {
            let wanted = wanted(tally.in_flight(state.function));
            if let Some(replicas) = state.decide(wanted, Instant::now()) {
                scale(&deployments, state, replicas, &tally).await;
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

struct State {
    function: Function,
    replicas: usize,
    /// Last time at which all replicas were needed.
    enough_since: Instant,
}

fn wanted(in_flight: usize) -> usize {
    in_flight.div_ceil(PER_REPLICA).clamp(LEAST_REPLICAS, MOST_REPLICAS)
}

impl State {
    /// The new number of replicas, if it changes.
    fn decide(&mut self, wanted: usize, now: Instant) -> Option<usize> {
        if wanted >= self.replicas {
            self.enough_since = now;
            return (wanted > self.replicas).then_some(wanted);
        }
        (now.duration_since(self.enough_since) >= DOWN_AFTER).then_some(wanted)
    }
}

async fn scale(deployments: &Api<Deployment>, state: &mut State, replicas: usize, tally: &Tally) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    // A failed request is repeated in the next period.
    if deployments.patch_scale(state.function.name(), &PatchParams::default(), &patch).await.is_err() {
        return;
    }
    let text = format!("{} {} → {replicas}", state.function, state.replicas);
    tally.count(|counts| {
        if replicas > state.replicas {
            counts.scaled.0 += 1;
        } else {
            counts.scaled.1 += 1;
        }
        counts.scalings.push(text);
    });
    state.replicas = replicas;
    state.enough_since = Instant::now();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_scales_up_at_once_and_down_after_a_while() {
        let start = Instant::now();
        let mut state = State { function: Function::Sobel, replicas: LEAST_REPLICAS, enough_since: start };
        assert_eq!(state.decide(wanted(0), start), None);
        assert_eq!(state.decide(wanted(7), start), Some(3));
        state.replicas = 3;
        assert_eq!(state.decide(wanted(1), start + DOWN_AFTER / 2), None);
        assert_eq!(state.decide(wanted(1), start + DOWN_AFTER), Some(LEAST_REPLICAS));
        assert_eq!(wanted(1000), MOST_REPLICAS);
    }
}
