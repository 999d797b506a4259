//! Follows the book's quick start on a real node: the test runs the commands of the page, in their order, in one shell.

use anyhow::{Context as _, ensure};
use fpga_tests::functions::Function;
use fpga_tests::testbed::documents::{self, Runner, Shell};
use fpga_tests::testbed::helm::helm;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::programs::built;
use fpga_tests::testbed::real_cluster::{RealCluster, RealClusterSpec};
use fpga_tests::testbed::real_node::{RealNode, RunMount};
use fpga_tests::testbed::restricted::function_image_as;
use fpga_tests::testbed::wait;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

/// The page.
const QUICK_START: &str = "book/quick-start.md";
/// What the page calls the node with a board, and the name of the test's node.
const PLACEHOLDER: &str = "NODE";
const NODE: &str = "n1";
/// Where the page finds the programs for the reader's machine; the test has them beside its own.
const PROGRAMS: &str = "build/dist/";
/// The page's port for calls of the function, which may be taken on the test's machine.
const PORT: &str = "8001";
/// The image that the page has the reader build.
const IMAGE: &str = concat!("docker.io/kube-fpga/function-sobel:", env!("CARGO_PKG_VERSION"));
/// Longest time for all commands.
const LIMIT: Duration = Duration::from_secs(300);

/// The commands that the page says this test runs, as a reader would type them in the test's cluster, with this port for calls.
fn commands(port: u16) -> anyhow::Result<String> {
    let own = Runner::Test(
        "who_follows_the_quick_start_calls_a_function_on_a_board_and_sees_why_it_is_there".to_owned(),
    );
    let blocks = documents::blocks(&documents::text(Path::new(QUICK_START))?);
    let page: String =
        blocks.into_iter().filter(|block| block.runner == own).map(|block| block.text).collect();
    let program = built("kubectl-fpga")?;
    let programs = program.parent().context("the programs lie in no folder")?;
    let mut text = page;
    for (written, typed) in
        [(PLACEHOLDER, NODE), (PROGRAMS, &format!("{}/", programs.display())), (PORT, &port.to_string())]
    {
        ensure!(text.contains(written), "{QUICK_START} no longer has {written}:\n{text}");
        text = text.replace(written, typed);
    }
    Ok(text)
}

/// Writes a program `scp` into the folder, which copies a file to the node: no SSH server runs on the test's node, whose files lie in
/// folders of this machine.
fn write_scp(folder: &Path, node: &RealNode) -> anyhow::Result<()> {
    let (root, name) = (node.machine().path("/"), node.name());
    let script = format!("#!/bin/sh\nexec cp \"$1\" \"{}/${{2#root@{name}:}}\"\n", root.display());
    let path = folder.join("scp");
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn who_follows_the_quick_start_calls_a_function_on_a_board_and_sees_why_it_is_there() {
    let cluster = RealCluster::start_without_chart(RealClusterSpec {
        nodes: vec![(NODE.to_owned(), RunMount::Executable)],
        images: vec![function_image_as(Function::Sobel, IMAGE).unwrap()],
        values: Vec::new(),
    })
    .await
    .unwrap();
    let (kubectl, helm) = (cluster.plane().kubectl(), helm().unwrap());
    let programs = tempfile::tempdir().unwrap();
    write_scp(programs.path(), &cluster.nodes()[0]).unwrap();
    let shell = Shell::new(&[programs.path(), kubectl.parent().unwrap(), helm.parent().unwrap()]).unwrap();
    let shell = shell.env("KUBECONFIG", cluster.plane().kubeconfig(&Identity::Admin).unwrap());
    let commands = commands(cluster.plane().network().port_of_localhost()).unwrap();
    let said = shell.run(&commands, LIMIT).await.unwrap();

    let picture = std::fs::read(shell.home("picture.ppm")).unwrap();
    let case = Case::with_input(Function::Sobel, picture).unwrap();
    let edges = std::fs::read(shell.home("edges.pgm")).unwrap();
    case.function.compare(&case.expected, &edges).unwrap();
    for text in ["Pod fpga-functions/sobel-", "is on      n1, boards pocl-0"] {
        assert!(said.contains(text), "no {text:?} in {said}");
    }
    // The extender hears of a bitstream in a slot within a second; the page says that the slot shows it.
    wait::until("the bitstream to be shown in a slot", async || {
        let nodes = cluster.kubectl_fpga(&["nodes", "-o", "wide"]).await?;
        ensure!(nodes.contains(NODE) && nodes.contains("sobel"), "{nodes}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    cluster.stop().await;
}
