//! What the API server says of the workloads of pods that had better be elsewhere. It is asked now, since moves are few
//! and a watch on all workloads would cost more.

use anyhow::{Context as _, Result};
use fpga_cluster::moves::new_first::Presence;
use fpga_cluster::moves::{CountOwner, Disruption, Rollout};
use fpga_core::library::is_object_name;
use fpga_registry_api::{Controller, FpgaPod, MoveRecord};
use k8s_openapi::api::apps::v1::{Deployment as KubeDeployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::{Selector, SelectorExt as _};
use kube::{Api, Client};

/// A Deployment for records and events.
#[derive(Debug, Clone)]
pub(super) struct NamedDeployment {
    pub name: String,
    pub uid: String,
    pub ready: u32,
    pub wanted: u32,
    pub rollout: Rollout,
}

/// The Deployment of a ReplicaSet; `None` if it has none. The name comes from a pod, and may be one that the API server allows no
/// object.
pub(super) async fn deployment(
    client: &Client,
    namespace: &str,
    replica_set: &Controller,
) -> Result<Option<NamedDeployment>> {
    if !is_object_name(&replica_set.name) {
        return Ok(None);
    }
    let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
    let set = sets.get_metadata_opt(&replica_set.name).await.context("the pod's ReplicaSet")?;
    let Some(set) = set.filter(|set| set.metadata.uid.as_ref() == Some(&replica_set.uid)) else {
        return Ok(None);
    };
    let mut owners = set.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == "Deployment");
    let Some(owner) = owner.filter(|owner| is_object_name(&owner.name)) else { return Ok(None) };
    let deployments: Api<KubeDeployment> = Api::namespaced(client.clone(), namespace);
    let found = deployments.get_opt(&owner.name).await.context("the pod's Deployment")?;
    let Some(found) = found.filter(|found| is(&found.metadata, &owner.uid)) else { return Ok(None) };
    // Without its pods nobody knows whether it goes on without one.
    let pods = staying_pods(client, namespace, &found).await?;
    Ok(pods.map(|pods| named(&found, count_ready(&pods))))
}

/// The pods of a Deployment that stay, asked now, since controllers count behind; `None` if its selector can't be
/// understood.
async fn staying_pods(
    client: &Client,
    namespace: &str,
    deployment: &KubeDeployment,
) -> Result<Option<Vec<Pod>>> {
    let selector = deployment.spec.as_ref().map(|spec| spec.selector.clone()).unwrap_or_default();
    let Ok(selector) = Selector::try_from(selector) else { return Ok(None) };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods =
        pods.list(&ListParams::default().labels_from(&selector)).await.context("a Deployment's pods")?;
    Ok(Some(pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()))
}

fn named(deployment: &KubeDeployment, ready: u32) -> NamedDeployment {
    let (metadata, status) = (&deployment.metadata, deployment.status.clone().unwrap_or_default());
    let wanted = wanted(deployment);
    let (pods, updated) = (count(status.replicas), count(status.updated_replicas));
    let is_seen = status.observed_generation == metadata.generation;
    // Where there are more pods than wanted an autoscaler, for example, takes some away, and nobody knows which.
    let is_complete = is_seen && updated == wanted && pods == updated;
    NamedDeployment {
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        ready,
        wanted,
        rollout: if is_complete { Rollout::Complete } else { Rollout::Underway },
    }
}

/// The number of pods that the Deployment should have.
fn wanted(deployment: &KubeDeployment) -> u32 {
    count(Some(deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)))
}

fn count(number: Option<i32>) -> u32 {
    u32::try_from(number.unwrap_or(0)).unwrap_or(0)
}

/// Who decides on the number of replicas of a Deployment. KEDA scales by autoscalers, too.
pub(super) fn count_owner(autoscalers: &[HorizontalPodAutoscaler], deployment: &str) -> CountOwner {
    let scales = |autoscaler: &&HorizontalPodAutoscaler| {
        let target = &autoscaler.spec.scale_target_ref;
        target.kind == "Deployment" && target.name == deployment
    };
    match autoscalers.iter().find(scales) {
        None => CountOwner::Owner,
        Some(found) => CountOwner::Autoscaler(found.metadata.name.clone().unwrap_or_default()),
    }
}

pub(super) fn disruption(budgets: &[PodDisruptionBudget], pod: &FpgaPod) -> Disruption {
    let selects = |budget: &&PodDisruptionBudget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        // A selector that can't be understood may select the pod.
        selector.is_some_and(|selector| Selector::try_from(selector).is_ok_and(|s| s.matches(&pod.labels)))
    };
    let forbids = |budget: &&PodDisruptionBudget| {
        let status = budget.status.as_ref();
        let is_seen = status.and_then(|status| status.observed_generation) == budget.metadata.generation;
        !is_seen || status.and_then(|status| status.disruptions_allowed).unwrap_or(0) < 1
    };
    let selected: Vec<&PodDisruptionBudget> = budgets.iter().filter(selects).collect();
    let name = |budget: &&PodDisruptionBudget| budget.metadata.name.clone().unwrap_or_default();
    match selected.as_slice() {
        // The Eviction API evicts no pod of several budgets.
        [one, another, ..] => Disruption::Forbidden(format!("{} beside {}", name(one), name(another))),
        [budget] if forbids(budget) => Disruption::Forbidden(name(budget)),
        _ => Disruption::Allowed,
    }
}

/// Whether the workload of a move is as it was before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Recovery {
    /// All replicas of the Deployment are Ready without the moved pod, or there is no such Deployment.
    Complete,
    /// They are not, for this reason as far as one is known.
    Waiting(String),
}

/// The pods of a move's Deployment besides the moved one.
#[derive(Debug)]
pub(super) struct Others {
    /// The number of pods that the Deployment should have.
    pub wanted: u32,
    /// Number of Ready pods that stay.
    pub ready: u32,
    /// Why no more are Ready, as far as it is known.
    pub why: String,
    /// Whether the moved pod is there.
    pub pod: Presence,
    /// Version of the Deployment.
    pub version: Option<String>,
}

/// Asks the API server whether the workload of a move is as it was before.
pub(super) async fn recovery(client: &Client, record: &MoveRecord) -> Result<Recovery> {
    Ok(match others(client, record).await? {
        None => Recovery::Complete,
        Some(others) if others.ready >= others.wanted => Recovery::Complete,
        Some(others) => Recovery::Waiting(others.why),
    })
}

/// Asks the API server for the pods of a move's Deployment; `None` if there is no such Deployment.
pub(super) async fn others(client: &Client, record: &MoveRecord) -> Result<Option<Others>> {
    let deployments: Api<KubeDeployment> = Api::namespaced(client.clone(), &record.namespace);
    let found = deployments.get_opt(&record.workload).await.context("the Deployment of a move")?;
    let Some(found) = found.filter(|found| is(&found.metadata, &record.workload_uid)) else {
        return Ok(None);
    };
    let Some(stay) = staying_pods(client, &record.namespace, &found).await? else {
        let why = "the Deployment's selector can't be understood".to_owned();
        let pod = Presence::There;
        return Ok(Some(Others { wanted: wanted(&found), ready: 0, why, pod, version: None }));
    };
    let (moved, others): (Vec<Pod>, Vec<Pod>) =
        stay.into_iter().partition(|pod| is(&pod.metadata, &record.pod_uid));
    let waiting: Vec<&Pod> = others.iter().filter(|pod| !is_ready(pod)).collect();
    Ok(Some(Others {
        wanted: wanted(&found),
        ready: count_ready(&others),
        why: why_not(&found, &waiting),
        pod: if moved.is_empty() { Presence::Gone } else { Presence::There },
        version: found.metadata.resource_version.clone(),
    }))
}

/// Why replicas are missing: the ReplicaSet's reason, else kube-scheduler's.
fn why_not(deployment: &KubeDeployment, waiting: &[&Pod]) -> String {
    let mut conditions = deployment.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let failure =
        conditions.find(|condition| condition.type_ == "ReplicaFailure" && condition.status == "True");
    if let Some(message) = failure.and_then(|failure| failure.message.clone()) {
        return message;
    }
    let unscheduled = waiting.iter().filter_map(|pod| condition(pod, "PodScheduled"));
    let message = unscheduled.filter(|scheduled| scheduled.status == "False").find_map(|c| c.message.clone());
    message.unwrap_or_else(|| match waiting.first().and_then(|pod| pod.metadata.name.as_deref()) {
        Some(pod) => format!("the pod {pod} is not Ready"),
        None => "a replica is missing".to_owned(),
    })
}

fn count_ready(pods: &[Pod]) -> u32 {
    u32::try_from(pods.iter().filter(|pod| is_ready(pod)).count()).unwrap_or(u32::MAX)
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

fn condition<'p>(pod: &'p Pod, kind: &str) -> Option<&'p PodCondition> {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == kind)
}

fn is(object: &ObjectMeta, uid: &str) -> bool {
    object.uid.as_deref() == Some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rollout(change: impl FnOnce(&mut Value)) -> Rollout {
        let mut deployment = json!({
            "metadata": {"name": "sobel", "uid": "d", "generation": 3},
            "spec": {"replicas": 2, "selector": {}, "template": {}},
            "status": {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1},
        });
        change(&mut deployment);
        named(&serde_json::from_value(deployment).unwrap(), 1).rollout
    }

    #[test]
    fn a_deployment_is_rolling_out_until_its_pods_are_as_many_as_wanted_and_of_its_newest_version() {
        assert_eq!(rollout(|_| {}), Rollout::Complete, "a pod that is not Ready is no rollout");
        for (what, path, value) in [
            ("a change that its controller has not seen", "/status/observedGeneration", 2),
            ("a pod that is missing", "/status/updatedReplicas", 1),
            ("a pod of an older version", "/status/replicas", 3),
            ("a larger number of pods", "/spec/replicas", 4),
            ("a smaller number of pods", "/spec/replicas", 1),
        ] {
            let found = rollout(|deployment| *deployment.pointer_mut(path).unwrap() = json!(value));
            assert_eq!(found, Rollout::Underway, "{what}");
        }
    }

    #[test]
    fn a_replica_that_is_missing_is_told_with_the_controllers_reason_or_the_schedulers() {
        let deployment = |conditions: Value| -> KubeDeployment {
            let spec = json!({"selector": {}, "template": {}});
            serde_json::from_value(json!({"spec": spec, "status": {"conditions": conditions}})).unwrap()
        };
        let pod = |conditions: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p"}, "status": {"conditions": conditions}}))
                .unwrap()
        };
        let quota = json!([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]);
        let pending = pod(json!([{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}]));
        let starting = pod(json!([{"type": "PodScheduled", "status": "True"}]));
        for (deployment, waiting, expected) in [
            (deployment(quota), vec![&pending], "exceeded quota"),
            (deployment(json!([])), vec![&starting, &pending], "0/2 nodes"),
            (deployment(json!([])), vec![&starting], "the pod p is not Ready"),
            (deployment(json!([])), vec![], "a replica is missing"),
        ] {
            assert_eq!(why_not(&deployment, &waiting), expected);
        }
    }

    #[test]
    fn an_autoscaler_owns_the_count_of_the_deployment_that_it_scales() {
        let autoscaler = |kind: &str, name: &str| -> HorizontalPodAutoscaler {
            let target = json!({"apiVersion": "apps/v1", "kind": kind, "name": name});
            let spec = json!({"scaleTargetRef": target, "maxReplicas": 3});
            serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap()
        };
        let of_another = [autoscaler("Deployment", "mm"), autoscaler("StatefulSet", "sobel")];
        assert_eq!(count_owner(&of_another, "sobel"), CountOwner::Owner);
        let own = CountOwner::Autoscaler("web".into());
        assert_eq!(count_owner(&[autoscaler("Deployment", "sobel")], "sobel"), own);
    }

    #[test]
    fn a_budget_forbids_what_it_selects_and_has_no_disruption_left_for() {
        let pod = |app: &str| {
            let pod = json!({
                "metadata": {"namespace": "shop", "name": "p", "uid": "p", "labels": {"app": app},
                             "annotations": {"fpga-scheduling.io/bitstreams": "sobel"}},
                "spec": {"containers": []},
            });
            FpgaPod::of(&serde_json::from_value(pod).unwrap()).unwrap()
        };
        let budget = |selector: Value, seen: i64, allowed: i32| -> PodDisruptionBudget {
            let budget = json!({
                "metadata": {"name": "web", "generation": 2},
                "spec": {"selector": selector},
                "status": {"observedGeneration": seen, "disruptionsAllowed": allowed, "currentHealthy": 2,
                           "desiredHealthy": 1, "expectedPods": 2},
            });
            serde_json::from_value(budget).unwrap()
        };
        let selector = json!({"matchLabels": {"app": "sobel"}});
        let forbidden = Disruption::Forbidden("web".into());
        for (what, budget, app, expected) in [
            ("one left", budget(selector.clone(), 2, 1), "sobel", Disruption::Allowed),
            ("none left", budget(selector.clone(), 2, 0), "sobel", forbidden.clone()),
            ("another's", budget(selector.clone(), 2, 0), "mm", Disruption::Allowed),
            ("not counted yet", budget(selector, 1, 1), "sobel", forbidden.clone()),
            ("all pods", budget(json!({}), 2, 0), "mm", forbidden),
        ] {
            assert_eq!(disruption(&[budget], &pod(app)), expected, "{what}");
        }
        let two = [budget(json!({}), 2, 1), budget(json!({}), 2, 1)];
        let forbidden = Disruption::Forbidden("web beside web".into());
        assert_eq!(disruption(&two, &pod("mm")), forbidden, "the Eviction API takes one");
    }
}
