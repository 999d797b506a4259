//! Objects of the kind Bitstream, as the API server has them.

use super::control_plane::ControlPlane;
use super::manifests::kubectl;
use super::programs::repository;
use super::wait;
use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};

/// The Bitstreams of the namespace "default", on an API server that serves the kind.
#[must_use]
pub fn bitstreams(client: &Client) -> Api<DynamicObject> {
    bitstreams_in(client, "default")
}

/// The Bitstreams of a namespace, on an API server that serves the kind.
fn bitstreams_in(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "fpga-scheduling.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "fpga-scheduling.io/v1alpha1".to_owned(),
        kind: "Bitstream".to_owned(),
        plural: "bitstreams".to_owned(),
    };
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Applies the definitions as an administrator without Helm does, and waits until the API server serves the kind.
/// Returns the Bitstreams of a namespace.
///
/// # Errors
/// The API server refuses a definition, warns of it, or does not serve it in time.
pub async fn serve(plane: &ControlPlane, namespace: &str) -> Result<Api<DynamicObject>> {
    let definitions = repository().join("manifests/chart/custom-resources");
    let definitions = definitions.to_str().context("the repository's path is not UTF-8")?;
    let said = kubectl(plane, &["apply", "--server-side", "--validate=strict", "-f", definitions]).await?;
    ensure!(said.contains("serverside-applied") && !said.contains("Warning"), "{said}");
    let bitstreams = bitstreams_in(plane.client(), namespace);
    let served = async || Ok(bitstreams.list(&Default::default()).await.ok().map(drop));
    wait::until("the API server to serve Bitstreams", served).await?;
    Ok(bitstreams)
}
