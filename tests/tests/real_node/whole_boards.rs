//! Boards that are reconfigured as a whole, with the chart on two real nodes: bitstreams come over TLS from hosts of an
//! authority that only the chart's values name, the gate decides who may have them, and the registry moves a pod off the
//! board that another one waits for. The boards count the kernels that would run on a wrong image.

use super::LONG;
use super::publisher::{LIBRARY, Publisher, Release};
use super::registry::{told, until_ready};
use super::site::{create, delete, ready, waits_with};
use anyhow::{Context as _, Result, ensure};
use fpga_emulated_board::{Controls, VARIABLE};
use fpga_images::{FileTree, Image, Shipped};
use fpga_net::testing::Authority;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::helm::NAMESPACE;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::invoke::FUNCTION_PORT;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::real_cluster::{RealCluster, RealClusterSpec};
use fpga_tests::testbed::real_node::{RealNode, RunMount, shipped_image};
use fpga_tests::testbed::registry::records;
use fpga_tests::testbed::restricted::{self, RestrictedPod};
use fpga_tests::testbed::{artifacts, programs, wait};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const NODES: [(&str, RunMount); 2] = [("n1", RunMount::Executable), ("n2", RunMount::NoExec)];
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
/// Requests that a pod serves at a time. With several, kernels run or wait on its board at each moment.
const WORKERS: usize = 3;
/// Work-items of a request.
const ITEMS: u32 = 200;
/// Pause of a client that was cut off, unless the address changes.
const AGAIN: Duration = Duration::from_millis(100);
/// Port of a node plugin's metrics.
const PLUGIN_METRICS: u16 = 9466;
/// ConfigMap with the authority of the hosts of bitstreams.
const AUTHORITY: &str = "bitstream-ca";

/// The managers' image with the emulated board, which a test steers.
fn manager_image() -> Image {
    let library = programs::built("libfpga_emulated_board.so").unwrap();
    let board = FileTree::new().libraries_of(&library).unwrap().file(RUNTIME, library).text(MODEL, TIMES);
    let image = shipped_image(Shipped::DeviceManagerPocl).unwrap();
    image.renamed(&format!("kube-fpga/{MANAGER}:latest")).variable(VARIABLE, CONTROLS).layer(board)
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
        "nodePlugin.gate.enabled=true",
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
struct Bed {
    cluster: RealCluster,
    publisher: Publisher,
    image: Image,
    _authority: tempfile::TempDir,
}

impl Bed {
    async fn start() -> Self {
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
    async fn publish(&self, number: u32) -> Value {
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

    async fn apply(&self, bitstream: &Value) {
        self.publisher.apply(self.cluster.plane(), bitstream).await;
    }

    /// A pod that runs this bitstream.
    fn holder(&self, name: &str, bitstream: &str) -> RestrictedPod {
        let pod = RestrictedPod::serving(name, bitstream, self.image.name());
        pod.annotation("fpga-scheduling.io/bitstreams", bitstream).env("WORKERS", &WORKERS.to_string())
    }

    fn node(&self, name: &str) -> &RealNode {
        self.cluster.nodes().iter().find(|node| node.name() == name).unwrap()
    }

    /// The controls and counters of the board of a node.
    async fn board(&self, node: &str) -> Controls {
        let of_kind = ListParams::default().labels("app.kubernetes.io/name=fpga-device-manager");
        let pods = self.cluster.pods().list(&of_kind.fields(&format!("spec.nodeName={node}"))).await.unwrap();
        let uid = pods.items[0].uid().unwrap();
        // The volume for temporary files.
        let folder = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir");
        let path = self.node(node).machine().path(format!("{folder}{CONTROLS}"));
        assert!(path.exists(), "{}", path.display());
        Controls::open(&path).unwrap()
    }

    /// Lets pods be placed on one node only, or on all.
    async fn open_only(&self, open: Option<&str>) {
        let nodes: Api<Node> = Api::all(self.cluster.plane().client().clone());
        for (node, _) in NODES {
            let patch = json!({"spec": {"unschedulable": open.is_some_and(|open| open != node)}});
            nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    }

    /// How many containers have the board of a node, as the node's plugin tells now: the annotation may be a minute old.
    async fn containers_on_board(&self, node: &str) -> Result<String> {
        let plugins = self.cluster.addresses("fpga-node-plugin").await?;
        let (_, ip) = plugins.into_iter().find(|(of, _)| of == node).context("no plugin")?;
        let metrics = self.cluster.http().get(&format!("http://{ip}:{PLUGIN_METRICS}/metrics")).await?.text();
        let mut values =
            metrics.lines().filter_map(|line| line.strip_prefix("fpga_node_plugin_board_containers{"));
        let value = values.next().and_then(|line| line.rsplit(' ').next());
        Ok(value.context("no metric")?.to_owned())
    }

    /// What the kubectl plugin knows of the board of a node.
    async fn told_board(&self, node: &str) -> Value {
        let boards = self.cluster.kubectl_fpga(&["boards", "-o", "json"]).await.unwrap();
        let boards: Vec<Value> = serde_json::from_str(&boards).unwrap();
        boards.into_iter().find(|board| board["node"] == node).unwrap()
    }
}

fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

fn address_of(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap()
}

/// The counts of a Bitstream: nodes where it is valid, nodes where it is resident, and pods.
fn counts(bitstreams: &[Value], name: &str) -> Value {
    let found = bitstreams.iter().find(|bitstream| bitstream["metadata"]["name"] == name);
    let status = found.map(|found| found["status"].clone()).unwrap_or_default();
    json!([status["validNodes"], status["residentNodes"], status["pods"]])
}

/// Keeps a board busy by a pod; returns the number of the bitstream whose kernel ran.
async fn hold(http: &HttpClient, address: &str) -> Result<u32> {
    let url = format!("http://{address}:{FUNCTION_PORT}/");
    let answer = http.post(&url, ITEMS.to_le_bytes().to_vec()).await?;
    ensure!(answer.status.is_success(), "{}: {}", answer.status, answer.text());
    let [items, number] = [0..4, 4..8].map(|range| answer.body.get(range).unwrap_or_default().to_vec());
    ensure!(items == ITEMS.to_le_bytes(), "another request's answer");
    Ok(u32::from_le_bytes(number.try_into().ok().context("no number")?))
}

/// Clients that call the first bitstream's function all the time, at an address that may change.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    address: watch::Sender<String>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(address: String) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let address = watch::Sender::new(address);
        let clients = (0..WORKERS).map(|_| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            let mut address = address.subscribe();
            tokio::spawn(async move {
                let http = HttpClient::new(LONG);
                while !stop.load(Ordering::SeqCst) {
                    let at = address.borrow().clone();
                    match hold(&http, &at).await {
                        Ok(number) => {
                            assert_eq!(number, 0, "a kernel of another bitstream ran");
                            answered.fetch_add(1, Ordering::SeqCst);
                        }
                        // Who is cut off when the pod goes asks again, where the function is then.
                        Err(_) => drop(tokio::time::timeout(AGAIN, address.changed()).await),
                    }
                }
            })
        });
        let clients = clients.collect();
        Self { stop, answered, address, clients }
    }

    /// Waits until each client has had further answers.
    async fn goes_on(&self) {
        let before = self.answered.load(Ordering::SeqCst);
        wait::until("further requests to be answered", LONG, async || {
            Ok((self.answered.load(Ordering::SeqCst) >= before + 4 * WORKERS).then_some(()))
        })
        .await
        .unwrap();
    }

    async fn end(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.await.unwrap();
        }
        self.answered.load(Ordering::SeqCst)
    }
}

/// A bitstream of a host that has a certificate of another authority is not fetched, and the pod says why.
async fn a_host_of_another_authority_is_refused_at_the_pod(bed: &Bed, pods: &Api<Pod>, bitstream: &Value) {
    let host = bed.cluster.plane().network().node(0).pod_gateway();
    let mut forged = bitstream.clone();
    forged["metadata"]["name"] = json!("forged");
    forged["spec"]["variants"][0]["source"] = json!({"https": format!("https://{host}:443/hold")});
    bed.apply(&forged).await;
    create(pods, &bed.holder("trusts", "forged").on("n1")).await;
    waits_with(pods, "trusts", "certificate").await;
    delete(pods, "trusts").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_pod_gets_a_whole_board_when_another_one_was_moved_off_it_and_no_kernel_runs_on_a_wrong_image() {
    let bed = Bed::start().await;
    let client = bed.cluster.plane().client();
    let (shop, mill) = (
        restricted::namespace(client, "shop").await.unwrap(),
        restricted::namespace(client, "mill").await.unwrap(),
    );
    // One bitstream is a registry's blob, the other an address that answers with the same bytes.
    let (first, mut second) = (bed.publish(0).await, bed.publish(1).await);
    let digest = second["spec"]["variants"][0]["digest"].as_str().unwrap().to_owned();
    let blob = format!("https://{}/v2/team/hold-1/blobs/{digest}", bed.publisher.registry.address());
    second["spec"]["variants"][0]["source"] = json!({"https": blob});
    bed.apply(&first).await;
    bed.apply(&second).await;
    a_host_of_another_authority_is_refused_at_the_pod(&bed, &mill, &second).await;

    // A replica on each node, the first of them under load.
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "shop");
    bed.open_only(Some("n1")).await;
    let deployment = bed.holder("hold", "hold-0").deployment(1).unwrap();
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let busy = until_ready(&shop, "hold", 1).await.remove(0);
    bed.open_only(Some("n2")).await;
    let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
    deployments.patch("hold", &PatchParams::default(), &two).await.unwrap();
    let both = until_ready(&shop, "hold", 2).await;
    bed.open_only(None).await;
    let idle = both.iter().find(|pod| pod.uid() != busy.uid()).unwrap();
    assert_eq!([node_of(&busy), node_of(idle)], ["n1", "n2"]);
    let load = Load::start(address_of(&busy));
    load.goes_on().await;

    let wanted = Instant::now();
    create(&mill, &bed.holder("wants", "hold-1").on("n1")).await;
    let event = told(&bed.cluster, "shop", "Moved").await;
    println!("a pod created to another one moved off its board: {} ms", wanted.elapsed().as_millis());
    assert_eq!(event.regarding.unwrap().name.as_deref(), Some("hold"));
    load.address.send_replace(address_of(idle));
    let wants = ready(&mill, "wants", bed.node("n1")).await;
    println!("a pod created to its board reconfigured for it: {} ms", wanted.elapsed().as_millis());
    let ended = wait::until("the move to end", LONG, async || {
        let moves = records(client, "moves.json").await?;
        ensure!(moves.iter().all(|record| record["outcome"] == "ended"), "{moves:?}");
        Ok(Some(moves))
    });
    let [record] = &ended.await.unwrap()[..] else { panic!("there is more than one move") };
    assert_eq!(
        (&record["podUid"], &record["cause"], &record["node"]),
        (&json!(busy.uid()), &json!("board_wanted"), &json!("n1"))
    );
    let moves = bed.cluster.kubectl_fpga(&["moves"]).await.unwrap();
    assert!(
        moves.contains("board_wanted") && moves.contains(record["reckoning"].as_str().unwrap()),
        "{moves}"
    );

    // The replacement serves on the other node, and the old pod's board is the new pod's alone.
    let after = until_ready(&shop, "hold", 2).await;
    assert!(after.iter().all(|pod| node_of(pod) == "n2" && pod.uid() != busy.uid()), "{after:?}");
    wait::until("the boards to say whose they are", LONG, async || {
        let [one, two] = [bed.told_board("n1").await, bed.told_board("n2").await];
        ensure!(one["pods"] == json!(["mill/wants"]), "{one}");
        ensure!(two["pods"].as_array().is_some_and(|pods| pods.len() == 2), "{two}");
        let containers = [bed.containers_on_board("n1").await?, bed.containers_on_board("n2").await?];
        ensure!(containers == ["1", "2"], "{containers:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    let http = HttpClient::new(LONG);
    for _ in 0..5 {
        assert_eq!(hold(&http, &address_of(&wants)).await.unwrap(), 1, "a kernel of another bitstream ran");
    }
    let replacement = after.iter().find(|pod| pod.uid() != idle.uid()).unwrap();
    load.address.send_replace(address_of(replacement));
    load.goes_on().await;
    println!("{} requests of the moved function were answered", load.end().await);
    for (node, least) in [("n1", 2), ("n2", 1)] {
        let board = bed.board(node).await;
        assert_eq!(board.refused(), 0, "kernels would have run on a wrong image of the board of {node}");
        assert!(board.loads() >= least, "{node}: {} loads", board.loads());
    }

    // What the Bitstreams and people are told, when the nodes' annotations tell what was loaded.
    wait::until("the counts", 2 * LONG, async || {
        let text = bed.cluster.kubectl_fpga(&["bitstreams", "-o", "json"]).await?;
        let all: Vec<Value> = serde_json::from_str(&text)?;
        ensure!(
            counts(&all, "hold-0") == json!([2, 1, 2]) && counts(&all, "hold-1") == json!([2, 1, 1]),
            "{text}"
        );
        Ok(Some(()))
    })
    .await
    .unwrap();
    mill.delete("wants", &DeleteParams::default()).await.unwrap();
    bed.cluster.stop().await;
}
