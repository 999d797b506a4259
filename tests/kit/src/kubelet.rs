//! The part of a kubelet that a node plugin meets: it takes the plugin's registration, tells which pod has which instance, and
//! starts containers. The messages are those fields of `node-plugin/proto` that are needed.

use crate::until_async;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_prost::ProstCodec;

/// Name of the kubelet's sockets.
const SOCKET: &str = "kubelet.sock";
/// The resource of which each container has one instance.
const RESOURCE: &str = "fpga-scheduling.io/accelerated";

/// A stand-in kubelet, until it is dropped.
pub struct Kubelet {
    plugins: PathBuf,
    known: Arc<Known>,
    _serving: JoinSet<()>,
}

/// What the kubelet knows.
#[derive(Default)]
struct Known {
    /// The socket of the plugin that registered last.
    plugin: Mutex<Option<String>>,
    pods: Mutex<Vec<PodResources>>,
}

impl Kubelet {
    /// Serves in the folder of device plugins, and in that of pods' resources.
    pub fn start(plugins: PathBuf, resources: &Path) -> Self {
        let known = Arc::<Known>::default();
        let registration = Router::new().route("/v1beta1.Registration/Register", post(register));
        let lister = Router::new().route("/v1.PodResourcesLister/List", post(list));
        let mut serving = JoinSet::new();
        for (folder, router) in [(plugins.as_path(), registration), (resources, lister)] {
            let listener = UnixListener::bind(folder.join(SOCKET)).unwrap();
            let routes = Routes::from(router.with_state(Arc::clone(&known)));
            let served =
                Server::builder().add_routes(routes).serve_with_incoming(UnixListenerStream::new(listener));
            serving.spawn(async move { served.await.unwrap() });
        }
        Self { plugins, known, _serving: serving }
    }

    /// Gives the only container of a pod an instance.
    pub async fn admit(&self, namespace: &str, pod: &str) {
        let devices = ContainerDevices { resource: RESOURCE.to_owned(), ids: vec![instance(pod)] };
        let container = ContainerResources { name: "main".to_owned(), devices: vec![devices] };
        let pod_resources = PodResources {
            name: pod.to_owned(),
            namespace: namespace.to_owned(),
            containers: vec![container],
        };
        self.known.pods.lock().unwrap().push(pod_resources);
        let container = Instances { ids: vec![instance(pod)] };
        let request = AllocateRequest { containers: vec![container] };
        let _: Empty = self.call("/v1beta1.DevicePlugin/Allocate", request).await.unwrap();
    }

    /// Starts the container of a pod that was admitted; an error if the plugin refuses.
    pub async fn start_container(&self, pod: &str) -> Result<(), Status> {
        let instances = Instances { ids: vec![instance(pod)] };
        let _: Empty = self.call("/v1beta1.DevicePlugin/PreStartContainer", instances).await?;
        Ok(())
    }

    async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        // A plugin that has ended leaves its socket behind, until the next one registers.
        let channel = until_async("the plugin to register", async || {
            let name = self.known.plugin.lock().unwrap().clone().ok_or("no plugin has registered")?;
            connect(self.plugins.join(name)).await.map_err(|error| error.to_string())
        });
        let mut client = tonic::client::Grpc::new(channel.await);
        client.ready().await.unwrap();
        let codec = ProstCodec::<Q, A>::default();
        let answer = client.unary(tonic::Request::new(request), PathAndQuery::from_static(method), codec);
        answer.await.map(tonic::Response::into_inner)
    }
}

fn instance(pod: &str) -> String {
    format!("instance-of-{pod}")
}

async fn connect(socket: PathBuf) -> Result<Channel, tonic::transport::Error> {
    let connector = tower::service_fn(move |_: tonic::transport::Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await
}

async fn register(State(known): State<Arc<Known>>, request: Request) -> Response<Body> {
    let method = tower::service_fn(move |request: tonic::Request<RegisterRequest>| {
        *known.plugin.lock().unwrap() = Some(request.into_inner().endpoint);
        std::future::ready(Ok::<_, Status>(tonic::Response::new(Empty {})))
    });
    let codec = ProstCodec::<Empty, RegisterRequest>::default();
    tonic::server::Grpc::new(codec).unary(method, request).await
}

async fn list(State(known): State<Arc<Known>>, request: Request) -> Response<Body> {
    let method = tower::service_fn(move |_: tonic::Request<Empty>| {
        let pods = known.pods.lock().unwrap().clone();
        std::future::ready(Ok::<_, Status>(tonic::Response::new(ListPodResourcesResponse { pods })))
    });
    let codec = ProstCodec::<ListPodResourcesResponse, Empty>::default();
    tonic::server::Grpc::new(codec).unary(method, request).await
}

#[derive(Clone, PartialEq, prost::Message)]
struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
struct RegisterRequest {
    #[prost(string, tag = "2")]
    endpoint: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AllocateRequest {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<Instances>,
}

/// The request for one container, both of `Allocate` and of `PreStartContainer`.
#[derive(Clone, PartialEq, prost::Message)]
struct Instances {
    #[prost(string, repeated, tag = "1")]
    ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ListPodResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    pods: Vec<PodResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PodResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<ContainerResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    devices: Vec<ContainerDevices>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerDevices {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, repeated, tag = "2")]
    ids: Vec<String>,
}
