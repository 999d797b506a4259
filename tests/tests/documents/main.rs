//! Runs the commands in the documents that are marked `<!-- run -->`, as a reader would: in a shell at the top of the
//! repository, block after block, with an empty home folder.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "in a test a failure is a panic")]

use fpga_tests::testbed::documents::{self, Runner};
use fpga_tests::testbed::programs::{built, repository};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Time for the commands of one document.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the marked blocks of a document in one shell, so that later ones have what earlier ones have set.
async fn run(document: &Path, commands: &str) {
    let home = tempfile::tempdir().unwrap();
    let own = built("fpga-device-manager").unwrap();
    let control_plane = repository().join("build/control-plane/bin");
    assert!(control_plane.join("kubectl").exists(), "kubectl is missing. Run `make control-plane`");
    let path = [own.parent().unwrap(), &control_plane].map(|folder| folder.display().to_string()).join(":");
    let output = home.path().join("output");
    let file = std::fs::File::create(&output).unwrap();
    let mut shell = Command::new("bash")
        .args(["-euxo", "pipefail", "-c", commands])
        .current_dir(repository())
        .env("HOME", home.path())
        .env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap()))
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let group = Pid::from_raw(i32::try_from(shell.id().unwrap()).unwrap());
    let ended = tokio::time::timeout(LIMIT, shell.wait()).await;
    // What a block left running in the background ends with its document.
    let _ = killpg(group, Signal::SIGKILL);
    let said = std::fs::read_to_string(output).unwrap();
    let status = ended
        .unwrap_or_else(|_| panic!("{} took longer than {LIMIT:?}:\n{said}", document.display()))
        .unwrap();
    assert!(status.success(), "{}: {status}\n{said}", document.display());
}

#[tokio::test]
async fn the_commands_that_documents_mark_do_what_they_should() {
    let mut run_documents = 0;
    for document in documents::all().unwrap() {
        let blocks = documents::blocks(&documents::text(&document).unwrap());
        let marked = blocks.into_iter().filter(|block| block.runner == Runner::Documents);
        let commands: String = marked.map(|block| block.text).collect();
        if !commands.is_empty() {
            run(&document, &commands).await;
            run_documents += 1;
        }
    }
    assert!(run_documents > 2, "commands of only {run_documents} documents are run");
}
