//! Which containers have which instances, as the kubelet's PodResources tells. It tells neither UIDs nor states, and
//! leaves ordinary init containers out.

use crate::allocations::{Holder, InstanceId};
use crate::api::connect;
use crate::api::pod_resources::ListPodResourcesRequest;
use crate::api::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use fpga_core::board_request::BoardResource;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time that the kubelet may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer: a node with many pods.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// The kubelet's socket for PodResources.
#[derive(Debug, Clone)]
pub(crate) struct PodResources {
    pub(crate) socket: PathBuf,
}

/// The kubelet does not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// The connection to the socket failed.
    #[error("the kubelet's {} can't be reached: {reason}", .socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The kubelet refused.
    #[error("the kubelet does not list the pods' resources: {0}")]
    Refused(String),
}

impl PodResources {
    /// The containers that have instances of our resources.
    ///
    /// # Errors
    /// [`ListError`], if the kubelet does not answer in time.
    pub(crate) async fn list(&self) -> Result<Vec<Holder>, ListError> {
        tokio::time::timeout(TIMEOUT, self.ask())
            .await
            .unwrap_or_else(|_| Err(ListError::Refused(format!("no answer in {TIMEOUT:?}"))))
    }

    async fn ask(&self) -> Result<Vec<Holder>, ListError> {
        let channel = connect(&self.socket).await.map_err(|error| {
            let reason =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            ListError::Unreachable { socket: self.socket.clone(), reason }
        })?;
        let mut client = PodResourcesListerClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
        let answer = client.list(ListPodResourcesRequest {}).await;
        let pods = answer.map_err(|status| ListError::Refused(status.message().to_owned()))?.into_inner();
        let holders = pods.pod_resources.into_iter().flat_map(|pod| {
            let (namespace, name) = (pod.namespace, pod.name);
            pod.containers.into_iter().map(move |container| {
                let is_ours = |name: &str| BoardResource::named(name).is_some();
                let ours = container.devices.into_iter().filter(|devices| is_ours(&devices.resource_name));
                // The kubelet lists the devices of a resource once for each NUMA node.
                let instances: BTreeSet<_> =
                    ours.flat_map(|devices| devices.device_ids).map(InstanceId::from).collect();
                Holder {
                    namespace: namespace.clone(),
                    pod: name.clone(),
                    container: container.name,
                    instances,
                }
            })
        });
        Ok(holders.filter(|holder| !holder.instances.is_empty()).collect())
    }
}
