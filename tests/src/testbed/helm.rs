//! The Helm that renders and installs the chart.

use super::programs::repository;
use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;

/// Namespace of the manifests.
pub const NAMESPACE: &str = "kube-fpga";

/// Settings that the chart wants where Helm asks no cluster.
const WITHOUT_CLUSTER: &str = "scheduler.version=v1.36.3,router.externalMetrics.takeOver=true";

/// The Helm that `hack/helm.sh` built.
///
/// # Errors
/// Helm was not built.
pub fn helm() -> Result<PathBuf> {
    let program = repository().join("build/helm/helm");
    ensure!(program.exists(), "{} is missing. Run `make helm` (once)", program.display());
    Ok(program)
}

/// A template of the chart, rendered with these settings (`KEY=VALUE`).
///
/// # Errors
/// Helm was not built, or does not render it.
pub fn template(file: &str, settings: &[&str]) -> Result<String> {
    template_of(NAMESPACE, file, settings)
}

/// A template of the chart for a release that has the name of its namespace, rendered with these settings (`KEY=VALUE`).
///
/// # Errors
/// Helm was not built, or does not render it.
pub fn template_of(release: &str, file: &str, settings: &[&str]) -> Result<String> {
    let output = std::process::Command::new(helm()?)
        .args(["template", release, "manifests/chart", "--namespace", release, "--show-only", file])
        .args(["--set", WITHOUT_CLUSTER])
        .args(settings.iter().flat_map(|setting| ["--set", setting]))
        .current_dir(repository())
        .output()
        .context("can't start helm")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm template {file}: {error}");
    String::from_utf8(output.stdout).context("helm's output is not UTF-8")
}

/// The whole chart in the namespace of the manifests, rendered with these files of values and settings (`KEY=VALUE`).
///
/// # Errors
/// Helm was not built, or does not render it.
pub fn chart(values: &[&str], settings: &[&str]) -> Result<String> {
    let output = std::process::Command::new(helm()?)
        .args(["template", NAMESPACE, "manifests/chart", "--namespace", NAMESPACE])
        .args(["--kube-version=v1.36.3", "--set", WITHOUT_CLUSTER])
        .args(values.iter().flat_map(|file| ["--values", file]))
        .args(settings.iter().flat_map(|setting| ["--set", setting]))
        .current_dir(repository())
        .output()
        .context("can't start helm")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm template: {error}");
    String::from_utf8(output.stdout).context("helm's output is not UTF-8")
}
