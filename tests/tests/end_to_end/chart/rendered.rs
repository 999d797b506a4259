//! What the chart renders: the committed manifests, values that are refused by their names, and the effect of each value.

use super::{RELEASE, render};
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
    let gate = "- --gate-socket=/run/fpga/gate/gate.sock";
    let (_, text) = render(&["--set", board]).await;
    assert!(text.contains(gate), "managers ask which bitstream a pod may have, unless told otherwise");
    let (_, text) = render(&["--set", &with_board("nodePlugin.gate.enabled=false")]).await;
    assert!(text.contains("fpga-device-manager-a10") && !text.contains(gate));
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
