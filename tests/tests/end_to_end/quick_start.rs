//! Follows the book's quick start literally: the test runs the commands in the page, with the real Helm,
//! and starts the objects that they create in the API server. `testbed::shipped` has the stand-ins for kubelet and
//! container runtime; those for cluster DNS and for the node plugin, which needs a kubelet, are below.

use fpga_tests::functions::Function;
use fpga_tests::testbed::artifacts;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::documents::{self, Runner};
use fpga_tests::testbed::helm::helm;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::invoke::{Case, FUNCTION_PORT};
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::node::{Node, NodeSpec};
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::programs::{built, repository};
use fpga_tests::testbed::shipped::ShippedPod;
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
/// A node's annotation is written with the heartbeat (60 s by default) where the extender has the state by a stream.
const TWO_HEARTBEATS: Duration = Duration::from_secs(120);
const NODES: [&str; 2] = ["n1", "n2"];
/// The node that gets the bitstream.
const CHOSEN: &str = "n2";
/// The board of each node.
const BOARD: &str = "pocl-0";
/// The token of the namespace of the example's pods.
const TOKEN: &str = "a-token-of-the-example-namespace";
/// Number of pods that ask for the bitstream: kube-scheduler alone would spread them over both nodes.
const PODS: usize = 4;

/// The document that is followed.
const QUICK_START: &str = "book/quick-start.md";

/// The blocks of commands that the document says this test runs.
fn commands() -> Vec<String> {
    let text = documents::text(Path::new(QUICK_START)).unwrap();
    let own = Runner::Test("who_follows_the_quick_start_has_functions_placed_by_their_bitstreams".to_owned());
    documents::blocks(&text).into_iter().filter(|block| block.runner == own).map(|block| block.text).collect()
}

struct Bed {
    plane: ControlPlane,
    nodes: Vec<Node>,
    /// The running processes of the manifests.
    processes: Vec<Process>,
    http: HttpClient,
}

impl Bed {
    async fn start() -> Self {
        let plane = ControlPlane::start(&NODES).await.unwrap();
        let mut bed = Self { plane, nodes: Vec::new(), processes: Vec::new(), http: HttpClient::new(LONG) };
        for (index, name) in (0..).zip(NODES) {
            let spec = NodeSpec {
                name: name.to_owned(),
                labels: BTreeMap::new(),
                network: bed.plane.network().node(index),
                env: BTreeMap::new(),
                pods_dir: bed.root(name).join("pods"),
            };
            let client = bed.plane.client_of(&Identity::Node(name.to_owned())).await.unwrap();
            let node = Node::start(spec, client).await.unwrap();
            node.wait_ready(LONG).await.unwrap();
            bed.nodes.push(node);
        }
        bed
    }

    /// The folder that stands for the root of a node's file system.
    fn root(&self, node: &str) -> PathBuf {
        self.plane.run_dir().path().join(node)
    }

    /// An address for a pod of the manifests. The stand-in kubelet uses the first addresses for its own pods.
    fn address(&self, node: &str, place: usize) -> Ipv4Addr {
        let index = NODES.iter().position(|name| *name == node).unwrap();
        self.plane.network().node(u8::try_from(index).unwrap()).pods().nth(200 + place).unwrap()
    }

    /// Runs a block of the document in a shell at the top of the repository, as the administrator.
    async fn shell(&self, block: &str) -> String {
        let (kubectl, helm) = (self.plane.kubectl(), helm().unwrap());
        let folders = [&kubectl, &helm].map(|program| program.parent().unwrap().display().to_string());
        let path = format!("{}:{}", folders.join(":"), std::env::var("PATH").unwrap());
        let output = tokio::process::Command::new("bash")
            .args(["-euo", "pipefail", "-c", block])
            .current_dir(repository())
            .env("PATH", path)
            .env("HOME", self.plane.run_dir().path())
            .env("KUBECONFIG", self.plane.kubeconfig(&Identity::Admin).unwrap())
            .output()
            .await
            .unwrap();
        let (out, error) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{block}\n{out}{error}");
        out
    }

    fn run(&mut self, spec: &ProcessSpec) {
        self.processes.push(Process::start(spec).unwrap());
    }

    /// Starts the processes of the scheduler's pod: first the extender, which is a sidecar, then kube-scheduler.
    async fn start_scheduler(&mut self) {
        let (node, address) = (NODES[0], self.address(NODES[0], 0));
        let workload = "deployment/fpga-scheduler-extender";
        let pod = ShippedPod::create(&self.plane, workload, node, address, &self.root(node)).await.unwrap();
        let extender = pod.process(&self.plane, "extender").await.unwrap();
        self.run(&extender);
        let url = format!("http://{address}:9464/readyz");
        wait::until("the extender to be ready", LONG, async || {
            Ok(self.http.get(&url).await?.status.is_success().then_some(()))
        })
        .await
        .unwrap();
        let scheduler = pod.kube_scheduler(&self.plane).await.unwrap();
        self.run(&scheduler);
    }

    /// Starts a node's collector and device manager.
    async fn start_board(&mut self, node: &str) {
        let (collector, manager) = (self.address(node, 1), self.address(node, 2));
        let root = self.root(node);
        let pod = ShippedPod::create(&self.plane, "daemonset/fpga-collector", node, collector, &root);
        let spec = pod.await.unwrap().process(&self.plane, "collector").await.unwrap();
        let told = spec.env.get("FPGA_EXTENDERS").cloned().unwrap();
        let spec = spec.env("FPGA_EXTENDERS", self.resolved(&told).await);
        self.run(&spec);
        // The node plugin makes the folder of a board's tokens.
        claim(&root);
        let workload = "daemonset/fpga-device-manager-pocl";
        let pod = ShippedPod::create(&self.plane, workload, node, manager, &root);
        let spec = pod.await.unwrap().process(&self.plane, "device-manager").await.unwrap();
        self.run(&spec);
        for (what, address) in
            [("collector", format!("{collector}:9460")), ("manager", format!("{manager}:9462"))]
        {
            let url = format!("http://{address}/readyz");
            wait::until(&format!("the {what} of {node} to be ready"), LONG, async || {
                Ok(self.http.get(&url).await?.status.is_success().then_some(()))
            })
            .await
            .unwrap();
        }
    }

    /// Resolves `dns:SERVICE.NAMESPACE.svc:PORT` like cluster DNS and the Service: to the address of the pod that the
    /// Service selects, and its target port.
    async fn resolved(&self, target: &str) -> String {
        let (host, port) = target.strip_prefix("dns:").unwrap().rsplit_once(':').unwrap();
        let [service, namespace, "svc"] = host.split('.').collect::<Vec<_>>()[..] else {
            unreachable!("{host} is no service")
        };
        let get = async |what: &str| -> Value {
            let text = kubectl(&self.plane, &["get", what, "-n", namespace, "-o", "json"]).await.unwrap();
            serde_json::from_str(&text).unwrap()
        };
        let service = get(&format!("service/{service}")).await;
        assert_eq!(service["spec"]["clusterIP"], "None", "all replicas are told");
        let template = get("deployment/fpga-scheduler-extender").await["spec"]["template"].take();
        for (key, value) in service["spec"]["selector"].as_object().unwrap() {
            assert_eq!(&template["metadata"]["labels"][key], value, "the Service selects the pods by {key}");
        }
        let ports = service["spec"]["ports"].as_array().unwrap();
        let wanted = ports.iter().find(|one| one["port"].as_u64() == port.parse().ok()).unwrap();
        let containers = ["containers", "initContainers"].map(|key| template["spec"][key].clone());
        let containers = containers.iter().flat_map(|list| list.as_array().unwrap().clone());
        let open =
            containers.flat_map(|container| container["ports"].as_array().cloned().unwrap_or_default());
        let named: Vec<Value> = open.filter(|open| open["name"] == wanted["targetPort"]).collect();
        assert_eq!(named.len(), 1, "{wanted} leads to a port");
        format!("https://{}:{}", self.address(NODES[0], 0), named[0]["containerPort"])
    }

    /// Offers instances of the board on the node, as the node plugin does by way of the kubelet.
    async fn advertise(&self, node: &str) {
        let amount = json!({"fpga-scheduling.io/accelerated": "16"});
        let status = json!({"status": {"capacity": amount, "allocatable": amount}});
        let nodes: Api<KubeNode> = Api::all(self.plane.client().clone());
        nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    async fn state(&self, node: &str) -> Value {
        let path = "jsonpath={.metadata.annotations.fpga-scheduling\\.io/node-state}";
        let text = kubectl(&self.plane, &["get", "node", node, "-o", path]).await.unwrap();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Runs a function on the node, as one of its pods would, until the bitstream has been used.
    async fn use_bitstream(&mut self, node: &str) {
        let (root, address) = (self.root(node), self.address(node, 3));
        let icd = root.join("icd");
        std::fs::create_dir_all(&icd).unwrap();
        let library = built("libfpga_opencl_icd.so").unwrap();
        std::fs::write(icd.join("fpga.icd"), library.display().to_string()).unwrap();
        let program = artifacts::functions().unwrap().join("sobel");
        let spec = ProcessSpec::new("sobel", program, self.plane.run_dir().log("sobel"))
            .env("POD_IP", address.to_string())
            .env("PORT", FUNCTION_PORT.to_string())
            .env("BITSTREAM", bitstreams(&root).join("sobel.bitstream").display().to_string())
            .env("FPGA_CLAIM_DIR", claim(&root).display().to_string())
            .env("OCL_ICD_VENDORS", icd.display().to_string());
        self.run(&spec);
        let (case, address) = (Case::new(Function::Sobel, 64, 1).unwrap(), address.to_string());
        wait::until("the function to answer", LONG, async || {
            Ok(Some(case.invoke(&self.http, &address).await?))
        })
        .await
        .unwrap();
    }

    /// Waits until the pod is bound and returns its node.
    async fn node_of(&self, pods: &Api<Pod>, name: &str) -> String {
        let look = async || Ok(pods.get(name).await?.spec.and_then(|spec| spec.node_name));
        wait::until(&format!("{name} to be placed"), LONG, look).await.unwrap()
    }
}

/// Makes a claim of the example's namespace for the board, as the node plugin would, and returns its folder.
fn claim(root: &Path) -> PathBuf {
    let write = |path: PathBuf, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let run = root.join("run/fpga");
    write(run.join("tokens").join(BOARD).join("fpga-functions"), TOKEN);
    let folder = run.join("claims/example");
    let socket = run.join("managers").join(BOARD).join("dm.sock");
    write(folder.join("managers"), &format!("unix:{}\n", socket.display()));
    write(folder.join("token"), TOKEN);
    folder
}

/// The folder on a node where the document puts bitstreams.
fn bitstreams(root: &Path) -> PathBuf {
    let text = documents::text(Path::new(QUICK_START)).unwrap();
    let place = "/var/lib/kube-fpga/bitstreams";
    assert!(text.contains(&format!("`{place}/NAME.bitstream`")));
    root.join(&place[1..])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_the_quick_start_has_functions_placed_by_their_bitstreams() {
    let mut bed = Bed::start().await;
    let commands = commands();
    let [label, install, function] = commands.as_slice() else { unreachable!("{commands:#?}") };
    for node in NODES {
        bed.shell(&label.replace("NODE", node)).await;
        bed.advertise(node).await;
    }
    // There is no DNS for the extender here, so its certificate is for an address.
    let address = format!("--set certificates.addresses[0]={}", bed.address(NODES[0], 0));
    bed.shell(&install.replace("helm install", &format!("helm install {address}"))).await;
    bed.start_scheduler().await;
    for node in NODES {
        bed.start_board(node).await;
    }

    // While the device managers run, the bitstream is added to one node.
    let folder = bitstreams(&bed.root(CHOSEN));
    let source = artifacts::bitstreams(Runtime::Pocl).unwrap().join("sobel.bitstream");
    let partial = folder.join(".sobel");
    std::fs::copy(source, &partial).unwrap();
    std::fs::rename(partial, folder.join("sobel.bitstream")).unwrap();
    bed.use_bitstream(CHOSEN).await;

    // The example's pods name their scheduler and are placed by it.
    let output = bed.shell(&function.replace("NODE", CHOSEN)).await;
    assert!(output.contains("deployment.apps/sobel created"), "{output}");
    let pods: Api<Pod> = Api::namespaced(bed.plane.client().clone(), "fpga-functions");
    let of_example = ListParams::default().labels("app.kubernetes.io/name=sobel");
    let example = wait::until("the example's pods", LONG, async || {
        let pods = pods.list(&of_example).await?.items;
        Ok((pods.len() == 2).then_some(pods))
    });
    let example = example.await.unwrap();
    for pod in &example {
        bed.node_of(&pods, &pod.name_any()).await;
    }

    // The name of the bitstream comes from the manager's folder. Pods that require a board with this bitstream are
    // placed on that node.
    wait::until("the state to name the bitstream", TWO_HEARTBEATS, async || {
        let state = bed.state(CHOSEN).await;
        let known =
            state["bitstreams"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "sobel"));
        Ok(known.then_some(()))
    })
    .await
    .unwrap();
    for index in 0..PODS {
        let mut pod = serde_json::to_value(&example[0]).unwrap();
        let name = format!("by-bitstream-{index}");
        let mut labels = pod["metadata"]["labels"].take();
        // Else the pod would be one too many for the example's ReplicaSet, which deletes such pods.
        labels.as_object_mut().unwrap().remove("pod-template-hash").unwrap();
        pod["metadata"] = json!({
            "name": name, "labels": labels,
            "annotations": {"fpga-scheduling.io/loaded-bitstreams": "sobel"},
        });
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        pod.as_object_mut().unwrap().remove("status");
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        assert_eq!(bed.node_of(&pods, &name).await, CHOSEN);
    }
    bed.processes.iter().try_for_each(Process::check_running).unwrap();

    // The verbs are reachable only from within the pod.
    let service = kubectl(&bed.plane, &["get", "service", "-n", "kube-fpga", "-o", "json"]).await.unwrap();
    assert!(!service.contains("9461"), "{service}");
    let Bed { plane, nodes, processes, .. } = bed;
    for node in nodes {
        node.stop().await;
    }
    for process in processes {
        process.kill().await;
    }
    plane.stop().await;
}
