//! The images that the chart installs, for nodes that reach no registry.

use super::Image;
use crate::testbed::programs::{built, repository};
use anyhow::{Context as _, Result};
use fpga_images::{ClientLibraries, Parts, Shipped};

/// A folder that `make dist` filled: the images are then those that users get. Otherwise they have the programs that
/// lie beside the test.
const FROM: &str = "FPGA_IMAGES_FROM";

/// All images that the chart installs, kube-scheduler's among them, under the chart's names.
///
/// # Errors
/// A program is missing.
pub fn shipped_images() -> Result<Vec<Image>> {
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
        tag: "latest".to_owned(),
        revision: String::new(),
    };
    let all = Shipped::OURS.into_iter().chain([Shipped::KubeScheduler]);
    all.map(|shipped| shipped.image(&parts).with_context(|| format!("can't make the image {shipped}")))
        .collect()
}
