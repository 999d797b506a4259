//! Rights on a real API server with RBAC: of our service accounts, and of users of the kubectl plugin.

use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::{self, NAMESPACE, apply, kubectl};
use fpga_tests::testbed::{helm, programs, wait};
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tempfile::TempDir;

/// The verbs of programs that know all objects of a kind.
const READ: [&str; 2] = ["list", "watch"];
/// The right to write events.
const EVENTS: [&str; 1] = ["create events.events.k8s.io"];
/// Rights of a node plugin whose gate is off.
const NODE_PLUGIN: [&str; 6] = [
    "get pods.",
    "patch pods.",
    "get namespaces.",
    "get bitstreams.fpga-scheduling.io",
    "list bitstreams.fpga-scheduling.io",
    "bind-to-node node-plugins.fpga-scheduling.io",
];
/// What the router reads.
const ROUTER_READS: [&str; 4] = ["services.", "pods.", "nodes.", "endpointslices.discovery.k8s.io"];
/// The rights to ask who a reader is, and what it may do.
const REVIEWS: [&str; 2] =
    ["create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"];
/// The right to make a Lease where that of the release is missing.
const NEW_LEASE: &str = "create leases.coordination.k8s.io";
/// What the registry reads.
const REGISTRY_READS: [&str; 4] = ["nodes.", "pods.", "namespaces.", "bitstreams.fpga-scheduling.io"];

type Rules = BTreeSet<String>;

/// The rights of the token's bearer in the namespace, as one line per verb and resource.
async fn rules(plane: &ControlPlane, token: &str, namespace: &str) -> Rules {
    let reviews: Api<SelfSubjectRulesReview> = Api::all(manifests::client(plane, token).await.unwrap());
    let review = serde_json::from_value(json!({"spec": {"namespace": namespace}})).unwrap();
    let answer = reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
    let mut rules = Rules::new();
    for rule in &answer.resource_rules {
        for verb in &rule.verbs {
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    let only = rule.resource_names.iter().flatten().cloned().collect::<Vec<_>>().join("|");
                    rules.insert(format!("{verb} {resource}.{group} {only}").trim().to_owned());
                }
            }
        }
    }
    rules
}

fn expected(rules: &[&str]) -> Rules {
    rules.iter().map(|rule| (*rule).to_owned()).collect()
}

/// Each of the verbs on each of the resources.
fn each(verbs: &[&str], resources: &[&str]) -> Rules {
    resources.iter().flat_map(|resource| verbs.iter().map(move |verb| format!("{verb} {resource}"))).collect()
}

/// Creates a service account without rights of its own, and returns its token.
async fn new_account(plane: &ControlPlane, namespace: &str, name: &str) -> String {
    kubectl(plane, &["-n", namespace, "create", "serviceaccount", name]).await.unwrap();
    manifests::token_in(plane.client(), namespace, name, None).await.unwrap()
}

#[tokio::test]
async fn each_service_account_may_do_what_it_must_and_nothing_else() {
    let plane = ControlPlane::shared().await.unwrap();
    apply(&plane, "router").await.unwrap();
    apply(&plane, "pool").await.unwrap();
    apply(&plane, "registry").await.unwrap();
    let nobody = new_account(&plane, NAMESPACE, "nobody").await;
    // The extender's pod contains kube-scheduler, so it needs the rights of every kube-scheduler.
    let scheduler = new_account(&plane, NAMESPACE, "scheduler").await;
    for role in ["kube-scheduler", "volume-scheduler"] {
        let (binding, role) = (format!("as-{role}"), format!("--clusterrole=system:{role}"));
        let account = format!("--serviceaccount={NAMESPACE}:scheduler");
        kubectl(&plane, &["create", "clusterrolebinding", &binding, &role, &account]).await.unwrap();
    }
    // The last right binds its bearer to the policy for the own node.
    let collector = expected(&[
        "get nodes.",
        "list nodes.",
        "watch nodes.",
        "patch nodes.",
        "bind-to-node collectors.fpga-scheduling.io",
    ]);
    // The events tell why its gate refuses a pod a bitstream.
    let plugin = expected(&[&NODE_PLUGIN[..], &EVENTS].concat());
    let extender = &each(&READ, &["nodes.", "pods.", "namespaces.", "bitstreams.fpga-scheduling.io"])
        | &expected(&[
            "get nodes.",
            "patch nodes.",
            // This right binds its bearer to the policy for one annotation.
            "bind-to-node scheduler-extenders.fpga-scheduling.io",
            "create tokenreviews.authentication.k8s.io",
            "create subjectaccessreviews.authorization.k8s.io",
        ]);
    let own = &each(&["get", "update"], &["leases.coordination.k8s.io kube-fpga-scheduler"])
        | &expected(&["create events.events.k8s.io", NEW_LEASE]);
    let extender_at_home = &extender | &own;
    let router = &each(&READ, &ROUTER_READS) | &expected(&REVIEWS);
    // What it needs to evict is in the manifests that were applied last.
    let registry = &(&each(&READ, &REGISTRY_READS) | &expected(&EVENTS))
        | &expected(&[
            "patch bitstreams/status.fpga-scheduling.io",
            "get nodes.",
            "get pods.",
            "get deployments.apps",
            "get replicasets.apps",
            "list poddisruptionbudgets.policy",
            "create pods/eviction.",
            "patch nodes.",
            "bind-to-node registries.fpga-scheduling.io",
        ]);
    let own = ["leases.coordination.k8s.io fpga-registry", "configmaps. fpga-registry-moves"];
    let registry_at_home = &(&registry | &each(&["get", "update"], &own)) | &expected(&[NEW_LEASE]);
    let pool = &each(&["list", "watch"], &["namespaces.", "bitstreams.fpga-scheduling.io"])
        | &expected(&["create tokenreviews.authentication.k8s.io"]);
    let of_pool = each(&["get", "update"], &["leases.coordination.k8s.io fpga-pool"]);
    let pool_at_home = &(&pool | &of_pool) | &expected(&[NEW_LEASE]);
    let (none, reader) = (Rules::new(), expected(&["get pods."]));
    let guard = expected(&["list pods."]);
    let accounts = [
        ("fpga-collector", &collector, &collector),
        ("fpga-node-plugin", &plugin, &plugin),
        ("fpga-scheduler-extender", &extender, &extender_at_home),
        ("fpga-router", &router, &router),
        ("fpga-reader", &reader, &reader),
        ("fpga-registry", &registry, &registry_at_home),
        ("fpga-pool", &pool, &pool_at_home),
        ("fpga-device-manager", &none, &none),
        ("fpga-pool-operator", &none, &none),
        ("fpga-uninstall-guard", &guard, &guard),
    ];
    let mut others = accounts_of_the_chart(&plane).await;
    // A test of its own looks at the Job that makes certificates.
    others.remove("fpga-certificates");
    others.retain(|account| accounts.iter().all(|(known, ..)| known != account));
    assert!(others.is_empty(), "service accounts whose rights are not looked at: {others:?}");
    for (account, everywhere, at_home) in accounts {
        let token = manifests::token(plane.client(), account, None).await.unwrap();
        for (namespace, may) in [("default", everywhere), ("kube-system", everywhere), (NAMESPACE, at_home)] {
            let all = rules(&plane, &token, namespace).await;
            // Without the rights of every account, for example to ask for its own rights.
            let of_everybody = rules(&plane, &nobody, namespace).await;
            let own: Rules = all.difference(&of_everybody).cloned().collect();
            let mut due = may.clone();
            if account == "fpga-scheduler-extender" {
                let of_schedulers = rules(&plane, &scheduler, namespace).await;
                due.extend(of_schedulers.difference(&of_everybody).cloned());
            }
            assert_eq!(own, due, "{account} in {namespace}");
            assert!(!all.iter().any(|rule| rule.contains('*')), "{account}: {all:?}");
        }
    }
    plane.stop().await;
}

/// The service accounts that the chart makes.
async fn accounts_of_the_chart(plane: &ControlPlane) -> BTreeSet<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let of_chart = ListParams::default().labels("app.kubernetes.io/part-of=kube-fpga");
    let accounts = accounts.list(&of_chart).await.unwrap();
    accounts.items.iter().map(ResourceExt::name_any).collect()
}

/// The rights of an account of the chart's, without those of every account.
async fn own_rules(plane: &ControlPlane, home: &str, account: &str, nobody: &str, namespace: &str) -> Rules {
    let token = manifests::token_in(plane.client(), home, account, None).await.unwrap();
    let of_everybody = rules(plane, nobody, namespace).await;
    rules(plane, &token, namespace).await.difference(&of_everybody).cloned().collect()
}

#[tokio::test]
async fn settings_that_need_further_rights_grant_these_and_nothing_else() {
    let plane = ControlPlane::shared().await.unwrap();
    // A release of its own: its roles change.
    let home = plane.new_namespace("rights").await.unwrap();
    let nobody = new_account(&plane, &home, "nobody").await;
    let off = &each(&READ, &REGISTRY_READS) | &expected(&["patch bitstreams/status.fpga-scheduling.io"]);
    let looks =
        ["get pods.", "get deployments.apps", "get replicasets.apps", "list poddisruptionbudgets.policy"];
    let suggest = &off | &expected(&[&looks[..], &EVENTS].concat());
    let evicts =
        ["get nodes.", "create pods/eviction.", "patch nodes.", "bind-to-node registries.fpga-scheduling.io"];
    let evict = &suggest | &expected(&evicts);
    let autoscalers = expected(&["list horizontalpodautoscalers.autoscaling"]);
    let scale = expected(&["patch deployments/scale.apps", "patch pods."]);
    let plugin = expected(&NODE_PLUGIN);
    let routes = &each(&READ, &ROUTER_READS) | &expected(&REVIEWS);
    let (registry, node_plugin) = ("templates/registry/rbac.yaml", "templates/node-plugin/rbac.yaml");
    let router = "templates/router/rbac.yaml";
    for (template, account, settings, due) in [
        (registry, "fpga-registry", "registry.moves.mode=off", off.clone()),
        (registry, "fpga-registry", "registry.moves.mode=off,registry.moves.newBeforeOld=true", off),
        (registry, "fpga-registry", "registry.moves.mode=suggest", suggest.clone()),
        (
            registry,
            "fpga-registry",
            "registry.moves.mode=suggest,registry.moves.newBeforeOld=true",
            &suggest | &autoscalers,
        ),
        (
            registry,
            "fpga-registry",
            "registry.moves.mode=evict,registry.moves.newBeforeOld=true",
            &(&evict | &autoscalers) | &scale,
        ),
        (registry, "fpga-registry", "registry.moves.mode=evict", evict),
        (router, "fpga-router", "router.externalMetrics.enabled=false", routes.clone()),
        (router, "fpga-router", "router.externalMetrics.enabled=true", &routes | &expected(&["get pods."])),
        (node_plugin, "fpga-node-plugin", "nodePlugin.gate.enabled=true", &plugin | &expected(&EVENTS)),
        (node_plugin, "fpga-node-plugin", "nodePlugin.gate.enabled=false", plugin),
    ] {
        let rendered =
            helm::template_of(&home, template, &["registry.enabled=true", "router.enabled=true", settings])
                .unwrap();
        let file = plane.run_dir().path().join("rights.yaml");
        std::fs::write(&file, rendered).unwrap();
        let file = file.to_str().unwrap();
        kubectl(&plane, &["apply", "--server-side", "--force-conflicts", "-f", file]).await.unwrap();
        wait::until(&format!("the rights of {settings}"), async || {
            let own = own_rules(&plane, &home, account, &nobody, "default").await;
            let (more, missing): (Vec<_>, Vec<_>) =
                (own.difference(&due).collect(), due.difference(&own).collect());
            anyhow::ensure!(more.is_empty() && missing.is_empty(), "more: {more:?}, missing: {missing:?}");
            Ok(Some(()))
        })
        .await
        .unwrap();
        // At home it has its Lease and its ConfigMap besides.
        let at_home = own_rules(&plane, &home, account, &nobody, &home).await;
        let at_home: Vec<&String> = at_home.difference(&due).collect();
        let is_own = |rule: &&String| {
            rule.ends_with(" fpga-registry") || rule.ends_with(" fpga-registry-moves") || *rule == NEW_LEASE
        };
        assert!(at_home.iter().all(is_own), "{settings}: {at_home:?}");
    }
    plane.stop().await;
}

#[tokio::test]
async fn the_job_of_certificates_may_read_and_write_objects_of_its_own_and_nothing_else() {
    let plane = ControlPlane::shared().await.unwrap();
    let home = plane.new_namespace("certificates").await.unwrap();
    let nobody = new_account(&plane, &home, "nobody").await;
    let values = ["certificates.mode=generate", "router.enabled=true", "pool.enabled=true"];
    let rendered = helm::template_of(&home, "templates/certificates-job.yaml", &values).unwrap();
    let file = plane.run_dir().path().join("certificates.yaml");
    std::fs::write(&file, rendered).unwrap();
    kubectl(&plane, &["apply", "--server-side", "-f", file.to_str().unwrap()]).await.unwrap();
    let own = async |namespace| own_rules(&plane, &home, "fpga-certificates", &nobody, namespace).await;
    let at_home = wait::until("the Job's rights", async || {
        let rules = own(home.as_str()).await;
        Ok((!rules.is_empty()).then_some(rules))
    });
    let at_home = at_home.await.unwrap();
    let names_objects = |rule: &String| {
        let words: Vec<&str> = rule.split(' ').collect();
        let [verb, resource, names] = words.as_slice() else { return false };
        ["get", "update"].contains(verb)
            && ["secrets.", "configmaps."].contains(resource)
            && names.split('|').all(|name| name.starts_with("fpga-"))
    };
    assert!(at_home.iter().all(names_objects), "{at_home:?}");
    assert_eq!(own("default").await, Rules::new());
    plane.stop().await;
}

/// A user of the plugin without an administrator's rights.
struct Operator {
    plane: ControlPlane,
    dir: TempDir,
}

impl Operator {
    /// Success and output of the plugin.
    async fn plugin(&self, args: &[&str]) -> (bool, String) {
        let output = tokio::process::Command::new(programs::built("kubectl-fpga").unwrap())
            .args(args)
            .env_clear()
            .env("KUBECONFIG", self.dir.path().join("kubeconfig"))
            .output()
            .await
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), text)
    }

    async fn doctor(&self) -> Vec<Value> {
        let config = programs::repository().join("scheduler-config/kube-scheduler.yaml");
        let config = config.to_str().unwrap();
        let (_, text) = self.plugin(&["doctor", "-o", "json", "--scheduler-config", config]).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// The findings about the user's own rights.
fn refused(findings: &[Value]) -> Vec<String> {
    let texts = findings.iter().map(Value::to_string);
    texts.filter(|text| text.contains("kubectl create") || text.contains("forbidden")).collect()
}

#[tokio::test]
async fn the_plugins_rights_file_is_enough_for_all_that_it_does_and_less_is_told() {
    let plane = ControlPlane::shared().await.unwrap();
    apply(&plane, "pocl").await.unwrap();
    manifests::create_unreachable_extender(&plane).await.unwrap();
    // A token of a service account is the simplest identity.
    let token = new_account(&plane, NAMESPACE, "operator").await;
    let dir = TempDir::new().unwrap();
    let kubeconfig = serde_json::to_string(&manifests::kubeconfig(&plane, &token).unwrap()).unwrap();
    std::fs::write(dir.path().join("kubeconfig"), kubeconfig).unwrap();
    let operator = Operator { plane, dir };

    // Without rights, doctor reports each refused request with the command that grants the right.
    let without = operator.doctor().await;
    let told = refused(&without).join("\n");
    for resource in ["endpointslices", "nodes", "pods", "subjectaccessreviews"] {
        assert!(told.contains(resource), "{resource} is not among {without:#?}");
    }
    let (well, text) = operator.plugin(&["nodes"]).await;
    assert!(!well && text.contains("kubectl create"), "{text}");

    // With the rights of the file, granted as its first lines describe.
    let plane = &operator.plane;
    manifests::grant_plugins_rights(plane, NAMESPACE, "operator").await.unwrap();
    let with = wait::until("the rights to hold", async || {
        let with = operator.doctor().await;
        anyhow::ensure!(refused(&with).is_empty(), "{:?}", refused(&with));
        Ok(Some(with))
    });
    let with = with.await.unwrap();
    let of_rights = with.iter().find(|finding| finding["check"] == "rights").unwrap();
    assert_eq!(of_rights["severity"], "ok", "the service accounts' rights were looked at: {of_rights}");
    for command in [
        ["nodes"].as_slice(),
        &["top"],
        &["explain", "default/pod"],
        &["boards"],
        &["functions"],
        &["bitstreams"],
        &["moves"],
    ] {
        let (_, text) = operator.plugin(command).await;
        assert!(!text.contains("forbidden") && !text.contains("kubectl create"), "{command:?}: {text}");
    }
    // The file grants read access only, and the token that the extender and the picker want of readers.
    let of_operator = rules(plane, &token, NAMESPACE).await;
    let writes = of_operator.iter().filter(|rule| {
        let reads = ["get ", "list ", "watch "].iter().any(|verb| rule.starts_with(verb));
        !reads && !rule.contains(".authorization.k8s.io") && !rule.contains(".authentication.k8s.io")
    });
    assert_eq!(writes.collect::<Vec<_>>(), ["create serviceaccounts/token. fpga-reader"]);
    operator.plane.stop().await;
}
