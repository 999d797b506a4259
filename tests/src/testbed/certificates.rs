//! The certificates of the chart's services, as its Job makes them, and other programs that the chart runs once.

use super::control_plane::ControlPlane;
use super::manifests::{self, kubectl};
use super::{helm, programs};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec, Secret};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use std::collections::BTreeMap;
use tokio::process::Command;

/// Name of the Job, up to the hash of what it runs, and of the `CronJob`.
pub const JOB: &str = "fpga-certificates";

/// Applies the objects for certificates, as the chart renders them with these settings, in the namespace of the manifests.
///
/// # Errors
/// Helm does not render them, or the API server refuses one.
pub async fn apply(plane: &ControlPlane, settings: &[&str]) -> Result<()> {
    for template in ["certificates", "certificates-job"] {
        let objects = helm::template(&format!("templates/{template}.yaml"), settings)?;
        let file = plane.run_dir().path().join(format!("{template}.yaml"));
        std::fs::write(&file, objects)?;
        let file = file.to_str().context("the path is not UTF-8")?;
        kubectl(plane, &["apply", "--validate=strict", "-f", file]).await?;
    }
    Ok(())
}

/// The program of the first container of a pod that works once, with the rights of its account.
///
/// # Errors
/// The pod is not as the chart has them, or its account does not exist.
pub async fn command(plane: &ControlPlane, namespace: &str, pod: &PodSpec) -> Result<Command> {
    let account = pod.service_account_name.as_deref().context("the pod has no account")?;
    let token = manifests::token_in(plane.client(), namespace, account, None).await?;
    let kubeconfig = plane.run_dir().path().join(format!("{account}.kubeconfig"));
    std::fs::write(&kubeconfig, serde_json::to_string(&manifests::kubeconfig(plane, &token)?)?)?;
    let container = pod.containers.first().context("the pod has no container")?;
    let image = container.image.as_deref().unwrap_or_default();
    let name = image.rsplit('/').next().and_then(|image| image.split(':').next()).unwrap_or_default();
    let mut command = Command::new(programs::built(name)?);
    command.args(container.args.iter().flatten()).env("FPGA_KUBECONFIG", kubeconfig).kill_on_drop(true);
    Ok(command)
}

/// Does the work of the newest Job for certificates.
///
/// # Errors
/// There is no such Job, or it fails.
pub async fn make(plane: &ControlPlane, namespace: &str) -> Result<()> {
    let jobs: Api<Job> = Api::namespaced(plane.client().clone(), namespace);
    let jobs = jobs.list(&ListParams::default()).await?.items;
    let job = jobs
        .into_iter()
        .filter(|job| job.name_any().starts_with(JOB))
        .max_by_key(|job| job.metadata.creation_timestamp.clone())
        .context("there is no Job for certificates")?;
    let pod = job.spec.and_then(|spec| spec.template.spec).context("the Job has no pod")?;
    let output = command(plane, namespace, &pod).await?.env("FPGA_CERTIFICATE_SPREAD", "0s").output().await?;
    ensure!(output.status.success(), "{JOB}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The data of a Secret.
///
/// # Errors
/// There is no such Secret.
pub async fn secret(
    plane: &ControlPlane,
    namespace: &str,
    name: &str,
) -> Result<BTreeMap<String, ByteString>> {
    let secrets: Api<Secret> = Api::namespaced(plane.client().clone(), namespace);
    Ok(secrets.get(name).await?.data.unwrap_or_default())
}

/// The authorities in a `ConfigMap`, PEM.
///
/// # Errors
/// There is no such `ConfigMap`.
pub async fn authorities(plane: &ControlPlane, namespace: &str, name: &str) -> Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(plane.client().clone(), namespace);
    Ok(maps.get(name).await?.data.unwrap_or_default().remove("ca.crt").unwrap_or_default())
}
