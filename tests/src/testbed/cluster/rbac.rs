//! Grants our own programs their rights, with the manifests that do so on a real cluster.

use crate::testbed::control_plane::ControlPlane;
use crate::testbed::manifests;
use anyhow::Result;

/// Kinds of the objects that give our programs their rights.
const KINDS: [&str; 6] =
    ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

/// Gives the service accounts of our programs their rights.
///
/// # Errors
/// The API server refuses an object.
pub async fn grant(plane: &ControlPlane) -> Result<()> {
    manifests::apply_kinds(plane, "router", &KINDS).await.map(drop)
}
