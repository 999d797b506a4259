//! `exec` from outside: what passes through, and that nothing is left behind. The programs of these tests use
//! no OpenCL.

use crate::support::{some_icd, stderr, stdout};
use fpga_test_kit::manager::command as manager;
use fpga_test_kit::processes::{children, runs};
use fpga_test_kit::{output, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use tempfile::TempDir;

/// `exec` of a shell script, with temporary files in `folder`.
fn exec(folder: &Path, script: &str) -> Command {
    let mut command = manager();
    command.arg("exec").arg("--icd").arg(some_icd(folder));
    command.args(["--", "sh", "-c", script]).env("TMPDIR", folder);
    command
}

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("fx").tempdir_in("/tmp").unwrap()
}

/// The names of all files in the folder except the library.
fn left_in(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "libsome.so").collect()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

fn ended(child: &mut Child) -> ExitStatus {
    until("the program to end", || child.try_wait().unwrap())
}

/// The lines that the child prints, one by one.
fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap)
}

#[test]
fn exit_status_streams_arguments_and_folder_pass_through_and_nothing_is_printed() {
    let folder = folder();
    let script = "read line; echo \"$line:$1:$(pwd)\"; echo problem >&2; exit 7";
    let mut command = exec(folder.path(), script);
    command.args(["zero", "--slots"]).current_dir(folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let here = folder.path().canonicalize().unwrap();
    assert_eq!(stdout(&output), format!("hello:--slots:{}\n", here.display()));
    assert_eq!((stderr(&output).as_str(), output.status.code()), ("problem\n", Some(7)));
    assert_eq!(left_in(folder.path()), [""; 0]);
}

#[test]
fn a_program_that_a_signal_ended_gives_128_and_its_number() {
    let folder = folder();
    assert_eq!(exec(folder.path(), "kill -KILL $$").status().unwrap().code(), Some(137));
    assert_eq!(exec(folder.path(), "kill -SEGV $$").status().unwrap().code(), Some(139));
}

#[test]
fn the_program_sees_our_icd_alone_and_its_manager() {
    let folder = folder();
    let script = r#"cat "$OCL_ICD_VENDORS"/*; ls "$OCL_ICD_VENDORS" | wc -l
        echo "$FPGA_DEVICE_MANAGERS"; test -S "${FPGA_DEVICE_MANAGERS#unix:}" && echo socket
        echo "[$OCL_ICD_FILENAMES] [$MINE] [$FPGA_LOG]""#;
    let mut command = exec(folder.path(), script);
    command.env("OCL_ICD_FILENAMES", "libother.so").env("MINE", "kept").env("FPGA_LOG", "trace");
    command.env("FPGA_DEVICE_MANAGERS", "unix:/elsewhere").env("OCL_ICD_VENDORS", "/elsewhere");
    let output = output(&mut command);
    let out = stdout(&output);
    let lines: Vec<&str> = out.lines().collect();
    let icd = folder.path().canonicalize().unwrap().join("libsome.so");
    assert_eq!(lines[..2], [icd.to_str().unwrap(), "1"], "{output:?}");
    assert!(lines[2].starts_with("unix:/") && lines[3] == "socket", "{output:?}");
    assert_eq!((lines[4], stderr(&output).as_str()), ("[] [kept] [trace]", ""));
}

#[test]
fn over_tcp_the_program_gets_the_port_that_was_bound() {
    let folder = folder();
    let mut command = manager();
    command.args(["exec", "--tcp", "--icd"]).arg(some_icd(folder.path()));
    let output = output(command.args(["--", "sh", "-c", "echo $FPGA_DEVICE_MANAGERS"]));
    let port =
        stdout(&output).trim().strip_prefix("tcp://127.0.0.1:").map(|port| port.parse::<u16>().unwrap());
    assert!(port.is_some_and(|port| port != 0), "{output:?}");
}

#[test]
fn a_program_that_is_not_there_or_not_executable_is_told_as_env_does() {
    let folder = folder();
    let run = |program: &Path| {
        let mut command = manager();
        command.args(["exec", "--icd"]).arg(some_icd(folder.path())).arg("--").arg(program);
        output(command.env("TMPDIR", folder.path()))
    };
    let missing = run(&folder.path().join("none"));
    assert_eq!(missing.status.code(), Some(127));
    assert!(stderr(&missing).contains("cannot run /"), "{missing:?}");
    assert_eq!(run(&folder.path().join("libsome.so")).status.code(), Some(126));
    assert_eq!(left_in(folder.path()), [""; 0]);
}

#[test]
fn without_a_library_or_with_a_wrong_runtime_it_says_what_to_do() {
    let folder = folder();
    let missing = output(manager().args(["exec", "--icd"]).arg(folder.path().join("none.so")).arg("true"));
    assert_eq!(missing.status.code(), Some(125));
    assert!(stderr(&missing).contains("--icd PATH"), "{missing:?}");
    let mut command = manager();
    command.args(["exec", "--runtime", "cuda", "--icd"]).arg(some_icd(folder.path())).arg("true");
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("`intel-fpga`"), "{output:?}");
}

#[test]
fn a_reader_that_goes_away_ends_the_program_as_it_would_natively() {
    let folder = folder();
    let mut child = exec(folder.path(), "exec yes").stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(lines(&mut child).next().as_deref(), Some("y"));
    assert_eq!(ended(&mut child).code(), Some(128 + libc::SIGPIPE));
}

#[test]
fn signals_are_passed_on_to_the_program() {
    let folder = folder();
    for (name, sent) in [("TERM", Signal::SIGTERM), ("INT", Signal::SIGINT), ("USR1", Signal::SIGUSR1)] {
        let script = format!("trap 'echo got; exit 42' {name}; echo ready; while :; do sleep 0.01; done");
        let mut child = exec(folder.path(), &script).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = lines(&mut child);
        assert_eq!(lines.next().as_deref(), Some("ready"));
        signal(&child, sent);
        assert_eq!(lines.next().as_deref(), Some("got"), "{name}");
        assert_eq!(ended(&mut child).code(), Some(42));
    }
    let mut child = exec(folder.path(), "echo ready; exec sleep 60").stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(lines(&mut child).next().as_deref(), Some("ready"));
    signal(&child, Signal::SIGTERM);
    assert_eq!(ended(&mut child).code(), Some(143));
    assert_eq!(left_in(folder.path()), [""; 0]);
}

#[test]
fn neither_manager_nor_program_outlives_a_killed_exec() {
    let folder = folder();
    let mut child = exec(folder.path(), "echo $$; exec sleep 60").stdout(Stdio::piped()).spawn().unwrap();
    let program: u32 = lines(&mut child).next().unwrap().parse().unwrap();
    let all = children(child.id());
    assert!(all.len() == 2 && all.contains(&program), "{all:?}");
    signal(&child, Signal::SIGKILL);
    ended(&mut child);
    until("both to end", || !all.iter().any(|pid| runs(*pid)));
    assert_eq!(left_in(folder.path()), [""; 0]);
}

#[test]
fn a_program_goes_on_when_its_manager_dies_and_no_zombie_stays() {
    let folder = folder();
    let script = "echo $$; read line; exit 3";
    let mut command = exec(folder.path(), script);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let program: u32 = lines(&mut child).next().unwrap().parse().unwrap();
    let manager = children(child.id()).into_iter().find(|pid| *pid != program).unwrap();
    kill(Pid::from_raw(i32::try_from(manager).unwrap()), Signal::SIGKILL).unwrap();
    until("the dead manager to be waited for", || children(child.id()) == [program]);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(ended(&mut child).code(), Some(3));
    assert_eq!(left_in(folder.path()), [""; 0]);
}

#[test]
fn a_manager_that_is_stopped_for_good_is_killed() {
    let folder = folder();
    let mut command = exec(folder.path(), "echo $$; read line");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let program: u32 = lines(&mut child).next().unwrap().parse().unwrap();
    let manager = children(child.id()).into_iter().find(|pid| *pid != program).unwrap();
    kill(Pid::from_raw(i32::try_from(manager).unwrap()), Signal::SIGSTOP).unwrap();
    drop(child.stdin.take());
    ended(&mut child);
    assert!(!runs(manager));
}

#[test]
fn ctrl_c_reaches_the_program_once_and_the_manager_not_at_all() {
    let folder = folder();
    // The second line is printed after the signal, by a program that still has its manager.
    let script = "trap 'n=$((n+1))' INT; n=0; echo ready; while [ $n = 0 ]; do sleep 0.01; done; sleep 0.2
        test -S \"${FPGA_DEVICE_MANAGERS#unix:}\" && echo \"manager is there, $n\"; exit 5";
    let (master, slave) = terminal();
    let mut command = exec(folder.path(), script);
    command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
    make_controlling(&mut command);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut reader = BufReader::new(master.try_clone().unwrap());
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    let mut master = master;
    master.write_all(b"\x03").unwrap();
    while !line.contains("manager is there, 1") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the program ended without a word");
    }
    assert_eq!(ended(&mut child).code(), Some(5));
    assert_eq!(left_in(folder.path()), [""; 0]);
}

/// A pseudo terminal: the test's end and the program's end.
fn terminal() -> (std::fs::File, std::fs::File) {
    use std::os::fd::FromRawFd as _;
    let (mut master, mut slave) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: both pointers are valid; name, settings and size are optional.
    let result = unsafe { libc::openpty(&raw mut master, &raw mut slave, null, null.cast(), null.cast()) };
    assert_eq!(result, 0);
    for file in [master, slave] {
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(file, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: both descriptors were opened just now and have no other owner.
    unsafe { (std::fs::File::from_raw_fd(master), std::fs::File::from_raw_fd(slave)) }
}

/// Makes the terminal at standard input that of the child's own session.
fn make_controlling(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: the closure makes async-signal-safe system calls only.
    unsafe {
        command.pre_exec(|| {
            if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}
