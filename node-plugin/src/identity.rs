//! What the API server knows of a pod that has instances: its UID, what it asks for, and whether it has ended.

use crate::allocations::Owner;
use fpga_core::requirement::{InvalidRequirement, PodText, Requirement};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time that the API server may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The pods of this node.
#[derive(Clone)]
pub(crate) struct Pods {
    pub(crate) client: Client,
    pub(crate) node: String,
    pub(crate) resource: String,
}

/// A container that starts, and what it asks for.
#[derive(Debug)]
pub(crate) struct Asks {
    pub(crate) owner: Owner,
    /// What each board must meet.
    pub(crate) requirement: Requirement,
    /// Number of different boards.
    pub(crate) boards: u32,
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
    /// Labels or annotations can't be understood.
    #[error(transparent)]
    Requirement(#[from] InvalidRequirement),
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
        let boards = self.quantity(found_container).ok_or(InvalidRequirement::Quantity)?;
        let owner = Owner {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid,
            container: container.to_owned(),
        };
        Ok(Asks { owner, requirement: requirement(&found)?, boards })
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

    async fn get(&self, namespace: &str, pod: &str) -> Result<Option<Pod>, IdentityError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let answer = tokio::time::timeout(TIMEOUT, pods.get_opt(pod)).await;
        let answer = answer.map_err(|_| IdentityError::Api(format!("no answer in {TIMEOUT:?}")))?;
        answer.map_err(|error| IdentityError::Api(error.to_string()))
    }

    /// The quantity of our resource that the container asks for.
    fn quantity(&self, container: &Container) -> Option<u32> {
        let resources = container.resources.as_ref()?;
        let limits = resources.limits.iter().chain(&resources.requests);
        limits.flat_map(|quantities| quantities.get(&self.resource)).next()?.0.parse().ok()
    }
}

/// What each board of the pod's containers must meet. The quantity of the resource is a number of boards, so only the
/// annotation asks for slots.
fn requirement(pod: &Pod) -> Result<Requirement, InvalidRequirement> {
    let text = PodText {
        labels: pairs(pod.metadata.labels.as_ref()),
        annotations: pairs(pod.metadata.annotations.as_ref()),
        containers: &["1"],
        init_containers: &[],
    };
    Ok(Requirement::of_pod(text)?.unwrap_or_default())
}

fn pairs(map: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = (&str, &str)> {
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
}
