//! From a source file to a pod that names it: bitstreams by the registry and the resource Bitstream, and no file on a node
//! that somebody put there. A registry that dies in the middle of a download, and a node plugin that does; bytes that have
//! changed in the registry; a Bitstream that changes while pods are called; and a store that is full.

use super::load::Load;
use super::publisher::{LIBRARY, Publisher, Release};
use super::site::{Site, SiteSpec, create, delete, ready, sobel, waits_with};
use fpga_test_kit::patience;
use fpga_tests::functions::Function;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::invoke::{Case, FUNCTION_PORT};
use fpga_tests::testbed::manifests::kubectl as kubectl_of;
use fpga_tests::testbed::programs::{built, repository};
use fpga_tests::testbed::real_node::{Image, PluginOptions};
use fpga_tests::testbed::restricted::{self, RestrictedPod};
use fpga_tests::testbed::valve::Valve;
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Names of the boards: board `dm0` is the first one, `dm1` the other.
const KINDS: [&str; 2] = ["a10gx", "s10"];
/// Number of bitstreams for which the node's store has room.
const MOST_STORED: u64 = 5;

/// Runs the command block of the store's README: builds the function for both kinds of boards, packs, sends and applies it.
/// Returns the Bitstream.
async fn follow_the_readme(publisher: &Publisher, site: &Site, runtime: Runtime) -> Value {
    let _ = std::fs::remove_dir_all(publisher.folder.path().join("sobel.oci"));
    let readme = std::fs::read_to_string(repository().join("registry/store/README.md")).unwrap();
    let block = readme.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let block = block
        .replace("registry.example", &publisher.registry.address())
        .replace("--runtime pocl", &format!("--runtime {runtime}"))
        .replace("vendor=pocl", &format!("vendor={}", runtime.vendor()));
    std::fs::copy(repository().join("tests/functions/sobel.cl"), publisher.folder.path().join("sobel.cl"))
        .unwrap();
    let (kubectl, ours) = (site.plane.kubectl(), built("kubectl-fpga").unwrap());
    let folders = [&kubectl, &ours].map(|program| program.parent().unwrap().display().to_string());
    let path = format!("{}:{}", folders.join(":"), std::env::var("PATH").unwrap());
    let mut shell = publisher.command(Path::new("bash"));
    let shell = shell.args(["-euo", "pipefail", "-c", &block]).env("PATH", path);
    let output =
        shell.env("KUBECONFIG", site.plane.kubeconfig(&Identity::Admin).unwrap()).output().await.unwrap();
    assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
    let applied = ["get", "bitstreams", "sobel", "--namespace", LIBRARY, "-o", "json"];
    serde_json::from_str(&kubectl_of(&site.plane, &applied).await.unwrap()).unwrap()
}

/// The digests that the containers of a pod have, by the node plugin's checkpoint.
fn digests_of(site: &Site, pod: &str) -> BTreeSet<String> {
    let plugin = site.node.machine().path("/var/lib/kubelet/plugins/fpga-scheduling.io");
    let checkpoint: Value =
        serde_json::from_slice(&std::fs::read(plugin.join("allocations.json")).unwrap()).unwrap();
    let claims = checkpoint["allocations"]["byId"].as_object().unwrap().values();
    let claims = claims.filter(|allocation| allocation["claim"]["owner"]["pod"] == pod);
    let digests =
        claims.flat_map(|allocation| allocation["claim"]["bitstreams"].as_object().unwrap().values());
    digests.map(|digest| digest.as_str().unwrap().to_owned()).collect()
}

/// The digests of the store's files.
fn stored(site: &Site) -> BTreeSet<String> {
    let store: PathBuf = site.node.machine().path("/var/lib/kubelet/plugins/fpga-scheduling.io/store/sha256");
    let files = std::fs::read_dir(store).unwrap();
    files.map(|file| format!("sha256:{}", file.unwrap().file_name().to_str().unwrap())).collect()
}

/// A pod of the Sobel function on a board of this kind, which names its bitstream.
fn names_sobel(site: &Site, pod: &str, bitstream: &str, kind: &str) -> RestrictedPod {
    sobel(pod, &site.image)
        .annotation("fpga-scheduling.io/bitstreams", bitstream)
        .label("fpga-scheduling.io/board", kind)
}

/// The digest of a variant of a printed Bitstream.
fn digest(object: &Value, kind: &str) -> String {
    let variants = object["spec"]["variants"].as_array().unwrap();
    let variant = variants.iter().find(|variant| variant["board"] == kind).unwrap();
    variant["digest"].as_str().unwrap().to_owned()
}

async fn invoke(pod: &Pod) {
    let http = HttpClient::new(patience());
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    case.invoke(&http, pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap()).await.unwrap();
}

/// The sum of the bytes that have come of downloads that are not whole.
fn come(site: &Site) -> u64 {
    let folder = site.node.machine().path("/var/lib/kubelet/plugins/fpga-scheduling.io/store/partial");
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

/// A node whose boards are of two kinds and whose plugin fetches what the library names.
struct Bed {
    site: Site,
    publisher: Publisher,
    /// A way to the registry on which a part of one bitstream passes.
    valve: Valve,
    /// An image of a program that uses no board.
    idle: Image,
    runtime: Runtime,
    pods: Api<Pod>,
}

impl Bed {
    async fn start() -> Self {
        let publisher = Publisher::start().await;
        let SiteSpec { runtime, .. } = SiteSpec::default();
        // Nobody has this release. All others are about as large.
        for kind in KINDS {
            let (file, options) = (format!("{kind}-0.bitstream"), format!("-DBOARD_{kind}=0"));
            publisher.build(runtime, "sobel", &file, &options).await;
        }
        let bytes = publisher.folder.path().join("a10gx-0.bitstream").metadata().unwrap().len();
        let store_size = format!("{}KiB", (MOST_STORED * bytes + bytes / 2) / 1024);
        let of_valve = usize::try_from(bytes).unwrap() * 2 / 3;
        let valve =
            Valve::before(publisher.registry.address(), Ipv4Addr::LOCALHOST.into(), of_valve).await.unwrap();
        let hosts = [publisher.registry.address(), valve.address().to_string()];
        let hosts = hosts.map(|host| format!("http://{host}")).join(",");
        let library = ["--library-namespace", LIBRARY, "--bitstream-hosts", &hosts];
        let arguments = [&["--bitstream-store-size", &store_size], &library[..]].concat();
        let options = PluginOptions {
            board_names: KINDS.map(str::to_owned).to_vec(),
            has_bitstreams: false,
            arguments: arguments.into_iter().map(str::to_owned).collect(),
            ..PluginOptions::default()
        };
        let idle = restricted::idle_image().unwrap();
        let images = vec![idle.clone()];
        let site = Site::open(SiteSpec { boards: &["dm0", "dm1"], options, runtime, images }).await;
        let definitions = repository().join("manifests/chart/custom-resources");
        let apply = ["apply", "--server-side", "-f", definitions.to_str().unwrap()];
        kubectl_of(&site.plane, &apply).await.unwrap();
        kubectl_of(&site.plane, &["create", "namespace", LIBRARY]).await.unwrap();
        let pods = site.namespace("shop").await;
        Self { site, publisher, valve, idle, runtime, pods }
    }

    /// Builds a release for boards of the first kind, and publishes it beside `other`, the file for the second kind.
    async fn release(&self, number: u32, other: &str, arguments: &[&str]) -> Value {
        let file = format!("a10gx-{number}.bitstream");
        let options = format!("-DBOARD_a10gx={number}");
        self.publisher.build(self.runtime, "sobel", &file, &options).await;
        let release = Release {
            accelerator: "sobel",
            tag: &format!("{number}.0"),
            vendor: self.runtime.vendor(),
            files: &[(&file, KINDS[0]), (other, KINDS[1])],
            arguments: &[&["--namespace", LIBRARY], arguments].concat(),
        };
        self.publisher.publish(&release).await
    }

    /// The same, which pods of all namespaces may name.
    async fn release_for_all(&self, number: u32) -> Value {
        self.release(number, "sobel-s10.bitstream", &["--allowed-namespaces=all"]).await
    }

    async fn apply(&self, bitstream: &Value) {
        self.publisher.apply(&self.site.plane, bitstream).await;
    }

    /// Creates a pod on a board of the first kind that names its bitstream, and does not use it.
    async fn create_idle(&self, pod: &str) {
        let pod = RestrictedPod::new(pod, self.idle.name()).on("n1");
        let pod = pod.boards("fpga-scheduling.io/accelerated", 1).label("fpga-scheduling.io/board", KINDS[0]);
        create(&self.pods, &pod.annotation("fpga-scheduling.io/bitstreams", "sobel")).await;
    }

    /// Creates a pod of the Sobel function on a board of this kind.
    async fn create(&self, pod: &str, bitstream: &str, kind: &str) {
        create(&self.pods, &names_sobel(&self.site, pod, bitstream, kind)).await;
    }

    /// Waits until the pod is Ready and calls it; returns the digests that it has.
    async fn serves(&self, pod: &str) -> BTreeSet<String> {
        invoke(&ready(&self.pods, pod, &self.site.node).await).await;
        digests_of(&self.site, pod)
    }

    /// Calls a pod all the time.
    async fn call(&self, pod: &str) -> Load {
        let pod = self.pods.get(pod).await.unwrap();
        let url = format!("http://{}:{FUNCTION_PORT}/", pod.status.unwrap().pod_ip.unwrap());
        let case = Case::new(Function::Sobel, 64, 1).unwrap();
        Load::start(&url, &case, 1, || HttpClient::new(patience()))
    }

    /// Changes a byte of the variant for boards of the first kind in the registry, or changes it back.
    fn change_a_byte(&self, bitstream: &Value) {
        let blob = self.publisher.registry.blob(&digest(bitstream, KINDS[0]));
        let mut bytes = std::fs::read(&blob).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&blob, &bytes).unwrap();
    }

    /// A Bitstream is for namespaces with a label: a pod of a namespace without it waits, and nothing is fetched for it; it
    /// starts when the namespace has the label.
    async fn a_pod_starts_when_its_namespace_gets_the_label_that_the_bitstream_wants(&self) {
        let mut labelled = self.release(0, "s10-0.bitstream", &[]).await;
        let selector = json!({"matchLabels": {"boards": "yes"}});
        labelled["spec"]["allowedNamespaces"] = json!({"from": "Selector", "selector": selector});
        self.apply(&labelled).await;
        self.create_idle("early").await;
        waits_with(&self.pods, "early", "bitstream").await;
        assert_eq!(stored(&self.site), BTreeSet::new(), "nothing is fetched for who may not use it");
        kubectl_of(&self.site.plane, &["label", "namespace", "shop", "boards=yes"]).await.unwrap();
        ready(&self.pods, "early", &self.site.node).await;
        assert_eq!(digests_of(&self.site, "early"), [digest(&labelled, KINDS[0])].into());
        delete(&self.pods, "early").await;
    }

    /// The node plugin is killed while bytes come: what has come stays, and the plugin that starts asks for the rest.
    async fn a_plugin_that_starts_goes_on_with_the_download_of_one_that_was_killed(&mut self) {
        let registrations = self.site.boards.registrations();
        self.site.boards.kill_plugin().await;
        let before = come(&self.site);
        assert!(before > 0);
        let Site { node, boards, .. } = &mut self.site;
        boards.start_plugin(node).unwrap();
        boards.wait_registered(registrations).await.unwrap();
        wait::until("the rest to be asked for", async || {
            Ok((self.publisher.registry.requests("\" 206 ") == 1).then_some(()))
        })
        .await
        .unwrap();
        assert!(come(&self.site) >= before, "what has come stays");
    }

    /// The node plugin and then the registry die in the middle of a pod's download. What is on the node runs, and what is
    /// not says so at the pod until the registry is back; the download goes on where it broke.
    async fn a_download_goes_on_after_plugin_and_registry_have_died_in_its_middle(&mut self) {
        let mut third = self.release_for_all(3).await;
        let (registry, valve) = (self.publisher.registry.address(), self.valve.address().to_string());
        third = serde_json::from_str(&third.to_string().replace(&registry, &valve)).unwrap();
        self.apply(&third).await;
        self.create("six", "sobel", KINDS[0]).await;
        wait::until("a part of the bitstream to come", async || Ok((come(&self.site) > 0).then_some(())))
            .await
            .unwrap();
        self.a_plugin_that_starts_goes_on_with_the_download_of_one_that_was_killed().await;
        self.publisher.registry.kill().await;
        self.valve.cut();
        self.valve.open();
        // The session of a pod that runs goes on.
        self.serves("one").await;
        self.create("five", "sobel", KINDS[1]).await;
        self.serves("five").await;
        waits_with(&self.pods, "six", "can't be reached").await;
        assert!(come(&self.site) > 0, "what has come stays");
        let before = self.publisher.registry.requests("\" 206 ");
        self.publisher.registry.start_again().await.unwrap();
        assert_eq!(self.serves("six").await, [digest(&third, KINDS[0])].into());
        let asked = self.publisher.registry.requests("\" 206 ") - before;
        assert_eq!(asked, 1, "the registry was asked for the rest only");
        assert_eq!(come(&self.site), 0);
    }

    /// A byte of a bitstream has changed in the registry: no container gets it, and its pod says so, until the registry has
    /// the right bytes again.
    async fn bytes_that_have_changed_in_the_registry_are_told_at_the_pod_until_they_are_right(&self) {
        let fourth = self.release_for_all(4).await;
        self.change_a_byte(&fourth);
        self.apply(&fourth).await;
        self.create_idle("holds").await;
        waits_with(&self.pods, "holds", "the source has other bytes: their digest is sha256:").await;
        assert!(!stored(&self.site).contains(&digest(&fourth, KINDS[0])));
        self.change_a_byte(&fourth);
        ready(&self.pods, "holds", &self.site.node).await;
        assert_eq!(digests_of(&self.site, "holds"), [digest(&fourth, KINDS[0])].into());
    }

    /// All that the store has is in use: a pod that needs more says so, and what to do, and starts when another has
    /// ended.
    async fn a_full_store_is_told_at_the_pod_that_starts_when_another_one_has_ended(&self) {
        let before = stored(&self.site);
        assert_eq!(before.len() as u64, MOST_STORED, "{before:?}");
        let fifth = self.release_for_all(5).await;
        self.apply(&fifth).await;
        self.create("seven", "sobel", KINDS[0]).await;
        waits_with(&self.pods, "seven", "the node's store of bitstreams is full").await;
        waits_with(&self.pods, "seven", "end pods on this node, or raise --bitstream-store-size").await;
        assert_eq!(stored(&self.site), before, "nothing that is in use goes");
        let held = digests_of(&self.site, "holds");
        delete(&self.pods, "holds").await;
        assert_eq!(self.serves("seven").await, [digest(&fifth, KINDS[0])].into());
        assert!(stored(&self.site).is_disjoint(&held), "what nobody used went");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_pod_that_names_sobel_runs_it_on_two_kinds_of_boards_from_a_registry_and_a_bitstream() {
    let mut bed = Bed::start().await;
    bed.a_pod_starts_when_its_namespace_gets_the_label_that_the_bitstream_wants().await;

    let first = follow_the_readme(&bed.publisher, &bed.site, bed.runtime).await;
    assert_ne!(digest(&first, KINDS[0]), digest(&first, KINDS[1]));
    let before = bed.publisher.registry.requests("/blobs/");
    let old = [("one", KINDS[0]), ("two", KINDS[0]), ("three", KINDS[1])];
    for (pod, kind) in old {
        bed.create(pod, "sobel", kind).await;
    }
    for (pod, kind) in old {
        assert_eq!(bed.serves(pod).await, [digest(&first, kind)].into(), "{pod}");
    }
    assert_eq!(bed.publisher.registry.requests("/blobs/") - before, 2, "two pods share one download");

    // Another release, while the pods are called: they keep theirs, and new ones get the new one.
    let loads = [bed.call("one").await, bed.call("three").await];
    let second = bed.release_for_all(2).await;
    bed.apply(&second).await;
    let four = names_sobel(&bed.site, "four", "library/sobel", KINDS[0]);
    let of_namespace = json!([
        {"name": "BITSTREAM", "value": "/run/fpga/bitstreams/library/sobel.bitstream"},
        {"name": "PORT", "value": "8080"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]);
    create(&bed.pods, &four.with("env", of_namespace)).await;
    assert_eq!(bed.serves("four").await, [digest(&second, KINDS[0])].into());
    for (pod, kind) in old {
        assert_eq!(bed.serves(pod).await, [digest(&first, kind)].into(), "{pod}");
    }
    for load in loads {
        load.goes_on().await;
        assert_eq!(load.cut(), 0, "a pod was not there for its clients when its Bitstream changed");
        assert!(load.end().await > 0);
    }
    let all = [&first, &second].map(|object| digest(object, KINDS[0]));
    assert!(all.iter().all(|digest| stored(&bed.site).contains(digest)), "what a pod has stays");

    bed.a_download_goes_on_after_plugin_and_registry_have_died_in_its_middle().await;
    bed.bytes_that_have_changed_in_the_registry_are_told_at_the_pod_until_they_are_right().await;
    bed.a_full_store_is_told_at_the_pod_that_starts_when_another_one_has_ended().await;
    bed.site.close().await;
}
