//! Two real nodes with the chart, whose boards are reconfigured as a whole and count loads and refused kernels, and a
//! registry of bitstreams whose certificate is of an own authority.

use crate::publisher::{LIBRARY, Publisher, Release};
use anyhow::{Context as _, Result, ensure};
use fpga_emulated_board::{Controls, VARIABLE};
use fpga_images::{FileTree, Image, Shipped};
use fpga_test_kit::Authority;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::helm::NAMESPACE;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::invoke::FUNCTION_PORT;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::real_cluster::{RealCluster, RealClusterSpec};
use fpga_tests::testbed::real_node::{RealNode, RunMount, shipped_image};
use fpga_tests::testbed::restricted::RestrictedPod;
use fpga_tests::testbed::{artifacts, programs};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

pub const NODES: [(&str, RunMount); 2] = [("n1", RunMount::Executable), ("n2", RunMount::NoExec)];
/// Name of the managers' image, without registry and tag.
const MANAGER: &str = "fpga-device-manager-emulated";
/// Where the image has the boards' runtime and their model, and where a board has its controls.
const RUNTIME: &str = "/usr/lib/kube-fpga/libfpga_emulated_board.so";
const MODEL: &str = "/etc/kube-fpga/board.toml";
const CONTROLS: &str = "/tmp/board";
/// How long the boards take: 1 ms for each work-item of `hold`.
const TIMES: &str = "board = \"a board of the tests\"\nreconfiguration = \"500ms\"\n\n\
                     [[kernel]]\nname = \"hold\"\nitems_per_second = 1000.0\n";
/// Kind of the boards, as Bitstreams have it.
const KIND: &str = "emulated";
/// Requests that a pod under load serves at a time. With several, kernels run or wait on its board at each moment.
pub const WORKERS: usize = 3;
/// Work-items of a request.
const ITEMS: u32 = 200;
/// Port of a node plugin's metrics.
const PLUGIN_METRICS: u16 = 9466;
/// ConfigMap with the authority of the hosts of bitstreams.
const AUTHORITY: &str = "bitstream-ca";

/// The managers' image with the emulated board, which a test steers.
fn manager_image() -> Image {
    let library = programs::built("libfpga_emulated_board.so").unwrap();
    let board = FileTree::new().libraries_of(&library).unwrap().file(RUNTIME, library).text(MODEL, TIMES);
    let image = shipped_image(Shipped::DeviceManagerPocl).unwrap();
    image
        .renamed(&format!("kube-fpga/{MANAGER}:{}", env!("CARGO_PKG_VERSION")))
        .variable(VARIABLE, CONTROLS)
        .layer(board)
}

fn hold_image() -> Image {
    let program = artifacts::functions().unwrap().join("hold");
    let driver = programs::built("libfpga_opencl_icd.so").unwrap();
    let image = Image::new("localhost/hold:1", "/hold").file("/hold", &program);
    image.libraries_of(&program).unwrap().libraries_of(&driver).unwrap()
}

fn values() -> Vec<String> {
    let arguments = [
        "--vendor=pocl",
        &format!("--board={KIND}"),
        "--shell=1.0",
        "--slots=1",
        "--reconfiguration=full",
        "--isolate=protocol",
        &format!("--model={MODEL}"),
    ]
    .join(",");
    let mut values = [
        "nodePlugin.gate.timeout=2m",
        "registry.enabled=true",
        "registry.moves.mode=evict",
        "registry.moves.interval=1s",
    ]
    .map(str::to_owned)
    .to_vec();
    values.extend([
        format!("boardKinds[0].image={MANAGER}"),
        format!("boardKinds[0].runtime={RUNTIME}"),
        format!("boardKinds[0].arguments={{{arguments}}}"),
        format!("nodePlugin.library.caConfigMap={AUTHORITY}"),
        format!("customResources.libraryNamespace={LIBRARY}"),
    ]);
    values
}

/// A cluster with such boards, and a registry whose certificate is of an own authority.
pub struct Bed {
    pub cluster: RealCluster,
    pub publisher: Publisher,
    image: Image,
    _authority: tempfile::TempDir,
}

impl Bed {
    pub async fn start() -> Self {
        let image = hold_image();
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "library");
        let spec = RealClusterSpec {
            nodes: NODES.map(|(name, run_mount)| (name.to_owned(), run_mount)).to_vec(),
            images: vec![image.clone(), manager_image()],
            values: values(),
        };
        let cluster = RealCluster::start_with(spec, async |plane| {
            kubectl(plane, &["create", "namespace", NAMESPACE]).await?;
            let file = format!("--from-file=ca.crt={}", authority.ca.display());
            kubectl(plane, &["-n", NAMESPACE, "create", "configmap", AUTHORITY, &file]).await?;
            // The second one is the API server, whose certificate is of another authority.
            let host = plane.network().node(0).pod_gateway();
            Ok(vec![format!("nodePlugin.library.hosts={{{host}:5000,{host}:443}}")])
        })
        .await
        .unwrap();
        let host = cluster.plane().network().node(0).pod_gateway();
        let publisher = Publisher::start_with_tls(host, &authority).await;
        kubectl(cluster.plane(), &["create", "namespace", LIBRARY]).await.unwrap();
        Self { cluster, publisher, image, _authority: folder }
    }

    /// Publishes the bitstream `hold-NUMBER` for all namespaces; returns the Bitstream.
    pub async fn publish(&self, number: u32) -> Value {
        let (accelerator, file) = (format!("hold-{number}"), format!("hold-{number}.bitstream"));
        self.publisher.build(Runtime::Pocl, "hold", &file, &format!("-DNUMBER={number}")).await;
        let release = Release {
            accelerator: &accelerator,
            tag: "1.0",
            vendor: Runtime::Pocl.vendor(),
            files: &[(&file, KIND)],
            arguments: &["--namespace", LIBRARY, "--allowed-namespaces=all"],
        };
        self.publisher.publish(&release).await
    }

    pub async fn apply(&self, bitstream: &Value) {
        self.publisher.apply(self.cluster.plane(), bitstream).await;
    }

    /// A pod that runs this bitstream, with so many processes. It is Ready when the first one serves.
    pub fn holder(&self, name: &str, bitstream: &str, workers: usize) -> RestrictedPod {
        let pod = RestrictedPod::serving(name, bitstream, self.image.name());
        pod.annotation("fpga-scheduling.io/bitstreams", bitstream).env("WORKERS", &workers.to_string())
    }

    /// A pod of the same program with a board, which names no bitstream.
    pub fn bare(&self, name: &str) -> RestrictedPod {
        RestrictedPod::new(name, self.image.name()).boards("fpga-scheduling.io/accelerated", 1)
    }

    pub fn node(&self, name: &str) -> &RealNode {
        self.cluster.nodes().iter().find(|node| node.name() == name).unwrap()
    }

    /// The controls and counters of the board of a node.
    pub async fn board(&self, node: &str) -> Controls {
        let of_kind = ListParams::default().labels("app.kubernetes.io/name=fpga-device-manager");
        let pods = self.cluster.pods().list(&of_kind.fields(&format!("spec.nodeName={node}"))).await.unwrap();
        let uid = pods.items[0].uid().unwrap();
        // The volume for temporary files.
        let folder = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir");
        let path = self.node(node).machine().path(format!("{folder}{CONTROLS}"));
        assert!(path.exists(), "{}", path.display());
        Controls::open(&path).unwrap()
    }

    /// Lets kube-scheduler place pods on these nodes only.
    pub async fn open_only(&self, open: &[&str]) {
        let nodes: Api<Node> = Api::all(self.cluster.plane().client().clone());
        for (node, _) in NODES {
            let patch = json!({"spec": {"unschedulable": !open.contains(&node)}});
            nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    }

    /// How many containers have the board of a node, as the node's plugin tells now: the annotation may be a minute old.
    pub async fn containers_on_board(&self, node: &str) -> Result<String> {
        let plugins = self.cluster.addresses("fpga-node-plugin").await?;
        let (_, ip) = plugins.into_iter().find(|(of, _)| of == node).context("no plugin")?;
        let metrics = self.cluster.http().get(&format!("http://{ip}:{PLUGIN_METRICS}/metrics")).await?.text();
        let mut values =
            metrics.lines().filter_map(|line| line.strip_prefix("fpga_node_plugin_board_containers{"));
        let value = values.next().and_then(|line| line.rsplit(' ').next());
        Ok(value.context("no metric")?.to_owned())
    }

    /// What the kubectl plugin knows of the board of a node.
    pub async fn told_board(&self, node: &str) -> Value {
        let boards = self.cluster.kubectl_fpga(&["boards", "-o", "json"]).await.unwrap();
        let boards: Vec<Value> = serde_json::from_str(&boards).unwrap();
        boards.into_iter().find(|board| board["node"] == node).unwrap()
    }
}

pub fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

pub fn address_of(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap()
}

/// Keeps a board busy by a pod; returns the number of the bitstream whose kernel ran.
pub async fn hold(http: &HttpClient, address: &str) -> Result<u32> {
    let url = format!("http://{address}:{FUNCTION_PORT}/");
    let answer = http.post(&url, ITEMS.to_le_bytes().to_vec()).await?;
    ensure!(answer.status.is_success(), "{}: {}", answer.status, answer.text());
    let [items, number] = [0..4, 4..8].map(|range| answer.body.get(range).unwrap_or_default().to_vec());
    ensure!(items == ITEMS.to_le_bytes(), "another request's answer");
    Ok(u32::from_le_bytes(number.try_into().ok().context("no number")?))
}
