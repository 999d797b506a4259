//! Objects of the kind Bitstream in the namespace "default" of a test bed's control plane, as the API server has them.

use super::control_plane::ControlPlane;
use super::manifests::kubectl;
use super::programs::repository;
use super::wait;
use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use std::time::Duration;

/// Maximum time until the API server serves a kind that it was given.
const SERVED: Duration = Duration::from_secs(60);

/// The Bitstreams of the namespace "default", on an API server that serves the kind.
#[must_use]
pub fn bitstreams(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "fpga-scheduling.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "fpga-scheduling.io/v1alpha1".to_owned(),
        kind: "Bitstream".to_owned(),
        plural: "bitstreams".to_owned(),
    };
    Api::namespaced_with(client.clone(), "default", &resource)
}

/// Applies the definitions as an administrator without Helm does, and waits until the API server serves the kind.
///
/// # Errors
/// The API server refuses a definition, warns of it, or does not serve it in time.
pub async fn serve(plane: &ControlPlane) -> Result<Api<DynamicObject>> {
    let definitions = repository().join("manifests/chart/custom-resources");
    let definitions = definitions.to_str().context("the repository's path is not UTF-8")?;
    let said = kubectl(plane, &["apply", "--server-side", "--validate=strict", "-f", definitions]).await?;
    ensure!(said.contains("serverside-applied") && !said.contains("Warning"), "{said}");
    let bitstreams = bitstreams(plane.client());
    let served = async || Ok(bitstreams.list(&Default::default()).await.ok().map(drop));
    wait::until("the API server to serve Bitstreams", SERVED, served).await?;
    Ok(bitstreams)
}
