//! The program as people call it.

use std::process::{Command, Stdio};

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let mut simulator = Command::new(env!("CARGO_BIN_EXE_fpga-sim"));
    simulator.args(["scenario", "placement"]).stderr(Stdio::piped());
    // The pipe's other end is closed before the program writes, as after `head -0`.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = simulator.stdout(writer).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
