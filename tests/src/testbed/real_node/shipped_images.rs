//! The images that the chart installs, for nodes that reach no registry: ours, kube-scheduler's and Envoy's.

use super::Image;
use crate::testbed::envoy;
use crate::testbed::programs::{built, repository};
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
        kube_scheduler: repository().join("build/control-plane/bin/kube-scheduler"),
        registry: String::new(),
        tag: env!("CARGO_PKG_VERSION").to_owned(),
        revision: String::new(),
    };
    shipped.image(&parts).with_context(|| format!("can't make the image {shipped}"))
}

/// Envoy, which the chart installs with `router.enabled`, under the chart's name.
///
/// # Errors
/// Envoy is missing.
pub fn envoy_image() -> Result<Image> {
    let program = envoy::program()?;
    let values = std::fs::read_to_string(repository().join("manifests/chart/values.yaml"))
        .context("can't read the chart's values")?;
    let mut images = values.lines().filter_map(|line| line.trim().strip_prefix("image: "));
    let name = images.find(|name| name.contains("/envoy:")).context("the chart names no image of Envoy")?;
    let path = "/usr/local/bin/envoy";
    Ok(Image::new(name, path).file(path, &program).libraries_of(&program)?)
}
