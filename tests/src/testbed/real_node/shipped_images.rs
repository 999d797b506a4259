//! The images that the chart installs, for nodes that reach no registry: ours, kube-scheduler's and Envoy's.

use super::Image;
use crate::testbed::envoy;
use crate::testbed::programs::{built, control_plane, repository};
use anyhow::{Context as _, Result};
use fpga_images::{ClientLibraries, Parts, Shipped};

/// A folder that `make dist` filled: the images are then those that users get. Otherwise they have the programs that
/// lie beside the test.
const FROM: &str = "FPGA_IMAGES_FROM";

/// The images that the chart always installs, kube-scheduler's among them, under the chart's names.
///
/// # Errors
/// A program is missing.
pub fn shipped_images() -> Result<Vec<Image>> {
    Shipped::OURS.into_iter().chain([Shipped::KubeScheduler]).map(shipped_image).collect()
}

/// An image that the chart installs, or kube-scheduler's, under the chart's name.
///
/// # Errors
/// A program is missing.
pub fn shipped_image(shipped: Shipped) -> Result<Image> {
    let own = built("fpga-collector")?;
    let own = own.parent().context("the programs lie in no folder")?.to_owned();
    let (from, portability) = match std::env::var_os(FROM) {
        Some(dist) => (repository().join(dist), ClientLibraries::Portable),
        None => (own, ClientLibraries::OfThisMachine),
    };
    let parts = Parts {
        programs: from.clone(),
        client_libraries: from,
        portability,
        kube_scheduler: control_plane().join("kube-scheduler"),
        registry: String::new(),
        tag: env!("CARGO_PKG_VERSION").to_owned(),
        revision: String::new(),
        created: String::new(),
    };
    shipped.image(&parts).with_context(|| format!("can't make the image {shipped}"))
}

/// Envoy, which `RealCluster` installs with `router.enabled`.
///
/// # Errors
/// Envoy is missing.
pub fn envoy_image() -> Result<Image> {
    let program = envoy::program()?;
    let path = "/usr/local/bin/envoy";
    Ok(Image::new("localhost/envoy:test", path).file(path, &program).libraries_of(&program)?)
}
