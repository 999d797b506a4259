//! The drop-in library as programs meet it: linked as its Makefile says, with the symbols of the system's loader, and
//! OpenCL programs that run on it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of this build's binaries.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

fn cargo_build(package: &str) {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", package]);
    build.arg("--target-dir").arg(built().parent().unwrap());
    if built().ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "{package} doesn't build");
}

/// The library, as the Makefile makes it.
fn library() -> PathBuf {
    cargo_build("fpga-opencl-drop-in");
    let make = Command::new("make")
        .args(["--silent", "-C", env!("CARGO_MANIFEST_DIR")])
        .arg(format!("BUILT={}", built().display()))
        .status();
    assert!(make.expect("make").success());
    built().join("drop-in/libOpenCL.so.1")
}

/// The system's loader.
fn loader() -> PathBuf {
    let output = Command::new("cc").arg("-print-file-name=libOpenCL.so.1").output().expect("cc");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// The functions that a library exports, with their versions.
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
    let library = library();
    let ours = symbols(&library);
    assert_eq!(ours, symbols(&loader()));
    assert!(ours.len() > 100 && ours.contains(&"clGetPlatformIDs@@OPENCL_1.0".to_owned()));
    let output = Command::new("readelf").arg("-d").arg(&library).output().expect("readelf");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("soname: [libOpenCL.so.1]") && text.contains("NODELETE"), "{text}");
}

#[test]
fn programs_run_on_it_without_a_loader() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/opencl-programs");
    let make = Command::new("make")
        .args(["--silent", "-C"])
        .arg(sources)
        .arg(format!("OUT={}", folder.path().display()))
        .status();
    assert!(make.expect("make").success());
    cargo_build("fpga-device-manager");
    for program in ["vector_add", "map_unmap", "callback_status", "images", "compile_link", "retain_release"]
    {
        let Output { status, stdout, stderr } = Command::new(built().join("fpga-device-manager"))
            .args(["exec", "--drop-in", "--", "timeout", "120"])
            .arg(folder.path().join(program))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        assert!(status.success(), "{program}: {status}\n{text}");
    }
    // It was ours that ran.
    let output = Command::new(built().join("fpga-device-manager"))
        .args(["exec", "--drop-in", "--", "ldd"])
        .arg(folder.path().join("vector_add"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(library.to_str().unwrap()), "{text}");
}
