//! The service that the kubelet calls.

use crate::allocations::{AllocationId, InstanceId};
use crate::api::device_plugin::device_plugin_server::DevicePlugin;
use crate::api::device_plugin::{
    AllocateRequest, AllocateResponse, Device, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};
use crate::injection;
use crate::plugin::{Plugin, PrepareError};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};
use tracing::{info, warn};

/// Time for which a container's start waits for what may change. The kubelet itself ends a call after 30 s.
const PATIENCE: Duration = Duration::from_secs(25);
/// Time for which a container's start waits although the reason seems not to pass: managers of a node that has just
/// started report their boards one by one.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two tries.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The service, as the kubelet sees it.
pub(crate) struct Service {
    plugin: Arc<Plugin>,
    devices: watch::Receiver<Vec<Device>>,
    /// Told when a stream of instances has ended: the kubelet then takes the plugin for gone.
    stream_ended: mpsc::Sender<()>,
}

impl Service {
    pub(crate) fn new(
        plugin: Arc<Plugin>,
        devices: watch::Receiver<Vec<Device>>,
        stream_ended: mpsc::Sender<()>,
    ) -> Self {
        Self { plugin, devices, stream_ended }
    }
}

/// The options with which the plugin registers.
pub(crate) fn options() -> DevicePluginOptions {
    DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: false }
}

fn instances(ids: Vec<String>) -> BTreeSet<InstanceId> {
    ids.into_iter().map(InstanceId::from).collect()
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream = Devices;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(options()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Devices>, Status> {
        info!("The kubelet watches the instances");
        let changes = WatchStream::new(self.devices.clone());
        Ok(Response::new(Devices { changes, ended: self.stream_ended.clone() }))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented(
            "no instance is better than another: boards are chosen when a container starts",
        ))
    }

    /// Makes a fresh folder for each container: an instance that is free again may still be used by a container that
    /// was deleted by force.
    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let mut container_responses = Vec::new();
        for container in request.into_inner().container_requests {
            let id = AllocationId::fresh().map_err(|error| Status::internal(error.to_string()))?;
            // An error here fails the pod for good. Without its folder the container can't start, and the kubelet
            // says so; the next try of a controller may do better.
            if let Err(error) = self.plugin.allocate(&id, instances(container.devices_ids)) {
                warn!(%error, allocation = %id, "An allocation can't be saved");
            }
            container_responses.push(injection::of(&id, &self.plugin.layout, &self.plugin.bitstreams));
        }
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let instances = instances(request.into_inner().devices_ids);
        let begin = Instant::now();
        let mut announced = None;
        loop {
            match self.plugin.prepare(&instances, begin + PATIENCE, &mut announced).await {
                Ok(owner) => {
                    let plugin = Arc::clone(&self.plugin);
                    tokio::spawn(async move { plugin.learn_library(&owner.namespace).await });
                    return Ok(Response::new(PreStartContainerResponse {}));
                }
                Err(error) if begin.elapsed() + RETRY_INTERVAL < patience_with(&error) => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                // The kubelet shows this text on the pod, and tries again later.
                Err(error) => {
                    warn!(%error, ?instances, "A container can't start");
                    return Err(Status::failed_precondition(error.to_string()));
                }
            }
        }
    }
}

fn patience_with(error: &PrepareError) -> Duration {
    match (error.is_transient(), error.is_permanent()) {
        (true, _) => PATIENCE,
        (false, true) => SHORT_PATIENCE,
        (false, false) => Duration::ZERO,
    }
}

/// The instances at each change. Its drop tells that the kubelet does not listen any more.
pub(crate) struct Devices {
    changes: WatchStream<Vec<Device>>,
    ended: mpsc::Sender<()>,
}

impl Stream for Devices {
    type Item = Result<ListAndWatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = std::pin::pin!(self.changes.next()).poll(context);
        next.map(|devices| devices.map(|devices| Ok(ListAndWatchResponse { devices })))
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // A full queue already has the news, and without a reader nobody wants it.
        let _ = self.ended.try_send(());
    }
}
