//! The drop-in library as programs use it: linked as the Makefile links it, with the symbols of the system's
//! loader, and with OpenCL programs that run on it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The folder of this build's binaries.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

/// A file of this build.
fn artifact(name: &str) -> PathBuf {
    let path = built().join(name);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace`", path.display());
    path
}

/// Path of the library. The Makefile links it once, since tests run in parallel and would overwrite each other's
/// library.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    artifact("libfpga_opencl_drop_in.a");
    let make = Command::new("make")
        .args(["--silent", "-C", env!("CARGO_MANIFEST_DIR")])
        .arg(format!("BUILT={}", built().display()))
        .status();
    assert!(make.expect("make").success());
    built().join("drop-in/libOpenCL.so.1")
});

/// The system's loader.
fn loader() -> PathBuf {
    let output = Command::new("cc").arg("-print-file-name=libOpenCL.so.1").output().expect("cc");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// The functions that a library exports, with their symbol versions.
fn symbols(library: &Path) -> Vec<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library)
        .output()
        .expect("nm");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut symbols: Vec<_> =
        text.lines().filter_map(|line| line.split_once(" T ")).map(|(_, name)| name.to_owned()).collect();
    symbols.sort();
    symbols
}

#[test]
fn the_library_has_the_soname_and_the_symbols_of_the_systems_loader() {
    let ours = symbols(&LIBRARY);
    assert_eq!(ours, symbols(&loader()));
    assert!(ours.len() > 100 && ours.contains(&"clGetPlatformIDs@@OPENCL_1.0".to_owned()));
    let output = Command::new("readelf").arg("-d").arg(&*LIBRARY).output().expect("readelf");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("soname: [libOpenCL.so.1]") && text.contains("NODELETE"), "{text}");
}

#[test]
fn programs_run_on_it_without_a_loader() {
    let folder = tempfile::tempdir().unwrap();
    LazyLock::force(&LIBRARY);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/opencl-programs");
    let make = Command::new("make")
        .args(["--silent", "-C"])
        .arg(sources)
        .arg(format!("OUT={}", folder.path().display()))
        .status();
    assert!(make.expect("make").success());
    let manager = artifact("fpga-device-manager");
    for program in ["vector_add", "map_unmap", "callback_status", "images", "compile_link", "retain_release"]
    {
        let Output { status, stdout, stderr } = Command::new(&manager)
            .args(["exec", "--drop-in", "--", "timeout", "120"])
            .arg(folder.path().join(program))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        assert!(status.success(), "{program}: {status}\n{text}");
    }
    // `ldd` shows that the loader of programs finds our library.
    let output = Command::new(&manager)
        .args(["exec", "--drop-in", "--", "ldd"])
        .arg(folder.path().join("vector_add"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(LIBRARY.to_str().unwrap()), "{text}");
}
