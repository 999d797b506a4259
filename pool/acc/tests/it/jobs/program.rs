//! The program `fpga-acc`.

use crate::bed::Bed;
use crate::cipher::{COUNTER, KEY, encrypted};
use crate::managers::bytes;
use fpga_test_kit::until;
use ring::digest::{SHA256, digest};
use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn fpga_acc(bed: &Bed, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpga-acc"));
    command.args(arguments).env("FPGA_POOL", bed.address()).env_remove("FPGA_POOL_TOKEN_FILE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_file_and_a_pipe_go_through_an_accelerator() {
    let bed = Bed::new(1);
    let folder = tempfile::tempdir().unwrap();
    let (plain, key) = (folder.path().join("plain"), folder.path().join("key"));
    let input = bytes(4_500_001);
    std::fs::write(&plain, &input).unwrap();
    let digits: String = KEY.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(&key, format!("{digits}\n")).unwrap();
    let counter: String = COUNTER.iter().map(|byte| format!("{byte:02x}")).collect();
    let counter = format!("counter={counter}");
    let arguments =
        ["run", "aes-256-ctr", "--key-file", key.to_str().unwrap(), "--hex", &counter, "--progress=always"];
    let output = fpga_acc(&bed, &arguments).stdin(File::open(&plain).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    assert!(output.stdout == encrypted(&input), "the output is not that of the reference");
    assert!(told(&output).contains("4500001 bytes in"), "{}", told(&output));
    assert!(!told(&output).contains(&digits));

    let mut piped = fpga_acc(&bed, &["run", "sha-256"]).stdin(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(&input).unwrap();
    let output = piped.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", told(&output));
    assert_eq!(output.stdout, digest(&SHA256, &input).as_ref());
}

#[test]
fn the_exit_code_says_whether_there_was_no_slot_and_the_message_why() {
    let bed = Bed::new(0);
    let run = |arguments: &[&str]| fpga_acc(&bed, arguments).output().unwrap();
    let output = run(&["run", "sha-256", "--wait", "300ms"]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(told(&output).contains("all slots are taken"), "{}", told(&output));
    let output = run(&["run", "fft"]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(told(&output).contains("no board of the pool has this accelerator"), "{}", told(&output));
    let output = run(&["run", "sobel"]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("fpga-acc list"), "{}", told(&output));
    let output = run(&["run", "aes-256-ctr"]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("the argument key is missing"), "{}", told(&output));
    assert_eq!(run(&["walk"]).status.code(), Some(2));
    let output = run(&["list"]);
    let list = String::from_utf8(output.stdout).unwrap();
    assert!(list.lines().count() == 6 && list.contains("argument key of 32 bytes"), "{list}");
}

#[test]
fn the_processor_does_it_where_the_user_says_so_and_the_standard_error_tells() {
    let bed = Bed::new(0);
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, bytes(4_500_001)).unwrap();
    let arguments = ["run", "sha-256", "--wait", "200ms", "--or-else", "processor"];
    let output = fpga_acc(&bed, &arguments).stdin(File::open(&plain).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(output.stdout, digest(&SHA256, &bytes(4_500_001)).as_ref());
    assert_eq!(told(&output), "fpga-acc: no slot came in time: the processor did 4500001 of 4500001 bytes\n");
    let without_limit = fpga_acc(&bed, &["run", "sha-256", "--or-else", "processor"]).output().unwrap();
    assert_eq!(without_limit.status.code(), Some(2), "{}", told(&without_limit));
}

#[test]
fn ctrl_c_gives_the_job_up() {
    let bed = Bed::new(0);
    let waiting = fpga_acc(&bed, &["run", "sha-256"]).stdin(Stdio::piped()).spawn().unwrap();
    until("the job waits", || bed.broker().seen().wants.len() == 1);
    let pid = waiting.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    until("the broker hears", || bed.broker().seen().cancelled.len() == 1);
}
