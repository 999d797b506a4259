//! Runs the commands in the documents that are marked `<!-- run -->`, as a reader would: in a shell at the top of the
//! repository, block after block, with an empty home folder.

use fpga_tests::testbed::documents::{self, Runner, Shell};
use fpga_tests::testbed::programs::{built, control_plane};
use std::path::Path;
use std::time::Duration;

/// Time for the commands of one document.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the marked blocks of a document in one shell, so that later ones have what earlier ones have set.
async fn run(document: &Path, commands: &str) {
    let own = built("fpga-device-manager").unwrap();
    let control_plane = control_plane();
    assert!(control_plane.join("kubectl").exists(), "kubectl is missing. Run `make control-plane`");
    let shell = Shell::new(&[own.parent().unwrap(), &control_plane]).unwrap();
    let ended = shell.run(commands, LIMIT).await;
    ended.unwrap_or_else(|error| panic!("{}: {error:#}", document.display()));
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
