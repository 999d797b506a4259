//! Who may write the marks by which the scheduler keeps a workload off a node, and the registry's records: the registry
//! alone, and nothing else of a node.

use fpga_core::moved_off::MOVED_OFF_ANNOTATION;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::{self, NAMESPACE, apply, kubectl};
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const MARK: &str = r#"{"shop/rs-1":4102444800000}"#;

async fn nodes_as(plane: &ControlPlane, account: &str, pod: Option<&str>) -> Api<Node> {
    let token = manifests::token(plane.client(), account, pod).await.unwrap();
    Api::all(manifests::client(plane, &token).await.unwrap())
}

/// The API server's reason to refuse a patch of the node; `None` if it would take it.
async fn refusal(nodes: &Api<Node>, node: &str, patch: &Value) -> Option<String> {
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let patched = nodes.patch(node, &dry_run, &Patch::Merge(patch)).await;
    patched.err().map(|error| error.to_string())
}

fn annotate(annotations: &Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

#[tokio::test]
async fn the_registry_writes_marks_on_nodes_and_nobody_else_does() {
    let plane = ControlPlane::shared().await.unwrap();
    apply(&plane, "registry").await.unwrap();
    let admin: Api<Node> = Api::all(plane.client().clone());
    let mine = &plane.unique("mine");
    let node = json!({"metadata": {"name": mine, "annotations": {"kept": "x"}}});
    admin.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let registry = nodes_as(&plane, "fpga-registry", None).await;
    wait::until("the policy to hold", async || {
        let refused = refusal(&registry, mine, &annotate(&json!({"more": "y"}))).await;
        Ok(refused.filter(|reason| reason.contains("kube-fpga-registry-marks")).map(drop))
    })
    .await
    .unwrap();

    let marked = annotate(&json!({MOVED_OFF_ANNOTATION: MARK}));
    assert_eq!(refusal(&registry, mine, &marked).await, None);
    assert_eq!(refusal(&registry, mine, &annotate(&json!({MOVED_OFF_ANNOTATION: null}))).await, None);
    for (what, patch, because) in [
        (
            "a state beside the mark",
            annotate(&json!({MOVED_OFF_ANNOTATION: MARK, "fpga-scheduling.io/node-state": "lie"})),
            "no annotation but",
        ),
        ("gaps between uses", annotate(&json!({"fpga-scheduling.io/reuse": "lie"})), "no annotation but"),
        ("an annotation of others", annotate(&json!({"kept": null})), "no annotation but"),
        ("a label", json!({"metadata": {"labels": {"fpga-scheduling.io/board": "b"}}}), "neither labels nor"),
        ("a taint", json!({"spec": {"unschedulable": true}}), "neither labels nor"),
        ("a finalizer", json!({"metadata": {"finalizers": ["shop.example/stay"]}}), "neither labels nor"),
    ] {
        let refused = refusal(&registry, mine, &patch).await.unwrap_or_else(|| panic!("{what} is taken"));
        assert!(refused.contains(because), "{what}: {refused}");
    }

    let collector = &plane.unique("collector");
    // Our other programs that write annotations of nodes.
    manifests::create_pod(plane.client(), collector, "fpga-collector", Some(mine)).await.unwrap();
    let collector = nodes_as(&plane, "fpga-collector", Some(collector)).await;
    let extender = nodes_as(&plane, "fpga-scheduler-extender", None).await;
    for (who, nodes) in [("a collector", &collector), ("an extender", &extender)] {
        let told = wait::until("the policy to hold", async || Ok(refusal(nodes, mine, &marked).await)).await;
        assert!(told.unwrap().contains("no annotation but"), "{who}");
    }

    // A tenant, who administers a namespace of their own.
    let shop = &plane.new_namespace("shop").await.unwrap();
    let role = ["-n", shop, "create", "rolebinding", "tenant", "--clusterrole=admin", "--user=tenant"];
    kubectl(&plane, &role).await.unwrap();
    let mark = format!("{MOVED_OFF_ANNOTATION}={MARK}");
    let records = r#"{"data":{"moves.json":"[]"}}"#;
    let role = plane.run_dir().path().join("role.json");
    let rules = json!([{"apiGroups": ["fpga-scheduling.io"], "resources": ["registries"], "verbs": ["bind-to-node"]}]);
    let as_registry = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "registry"}, "rules": rules,
    });
    std::fs::write(&role, as_registry.to_string()).unwrap();
    for args in [
        &["annotate", "--overwrite", "node", mine, &mark][..],
        &["-n", NAMESPACE, "patch", "configmap", "fpga-registry-moves", "-p", records],
        &[
            "-n",
            NAMESPACE,
            "patch",
            "lease",
            "fpga-registry",
            "-p",
            r#"{"spec":{"holderIdentity":"tenant"}}"#,
        ],
        &["-n", shop, "create", "-f", role.to_str().unwrap()],
        &["create", "clusterrolebinding", "tenant", "--clusterrole=kube-fpga:registry", "--user=tenant"],
    ] {
        let error = kubectl(&plane, &[args, &["--as=tenant"]].concat()).await.unwrap_err().to_string();
        assert!(error.contains("orbidden"), "{args:?}: {error}");
    }
    let node = admin.get(mine).await.unwrap();
    let annotations = node.metadata.annotations.unwrap();
    assert!(!annotations.contains_key(MOVED_OFF_ANNOTATION) && annotations["kept"] == "x", "{annotations:?}");
    plane.stop().await;
}
