//! The Helm chart (manifests/chart) with the real Helm on a real API server: what it renders, what it refuses, what its
//! policies do to pods, and what it leaves behind.

use fpga_net::testing::envoy_program;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::helm;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::manifests::{self, kubectl};
use fpga_tests::testbed::programs::{built, repository};
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
/// Names that nothing in the chart expects.
const RELEASE: &str = "boards-of-team-7";
const NAMESPACE: &str = "hardware";
const BOARDS: &str = "fpga-scheduling.io/boards";
const BOARDS_REASON: &str = "fpga-scheduling.io/boards-reason";

/// Runs Helm at the top of the repository; success, and what it says.
async fn helm(plane: Option<&ControlPlane>, arguments: &[&str]) -> (bool, String) {
    let mut command = tokio::process::Command::new(helm::helm().unwrap());
    command.args(arguments).current_dir(repository()).env_remove("KUBECONFIG");
    if let Some(plane) = plane {
        command.env("KUBECONFIG", plane.kubeconfig(&Identity::Admin).unwrap());
        // Helm keeps its files below the home folder.
        command.env("HOME", plane.run_dir().path());
    }
    let output = command.output().await.unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Renders the chart with these settings; success, and what Helm says.
async fn render(settings: &[&str]) -> (bool, String) {
    let chart = ["template", RELEASE, "manifests/chart", "--namespace", NAMESPACE, "--kube-version=v1.36.3"];
    helm(None, &[chart.as_slice(), settings].concat()).await
}

/// Installs the chart, and waits until the API server enforces its policies, which takes a moment.
async fn install(plane: &ControlPlane, settings: &[&str]) {
    let chart = ["install", RELEASE, "manifests/chart", "--namespace", NAMESPACE, "--create-namespace"];
    let values = ["--values", "manifests/values/pocl.yaml"];
    let (well, text) = helm(Some(plane), &[&chart[..], &values[..], settings].concat()).await;
    assert!(well, "{text}");
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().clone(), "default");
    let account = async || Ok(accounts.get_opt("default").await?.map(drop));
    wait::until("the default service account", LONG, account).await.unwrap();
    let (by_hand, asks) =
        (pod(json!({"env": [{"name": "FPGA_DEVICE_MANAGERS", "value": "x"}]})), pod(board()));
    wait::until("the policies to hold", LONG, async || {
        let assigned = try_pod(plane.client(), &asks).await?;
        let assigned =
            assigned.spec.and_then(|spec| spec.scheduler_name).is_some_and(|name| name == "kube-fpga");
        Ok((assigned && try_pod(plane.client(), &by_hand).await.is_err()).then_some(()))
    })
    .await
    .unwrap();
}

/// The fields of a container that asks for a board.
fn board() -> Value {
    json!({"resources": {"limits": {"fpga-scheduling.io/accelerated": 1}}})
}

/// A pod with this container, but for name and image.
fn pod(mut container: Value) -> Value {
    container["name"] = json!("main");
    container["image"] = json!("none");
    json!({"metadata": {"name": "tried"}, "spec": {"containers": [container]}})
}

/// Asks the API server what it would make of the pod.
async fn try_pod(client: &Client, pod: &Value) -> kube::Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    pods.create(&dry_run, &serde_json::from_value(pod.clone()).unwrap()).await
}

#[tokio::test]
async fn the_committed_manifests_are_what_the_chart_renders() {
    let folder = tempfile::tempdir().unwrap();
    let script = repository().join("hack/manifests.sh");
    let output = tokio::process::Command::new(script).arg(folder.path()).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = |folder: &std::path::Path| -> BTreeSet<(String, String)> {
        let files = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        files
            .map(|file| {
                let name = file.file_name().into_string().unwrap();
                (name, std::fs::read_to_string(file.path()).unwrap())
            })
            .collect()
    };
    let (rendered, committed) = (files(folder.path()), files(&repository().join("manifests/rendered")));
    let differ: Vec<_> = rendered.symmetric_difference(&committed).map(|(name, _)| name).collect();
    assert!(differ.is_empty(), "run `make manifests` and commit what it writes: {differ:?}");
    assert!(rendered.len() >= 3);
}

#[tokio::test]
async fn a_wrong_value_is_refused_by_its_name() {
    for (setting, named) in [
        ("scheduler.mode=both", "/scheduler/mode"),
        ("scheduler.replica=3", "'replica' not allowed"),
        ("scheduler.version=1.36", "/scheduler/version"),
        ("scheduler.name=default-scheduler", "/scheduler/name"),
        ("images.pullPolicy=always", "/images/pullPolicy"),
        ("customResources.libraryNamespace=My_Library", "/customResources/libraryNamespace"),
        ("nodePlugin.instancesPerBoard=0", "/nodePlugin/instancesPerBoard"),
        ("nodePlugin.kubeletDir=kubelet", "/nodePlugin/kubeletDir"),
        ("nodePlugin.library.storeSize=10GB", "/nodePlugin/library/storeSize"),
        ("nodePlugin.library.hosts={ftp://x}", "/nodePlugin/library/hosts/0"),
        ("boardKinds[0].drainSeconds=30s", "/boardKinds/0/drainSeconds"),
        ("boardKinds[0].name=a10", "missing properties 'image', 'runtime', 'nodeSelector'"),
        ("collector.limits.memory=much", "/collector/limits/memory"),
        ("nodes.tolerations[0].effect=Never", "/nodes/tolerations/0/effect"),
        ("scheduler.mode=cluster", "set certificates.mode to script"),
        ("router.functionNamespace=Team", "/router/functionNamespace"),
        ("router.service.type=ExternalName", "/router/service/type"),
        ("router.envoy.memoryMiB=1Gi", "/router/envoy/memoryMiB"),
        ("registry.moves.mode=on", "/registry/moves/mode"),
        ("registry.moves.newBeforeOld=yes", "/registry/moves/newBeforeOld"),
        ("registry.moves.boardGrace=60", "/registry/moves/boardGrace"),
        ("registry.moves.interval=30", "/registry/moves/interval"),
        (
            "customResources.ownBitstreams.bytesPerNamespace=4Gi",
            "/customResources/ownBitstreams/bytesPerNamespace",
        ),
        ("customResources.ownBitstreams.enabled=true", "set registry.enabled to true"),
        ("pool.jobPolicy=lifo", "/pool/jobPolicy"),
        ("pool.localityWait=10", "/pool/localityWait"),
        ("pool.margin=1", "/pool/margin"),
        ("pool.slots=-1", "/pool/slots"),
        ("pool.tenants.default.weight=0", "/pool/tenants/default/weight"),
        ("pool.tenants.namespaces.team-a.slots=1", "/pool/tenants/namespaces/team-a"),
        ("pool.clientNamespaces[0]=Team", "/pool/clientNamespaces/0"),
        ("traces.endpoint=https://otel.example:4318", "/traces/endpoint"),
        ("traces.endpoint=http://otel.example", "/traces/endpoint"),
    ] {
        let (well, text) = render(&["--set", setting]).await;
        assert!(!well && text.contains(named), "{setting}: {text}");
    }
}

#[tokio::test]
async fn each_value_has_its_effect_on_what_is_rendered() {
    let board = "boardKinds[0].name=a10,boardKinds[0].image=mine,boardKinds[0].runtime=intel-fpga,\
                 boardKinds[0].nodeSelector.board=a10";
    let with_board = |more: &str| format!("{board},{more}");
    for (settings, line) in [
        ("certificates.mode=cert-manager".to_owned(), "kind: Certificate"),
        ("monitoring.podMonitors=true".to_owned(), "kind: PodMonitor"),
        ("monitoring.dashboards=true".to_owned(), "grafana_dashboard: \"1\""),
        ("monitoring.alerts=true".to_owned(), "- alert: FpgaSchedulerHasNoLeader"),
        ("scheduler.qps=70".to_owned(), "burst: 140"),
        ("customResources.libraryNamespace=bitstreams".to_owned(), "value: bitstreams"),
        ("resourceQuota.create=true".to_owned(), "kind: ResourceQuota"),
        (
            "images.registry=registry.example/team".to_owned(),
            "image: registry.example/team/kube-fpga/fpga-collector:latest",
        ),
        ("images.tag=v1,images.pullSecrets[0]=mine".to_owned(), "- name: mine"),
        ("nodes.tolerations[0].key=gpu,nodes.tolerations[0].operator=Exists".to_owned(), "- key: gpu"),
        ("extender.config=antiHerd: off".to_owned(), "antiHerd: off"),
        (
            "nodePlugin.kubeletDir=/var/lib/k0s/kubelet".to_owned(),
            "- --pod-resources=/var/lib/k0s/kubelet/pod-resources/kubelet.sock",
        ),
        (with_board("images.tag=v1"), "image: kube-fpga/mine:v1"),
        (with_board("boardKinds[0].devices[0]=/dev/intel-fpga-fme.0"), "privileged: true"),
        (with_board("boardKinds[0].arguments[0]=--slots=1"), "- \"--slots=1\""),
        (with_board("boardKinds[0].limits.memory=8Gi"), "memory: 8Gi"),
        (with_board("boardKinds[0].drainSeconds=0"), "- --drain-timeout=0s"),
        ("router.enabled=true".to_owned(), "image: kube-fpga/fpga-endpoint-picker:latest"),
        (
            "router.enabled=true,router.envoy.image=mine/envoy@sha256:0".to_owned(),
            "image: mine/envoy@sha256:0",
        ),
        ("router.enabled=true,router.envoy.memoryMiB=1000".to_owned(), "max_heap_size_bytes: 838860800"),
        (
            "router.enabled=true".to_owned(),
            "- endpoint: { address: { socket_address: { address: fpga-endpoint-picker.hardware.svc, port_value: 9470 } } }",
        ),
        (
            "router.enabled=true,router.replicas=1".to_owned(),
            "- endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 9470 } } }",
        ),
        ("router.enabled=true,router.drainSeconds=300".to_owned(), "terminationGracePeriodSeconds: 315"),
        ("router.enabled=true,router.service.type=LoadBalancer".to_owned(), "type: LoadBalancer"),
        ("router.enabled=true,router.tlsSecret=mine".to_owned(), "secretName: mine"),
        ("router.enabled=true,router.allowFrom[0].podSelector.matchLabels.app=x".to_owned(), "app: x"),
        (with_board("boardKinds[0].drainSeconds=300"), "terminationGracePeriodSeconds: 320"),
        ("registry.enabled=true".to_owned(), "image: kube-fpga/fpga-registry:latest"),
        ("registry.enabled=true,registry.moves.mode=off".to_owned(), "value: \"off\""),
        ("registry.enabled=true,registry.moves.interval=7s".to_owned(), "value: \"7s\""),
        ("registry.enabled=true,registry.moves.mode=evict".to_owned(), "resources: [pods/eviction]"),
        (
            "registry.enabled=true,registry.moves.mode=evict,registry.moves.newBeforeOld=true".to_owned(),
            "resources: [deployments/scale]",
        ),
        ("registry.enabled=true,customResources.ownBitstreams.enabled=true".to_owned(), "value: \"16,4GiB\""),
        (
            "registry.enabled=true,customResources.ownBitstreams.enabled=true".to_owned(),
            "rbac.authorization.k8s.io/aggregate-to-edit: \"true\"",
        ),
        ("pool.enabled=true".to_owned(), "image: kube-fpga/fpga-pool:latest"),
        ("pool.enabled=true,pool.goalPolicy=edf".to_owned(), "- --goal-policy=edf"),
        ("pool.enabled=true,pool.floor=none".to_owned(), "- --floor=none"),
        ("pool.enabled=true,pool.margin=0".to_owned(), "- --margin=0"),
        ("pool.enabled=true,pool.remoteJobs=3".to_owned(), "- --remote-jobs=3"),
        ("pool.enabled=true,pool.tenants.default.heldSlots=8".to_owned(), "held-slots = 8"),
        (
            "pool.enabled=true,pool.tenants.namespaces.team-a.waitingBytes=1000000000000".to_owned(),
            "waiting-bytes = 1000000000000",
        ),
        ("pool.enabled=true,pool.clientNamespaces[0]=team-a".to_owned(), "namespace: team-a"),
        ("pool.enabled=true,monitoring.alerts=true".to_owned(), "- alert: FpgaPoolGoalWillBeMissed"),
        (with_board("pool.enabled=true"), "- --pool-slots=1"),
        (with_board("pool.enabled=true,pool.slots=3"), "- --pool-slots=3"),
        (with_board("pool.enabled=true,boardKinds[0].poolSlots=2"), "- --pool-slots=2"),
        (with_board("pool.enabled=true,pool.managerPorts.last=9490"), "- --pool-listen=$(POD_IP):9482-9490"),
        (with_board("traces.endpoint=http://otel:4318"), "- --otlp-endpoint=http://otel:4318"),
        ("router.enabled=true,traces.endpoint=http://otel:4318".to_owned(), "value: \"http://otel:4318\""),
        (with_board("traces.endpoint=http://[fd00::1]:14318/in"), "- port: 14318"),
        (
            with_board("traces.endpoint=http://otel:4318,traces.allowTo[0].ipBlock.cidr=10.1.0.0/16"),
            "cidr: 10.1.0.0/16",
        ),
    ] {
        let (well, without) = render(&[]).await;
        assert!(well && !without.contains(line), "{line}");
        let (well, text) = render(&["--set", &settings]).await;
        assert!(well && text.lines().any(|found| found.trim() == line), "{settings}: {text}");
    }
    let (_, text) = render(&[]).await;
    assert!(
        text.contains("helm.sh/resource-policy: keep") && text.contains("kind: CustomResourceDefinition")
    );
    let (_, text) = render(&["--set", "customResources.keep=false"]).await;
    assert!(!text.contains("helm.sh/resource-policy: keep"));
    let (_, text) = render(&[
        "--set",
        "networkPolicies.create=false,podAdmission.assign=false,podAdmission.validate=false,\
         customResources.install=false",
    ])
    .await;
    assert!(!text.contains("kind: CustomResourceDefinition"));
    assert!(!text.contains("kind: NetworkPolicy\n") && !text.contains("kind: MutatingAdmissionPolicy\n"));
    assert!(!text.contains(&format!("name: {RELEASE}-pods\n")));
}

/// Envoy's configuration in the rendered chart, in a folder with what it reads.
fn envoy_configuration(rendered: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let map = rendered
        .split("\n---\n")
        .find(|object| object.contains("kind: ConfigMap\n") && object.contains("  name: fpga-router\n"));
    let data = map.unwrap().split("\ndata:\n").nth(1).unwrap();
    let mut name = String::new();
    let mut files = std::collections::BTreeMap::<String, String>::new();
    for line in data.lines() {
        match line.strip_prefix("    ") {
            Some(text) => {
                let file = files.entry(name.clone()).or_default();
                file.push_str(text);
                file.push('\n');
            }
            None if line.is_empty() => files.entry(name.clone()).or_default().push('\n'),
            None => name = line.trim().trim_end_matches(": |").to_owned(),
        }
    }
    for (name, text) in files {
        let text = text.replace("/config/", &format!("{}/", folder.path().display()));
        let text = text.replace("/tls/", &format!("{}/", folder.path().display()));
        let text = text.replace("path: /tls", &format!("path: {}", folder.path().display()));
        let text = text.replace("/run/fpga-router/", &format!("{}/", folder.path().display()));
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[tokio::test]
async fn envoy_takes_its_configuration_whatever_the_values_say() {
    for settings in [
        "router.enabled=true",
        "router.enabled=true,router.domain=fn.example",
        "router.enabled=true,router.domain=fn.example,router.tlsSecret=mine,router.envoy.memoryMiB=64",
    ] {
        let (well, text) = render(&["--set", settings]).await;
        assert!(well, "{text}");
        let folder = envoy_configuration(&text);
        std::fs::write(folder.path().join("endpoints.json"), "{}").unwrap();
        // The arguments of Envoy's container, which are a list of lines.
        let arguments = text.split("command: [envoy]").nth(1).unwrap().split("args:\n").nth(1).unwrap();
        let arguments = arguments.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let arguments =
            arguments.map_while(|line| line.strip_prefix("- ")).map(|text| text.trim_matches('"'));
        let at = format!("{}/", folder.path().display());
        let output = tokio::process::Command::new(envoy_program())
            .args(["--mode", "validate"])
            .args(arguments.map(|argument| argument.replace("/config/", &at)))
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{settings}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test]
async fn kube_scheduler_has_the_clusters_version_and_judges_about_300_nodes_with_boards() {
    for (kubernetes, image) in [
        ("v1.34.2-gke.1043000", "registry.k8s.io/kube-scheduler:v1.34.2\n"),
        ("v1.33.5+k3s1", "registry.k8s.io/kube-scheduler:v1.33.5\n"),
    ] {
        let (well, text) = render(&["--kube-version", kubernetes]).await;
        assert!(well && text.contains(image), "{kubernetes}: {text}");
        // MutatingAdmissionPolicy is there from 1.36 on.
        assert!(!text.contains("kind: MutatingAdmissionPolicy\n"), "{kubernetes}");
    }
    for (nodes, percentage) in [(0, 100), (300, 100), (301, 100), (1_000, 30), (5_000, 6), (29_000, 2)] {
        let (well, text) = render(&["--set", &format!("scheduler.nodes={nodes}")]).await;
        let line = format!("    percentageOfNodesToScore: {percentage}\n");
        assert!(well && text.contains(&line), "{nodes} nodes");
    }
    let (_, text) = render(&["--set", "scheduler.vendorResources={intel,xilinx}"]).await;
    for name in ["accelerated", "intel", "xilinx"] {
        let entry =
            format!("      - name: fpga-scheduling.io/{name}\n            ignoredByScheduler: false\n");
        assert!(text.contains(&entry), "{text}");
    }
}

#[tokio::test]
async fn pods_that_ask_for_a_board_get_our_scheduler_and_pods_that_would_pass_us_by_are_told_the_line() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    install(&plane, &[]).await;
    let created = async |pod: &Value| {
        let spec = try_pod(plane.client(), pod).await.unwrap().spec.unwrap();
        let tolerations = spec.tolerations.unwrap_or_default();
        let tolerates = tolerations
            .iter()
            .filter(|one| one.key.as_deref() == Some("fpga-scheduling.io/accelerated"))
            .count();
        (spec.scheduler_name.unwrap(), tolerates)
    };
    let with = |mut pod: Value, path: &str, value: Value| {
        *pod.pointer_mut(path).unwrap_or(&mut Value::Null) = value.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[key] = value;
        pod
    };
    let ours = ("kube-fpga".to_owned(), 1);
    assert_eq!(created(&pod(board())).await, ours);
    let mut sidecar = board();
    sidecar["name"] = json!("sidecar");
    sidecar["image"] = json!("none");
    let init = with(pod(json!({})), "/spec/initContainers", json!([sidecar.clone()]));
    sidecar["restartPolicy"] = json!("Always");
    let sidecar = with(pod(json!({})), "/spec/initContainers", json!([sidecar]));
    assert_eq!(created(&sidecar).await, ours);
    let tolerates = json!([{"key": "fpga-scheduling.io/accelerated", "operator": "Exists"}]);
    assert_eq!(created(&with(pod(board()), "/spec/tolerations", tolerates)).await, ours);
    let other = with(pod(board()), "/spec/schedulerName", json!("other"));
    assert_eq!(created(&other).await, ("other".to_owned(), 1));
    let ignored = with(pod(board()), "/metadata/labels", json!({"fpga-scheduling.io/admission": "ignore"}));
    assert_eq!(created(&ignored).await, ("default-scheduler".to_owned(), 0));
    assert_eq!(created(&pod(json!({}))).await, ("default-scheduler".to_owned(), 0));

    let line = "resources: {limits: {fpga-scheduling.io/accelerated: 1}}";
    let label = |key: &str| with(pod(json!({})), "/metadata/labels", json!({ key: "x" }));
    let host_path = |path: &str| {
        with(pod(json!({})), "/spec/volumes", json!([{"name": "v", "hostPath": {"path": path}}]))
    };
    let by_hand = pod(json!({"env": [{"name": "FPGA_DEVICE_MANAGERS", "value": "unix:/x"}]}));
    for (wrong, because, line) in [
        (label("fpga-scheduling.io/fpga-vendor"), "has the label fpga-scheduling.io/fpga-vendor", line),
        (label("fpga-scheduling.io/board"), "has the label fpga-scheduling.io/board", line),
        // No number, so that nothing is asked for.
        (label("fpga-scheduling.io/accelerated"), "has the label fpga-scheduling.io/accelerated", line),
        (init, "an init container can't have a board", "restartPolicy: Always"),
        (host_path("/run/fpga"), "folders of kube-fpga", line),
        (host_path("/var//run//fpga/claims"), "folders of kube-fpga", line),
        (host_path("/var/lib/kubelet/plugins/fpga-scheduling.io"), "folders of kube-fpga", line),
        (by_hand.clone(), "FPGA_DEVICE_MANAGERS can't be set by hand", line),
    ] {
        let error = try_pod(plane.client(), &wrong).await.expect_err(because).to_string();
        assert!(error.contains(because) && error.contains(line), "{wrong}: {error}");
    }
    created(&host_path("/run/fpga-of-others")).await;
    created(&with(by_hand, "/metadata/labels", json!({"fpga-scheduling.io/admission": "ignore"}))).await;
    plane.stop().await;
}

/// A client with the token of a node plugin's pod on this node.
async fn plugin_on(plane: &ControlPlane, node: &str) -> Client {
    let name = format!("plugin-on-{node}");
    manifests::create_pod_in(plane.client(), NAMESPACE, &name, "fpga-node-plugin", Some(node)).await.unwrap();
    let token =
        manifests::token_in(plane.client(), NAMESPACE, "fpga-node-plugin", Some(&name)).await.unwrap();
    manifests::client(plane, &token).await.unwrap()
}

#[tokio::test]
async fn a_node_plugin_writes_the_boards_of_pods_on_its_own_node_and_nothing_else() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    install(&plane, &[]).await;
    let pods: Api<Pod> = Api::namespaced(plane.client().clone(), "default");
    for (name, node) in [("mine", Some("n1")), ("theirs", Some("n2")), ("nobodys", None)] {
        let mut pod = pod(board());
        pod["metadata"] = json!({"name": name, "annotations": {"other": "x"}, "labels": {"app": "a"}});
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    let plugin: Api<Pod> = Api::namespaced(plugin_on(&plane, "n1").await, "default");
    let patch = async |name: &str, patch: Value| {
        plugin.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
    };
    let annotate = |key: &str, value: Value| json!({"metadata": {"annotations": { key: value }}});
    for boards in [json!("pocl-0"), json!("pocl-0,pocl-1"), Value::Null] {
        let pod = patch("mine", annotate(BOARDS, boards.clone())).await.unwrap();
        let annotations = pod.metadata.annotations.unwrap();
        assert_eq!(annotations.get(BOARDS).map(String::as_str), boards.as_str());
        assert_eq!(annotations["other"], "x");
    }
    let told = patch("mine", annotate(BOARDS_REASON, json!("main: pocl-0 (0 % used, 0 containers)"))).await;
    assert!(told.unwrap().metadata.annotations.unwrap().contains_key(BOARDS_REASON));
    for (name, wrong, because) in [
        ("theirs", annotate(BOARDS, json!("pocl-0")), "only pods of the node that it runs on"),
        ("nobodys", annotate(BOARDS, json!("pocl-0")), "only pods of the node that it runs on"),
        ("mine", annotate("other", json!("y")), "no annotation but"),
        ("mine", annotate("other", Value::Null), "no annotation but"),
        ("mine", annotate("more", json!("y")), "no annotation but"),
        ("mine", json!({"metadata": {"labels": {"app": "b"}}}), "neither labels nor"),
        ("mine", json!({"metadata": {"finalizers": ["a.example/b"]}}), "neither labels nor"),
        (
            "mine",
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}}),
            "neither labels nor",
        ),
        ("mine", json!({"spec": {"activeDeadlineSeconds": 1}}), "neither labels nor"),
    ] {
        let error = patch(name, wrong.clone()).await.expect_err(because).to_string();
        assert!(error.contains(because), "{wrong} on {name}: {error}");
    }
    let mut image = json!({"spec": {"containers": [{"name": "main", "image": "evil"}]}});
    let error = plugin.patch("mine", &PatchParams::default(), &Patch::Strategic(&image)).await.unwrap_err();
    assert!(error.to_string().contains("neither labels nor"), "{error}");
    image["metadata"] = json!({"annotations": {BOARDS: "pocl-0"}});
    plugin.patch("mine", &PatchParams::default(), &Patch::Strategic(&image)).await.unwrap_err();
    // The role by another name, and in one namespace only.
    let binding = ["create", "rolebinding", "other", "--serviceaccount=default:default"];
    let role = format!("--clusterrole={RELEASE}:node-plugin");
    kubectl(&plane, &[&binding[..], &[role.as_str(), "--namespace=default"]].concat()).await.unwrap();
    let user = "--as=system:serviceaccount:default:default";
    let label = ["label", "pod", "theirs", "any=label", "--dry-run=server", user];
    wait::until("the binding to hold", LONG, async || {
        let refused = kubectl(&plane, &label).await.expect_err("it is on no node").to_string();
        Ok(refused.contains("only pods of the node that it runs on").then_some(()))
    })
    .await
    .unwrap();

    let forbidden = |result: kube::Result<()>| {
        let error = result.expect_err("it has no right to").to_string();
        assert!(error.contains("forbidden"), "{error}");
    };
    forbidden(plugin.list(&Default::default()).await.map(drop));
    forbidden(plugin.delete("mine", &Default::default()).await.map(drop));
    let new = serde_json::from_value(pod(json!({}))).unwrap();
    forbidden(plugin.create(&PostParams::default(), &new).await.map(drop));
    let status = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    forbidden(plugin.patch_status("mine", &PatchParams::default(), &status).await.map(drop));
    plane.stop().await;
}

/// All objects of the API server, but for those that come and go by themselves.
async fn objects(plane: &ControlPlane) -> BTreeSet<String> {
    let kinds = kubectl(plane, &["api-resources", "--verbs=list", "-o", "name"]).await.unwrap();
    let passing = ["events", "leases", "endpoints", "endpointslices", "componentstatuses"];
    let kinds = kinds.lines().filter(|kind| !passing.contains(&kind.split('.').next().unwrap()));
    let kinds = kinds.collect::<Vec<_>>().join(",");
    let of_all = ["get", &kinds, "--all-namespaces", "--ignore-not-found", "--no-headers"];
    let columns = "-o=custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name";
    let text = kubectl(plane, &[&of_all[..], &[columns]].concat()).await.unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("Warning"));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test]
async fn an_upgrade_keeps_the_certificate_and_an_uninstalled_chart_leaves_nothing_in_the_api() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    kubectl(&plane, &["create", "namespace", NAMESPACE]).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let account = async || Ok(accounts.get_opt("default").await?.map(drop));
    wait::until("the namespace's service account", LONG, account).await.unwrap();
    let before = objects(&plane).await;
    let settings = "monitoring.annotations=true,resourceQuota.create=true,uninstall.guard=false,\
                    customResources.keep=false,router.enabled=true,registry.enabled=true,registry.moves.mode=evict,\
                    pool.enabled=true";
    install(&plane, &["--set", settings]).await;
    assert!(objects(&plane).await.len() > before.len() + 20);

    let secrets: Api<Secret> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let key = async || secrets.get("fpga-stream-tls").await.unwrap().data.unwrap().remove("tls.key").unwrap();
    let at_first = key().await;
    let ticket_key =
        async || secrets.get_opt("fpga-pool-ticket-key").await.unwrap().map(|secret| secret.data);
    let tickets_at_first = ticket_key().await;
    assert!(tickets_at_first.is_some());
    let upgrade = async |settings: &[&str]| {
        let chart = ["upgrade", RELEASE, "manifests/chart", "--namespace", NAMESPACE, "--reuse-values"];
        let (well, text) = helm(Some(&plane), &[&chart[..], settings].concat()).await;
        assert!(well, "{text}");
    };
    upgrade(&["--set", "collector.labelNode=true,nodes.label=boards"]).await;
    assert_eq!(key().await, at_first, "an upgrade keeps the certificate");
    assert_eq!(ticket_key().await, tickets_at_first, "an upgrade keeps the first arrivals of jobs");
    // The pool is switched off and on again.
    upgrade(&["--set", "pool.enabled=false"]).await;
    assert_eq!(ticket_key().await, None);
    let managers = ["get", "daemonset/fpga-device-manager-pocl", "-n", NAMESPACE, "-o", "yaml"];
    assert!(!kubectl(&plane, &managers).await.unwrap().contains("--pool-slots"));
    upgrade(&["--set", "pool.enabled=true"]).await;
    assert!(kubectl(&plane, &managers).await.unwrap().contains("--pool-slots=1"));
    upgrade(&["--set", "certificates.renew=true"]).await;
    assert_ne!(key().await, at_first);
    let (well, text) = helm(Some(&plane), &["rollback", RELEASE, "1", "--namespace", NAMESPACE]).await;
    assert!(well, "{text}");
    assert_eq!(key().await, at_first);
    let template = ["get", "daemonset/fpga-collector", "-n", NAMESPACE, "-o", "yaml"];
    let collector = kubectl(&plane, &template).await.unwrap();
    assert!(
        !collector.contains("FPGA_LABEL_NODE") && collector.contains("prometheus.io/scrape"),
        "{collector}"
    );

    let (well, text) = helm(Some(&plane), &["uninstall", RELEASE, "--namespace", NAMESPACE, "--wait"]).await;
    assert!(well, "{text}");
    // Controllers remove what belongs to a Deployment or a DaemonSet.
    wait::until("the API to be as before", LONG, async || {
        let now = objects(&plane).await;
        let left: Vec<_> = now.symmetric_difference(&before).collect();
        anyhow::ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    plane.stop().await;
}

/// Runs the container of the hook's pod as a kubelet would, and reports its end.
async fn run_guard(plane: &ControlPlane) {
    let pods: Api<Pod> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let of_guard = ListParams::default().labels("app.kubernetes.io/name=fpga-uninstall-guard");
    let pod = wait::until("the pod of the hook", LONG, async || {
        let pods = pods.list(&of_guard).await?.items;
        Ok(pods
            .into_iter()
            .find(|pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Pending")))
    })
    .await
    .unwrap();
    let (name, spec) = (pod.name_any(), pod.spec.unwrap());
    let account = spec.service_account_name.unwrap();
    let token = manifests::token_in(plane.client(), NAMESPACE, &account, Some(&name)).await.unwrap();
    let kubeconfig = plane.run_dir().path().join("guard");
    let text = serde_json::to_string(&manifests::kubeconfig(plane, &token).unwrap()).unwrap();
    std::fs::write(&kubeconfig, text).unwrap();
    let output = tokio::process::Command::new(built("fpga-scheduler-extender").unwrap())
        .args(spec.containers[0].args.iter().flatten())
        .env("FPGA_KUBECONFIG", kubeconfig)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let held = "1 pods hold boards: default/holder on n1. Delete them first";
    assert_eq!(!output.status.success(), said.contains(held), "{said}");
    let phase = if output.status.success() { "Succeeded" } else { "Failed" };
    let status = Patch::Merge(json!({"status": {"phase": phase}}));
    pods.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test]
async fn helm_does_not_uninstall_while_a_pod_holds_a_board() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    install(&plane, &[]).await;
    let pods: Api<Pod> = Api::namespaced(plane.client().clone(), "default");
    let mut holder = pod(board());
    holder["metadata"]["name"] = json!("holder");
    holder["spec"]["nodeName"] = json!("n1");
    pods.create(&PostParams::default(), &serde_json::from_value(holder).unwrap()).await.unwrap();
    let uninstall = ["uninstall", RELEASE, "--namespace", NAMESPACE];
    let ((well, text), ()) = tokio::join!(helm(Some(&plane), &uninstall), run_guard(&plane));
    assert!(!well, "{text}");
    kubectl(&plane, &["get", "daemonset/fpga-node-plugin", "-n", NAMESPACE]).await.unwrap();

    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("holder", &at_once).await.unwrap();
    let ((well, text), ()) = tokio::join!(helm(Some(&plane), &uninstall), run_guard(&plane));
    assert!(well, "{text}");
    let left = kubectl(&plane, &["get", "daemonset", "-n", NAMESPACE]).await.unwrap();
    assert!(left.contains("No resources found"), "{left}");

    // The definition of Bitstreams stays, and with it all of them; a release of the same name takes it over again.
    let left = kubectl(&plane, &["get", "bitstreams"]).await.unwrap();
    assert!(left.contains("No resources found"), "{left}");
    let again = ["install", RELEASE, "manifests/chart", "--namespace", NAMESPACE];
    let (well, text) = helm(Some(&plane), &again).await;
    assert!(well, "{text}");
    plane.stop().await;
}

#[tokio::test]
async fn functions_of_openfaas_and_knative_get_a_board_as_their_controllers_deploy_them() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    install(&plane, &[]).await;
    for (file, namespace, container) in
        [("openfaas", "openfaas-fn", "sobel"), ("knative", "fpga-functions", "user-container")]
    {
        kubectl(&plane, &["create", "namespace", namespace]).await.unwrap();
        let deployment = repository().join(format!("tests/platforms/{file}.yaml"));
        let deployment = deployment.to_str().unwrap();
        let apply = ["apply", "--server-side", "--validate=strict", "-n", namespace, "-f", deployment];
        kubectl(&plane, &apply).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(plane.client().clone(), namespace);
        let pod = wait::until("the function's pod", LONG, async || {
            Ok(pods.list(&ListParams::default()).await?.items.pop())
        });
        let spec = pod.await.unwrap().spec.unwrap();
        assert_eq!(spec.scheduler_name.as_deref(), Some("kube-fpga"), "{file}");
        let asking = spec.containers.iter().find(|one| one.name == container).unwrap();
        let resources = asking.resources.clone().unwrap();
        for quantities in [resources.limits, resources.requests] {
            assert_eq!(quantities.unwrap()["fpga-scheduling.io/accelerated"].0, "1", "{file}");
        }
    }
    let service = repository().join("manifests/examples/openfaas/service.yaml");
    kubectl(&plane, &["apply", "--validate=strict", "-f", service.to_str().unwrap()]).await.unwrap();
    plane.stop().await;
}
