//! The service `kubernetes` for pods of real nodes: they can't reach the test bed's API server, which has a loopback
//! address, and no kube-proxy runs.

use super::services::pass_on;
use crate::testbed::control_plane::ControlPlane;
use anyhow::{Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt::IpFreebind};
use std::net::SocketAddr;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

/// Port of the service.
const PORT: u16 = 443;
/// Most connections that wait to be accepted.
const BACKLOG: u32 = 128;

/// Passes connections of pods on to the API server, as kube-proxy does. Dropping it ends them.
#[derive(Debug)]
pub struct KubernetesService {
    accepting: JoinHandle<()>,
}

impl KubernetesService {
    /// Listens at the service's address, which the nodes have while they have pods.
    ///
    /// # Errors
    /// The address can't be listened at: the port is one of root's.
    pub fn start(plane: &ControlPlane) -> Result<Self> {
        let socket = TcpSocket::new_v4().context("can't make a socket")?;
        setsockopt(&socket, IpFreebind, &true)
            .context("can't listen at an address that no interface has yet")?;
        socket.set_reuseaddr(true).context("can't set up the socket")?;
        let address = SocketAddr::from((plane.network().kubernetes_service(), PORT));
        socket.bind(address).with_context(|| format!("can't take the address {address}"))?;
        let listener = socket.listen(BACKLOG).with_context(|| format!("can't listen at {address}"))?;
        let api_server = plane.api_server();
        Ok(Self { accepting: tokio::spawn(pass_on(listener, move || Some(api_server))) })
    }
}

impl Drop for KubernetesService {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
