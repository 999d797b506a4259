//! Grants our own programs their rights, with the files of manifests/ that do so on a real cluster.

use crate::testbed::control_plane::ControlPlane;
use crate::testbed::identity::Identity;
use crate::testbed::programs::repository;
use anyhow::{Context as _, Result, ensure};

/// Gives the service accounts of our programs their rights.
///
/// # Errors
/// The API server refuses a file.
pub async fn grant(plane: &ControlPlane) -> Result<()> {
    let file = |name: &str| repository().join("manifests/base").join(name).display().to_string();
    apply(plane, &["-f", &file("namespace.yaml")]).await?;
    let files = ["extender/rbac.yaml", "collector/rbac.yaml", "node-plugin/rbac.yaml"].map(file);
    let mut arguments = vec!["--namespace", "kube-fpga"];
    arguments.extend(files.iter().flat_map(|file| ["-f", file]));
    apply(plane, &arguments).await
}

async fn apply(plane: &ControlPlane, arguments: &[&str]) -> Result<()> {
    let output = tokio::process::Command::new(plane.kubectl())
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(&Identity::Admin)?)
        .args(["apply", "--server-side"])
        .args(arguments)
        .output()
        .await
        .context("can't start kubectl")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl apply {arguments:?} failed: {error}");
    Ok(())
}
