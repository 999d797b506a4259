//! The Python package, with the real broker and a real device manager over PoCL.

use crate::real::RealBed;
use fpga_test_kit::{output, programs};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python of `hack/numpy.sh`, or the system's if that has NumPy.
fn python() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../build/numpy/bin/python3");
    let fits = |python: &PathBuf| {
        let asked = "import sys, numpy; sys.exit(sys.version_info < (3, 11))";
        Command::new(python).args(["-c", asked]).output().is_ok_and(|output| output.status.success())
    };
    [own, "python3".into()]
        .into_iter()
        .find(fits)
        .expect("a Python 3.11 or newer with NumPy is missing: run hack/numpy.sh (`make numpy`)")
}

#[test]
fn the_wheel_of_the_python_package_passes_its_tests() {
    let python = python();
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(&python)
        .arg(package.join("build_wheel.py"))
        .arg(folder.path())
        .env("FPGA_ACC_LIBRARY", programs::built("libfpga_acc.so"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let wheel = String::from_utf8(made.stdout).unwrap();
    // A wheel is unpacked as pip does, which is not everywhere.
    let site = folder.path().join("site");
    let unpacked =
        Command::new(&python).args(["-m", "zipfile", "-e", wheel.trim()]).arg(&site).status().unwrap();
    assert!(unpacked.success());
    let mut bed = RealBed::new(&[], &[1]);
    for cases in [&["Jobs", "Groups"][..], &["Together"]] {
        if cases == ["Together"] {
            bed.add_manager(1);
        }
        let mut tests = Command::new(&python);
        tests
            .arg(package.join("tests/test_fpga_acc.py"))
            .args(cases)
            .env("PYTHONPATH", &site)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("FPGA_POOL", &bed.address)
            .env("FPGA_NODE_NAME", "localhost")
            .env_remove("FPGA_POOL_TOKEN_FILE");
        let output = output(&mut tests);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
