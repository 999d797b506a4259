//! Services for pods of real nodes and for tests: no kube-proxy and no DNS server of a cluster runs on the nodes.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{Config, watcher};
use kube::{Api, Client, ResourceExt as _};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// The ready endpoints of all Services, as the API server tells them. Cheap to clone; the last drop ends the watch.
#[derive(Debug, Clone)]
pub struct ReadyEndpoints(Arc<Watched>);

#[derive(Debug)]
struct Watched {
    slices: Store<EndpointSlice>,
    watch: AbortHandle,
}

/// Passes connections on to the ready endpoints of a Service in turn, as kube-proxy does. A connection stays where it is
/// until it ends. Dropping this ends all connections.
#[derive(Debug)]
pub struct ServiceProxy {
    address: SocketAddr,
    accepting: AbortHandle,
}

impl ReadyEndpoints {
    /// Begins to watch all Services, and waits until they are known.
    ///
    /// # Errors
    /// The watch ends.
    pub async fn watch(client: &Client) -> Result<Self> {
        let all: Api<EndpointSlice> = Api::all(client.clone());
        let (slices, writer) = reflector::store();
        let changes = watcher(all, Config::default()).default_backoff().reflect(writer);
        let watch = tokio::spawn(changes.for_each(|_| std::future::ready(()))).abort_handle();
        let watched = Watched { slices, watch };
        watched.slices.wait_until_ready().await.context("the watch on EndpointSlices ended")?;
        Ok(Self(Arc::new(watched)))
    }

    /// The addresses of a Service's ready endpoints, sorted.
    #[must_use]
    pub fn addresses(&self, namespace: &str, service: &str) -> BTreeSet<Ipv4Addr> {
        let slices = self.slices_of(namespace, service).into_iter();
        slices.flat_map(|slice| ready_addresses(&slice)).collect()
    }

    /// The sockets at which a Service's ready endpoints have the port of this name, sorted.
    #[must_use]
    pub fn sockets(&self, namespace: &str, service: &str, port: &str) -> BTreeSet<SocketAddr> {
        let slices = self.slices_of(namespace, service).into_iter();
        let sockets = slices.flat_map(|slice| {
            let mut ports = slice.ports.iter().flatten();
            let named = ports.find(|one| one.name.as_deref() == Some(port));
            let number = named.and_then(|port| u16::try_from(port.port?).ok());
            let at =
                |number| ready_addresses(&slice).into_iter().map(move |ip| SocketAddr::from((ip, number)));
            number.map(at).into_iter().flatten().collect::<Vec<_>>()
        });
        sockets.collect()
    }

    fn slices_of(&self, namespace: &str, service: &str) -> Vec<Arc<EndpointSlice>> {
        let all = self.0.slices.state().into_iter();
        let is_of_service = |slice: &Arc<EndpointSlice>| {
            let name = slice.labels().get("kubernetes.io/service-name");
            slice.namespace().as_deref() == Some(namespace) && name.is_some_and(|name| name == service)
        };
        all.filter(is_of_service).collect()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl ServiceProxy {
    /// Listens at `address` for a Service's port of this name.
    ///
    /// # Errors
    /// The address can't be listened at.
    pub async fn start(
        address: SocketAddr,
        endpoints: ReadyEndpoints,
        namespace: &str,
        service: &str,
        port: &str,
    ) -> Result<Self> {
        let listener =
            TcpListener::bind(address).await.with_context(|| format!("can't listen at {address}"))?;
        let [namespace, service, port] = [namespace, service, port].map(str::to_owned);
        let turn = AtomicUsize::new(0);
        let next = move || {
            let sockets = endpoints.sockets(&namespace, &service, &port);
            let turn = turn.fetch_add(1, Ordering::Relaxed).checked_rem(sockets.len())?;
            sockets.into_iter().nth(turn)
        };
        Ok(Self { address, accepting: tokio::spawn(pass_on(listener, next)).abort_handle() })
    }

    /// The URL at which a function is called, where the Service is the router's.
    #[must_use]
    pub fn url(&self, namespace: &str, function: &str) -> String {
        format!("http://{}/function/{function}.{namespace}", self.address)
    }
}

impl Drop for ServiceProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Passes each connection on to where `next` says then. One for which there is nowhere to go is closed.
pub(super) async fn pass_on(listener: TcpListener, next: impl Fn() -> Option<SocketAddr>) {
    // Dropped, and so ended, with this task.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let Some(to) = next() else { continue };
        connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(to).await {
                // The end of a connection, for whatever reason, is the client's to handle.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

fn ready_addresses(slice: &EndpointSlice) -> Vec<Ipv4Addr> {
    let is_ready = |endpoint: &&Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    };
    let addresses =
        slice.endpoints.iter().flatten().filter(is_ready).flat_map(|endpoint| &endpoint.addresses);
    addresses.filter_map(|address| address.parse().ok()).collect()
}
