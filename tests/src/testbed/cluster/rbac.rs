//! Grants our own programs their rights, with the manifests that do so on a real cluster.

use crate::testbed::control_plane::ControlPlane;
use crate::testbed::helm::NAMESPACE;
use crate::testbed::manifests;
use anyhow::Result;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

/// Kinds of the objects that give our programs their rights.
const KINDS: [&str; 7] =
    ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Lease"];

/// Gives the service accounts of our programs their rights.
///
/// # Errors
/// The API server refuses an object.
pub async fn grant(plane: &ControlPlane) -> Result<()> {
    manifests::apply_kinds(plane, "router", &KINDS).await.map(drop)
}

/// Gives kube-scheduler of the test bed the rights of the chart's own scheduler on its Lease.
///
/// # Errors
/// The API server refuses the binding.
pub async fn grant_scheduler_lease(plane: &ControlPlane) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "kube-scheduler-of-the-test-bed", "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "fpga-scheduler-extender"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-scheduler"}],
    });
    let bindings: Api<RoleBinding> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let params = PatchParams::apply("fpga-tests").force();
    bindings.patch("kube-scheduler-of-the-test-bed", &params, &Patch::Apply(&binding)).await?;
    Ok(())
}
