//! C programs with the library that report to a real collector.

use fpga_test_kit::{Collector, output, programs, until};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Bed {
    folder: tempfile::TempDir,
    collector: Collector,
}

impl Bed {
    fn new() -> Self {
        Self::with_token("")
    }

    /// A test bed whose collector requires `token` over TCP, unless that is empty.
    fn with_token(token: &str) -> Self {
        let library = programs::built("libfpga_hook.so");
        let folder = tempfile::tempdir().unwrap();
        let token_file = folder.path().join("token");
        std::fs::write(&token_file, token).unwrap();
        let args = ["--token-file", token_file.to_str().unwrap()];
        let args = if token.is_empty() { &[][..] } else { &args };
        let collector = Collector::without_api_server(folder.path(), args);
        let mut make = Command::new("make");
        make.args(["-s", "-C", env!("CARGO_MANIFEST_DIR"), "install"]);
        make.arg(format!("PREFIX={}", folder.path().join("usr").display()));
        make.arg(format!("BUILT={}", library.parent().unwrap().display()));
        assert!(make.status().unwrap().success());
        Self { folder, collector }
    }

    /// Prefix under which the library is installed.
    fn prefix(&self) -> PathBuf {
        self.folder.path().join("usr")
    }

    /// Compiles a program with the flags of the pkg-config file and runs it.
    fn run(&self, name: &str, arguments: &[&str]) -> Output {
        let program = self.folder.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format!("{name}.c"));
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]);
        cc.arg("-o").arg(&program).arg(source);
        cc.args(self.pkg_config("Cflags")).args(self.pkg_config("Libs")).args(["-pthread", "-ldl"]);
        assert!(cc.status().expect("a C compiler, cc").success(), "{name}.c doesn't compile");
        let mut command = Command::new(&program);
        command.args(arguments).env("LD_LIBRARY_PATH", self.prefix().join("lib"));
        output(command.env("TOKEN_FILE", self.folder.path().join("token")))
    }

    /// The words that `pkg-config` prints for one line of the file.
    fn pkg_config(&self, line: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.prefix().join("lib/pkgconfig/fpga_hook.pc")).unwrap();
        assert!(!text.contains('@'), "{text}");
        let value = |start: &str| text.lines().find_map(|line| line.strip_prefix(start)).unwrap().to_owned();
        let mut flags = value(&format!("{line}: "));
        for variable in ["libdir", "includedir", "prefix"] {
            flags = flags.replace(&format!("${{{variable}}}"), &value(&format!("{variable}=")));
        }
        flags.split(' ').map(str::to_owned).collect()
    }

    fn library(&self) -> PathBuf {
        self.prefix().join("lib/libfpga_hook.so")
    }
}

fn assert_silent_success(output: &Output) {
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "it printed: {output:?}");
}

/// Asserts the usage that `report` of hook.c makes: 350 ms, or more where the machine pauses it,
/// but a thousandth of what a wrong unit gives. `more` is the time,
/// in ms, that was reported besides.
fn assert_reported(state: &serde_json::Value, more: u64) {
    let usage = state["usageMs"].as_u64().unwrap();
    assert!((350 + more..60_000 + more).contains(&usage), "{state}");
    assert_eq!(state["reconfigurationMs"], 40, "{state}");
    let named = |name: &str| {
        let bitstreams = state["bitstreams"].as_array().unwrap();
        bitstreams.iter().find(|bitstream| bitstream["name"] == name).cloned()
    };
    assert_eq!(named("sobel").unwrap()["digest"], format!("abcd010203{}", "0".repeat(22)));
    assert!(named("matmul").unwrap()["digest"].is_null(), "{state}");
}

#[test]
fn a_c_program_reports_over_tcp_and_unix_sockets_and_may_exit_without_stopping() {
    for endpoint in [Collector::tcp_endpoint, Collector::unix_endpoint] {
        let bed = Bed::new();
        assert_silent_success(&bed.run("hook", &["report", &endpoint(&bed.collector)]));
        let state = bed.collector.unix_state();
        assert_reported(&state, 0);
        let device = &state["devices"][0];
        assert_eq!(
            (&device["id"], &device["vendor"], &device["board"]),
            (&"board0".into(), &"acme".into(), &"a10".into())
        );
        assert_eq!(
            (&device["slots"], &device["queued"], &device["healthy"]),
            (&2.into(), &3.into(), &true.into())
        );
        assert_eq!(device["loaded"].as_array().unwrap().len(), 1, "{state}");
    }
}

#[test]
fn a_collector_that_asks_for_a_token_is_shown_it() {
    let bed = Bed::with_token("a-token-for-this-test");
    assert_silent_success(&bed.run("hook", &["token", &bed.collector.tcp_endpoint()]));
    // Reports sent without the token did not count.
    assert_reported(&bed.collector.unix_state(), 0);
}

#[test]
fn misuse_gives_errors_and_a_stop_says_that_the_device_is_gone() {
    let bed = Bed::new();
    assert_silent_success(&bed.run("hook", &["misuse", &bed.collector.unix_endpoint()]));
    until("the end of the device", || bed.collector.unix_state().get("devices").is_none());
    assert_eq!(bed.collector.unix_state()["usageMs"], 0);
}

#[test]
fn a_forked_child_can_not_use_the_parents_handle_and_can_have_its_own() {
    let bed = Bed::new();
    assert_silent_success(&bed.run("hook", &["fork", &bed.collector.unix_endpoint()]));
    assert_reported(&bed.collector.unix_state(), 100);
}

#[test]
fn nothing_blocks_where_no_collector_is() {
    let bed = Bed::new();
    assert_silent_success(&bed.run("hook", &["nobody", "http://127.0.0.1:1"]));
}

#[test]
fn the_library_stays_when_it_is_unloaded() {
    let bed = Bed::new();
    let library = bed.library();
    assert_silent_success(&bed.run("unload", &[library.to_str().unwrap(), &bed.collector.unix_endpoint()]));
    assert_eq!(bed.collector.unix_state()["devices"][0]["id"], "board0");
}
