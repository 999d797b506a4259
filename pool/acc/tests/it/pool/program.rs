//! The program `fpga-acc`.

use crate::real::RealBed;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn without_any_board_a_job_ends_after_half_a_minute_and_says_what_is_missing() {
    let bed = RealBed::new(&[], &[]);
    let since = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_fpga-acc"))
        .args(["run", "sha-256"])
        .env("FPGA_POOL", &bed.address)
        .env_remove("FPGA_POOL_TOKEN_FILE")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let waited = since.elapsed();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(output.stdout.is_empty());
    let parts = [
        "for 30 s no lent slot could run sha-256",
        "its bitstreams are for boards of the kind pac-a10, and no such board lends a slot",
        "`kubectl fpga pool slots` shows the lent slots",
    ];
    for part in parts {
        assert!(told.contains(part), "{told}");
    }
    assert!(waited >= Duration::from_secs(30), "{waited:?}: a board may still come");
}
