//! What the API server knows of a pod that has instances: its UID, what it asks for, and whether it has ended.

use crate::allocations::{Owner, WorkloadName};
use fpga_core::board_request::BoardRequest;
use fpga_core::names::{BOARDS_ANNOTATION, BOARDS_REASON_ANNOTATION};
use fpga_core::node_state;
use fpga_core::requirement::{InvalidRequirement, PodText, Requirement};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time that the API server may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Label of pods of a Deployment, which ends the name of their ReplicaSet.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The pods of this node.
#[derive(Clone)]
pub(crate) struct Pods {
    pub(crate) client: Client,
    pub(crate) node: String,
}

/// A container that starts, and what it asks for.
#[derive(Debug)]
pub(crate) struct Asks {
    pub(crate) owner: Owner,
    /// What owns the pod.
    pub(crate) workload: Option<WorkloadName>,
    /// The pod's controller, which would replace the pod.
    pub(crate) controller: Option<String>,
    /// The number of boards, and what each of them must meet; or why that can't be understood.
    pub(crate) requirement: Result<Requirement, InvalidRequirement>,
    /// The boards that the pod's annotation names already.
    pub(crate) announced: Option<String>,
}

/// Whether the owner of a claim may still use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// The pod may run containers.
    Alive,
    /// The pod does not exist, has another UID, or has ended for good.
    Ended,
}

/// The reason why the container's wish is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    /// The API server did not answer.
    #[error("the API server does not tell about the pod: {0}")]
    Api(String),
    /// The pod does not exist; the kubelet may not know yet.
    #[error("the API server has no pod {namespace}/{pod}")]
    NoPod {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        pod: String,
    },
    /// The pod belongs to another node: another one of the same name was meant.
    #[error("the pod {0} is on another node")]
    OtherNode(String),
    /// The pod has no container of this name.
    #[error("the pod has no container {0}; the node plugin serves containers and native sidecars")]
    NoContainer(String),
    /// An init container that has not ended asks for boards. The kubelet does not say which of the pod's containers starts.
    #[error(
        "the init container {0} asks for boards, and the kubelet does not tell when an init container starts; ask in a \
         container instead, or write `restartPolicy: Always` into the init container"
    )]
    InitContainer(String),
    /// The container asks for no board. The API server may still have an older pod of the same name.
    #[error("the container {0} asks for no resource of fpga-scheduling.io")]
    NoRequest(String),
}

impl IdentityError {
    /// Whether it may be otherwise a moment later.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Api(_) | Self::NoPod { .. } | Self::OtherNode(_))
    }
}

impl Pods {
    /// What the container asks for.
    ///
    /// # Errors
    /// [`IdentityError`], if the pod can't be read or understood.
    pub(crate) async fn asks(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<Asks, IdentityError> {
        let found = self.get(namespace, pod).await?;
        let found = found
            .ok_or_else(|| IdentityError::NoPod { namespace: namespace.to_owned(), pod: pod.to_owned() })?;
        let Some(uid) = found.metadata.uid.clone() else {
            return Err(IdentityError::Api("the pod has no UID".to_owned()));
        };
        let spec = found.spec.as_ref();
        if spec.and_then(|spec| spec.node_name.as_deref()) != Some(self.node.as_str()) {
            return Err(IdentityError::OtherNode(pod.to_owned()));
        }
        let containers = spec
            .into_iter()
            .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        let found_container = containers.into_iter().find(|candidate| candidate.name == container);
        let found_container =
            found_container.ok_or_else(|| IdentityError::NoContainer(container.to_owned()))?;
        if let Some(init) = asking_init_container(&found) {
            return Err(IdentityError::InitContainer(init.to_owned()));
        }
        let request =
            request(found_container).ok_or_else(|| IdentityError::NoRequest(container.to_owned()))?;
        let owner = Owner {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid,
            container: container.to_owned(),
        };
        let controller = found.metadata.owner_references.iter().flatten();
        let controller = controller.into_iter().find(|owner| owner.controller == Some(true));
        let template_hash = found.metadata.labels.iter().flatten().find(|(key, _)| *key == TEMPLATE_HASH);
        let template_hash = template_hash.map(|(_, hash)| hash.as_str());
        let announced =
            found.metadata.annotations.iter().flatten().find(|(key, _)| *key == BOARDS_ANNOTATION);
        Ok(Asks {
            owner,
            workload: controller.and_then(|owner| WorkloadName::of(&owner.name, template_hash)),
            controller: controller.map(|owner| node_state::controller(namespace, &owner.uid)),
            requirement: requirement(&found, request),
            announced: announced.map(|(_, boards)| boards.clone()),
        })
    }

    /// Whether the owner may still use its claim. `None` if the API server does not answer.
    pub(crate) async fn life(&self, owner: &Owner) -> Option<Life> {
        let pod = self.get(&owner.namespace, &owner.pod).await.ok()?;
        let of_owner = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(&owner.uid));
        let phase = of_owner.as_ref().map(|pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default().to_owned()
        });
        Some(match phase.as_deref() {
            None | Some("Succeeded" | "Failed") => Life::Ended,
            Some(_) => Life::Alive,
        })
    }

    /// Writes the boards of the pod with this UID and the reasons for them into its annotations. A pod that is gone
    /// needs none.
    ///
    /// # Errors
    /// The API server does not answer, or refuses.
    pub(crate) async fn announce(
        &self,
        namespace: &str,
        pod: &str,
        uid: &str,
        boards: &str,
        reasons: &str,
    ) -> Result<(), IdentityError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        // With another UID the API server refuses: it is another pod of the same name.
        let annotations = json!({BOARDS_ANNOTATION: boards, BOARDS_REASON_ANNOTATION: reasons});
        let patch = json!({"metadata": {"uid": uid, "annotations": annotations}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let answer = tokio::time::timeout(TIMEOUT, pods.patch_metadata(pod, &params, &patch)).await;
        match answer.map_err(|_| IdentityError::Api(format!("no answer in {TIMEOUT:?}")))? {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(IdentityError::Api(error.to_string())),
        }
    }

    async fn get(&self, namespace: &str, pod: &str) -> Result<Option<Pod>, IdentityError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let answer = tokio::time::timeout(TIMEOUT, pods.get_opt(pod)).await;
        let answer = answer.map_err(|_| IdentityError::Api(format!("no answer in {TIMEOUT:?}")))?;
        answer.map_err(|error| IdentityError::Api(error.to_string()))
    }
}

/// The boards that the container asks for.
fn request(container: &Container) -> Option<BoardRequest<'_>> {
    let resources = container.resources.as_ref()?;
    let quantities = resources.limits.iter().chain(&resources.requests).flatten();
    let request =
        BoardRequest::among(quantities.map(|(name, quantity)| (name.as_str(), quantity.0.as_str())));
    request.filter(|request| !request.is_zero())
}

/// The first init container that asks for boards and has not ended, sidecars excepted. It shares its instances with the
/// containers that start after it, and the kubelet lists these only: its own folder would stay empty.
fn asking_init_container(pod: &Pod) -> Option<&str> {
    let statuses = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_deref());
    let has_ended = |name: &str| {
        let mut states = statuses.into_iter().flatten().filter(|status| status.name == name);
        states.any(|status| status.state.as_ref().is_some_and(|state| state.terminated.is_some()))
    };
    let init_containers = pod.spec.as_ref()?.init_containers.iter().flatten();
    let mut ordinary =
        init_containers.filter(|container| container.restart_policy.as_deref() != Some("Always"));
    let asking = ordinary.find(|container| request(container).is_some() && !has_ended(&container.name))?;
    Some(&asking.name)
}

/// What the boards of the container with this request must meet.
fn requirement(pod: &Pod, request: BoardRequest<'_>) -> Result<Requirement, InvalidRequirement> {
    let text = PodText {
        labels: pairs(pod.metadata.labels.as_ref()),
        annotations: pairs(pod.metadata.annotations.as_ref()),
        containers: &[request],
    };
    Ok(Requirement::of_pod(text)?.unwrap_or_default())
}

fn pairs(map: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = (&str, &str)> {
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_init_container_that_asks_for_boards_is_found_until_it_has_ended() {
        let found = |init: serde_json::Value, statuses: serde_json::Value| {
            let spec = json!({"containers": [{"name": "main"}], "initContainers": init});
            let pod = json!({"spec": spec, "status": {"initContainerStatuses": statuses}});
            asking_init_container(&serde_json::from_value(pod).unwrap()).map(str::to_owned)
        };
        let asking = |name: &str, quantity: &str, policy: serde_json::Value| {
            let limits = json!({"limits": {"fpga-scheduling.io/accelerated": quantity}});
            json!({"name": name, "resources": limits, "restartPolicy": policy})
        };
        let status = |name: &str, state: &str| {
            json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {state: if state == "terminated" { json!({"exitCode": 0}) } else { json!({}) }}})
        };
        let (always, ordinary) = (json!("Always"), serde_json::Value::Null);
        assert_eq!(found(json!([{"name": "i"}, asking("s", "1", always)]), json!([])), None);
        assert_eq!(found(json!([asking("i", "0", ordinary.clone())]), json!([])), None);
        let two = json!([asking("i", "1", ordinary.clone()), asking("j", "2", ordinary)]);
        assert_eq!(found(two.clone(), json!(null)).as_deref(), Some("i"));
        let first_ended = json!([status("i", "terminated"), status("j", "running")]);
        assert_eq!(found(two.clone(), first_ended).as_deref(), Some("j"));
        let both_ended = json!([status("i", "terminated"), status("j", "terminated")]);
        assert_eq!(found(two, both_ended), None);
    }
}
