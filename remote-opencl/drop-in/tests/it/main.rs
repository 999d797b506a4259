//! The drop-in library as programs use it: linked as the Makefile links it, with the symbols of the system's
//! loader, and with OpenCL programs that run on it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use fpga_test_kit::manager::command;
use fpga_test_kit::{output, programs};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Links the library where `fpga-device-manager exec` finds it, and returns its path.
fn library() -> PathBuf {
    let archive = programs::built("libfpga_opencl_drop_in.a");
    let folder = archive.parent().unwrap();
    let mut make = Command::new("make");
    make.args(["--silent", "-C", env!("CARGO_MANIFEST_DIR")]).arg(format!("BUILT={}", folder.display()));
    assert!(make.status().expect("make").success());
    folder.join("drop-in/libOpenCL.so.1")
}

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
    let programs = ["vector_add", "map_unmap", "callback_status", "images", "compile_link", "retain_release"];
    let mut make = Command::new("make");
    make.args(["--silent", "-C"]).arg(sources).arg(format!("OUT={}", folder.path().display()));
    assert!(make.args(programs.map(|name| folder.path().join(name))).status().expect("make").success());
    for program in programs {
        let mut exec = command();
        exec.args(["exec", "--drop-in", "--"]).arg(folder.path().join(program));
        let Output { status, stdout, stderr } = output(&mut exec);
        let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        assert!(status.success(), "{program}: {status}\n{text}");
    }
    // `ldd` shows that the loader of programs finds our library.
    let mut exec = command();
    exec.args(["exec", "--drop-in", "--", "ldd"]).arg(folder.path().join("vector_add"));
    let text = String::from_utf8_lossy(&output(&mut exec).stdout).into_owned();
    assert!(text.contains(library.to_str().unwrap()), "{text}");
}
