//! What the author of a pod sees if the C library of the image can't load the client library.

use fpga_tests::testbed::programs::{built, repository};
use std::process::Command;

#[test]
fn musl_refuses_the_client_library_with_the_line_that_the_documents_quote() {
    let loader = repository().join(format!("build/musl/ld-musl-{}.so.1", std::env::consts::ARCH));
    assert!(loader.exists(), "{} is missing. Run `make musl` (once)", loader.display());
    let library = built("libfpga_opencl_icd.so").unwrap();
    let output = Command::new(loader).arg("--list").arg(&library).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!output.status.success(), "{said}");
    let documents = std::fs::read_to_string(repository().join("node-plugin/README.md")).unwrap();
    let begin = "Error loading shared library ld-linux-";
    let quoted = documents.split('`').find(|text| text.starts_with(begin)).unwrap();
    // The documents have the name for x86_64.
    let quoted = quoted.replace("x86-64.so.2", "");
    assert!(said.lines().any(|line| line.starts_with(&quoted)), "{said}");
}
