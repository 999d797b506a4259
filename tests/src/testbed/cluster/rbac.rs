//! The rights of our own programs, as manifests/ grants them on a real cluster.

use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Grants them.
pub(super) async fn grant(client: &Client) -> Result<()> {
    let watch = json!(["get", "list", "watch"]);
    let extender = json!([{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": watch}]);
    let collector = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]);
    bind(client, "fpga-scheduler-extender", &extender).await?;
    bind(client, "fpga-collector", &collector).await
}

async fn bind(client: &Client, name: &str, rules: &Value) -> Result<()> {
    let apply = PatchParams::apply("testbed").force();
    let group = "rbac.authorization.k8s.io";
    let version = "rbac.authorization.k8s.io/v1";
    let role =
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-fpga", "name": name}],
    });
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    roles.patch(name, &apply, &Patch::Apply(&role)).await.context("can't make a role")?;
    bindings.patch(name, &apply, &Patch::Apply(&binding)).await.context("can't bind a role")?;
    Ok(())
}
