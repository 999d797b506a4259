//! The request that evicts a pod.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use std::time::Duration;

/// Asks the API server to evict the pod with this name and UID, and no other pod of that name. `grace` replaces the pod's
/// own time to end.
///
/// `Api::evict` of kube sends its options under a name that the API server skips.
///
/// # Errors
/// The API server refuses: with 429 for a disruption budget, with 404 or 409 if the pod has gone.
pub async fn evict(pods: &Api<Pod>, name: &str, uid: &str, grace: Option<Duration>) -> kube::Result<()> {
    let eviction = eviction(name, uid, grace);
    pods.create_subresource::<_, Value>("eviction", name, &PostParams::default(), &eviction).await.map(drop)
}

fn eviction(name: &str, uid: &str, grace: Option<Duration>) -> Eviction {
    Eviction {
        delete_options: Some(DeleteOptions {
            grace_period_seconds: grace.map(seconds),
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteOptions::default()
        }),
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
    }
}

/// The time in whole seconds, rounded up, and at least 1: 0 would force the deletion, which leaves the pod's containers
/// running without an object.
fn seconds(grace: Duration) -> i64 {
    let seconds = grace.as_secs().saturating_add(u64::from(grace.subsec_nanos() > 0));
    i64::try_from(seconds.max(1)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, to_value};

    #[test]
    fn an_eviction_names_the_one_pod_as_the_api_server_reads_it() {
        let body = to_value(eviction("sobel-1", "u", Some(Duration::from_secs(5)))).unwrap();
        assert_eq!(body["deleteOptions"]["preconditions"], json!({"uid": "u"}));
        assert_eq!(body["deleteOptions"]["gracePeriodSeconds"], 5);
        assert_eq!(body["metadata"]["name"], "sobel-1");
        let body = to_value(eviction("sobel-1", "u", None)).unwrap();
        assert!(body["deleteOptions"].get("gracePeriodSeconds").is_none());
    }

    #[test]
    fn a_grace_period_below_a_second_forces_no_deletion() {
        let seconds = |millis| {
            let eviction = eviction("sobel-1", "u", Some(Duration::from_millis(millis)));
            eviction.delete_options.unwrap().grace_period_seconds
        };
        assert_eq!([0, 500, 1_000, 1_001].map(seconds), [1, 1, 1, 2].map(Some));
    }
}
