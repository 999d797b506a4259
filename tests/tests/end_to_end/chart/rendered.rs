//! What the chart renders: the committed manifests, values that are refused by their names, and the effect of each value.

use super::{RELEASE, helm, render};
use fpga_tests::testbed::programs::repository;
use std::collections::BTreeSet;

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

/// Fails with Helm's text unless it refuses the settings and names each of these.
async fn refused(settings: &[&str], named: &[&str]) {
    let (well, text) = render(&with(settings)).await;
    assert!(!well, "{settings:?}: {text}");
    let missing: Vec<_> = named.iter().filter(|name| !text.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?} are not in {text}");
}

/// The arguments for settings.
fn with<'s>(settings: &[&'s str]) -> Vec<&'s str> {
    settings.iter().flat_map(|setting| ["--set", setting]).collect()
}

#[tokio::test]
async fn a_wrong_value_is_refused_by_its_name() {
    let (settings, named): (Vec<_>, Vec<_>) = [
        ("scheduler.mode=both", "/scheduler/mode"),
        ("scheduler.imagePullSecrets[0]=mine", "/scheduler/imagePullSecrets/0"),
        ("pool.affinity=x", "/pool/affinity"),
        ("images.architecture=x86", "/images/architecture"),
        ("scheduler.replica=3", "'replica' not allowed"),
        ("scheduler.version=1.36", "/scheduler/version"),
        ("certificates.renew=true", "'renew' not allowed"),
        ("scheduler.name=default-scheduler", "/scheduler/name"),
        ("images.pullPolicy=always", "/images/pullPolicy"),
        ("images.digests.fpga-pool=sha256:0", "/images/digests/fpga-pool"),
        ("customResources.libraryNamespace=My_Library", "/customResources/libraryNamespace"),
        (
            "customResources.ownBitstreams.bytesPerNamespace=4Gi",
            "/customResources/ownBitstreams/bytesPerNamespace",
        ),
        ("nodePlugin.instancesPerBoard=0", "/nodePlugin/instancesPerBoard"),
        ("nodePlugin.kubeletDir=kubelet", "/nodePlugin/kubeletDir"),
        ("nodePlugin.library.storeSize=10GB", "/nodePlugin/library/storeSize"),
        ("nodePlugin.library.hosts={ftp://x}", "/nodePlugin/library/hosts/0"),
        ("collector.nodeSelector.ssd=true", "/collector/nodeSelector/ssd"),
        ("boardKinds[0].drainSeconds=30s", "/boardKinds/0/drainSeconds"),
        ("boardKinds[1].name=a10", "missing properties 'image', 'runtime', 'nodeSelector'"),
        ("collector.resources.limits.memory=much", "/collector/resources/limits/memory"),
        ("nodes.tolerations[0].effect=Never", "/nodes/tolerations/0/effect"),
        ("router.functionNamespace=Team", "/router/functionNamespace"),
        ("router.service.type=ExternalName", "/router/service/type"),
        ("router.envoy.memoryMiB=1Gi", "/router/envoy/memoryMiB"),
        ("registry.moves.mode=on", "/registry/moves/mode"),
        ("registry.moves.newBeforeOld=yes", "/registry/moves/newBeforeOld"),
        ("registry.moves.boardGrace=60", "/registry/moves/boardGrace"),
        ("registry.moves.interval=30", "/registry/moves/interval"),
        ("pool.jobPolicy=lifo", "/pool/jobPolicy"),
        ("pool.localityWait=10", "/pool/localityWait"),
        ("pool.margin=1", "/pool/margin"),
        ("pool.slots=-1", "/pool/slots"),
        ("pool.tenants.default.weight=0", "/pool/tenants/default/weight"),
        ("pool.tenants.namespaces.team-a.slots=1", "/pool/tenants/namespaces/team-a"),
        ("pool.clientNamespaces[0]=Team", "/pool/clientNamespaces/0"),
        ("traces.endpoint=https://otel.example:4318", "/traces/endpoint"),
    ]
    .into_iter()
    .unzip();
    refused(&settings, &named).await;
    refused(&["traces.endpoint=http://otel.example"], &["/traces/endpoint"]).await;
    refused(&["scheduler.mode=cluster"], &["set certificates.mode to script"]).await;
    refused(&["scheduler.version="], &["Helm asks no cluster here", "--set scheduler.version=v1.36.3"]).await;
    refused(&["customResources.ownBitstreams.enabled=true"], &["set registry.enabled to true"]).await;
    let digest =
        "images.digests.fpga-pol=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    refused(&[digest], &["images.digests.fpga-pol is of no image of the chart", "fpga-pool"]).await;
}

/// The settings of one rendering, and the lines that it has because of them.
type Effects = &'static [(&'static str, &'static str)];

/// A kind of boards.
const BOARD: &str = "boardKinds[0].name=a10,boardKinds[0].image=mine,boardKinds[0].runtime=intel-fpga,\
                     boardKinds[0].nodeSelector.board=a10";

/// Everything at once, as far as the settings allow.
const EVERYTHING: Effects = &[
    (BOARD, "- --kind=a10"),
    ("certificates.mode=cert-manager", "kind: Certificate"),
    ("monitoring.podMonitors=true", "kind: PodMonitor"),
    ("monitoring.dashboards=true", "grafana_dashboard: \"1\""),
    ("monitoring.alerts=true", "- alert: FpgaSchedulerHasNoLeader"),
    ("scheduler.qps=70", "burst: 140"),
    ("customResources.libraryNamespace=bitstreams", "value: bitstreams"),
    ("resourceQuota.create=true", "kind: ResourceQuota"),
    ("images.registry=registry.example/team", "image: registry.example/team/kube-fpga/fpga-collector:v1"),
    ("images.tag=v1", "image: registry.example/team/kube-fpga/mine:v1"),
    ("images.pullSecrets[0]=mine", "- name: mine"),
    ("nodes.tolerations[0].key=gpu,nodes.tolerations[0].operator=Exists", "- key: gpu"),
    ("extender.config=antiHerd: off", "antiHerd: off"),
    ("nodePlugin.library.hosts={*.cdn.example}", "- --bitstream-hosts=*.cdn.example"),
    (
        "nodePlugin.kubeletDir=/var/lib/k0s/kubelet",
        "- --pod-resources=/var/lib/k0s/kubelet/pod-resources/kubelet.sock",
    ),
    ("boardKinds[0].devices[0]=/dev/intel-fpga-fme.0", "privileged: true"),
    ("boardKinds[0].arguments[0]=--slots=1", "- \"--slots=1\""),
    ("boardKinds[0].resources.limits.memory=8Gi", "memory: 8Gi"),
    ("boardKinds[0].drainSeconds=300", "terminationGracePeriodSeconds: 320"),
    ("boardKinds[0].poolSlots=2", "- --pool-slots=2"),
    ("router.enabled=true", "image: registry.example/team/kube-fpga/fpga-endpoint-picker:v1"),
    ("router.envoy.image=mine/envoy@sha256:0", "image: mine/envoy@sha256:0"),
    ("router.envoy.memoryMiB=1000", "max_heap_size_bytes: 838860800"),
    ("router.drainSeconds=310", "terminationGracePeriodSeconds: 325"),
    ("router.service.type=LoadBalancer", "type: LoadBalancer"),
    ("router.tlsSecret=own-tls", "secretName: own-tls"),
    ("router.allowFrom[0].podSelector.matchLabels.app=x", "app: x"),
    ("registry.enabled=true", "image: registry.example/team/kube-fpga/fpga-registry:v1"),
    ("registry.moves.interval=7s", "value: \"7s\""),
    // With drainSeconds.
    ("registry.moves.boardGrace=50s", "value: \"50s300s\""),
    ("registry.moves.mode=evict", "resources: [pods/eviction]"),
    ("registry.moves.newBeforeOld=true", "resources: [deployments/scale]"),
    ("customResources.ownBitstreams.enabled=true", "value: \"16,4GiB\""),
    ("customResources.ownBitstreams.enabled=true", "rbac.authorization.k8s.io/aggregate-to-edit: \"true\""),
    ("pool.enabled=true", "image: registry.example/team/kube-fpga/fpga-pool:v1"),
    ("pool.goalPolicy=edf", "- --goal-policy=edf"),
    ("pool.floor=none", "- --floor=none"),
    ("pool.margin=0", "- --margin=0"),
    ("pool.remoteJobs=3", "- --remote-jobs=3"),
    ("pool.tenants.default.heldSlots=8", "held-slots = 8"),
    ("pool.tenants.namespaces.team-a.waitingBytes=1000000000000", "waiting-bytes = 1000000000000"),
    ("pool.clientNamespaces[0]=team-a", "namespace: team-a"),
    ("pool.clientNamespaces[0]=team-a", "- --client-namespaces=team-a"),
    ("readers.access=anyone", "value: anyone"),
    ("router.externalMetrics.enabled=true", "audience: fpga-endpoint-picker-read"),
    ("router.externalMetrics.takeOver=true", "name: v1beta1.external.metrics.k8s.io"),
    ("pool.enabled=true", "- alert: FpgaPoolGoalWillBeMissed"),
    ("pool.managerPorts.last=9490", "- --pool-listen=$(POD_IP):9482-9490"),
    ("traces.endpoint=http://otel:4318", "- --otlp-endpoint=http://otel:4318"),
    ("router.enabled=true", "value: \"http://otel:4318\""),
    ("pool.enabled=true", "cidr: 169.254.20.10/32"),
    ("pool.enabled=true", "- port: 8053"),
    ("networkPolicies.dnsTo[0].ipBlock.cidr=10.96.0.10/32", "cidr: 10.96.0.10/32"),
    ("traces.allowTo[0].ipBlock.cidr=10.1.0.0/16", "cidr: 10.1.0.0/16"),
];

/// Other values of the same settings.
const OTHERWISE: Effects = &[
    (BOARD, "- --kind=a10"),
    ("scheduler.image=mine/kube-scheduler@sha256:0", "image: mine/kube-scheduler@sha256:0"),
    (
        "images.digests.fpga-pool=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "image: kube-fpga/fpga-pool@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ),
    (
        "images.digests.mine=sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        "image: kube-fpga/mine@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    ),
    ("boardKinds[0].drainSeconds=0", "- --drain-timeout=0s"),
    ("pool.enabled=true,pool.slots=3", "- --pool-slots=3"),
    (
        "router.enabled=true,router.replicas=1",
        "- endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 9470 } } }",
    ),
    ("router.envoy.ipv6=false", "address: { socket_address: { address: 0.0.0.0, port_value: 8080 } }"),
    ("registry.enabled=true,registry.moves.mode=off", "value: \"off\""),
    ("traces.endpoint=http://[fd00::1]:14318/in", "- port: 14318"),
];

/// Parts of the chart without further values.
const BY_DEFAULT: Effects = &[
    (BOARD, "- --gate-socket=/run/fpga/gate/gate.sock"),
    ("pool.enabled=true", "- --pool-slots=1"),
    (
        "router.enabled=true",
        "- endpoint: { address: { socket_address: { address: fpga-endpoint-picker.hardware.svc, port_value: 9470 } } }",
    ),
];

#[tokio::test]
async fn each_value_has_its_effect_on_what_is_rendered() {
    let (well, plain) = render(&[]).await;
    assert!(well, "{plain}");
    let has = |text: &str, line: &str| text.lines().any(|found| found.trim() == line);
    for effects in [EVERYTHING, OTHERWISE, BY_DEFAULT] {
        let settings: Vec<&str> = effects.iter().map(|(setting, _)| *setting).collect();
        let (well, text) = render(&with(&settings)).await;
        assert!(well, "{text}");
        for (setting, line) in effects {
            assert!(!has(&plain, line), "without {setting}: {line}");
            assert!(has(&text, line), "with {setting}: no {line} in {text}");
        }
    }
}

#[tokio::test]
async fn two_renderings_without_a_cluster_are_equal_and_have_neither_keys_nor_certificates() {
    let everything = [
        "router.enabled=true,router.externalMetrics.enabled=true,router.externalMetrics.takeOver=true,pool.enabled=true,pool.clientNamespaces={a}",
    ];
    let settings = with(&everything);
    let ((well, text), (_, again)) = tokio::join!(render(&settings), render(&settings));
    assert!(well && text == again, "{text}");
    assert!(
        !text.contains("tls.key: ") && !text.contains("caBundle: ") && !text.contains("  ca.crt: "),
        "{text}"
    );
    // Each service has a key of its own, and no service can show its callers' tokens to another one.
    for secret in
        ["fpga-extender-stream-tls", "fpga-router-stream-tls", "fpga-pool-tls", "fpga-external-metrics-tls"]
    {
        assert_eq!(
            text.matches(&format!("kind: Secret\nmetadata:\n  name: {secret}\n")).count(),
            1,
            "{secret}"
        );
    }
    let audiences = text.lines().filter_map(|line| line.trim().strip_prefix("audience: "));
    let audiences: BTreeSet<&str> = audiences.collect();
    let expected = ["fpga-endpoint-picker", "fpga-endpoint-picker-read", "fpga-scheduler-extender"];
    assert_eq!(audiences, BTreeSet::from(expected));
    // Without a tag our images are those of the chart's version, which is that of the programs.
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.contains(&format!("image: kube-fpga/fpga-pool:{version}\n")), "{text}");
}

#[tokio::test]
async fn an_upgrade_brings_new_images_where_digests_are_set_only_by_the_new_file_of_digests() {
    let folder = tempfile::tempdir().unwrap();
    let image = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let [old, new] = ["1", "2"].map(|digit| {
        let file = folder.path().join(format!("digests-{digit}.yaml"));
        std::fs::write(&file, format!("images: {{digests: {{fpga-collector: {}}}}}\n", image(digit)))
            .unwrap();
        file.to_str().unwrap().to_owned()
    });
    let (_, text) = render(&["--values", &old, "--set", "images.tag=9.9.9"]).await;
    assert!(text.contains(&format!("image: kube-fpga/fpga-collector@{}\n", image("1"))), "{text}");
    assert!(text.contains("image: kube-fpga/fpga-node-plugin:9.9.9\n"), "{text}");
    let (_, text) = render(&["--values", &old, "--values", &new]).await;
    assert!(text.contains(&format!("image: kube-fpga/fpga-collector@{}\n", image("2"))), "{text}");
    assert!(!text.contains(&image("1")), "{text}");
}

#[tokio::test]
async fn each_part_of_the_chart_can_be_left_out() {
    let (_, text) = render(&[]).await;
    assert!(
        text.contains("helm.sh/resource-policy: keep") && text.contains("kind: CustomResourceDefinition")
    );
    let (_, text) = render(&with(&[BOARD, "nodePlugin.gate.enabled=false,customResources.keep=false"])).await;
    assert!(!text.contains("helm.sh/resource-policy: keep"));
    assert!(text.contains("fpga-device-manager-a10") && !text.contains("--gate-socket"));
    let nothing = "networkPolicies.create=false,podAdmission.assign=false,podAdmission.validate=false,\
                   customResources.install=false";
    let (_, text) = render(&with(&[nothing])).await;
    assert!(!text.contains("kind: CustomResourceDefinition"));
    assert!(!text.contains("kind: NetworkPolicy\n") && !text.contains("kind: MutatingAdmissionPolicy\n"));
    assert!(!text.contains(&format!("name: {RELEASE}-pods\n")));
}

/// Renders the chart as GitOps does, which only says the version of kube-scheduler.
async fn render_by_git(settings: &[&str]) -> (bool, String) {
    let chart = ["template", RELEASE, "manifests/chart", "--namespace", "hardware"];
    helm(None, &[&chart[..], &with(settings)].concat()).await
}

#[tokio::test]
async fn without_a_cluster_the_policies_are_those_of_the_version_that_is_written() {
    for mode in ["own", "cluster"] {
        for (version, assigns) in [("v1.34.2", false), ("v1.35.9-eks-1", false), ("v1.36.0", true)] {
            let certificates = if mode == "own" { "generate" } else { "script" };
            let settings =
                format!("scheduler.mode={mode},certificates.mode={certificates},scheduler.version={version}");
            let (well, text) = render_by_git(&[&settings]).await;
            assert!(well, "{text}");
            assert_eq!(text.contains("kind: MutatingAdmissionPolicy\n"), assigns, "{mode} {version}");
            assert_eq!(
                text.contains(&format!("name: {RELEASE}-deployments\n")),
                !assigns,
                "{mode} {version}"
            );
        }
    }
}

#[tokio::test]
async fn without_a_cluster_the_api_of_external_metrics_is_taken_only_where_somebody_says_so() {
    const ENABLED: [&str; 3] =
        ["scheduler.version=v1.36.3", "router.enabled=true", "router.externalMetrics.enabled=true"];
    let (well, text) = render_by_git(&ENABLED).await;
    assert!(!well && text.contains("router.externalMetrics.takeOver=true"), "{text}");
    let (well, text) =
        render_by_git(&[&ENABLED[..], &["router.externalMetrics.takeOver=true"]].concat()).await;
    assert!(well && text.contains("name: v1beta1.external.metrics.k8s.io\n"), "{text}");
}

#[tokio::test]
async fn kube_scheduler_has_the_clusters_version_and_judges_about_300_nodes_with_boards() {
    let (current, resources) = ("v1.36.3", "scheduler.vendorResources={intel,xilinx}");
    for (kubernetes, image, nodes, percentage) in [
        ("v1.34.2-gke.1043000", "v1.34.2", 0, 100),
        ("v1.33.5+k3s1", "v1.33.5", 300, 100),
        (current, current, 301, 100),
        (current, current, 1_000, 30),
        (current, current, 29_000, 2),
    ] {
        let own = format!("scheduler.nodes={nodes},scheduler.version={kubernetes}");
        let (well, text) = render(&["--kube-version", kubernetes, "--set", &own, "--set", resources]).await;
        assert!(well, "{text}");
        assert!(text.contains(&format!("registry.k8s.io/kube-scheduler:{image}\n")), "{kubernetes}: {text}");
        // MutatingAdmissionPolicy is there from 1.36 on.
        let is_there = text.contains("kind: MutatingAdmissionPolicy\n");
        assert_eq!(is_there, kubernetes == current, "{kubernetes}");
        let line = format!("    percentageOfNodesToScore: {percentage}\n");
        assert!(text.contains(&line), "{nodes} nodes");
        for name in ["accelerated", "intel", "xilinx"] {
            let entry =
                format!("      - name: fpga-scheduling.io/{name}\n            ignoredByScheduler: false\n");
            assert!(text.contains(&entry), "{text}");
        }
    }
}
