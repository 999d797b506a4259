//! `serve` and `build-bitstream` from outside, over PoCL.

use crate::support::{stderr, stdout};
use fpga_session::store::digest_of;
use fpga_test_kit::manager::command;
use fpga_test_kit::{Manager, output, until};
use nix::sys::signal::Signal;
use std::os::unix::net::UnixStream;

const DOUBLE: &str = "__kernel void twice(__global int *v) { v[get_global_id(0)] *= 2; }\n";

#[test]
fn it_listens_says_so_and_ends_in_order_on_sigterm() {
    let mut manager = Manager::start(&["--listen", "tcp://127.0.0.1:0", "--insecure-tcp"]);
    std::net::TcpStream::connect(manager.tcp_address().replace("tcp://", "")).unwrap();
    let socket = manager.socket();
    assert_eq!(manager.address(), format!("unix:{}", socket.display()));
    UnixStream::connect(&socket).unwrap();
    let second = output(command().args(["serve", "--listen", manager.address()]));
    assert!(!second.status.success());
    assert!(stderr(&second).contains("another process answers there"), "{second:?}");
    assert_eq!(manager.terminate().code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_second_signal_ends_a_manager_that_drains() {
    let mut manager = Manager::start(&["--drain-timeout", "1h"]);
    // A session without messages keeps the manager draining, or the manager ends at once: both are orderly.
    let _idle = UnixStream::connect(manager.socket()).unwrap();
    let status = until("the manager to end", || {
        manager.signal(Signal::SIGTERM);
        manager.status()
    });
    assert!(matches!(status.code(), Some(0 | 143)), "{status:?}");
    assert!(!manager.socket().exists());
}

#[test]
fn metrics_and_health_are_served_where_asked() {
    let manager = Manager::start(&[]);
    assert_eq!(manager.get("/healthz").status, 200);
    let metrics = manager.metrics_text();
    for line in ["fpga_device_manager_sessions 0", "fpga_device_manager_store_bytes 0"] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
#[ignore = "needs Intel's runtimes: make test-opencl"]
fn intels_runtimes_build_bitstreams_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("twice.cl");
    std::fs::write(&source, DOUBLE).unwrap();
    let mut all = std::collections::BTreeSet::new();
    for runtime in ["pocl", "intel-fpga", "intel-cpu"] {
        let out = folder.path().join(runtime);
        let mut command = command();
        command.args(["build-bitstream", "--runtime", runtime, "-o"]).arg(&out).arg(&source);
        let output = output(&mut command);
        assert!(output.status.success(), "{output:?}");
        all.insert(std::fs::read(out).unwrap());
    }
    assert_eq!(all.len(), 3);
}

#[test]
fn what_can_not_be_is_refused_with_what_to_write_instead() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing").display().to_string();
    let (library, socket, source) =
        (format!("{missing}/libx.so"), format!("{missing}/dm.sock"), format!("{missing}.cl"));
    for (arguments, expected) in [
        (&["serve", "--runtime", "cuda"][..], "`intel-fpga`"),
        (&["serve", "--runtime", &library], &library),
        (&["serve", "--listen", "dm0.sock"], "write `unix:/PATH"),
        (&["serve", "--listen", "tcp://127.0.0.1:0"], "--insecure-tcp"),
        (&["serve", "--reconfiguration", "full"], "write --slots 1"),
        (&["serve", "--store", "/tmp", "--isolate", "process"], "leave --store out"),
        (&["serve", "--reconfiguration-time", "10"], "`10ms`"),
        (&["serve", "--slots", "0"], "--slots"),
        (&["serve", "--collector", "127.0.0.1:9460"], "http://HOST:PORT"),
        (&["serve", "--listen", &format!("unix:{socket}")], &format!("{socket} does not exist")),
        (
            &["serve", "--bitstreams", &missing, "--listen", "tcp://127.0.0.1:0", "--insecure-tcp"],
            "--bitstreams",
        ),
        (&["build-bitstream", &source], &source),
    ] {
        let output = output(command().args(arguments));
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {output:?}");
        assert!(!stderr(&output).contains("panicked"), "{output:?}");
    }
}

#[test]
fn a_missing_intel_runtime_names_the_command_that_installs_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command();
    command.args(["serve", "--runtime", "intel-fpga"]).env("FPGA_INTEL_OPENCL", folder.path());
    let output = output(&mut command);
    assert!(stderr(&output).contains("RUNTIME=intel-fpga make setup"), "{output:?}");
}

#[test]
fn every_command_has_help_with_an_example() {
    for name in ["serve", "exec", "build-bitstream"] {
        let output = output(command().args([name, "--help"]));
        assert!(stdout(&output).contains(&format!("fpga-device-manager {name} ")), "{output:?}");
        assert!(stdout(&output).contains("Example"), "{output:?}");
    }
}

#[test]
fn a_bitstream_is_built_with_the_runtimes_compiler() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("twice.cl"), DOUBLE).unwrap();
    let mut command = command();
    command.args(["build-bitstream", "--runtime", "pocl", "twice.cl"]).current_dir(folder.path());
    let output = output(&mut command);
    assert!(output.status.success(), "{output:?}");
    let bytes = std::fs::read(folder.path().join("twice.bitstream")).unwrap();
    let line = format!("twice.bitstream {} {} bytes\n", digest_of(&bytes), bytes.len());
    assert_eq!((stdout(&output), bytes.is_empty()), (line, false));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing temporary is left");
}

#[test]
fn a_source_that_does_not_compile_gives_the_compilers_log_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("bad.cl");
    std::fs::write(&source, "__kernel void bad(__global int *v) { v[0] = undeclared_thing; }\n").unwrap();
    let output = output(command().arg("build-bitstream").arg(&source).current_dir(folder.path()));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("undeclared_thing"), "{output:?}");
    assert!(!folder.path().join("bad.bitstream").exists());
}

#[test]
fn build_options_reach_the_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("n.cl");
    std::fs::write(&source, "__kernel void n(__global int *v) { v[0] = WANTED; }\n").unwrap();
    let mut command = command();
    command.args(["build-bitstream", "--options", "-DWANTED=3", "-o"]).arg(folder.path().join("x.bitstream"));
    let output = output(command.arg(&source));
    assert!(output.status.success(), "{output:?}");
    assert!(folder.path().join("x.bitstream").exists());
}

#[test]
fn a_model_that_cannot_be_used_is_refused_with_the_line_and_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.toml");
    std::fs::write(&path, "board = \"b\"\n\n[[kernel]]\nname = \"a\"\n").unwrap();
    let listen = format!("unix:{}", folder.path().join("dm.sock").display());
    let serve = |more: &[&str]| {
        let output = output(command().args(["serve", "--listen", &listen, "--model"]).arg(&path).args(more));
        assert!(!output.status.success());
        stderr(&output)
    };
    let said = serve(&[]);
    assert!(said.contains("model.toml, line 3: the kernel has no time; write launch ="), "{said}");
    std::fs::write(&path, "board = \"b\"\n\n[[kernel]]\nlaunch = \"1ms\"\n").unwrap();
    let said = serve(&["--isolate", "process"]);
    assert!(said.contains("write `--isolate protocol`"), "{said}");
}
