//! C programs with the library, the real broker, and a real device manager over PoCL.

use crate::managers::bytes;
use crate::real::RealBed;
use fpga_test_kit::{output, programs};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library, installed, and programs that are compiled with it.
struct Installed {
    folder: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let library = programs::built("libfpga_acc.so");
        let folder = tempfile::tempdir().unwrap();
        let mut make = Command::new("make");
        make.args(["-s", "-C", env!("CARGO_MANIFEST_DIR"), "install"]);
        make.arg(format!("PREFIX={}", folder.path().join("usr").display()));
        make.arg(format!("BUILT={}", library.parent().unwrap().display()));
        assert!(make.status().unwrap().success());
        Self { folder }
    }

    /// Compiles a program with the flags that `pkg-config` says.
    fn compile(&self, source: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let program = self.folder.path().join(source.file_stem().unwrap());
        let flags = Command::new("pkg-config")
            .args(["--cflags", "--libs", "fpga_acc"])
            .env("PKG_CONFIG_PATH", self.folder.path().join("usr/lib/pkgconfig"))
            .output()
            .expect("pkg-config");
        let flags = String::from_utf8(flags.stdout).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"]);
        cc.arg("-o").arg(&program).arg(&source).args(flags.split_whitespace()).arg("-pthread");
        assert!(cc.status().expect("a C compiler, cc").success(), "{} doesn't compile", source.display());
        program
    }

    /// A run of a program, or of valgrind, with the library and a pool.
    fn command(&self, program: impl AsRef<Path>, pool: &str) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env("LD_LIBRARY_PATH", self.folder.path().join("usr/lib"))
            .env("FPGA_POOL", pool)
            .env("FPGA_NODE_NAME", "localhost")
            .env_remove("FPGA_POOL_TOKEN_FILE");
        command
    }
}

fn assert_silent_success(output: &Output) {
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "it printed: {output:?}");
}

#[test]
fn c_programs_run_jobs_and_groups_wait_poll_cancel_and_fork() {
    let (installed, mut bed) = (Installed::new(), RealBed::new(&[], &[1]));
    let program = installed.compile("tests/jobs.c");
    for case in ["runs", "polls", "misuse", "waits", "falls", "groups", "forks", "nobody", "together"] {
        println!("{case}");
        if case == "together" {
            bed.add_manager(1);
        }
        assert_silent_success(&output(installed.command(&program, &bed.address).arg(case)));
    }
}

#[test]
fn the_examples_do_what_they_say() {
    let (installed, bed) = (Installed::new(), RealBed::new(&[], &[2]));
    let (key, plain) = (installed.folder.path().join("key"), installed.folder.path().join("plain"));
    std::fs::write(&key, bytes(32)).unwrap();
    let input = bytes(5_000_001);
    std::fs::write(&plain, &input).unwrap();
    let encrypt = installed.compile("examples/encrypt.c");
    let run = |from: &Path| {
        let mut command = installed.command(&encrypt, &bed.address);
        let output = command.arg(&key).stdin(File::open(from).unwrap()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let secret = installed.folder.path().join("secret");
    std::fs::write(&secret, run(&plain)).unwrap();
    assert!(run(&secret) == input, "AES in counter mode undoes itself");
    let values = installed.compile("examples/values.c");
    let output = output(&mut installed.command(values, &bed.address));
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.lines().count(), 200);
    assert!(String::from_utf8_lossy(&output.stderr).contains("200 actions"), "{:?}", output.stderr);
}

#[test]
#[ignore = "a minute of valgrind: make sanitize"]
fn valgrind_finds_no_error_and_no_lost_memory_in_a_job() {
    let (installed, bed) = (Installed::new(), RealBed::new(&[], &[1]));
    let program = installed.compile("tests/jobs.c");
    let output = installed
        .command("valgrind", &bed.address)
        .args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"])
        .arg(&program)
        .arg("polls")
        .output()
        .expect("valgrind is missing: apt-get install valgrind");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
