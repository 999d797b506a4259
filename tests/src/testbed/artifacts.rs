//! Files that tests and the demo build once below build/: the C functions and programs, and bitstreams, which the
//! runtime's own compiler builds.

use super::cluster::Runtime;
use super::programs::{built, repository};
use crate::functions::Function;
use anyhow::{Context as _, Result, bail};
use fpga_accelerators::Accelerator;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the HTTP functions of tests/functions and returns their folder.
///
/// # Errors
/// The build fails.
pub fn functions() -> Result<PathBuf> {
    make("functions", "tests/functions")
}

/// Builds the programs of tests/opencl-programs and returns their folder.
///
/// # Errors
/// The build fails.
pub fn opencl_programs() -> Result<PathBuf> {
    make("opencl-programs", "tests/opencl-programs")
}

/// Builds the programs of the images that real nodes need (tests/node/images) and returns their folder.
///
/// # Errors
/// The build fails.
pub fn node_images() -> Result<PathBuf> {
    make("node/images", "tests/node/images")
}

/// Builds the bitstreams (`NAME.bitstream`) of all functions for a runtime and returns their folder.
///
/// # Errors
/// A build fails.
pub fn bitstreams(runtime: Runtime) -> Result<PathBuf> {
    let dir = repository().join("build/bitstreams").join(runtime.to_string());
    let _lock = lock()?;
    std::fs::create_dir_all(&dir).context("can't make the folder for bitstreams")?;
    let sources = repository().join("tests/functions");
    for function in Function::ALL {
        let source = sources.join(format!("{function}.cl"));
        let bitstream = dir.join(format!("{function}.bitstream"));
        if is_newer(&bitstream, &source) {
            continue;
        }
        build_bitstream(runtime, &source, &bitstream, "")?;
    }
    Ok(dir)
}

/// Builds `count` different bitstreams of the function `hold` (`hold-N.bitstream`, from 0) for a runtime and returns
/// their folder, which has no others.
///
/// # Errors
/// A build fails.
pub fn hold_bitstreams(runtime: Runtime, count: u16) -> Result<PathBuf> {
    let dir = repository().join(format!("build/bitstreams/{runtime}-hold-{count}"));
    let _lock = lock()?;
    std::fs::create_dir_all(&dir).context("can't make the folder for bitstreams")?;
    let source = repository().join("tests/functions/hold.cl");
    for number in 0..count {
        let bitstream = dir.join(format!("hold-{number}.bitstream"));
        if !is_newer(&bitstream, &source) {
            build_bitstream(runtime, &source, &bitstream, &format!("-DNUMBER={number}"))?;
        }
    }
    Ok(dir)
}

/// Builds the bitstreams (`NAME.bitstream`) of the accelerators of the pool for a runtime and returns their folder.
///
/// # Errors
/// A build fails.
pub fn accelerator_bitstreams(runtime: Runtime) -> Result<PathBuf> {
    let dir = repository().join(format!("build/bitstreams/{runtime}-accelerators"));
    let _lock = lock()?;
    std::fs::create_dir_all(&dir).context("can't make the folder for bitstreams")?;
    for accelerator in Accelerator::ALL {
        let name = accelerator.name();
        let source = format!("pool/accelerators/kernels/{}.cl", name.replace('-', "_"));
        let (source, bitstream) = (repository().join(source), dir.join(format!("{name}.bitstream")));
        if !is_newer(&bitstream, &source) {
            build_bitstream(runtime, &source, &bitstream, "")?;
        }
    }
    Ok(dir)
}

fn build_bitstream(runtime: Runtime, source: &Path, bitstream: &Path, options: &str) -> Result<()> {
    let intel = repository().join("build/intel-opencl/lib");
    let mut command = Command::new(built("fpga-device-manager")?);
    command
        .args(["build-bitstream", "--runtime", &runtime.to_string(), "--options", options, "-o"])
        .arg(bitstream)
        .arg(source);
    run(command.env("FPGA_INTEL_OPENCL", intel), &format!("building {}", bitstream.display()))
}

/// Runs the Makefile in the folder `source`, which builds into the folder `out` below build/.
fn make(out: &str, source: &str) -> Result<PathBuf> {
    let out = repository().join("build").join(out);
    let _lock = lock()?;
    std::fs::create_dir_all(&out).context("can't make a folder under build/")?;
    let mut command = Command::new("make");
    // This program may run under `make test`, whose flags are not meant for this make.
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    command.arg("-s").arg("-C").arg(repository().join(source)).arg(format!("OUT={}", out.display()));
    run(&mut command, &format!("building {source}"))?;
    Ok(out)
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    let output = command.output().with_context(|| format!("{what}: can't start {command:?}"))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        bail!("{what} failed ({}):\n{}", output.status, String::from_utf8_lossy(&text));
    }
    Ok(())
}

fn is_newer(file: &Path, than: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    time(file).zip(time(than)).is_some_and(|(file, than)| file > than)
}

/// Tests of several programs may build at the same time.
fn lock() -> Result<Flock<File>> {
    let build = repository().join("build");
    std::fs::create_dir_all(&build).context("can't make the folder build/")?;
    let file = File::create(build.join(".lock")).context("can't make build/.lock")?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error).context("can't lock build/.lock")
}
