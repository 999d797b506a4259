//! From a source file to a pod that names it: bitstreams by the registry and the resource Bitstream, and no file on a node
//! that somebody put there.

use super::LONG;
use super::site::{Site, SiteSpec, create, delete, ready, sobel};
use fpga_tests::functions::Function;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::manifests::kubectl as kubectl_of;
use fpga_tests::testbed::network::Network;
use fpga_tests::testbed::oci_registry::OciRegistry;
use fpga_tests::testbed::programs::{built, repository};
use fpga_tests::testbed::real_node::PluginOptions;
use fpga_tests::testbed::restricted::RestrictedPod;
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;

/// Names of the boards: board `dm0` is the first one, `dm1` the other.
const KINDS: [&str; 2] = ["a10gx", "s10"];
/// The namespace whose Bitstreams all pods may name.
const LIBRARY: &str = "library";

/// A registry, and a folder in which somebody works as the documents say.
struct Library {
    folder: TempDir,
    registry: OciRegistry,
    _network: Network,
}

impl Library {
    async fn start() -> Self {
        let (folder, network) = (tempfile::tempdir().unwrap(), Network::claim().unwrap());
        let registry = OciRegistry::start(&network, folder.path(), json!({})).await.unwrap();
        Self { folder, registry, _network: network }
    }

    /// A program that runs in the folder.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("FPGA_REGISTRY_PLAIN_HTTP", "true")
            .env("FPGA_INTEL_OPENCL", repository().join("build/intel-opencl/lib"))
            .env_remove("DOCKER_CONFIG")
            .env_remove("REGISTRY_AUTH_FILE")
            .kill_on_drop(true);
        command
    }

    /// Runs a program of ours in the folder; returns what it prints.
    async fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(&built(program).unwrap()).args(arguments).output().await.unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the command block of the store's README: builds the function for both kinds of boards, packs, sends and applies
    /// it. Returns the Bitstream.
    async fn follow_the_readme(&self, site: &Site, runtime: Runtime) -> Value {
        let _ = std::fs::remove_dir_all(self.folder.path().join("sobel.oci"));
        let readme = std::fs::read_to_string(repository().join("registry/store/README.md")).unwrap();
        let block = readme.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
        let block = block
            .replace("registry.example", &self.registry.address())
            .replace("--runtime pocl", &format!("--runtime {runtime}"))
            .replace("vendor=pocl", &format!("vendor={}", runtime.vendor()));
        std::fs::copy(repository().join("tests/functions/sobel.cl"), self.folder.path().join("sobel.cl"))
            .unwrap();
        let (kubectl, ours) = (site.plane.kubectl(), built("kubectl-fpga").unwrap());
        let folders = [&kubectl, &ours].map(|program| program.parent().unwrap().display().to_string());
        let path = format!("{}:{}", folders.join(":"), std::env::var("PATH").unwrap());
        let mut shell = self.command(Path::new("bash"));
        let shell = shell.args(["-euo", "pipefail", "-c", &block]).env("PATH", path);
        let output =
            shell.env("KUBECONFIG", site.plane.kubeconfig(&Identity::Admin).unwrap()).output().await.unwrap();
        assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
        let applied = ["get", "bitstreams", "sobel", "--namespace", LIBRARY, "-o", "json"];
        serde_json::from_str(&kubectl_of(&site.plane, &applied).await.unwrap()).unwrap()
    }

    /// Builds the function for a kind of board. Another `release` has other bytes.
    async fn build(&self, runtime: Runtime, file: &str, kind: &str, release: u32) {
        let source = repository().join("tests/functions/sobel.cl");
        let (runtime, options) = (runtime.to_string(), format!("-DBOARD_{kind}={release}"));
        let source = source.to_str().unwrap();
        let build = ["build-bitstream", "--runtime", &runtime, "--options", &options, "-o", file, source];
        self.run("fpga-device-manager", &build).await;
    }

    /// Packs the files for their kinds of boards and sends them; returns the Bitstream.
    async fn publish(&self, vendor: &str, tag: &str, files: &[(&str, &str)], more: &[&str]) -> Value {
        let _ = std::fs::remove_dir_all(self.folder.path().join("sobel.oci"));
        let variants: Vec<String> = files
            .iter()
            .map(|(file, kind)| format!("--variant=file={file},vendor={vendor},board={kind},shell=1.0"))
            .collect();
        let pack: Vec<&str> =
            ["bitstream", "pack", "sobel"].into_iter().chain(variants.iter().map(String::as_str)).collect();
        self.run("kubectl-fpga", &pack).await;
        let reference = format!("{}/team/sobel:{tag}", self.registry.address());
        let push = ["bitstream", "push", "sobel.oci", &reference];
        let object = self.run("kubectl-fpga", &[push.as_slice(), more].concat()).await;
        let path = self.folder.path().join("sobel.yaml");
        std::fs::write(&path, &object).unwrap();
        serde_saphyr::from_str(&object).unwrap()
    }

    /// Applies the Bitstream that was published last.
    async fn apply(&self, site: &Site) {
        let path = self.folder.path().join("sobel.yaml");
        let apply = ["apply", "--server-side", "-f", path.to_str().unwrap()];
        wait::until("the API server to take the Bitstream", LONG, async || {
            kubectl_of(&site.plane, &apply).await.map(|_| Some(()))
        })
        .await
        .unwrap();
    }
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

/// Waits until the pod's container can't start for a reason with this text.
async fn waits_with(pods: &Api<Pod>, pod: &str, text: &str) {
    wait::until(&format!("the pod {pod} to wait because of: {text}"), LONG, async || {
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

/// The digest of a variant of a printed Bitstream.
fn digest(object: &Value, kind: &str) -> String {
    let variants = object["spec"]["variants"].as_array().unwrap();
    let variant = variants.iter().find(|variant| variant["board"] == kind).unwrap();
    variant["digest"].as_str().unwrap().to_owned()
}

async fn invoke(pod: &Pod) {
    let http = HttpClient::new(Duration::from_secs(30));
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    case.invoke(&http, pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_pod_that_names_sobel_runs_it_on_two_kinds_of_boards_from_a_registry_and_a_bitstream() {
    let mut library = Library::start().await;
    let host = format!("http://{}", library.registry.address());
    let arguments =
        ["--bitstream-store-size", "64MiB", "--library-namespace", LIBRARY, "--bitstream-hosts", &host];
    let options = PluginOptions {
        board_names: KINDS.map(str::to_owned).to_vec(),
        has_bitstreams: false,
        arguments: arguments.map(str::to_owned).to_vec(),
        ..PluginOptions::default()
    };
    let spec = SiteSpec { boards: &["dm0", "dm1"], options, ..SiteSpec::default() };
    let runtime = spec.runtime;
    let vendor = runtime.vendor();
    let site = Site::open(spec).await;
    let definitions = repository().join("manifests/chart/custom-resources");
    kubectl_of(&site.plane, &["apply", "--server-side", "-f", definitions.to_str().unwrap()]).await.unwrap();
    kubectl_of(&site.plane, &["create", "namespace", LIBRARY]).await.unwrap();
    let pods = site.namespace("shop").await;

    // Nobody else may use it yet.
    for kind in KINDS {
        library.build(runtime, &format!("{kind}-0.bitstream"), kind, 0).await;
    }
    let files = [("a10gx-0.bitstream", "a10gx"), ("s10-0.bitstream", "s10")];
    library.publish(vendor, "0.1", &files, &["--namespace", LIBRARY]).await;
    library.apply(&site).await;
    create(&pods, &names_sobel(&site, "early", "sobel", "a10gx")).await;
    waits_with(&pods, "early", "bitstream").await;
    assert_eq!(stored(&site), BTreeSet::new(), "nothing is fetched for who may not use it");
    delete(&pods, "early").await;

    let first = library.follow_the_readme(&site, runtime).await;
    assert_ne!(digest(&first, "a10gx"), digest(&first, "s10"));
    let before = library.registry.requests("/blobs/");
    let mut old = Vec::new();
    for (pod, kind) in [("one", "a10gx"), ("two", "a10gx"), ("three", "s10")] {
        create(&pods, &names_sobel(&site, pod, "sobel", kind)).await;
        old.push((pod, kind));
    }
    for (pod, kind) in &old {
        let running = ready(&pods, pod, &site.node).await;
        invoke(&running).await;
        assert_eq!(digests_of(&site, pod), [digest(&first, kind)].into(), "{pod}");
    }
    assert_eq!(library.registry.requests("/blobs/") - before, 2, "two pods share one download");

    // Another release, while the pods run: they keep theirs, and new ones get the new one.
    let everybody = ["--namespace", LIBRARY, "--allowed-namespaces=all"];
    library.build(runtime, "a10gx-2.bitstream", "a10gx", 2).await;
    let files = [("a10gx-2.bitstream", "a10gx"), ("sobel-s10.bitstream", "s10")];
    let second = library.publish(vendor, "2.0", &files, &everybody).await;
    library.apply(&site).await;
    create(
        &pods,
        &names_sobel(&site, "four", "library/sobel", "a10gx").with(
            "env",
            json!([
                {"name": "BITSTREAM", "value": "/run/fpga/bitstreams/library/sobel.bitstream"},
                {"name": "PORT", "value": "8080"},
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            ]),
        ),
    )
    .await;
    invoke(&ready(&pods, "four", &site.node).await).await;
    assert_eq!(digests_of(&site, "four"), [digest(&second, "a10gx")].into());
    for (pod, kind) in &old {
        invoke(&pods.get(pod).await.unwrap()).await;
        assert_eq!(digests_of(&site, pod), [digest(&first, kind)].into(), "{pod}");
    }
    let all = [&first, &second].map(|object| digest(object, "a10gx"));
    assert!(all.iter().all(|digest| stored(&site).contains(digest)), "what a pod has stays");

    // Without the registry, what is on the node runs, and what is not says so at the pod until the registry is back.
    library.build(runtime, "a10gx-3.bitstream", "a10gx", 3).await;
    let files = [("a10gx-3.bitstream", "a10gx"), ("sobel-s10.bitstream", "s10")];
    let third = library.publish(vendor, "3.0", &files, &everybody).await;
    library.apply(&site).await;
    library.registry.kill().await;
    create(&pods, &names_sobel(&site, "five", "sobel", "s10")).await;
    invoke(&ready(&pods, "five", &site.node).await).await;
    create(&pods, &names_sobel(&site, "six", "sobel", "a10gx")).await;
    waits_with(&pods, "six", "can't be reached").await;
    library.registry.start_again().await.unwrap();
    invoke(&ready(&pods, "six", &site.node).await).await;
    assert_eq!(digests_of(&site, "six"), [digest(&third, "a10gx")].into());
    site.close().await;
}
