//! Registers with the kubelet, and again whenever that is needed: the kubelet has restarted, which removes all plugins'
//! sockets, or it has dropped the connection, as it does when another process of this plugin ends.

use crate::allocations::AllocationId;
use crate::api::connect;
use crate::api::device_plugin::device_plugin_server::DevicePluginServer;
use crate::api::device_plugin::registration_client::RegistrationClient;
use crate::api::device_plugin::{Device, RegisterRequest, VERSION};
use crate::plugin::Plugin;
use crate::service::{Service, options};
use anyhow::Context as _;
use fpga_net::backoff::Backoff;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tracing::{info, warn};

/// Name of the kubelet's socket in the folder of plugins.
const KUBELET_SOCKET: &str = "kubelet.sock";
/// Beginning of the names of our sockets there.
const PREFIX: &str = "fpga-scheduling.io-";
/// Pause between two looks at the sockets.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time that the kubelet may take for a registration.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);

/// The kubelet's folder of plugins, and what the plugin registers there.
pub(crate) struct Kubelet {
    pub(crate) folder: PathBuf,
    pub(crate) resource: String,
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) devices: watch::Receiver<Vec<Device>>,
}

/// The reason why a registration ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The kubelet's socket or ours is another file, or missing.
    Sockets,
    /// The kubelet has ended the stream of instances.
    Stream,
}

impl Kubelet {
    /// Is registered for ever.
    pub(crate) async fn stay_registered(self) {
        // An empty list before the first look at the boards would tell the kubelet that all instances are gone, and pods
        // that are bound to the node would fail for good.
        let _ = self.devices.clone().changed().await;
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        loop {
            match self.register_once().await {
                Ok(end) => {
                    info!(?end, "The kubelet has let the plugin go: it registers again");
                    backoff.reset();
                }
                Err(error) => {
                    warn!(error = format!("{error:#}"), "Not registered with the kubelet");
                    tokio::time::sleep(backoff.pause(0.5..1.0)).await;
                }
            }
        }
    }

    /// Serves on a fresh socket, registers it, and waits until the registration ends.
    async fn register_once(&self) -> anyhow::Result<End> {
        let kubelet = self.folder.join(KUBELET_SOCKET);
        let kubelet_inode = loop {
            match inode(&kubelet) {
                Some(inode) => break inode,
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
        };
        let name = format!("{PREFIX}{}.sock", AllocationId::fresh()?);
        let own = OwnSocket(self.folder.join(&name));
        let listener =
            UnixListener::bind(&own.0).with_context(|| format!("can't listen on {}", own.0.display()))?;
        let own_inode = inode(&own.0);
        let (stream_ended, mut streams) = mpsc::channel(1);
        let service = Service::new(Arc::clone(&self.plugin), self.devices.clone(), stream_ended);
        // The server ends when the sender is dropped, which is when this function ends in any way.
        let (_serving, ended) = oneshot::channel::<()>();
        tokio::spawn(
            Server::builder().add_service(DevicePluginServer::new(service)).serve_with_incoming_shutdown(
                UnixListenerStream::new(listener),
                async {
                    let _ = ended.await;
                },
            ),
        );
        tokio::time::timeout(REGISTER_TIMEOUT, self.register(&kubelet, name))
            .await
            .context("the kubelet does not answer a registration")??;
        info!(resource = self.resource, "Registered with the kubelet");
        loop {
            tokio::select! {
                _ = streams.recv() => return Ok(End::Stream),
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    if inode(&kubelet) != Some(kubelet_inode) || inode(&own.0) != own_inode {
                        return Ok(End::Sockets);
                    }
                }
            }
        }
    }

    async fn register(&self, kubelet: &Path, endpoint: String) -> anyhow::Result<()> {
        let channel =
            connect(kubelet).await.with_context(|| format!("{} does not answer", kubelet.display()))?;
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint,
            resource_name: self.resource.clone(),
            options: Some(options()),
        };
        let answer = RegistrationClient::new(channel).register(request).await;
        answer.map_err(|status| anyhow::anyhow!("the kubelet refuses the plugin: {}", status.message()))?;
        Ok(())
    }
}

/// The socket of one registration; its file is removed on drop.
struct OwnSocket(PathBuf);

impl Drop for OwnSocket {
    fn drop(&mut self) {
        // The kubelet may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Removes sockets of earlier processes of this plugin, on which nobody listens any more.
pub(crate) fn remove_dead_sockets(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = entry.path();
        let refused = std::os::unix::net::UnixStream::connect(&path).map_err(|error| error.kind());
        if matches!(refused, Err(std::io::ErrorKind::ConnectionRefused)) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|metadata| metadata.ino())
}
