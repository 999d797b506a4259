//! A control plane and its only node, on which our programs run beside the kubelet: what most tests need.

use fpga_tests::functions::Function;
use fpga_tests::testbed::cluster::{Runtime, rbac};
use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::real_node::{Boards, Image, PluginOptions, RealNode, RealNodeSpec};
use fpga_tests::testbed::restricted::{self, RestrictedPod, is_ready};
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

/// A control plane and the node `n1` with boards.
pub struct Site {
    pub plane: ControlPlane,
    pub node: RealNode,
    pub boards: Boards,
    /// The image of the Sobel function, which the node has.
    pub image: Image,
}

/// What a site has.
pub struct SiteSpec<'a> {
    /// Ids of the boards.
    pub boards: &'a [&'a str],
    pub options: PluginOptions,
    pub runtime: Runtime,
    /// Images on the node besides that of the Sobel function.
    pub images: Vec<Image>,
}

impl Default for SiteSpec<'_> {
    fn default() -> Self {
        Self {
            boards: &["dm0"],
            options: PluginOptions::default(),
            runtime: Runtime::from_env().unwrap(),
            images: Vec::new(),
        }
    }
}

/// A control plane whose pods are placed without the extender.
pub async fn start_plane(nodes: &[&str]) -> ControlPlane {
    let mut plane = ControlPlane::start(nodes).await.unwrap();
    plane.start_scheduler(&SchedulerConfig::without_extender()).await.unwrap();
    rbac::grant(&plane).await.unwrap();
    plane
}

/// The node `n1` with the image of the Sobel function.
pub fn node_spec(image: &Image) -> RealNodeSpec {
    RealNodeSpec { images: vec![image.clone()], ..RealNodeSpec::new("n1", 0) }
}

/// The image of the Sobel function.
pub fn sobel_image() -> Image {
    restricted::function_image(Function::Sobel).unwrap()
}

/// A pod of the Sobel function on the node `n1`.
pub fn sobel(name: &str, image: &Image) -> RestrictedPod {
    RestrictedPod::function(name, Function::Sobel, image.name()).on("n1")
}

pub async fn create(pods: &Api<Pod>, pod: &RestrictedPod) {
    pods.create(&PostParams::default(), &pod.pod().unwrap()).await.unwrap();
}

/// Binds the pod to the node, as a scheduler does.
pub async fn bind(pods: &Api<Pod>, pod: &str, node: &str) {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    pods.create_subresource::<_, Value>("binding", pod, &PostParams::default(), &binding).await.unwrap();
}

/// Deletes the pod and waits until it is gone.
pub async fn delete(pods: &Api<Pod>, name: &str) {
    pods.delete(name, &DeleteParams::default()).await.unwrap();
    wait::until(&format!("the pod {name} to be gone"), async || {
        Ok(pods.get_opt(name).await?.is_none().then_some(()))
    })
    .await
    .unwrap();
}

/// Waits until the pod is ready and returns it.
pub async fn ready(pods: &Api<Pod>, name: &str, node: &RealNode) -> Pod {
    wait::until(&format!("the pod {name} to be ready"), async || {
        node.check_running()?;
        let pod = pods.get(name).await?;
        anyhow::ensure!(is_ready(&pod), "{:?}", pod.status);
        Ok(Some(pod))
    })
    .await
    .unwrap()
}

/// Waits until the pod's container can't start for a reason with this text.
pub async fn waits_with(pods: &Api<Pod>, pod: &str, text: &str) {
    wait::until(&format!("the pod {pod} to wait because of: {text}"), async || {
        let status = pods.get(pod).await?.status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let waiting = containers.into_iter().next().and_then(|container| container.state?.waiting);
        let message = waiting.and_then(|waiting| waiting.message).unwrap_or_default();
        anyhow::ensure!(message.contains(text), "{message}");
        Ok(Some(()))
    })
    .await
    .unwrap();
}

impl Site {
    /// Opens a site with these boards; the rest is as [`SiteSpec`] says.
    pub async fn with_boards(boards: &[&str]) -> Self {
        Self::open(SiteSpec { boards, ..SiteSpec::default() }).await
    }

    pub async fn open(spec: SiteSpec<'_>) -> Self {
        let SiteSpec { boards, options, runtime, images } = spec;
        let (plane, image) = (start_plane(&["n1"]).await, sobel_image());
        let mut node = node_spec(&image);
        node.images.extend(images);
        let node = RealNode::start(node, &plane).await.unwrap();
        node.wait_ready().await.unwrap();
        let boards = Boards::start_with(options, &node, &plane, runtime, boards).await.unwrap();
        Self { plane, node, boards, image }
    }

    /// Makes a namespace that enforces Pod Security `restricted`, and returns its pods.
    pub async fn namespace(&self, name: &str) -> Api<Pod> {
        restricted::namespace(self.plane.client(), name).await.unwrap()
    }

    /// Creates a pod of the Sobel function, and returns the pod when it is ready.
    pub async fn start_sobel(&self, pods: &Api<Pod>, name: &str) -> Pod {
        create(pods, &sobel(name, &self.image)).await;
        ready(pods, name, &self.node).await
    }

    pub async fn close(self) {
        self.boards.stop(&self.node).await;
        self.node.stop().await;
        self.plane.stop().await;
    }
}
