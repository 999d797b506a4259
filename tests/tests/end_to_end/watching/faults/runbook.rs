//! What a runbook tells to type, typed while its alert fires.

use crate::watching::site::{NODES, Site};
use fpga_tests::testbed::documents::{Runner, blocks, text};
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::pool::OPERATOR;
use fpga_tests::testbed::programs::built;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;
use tokio::process::Command;

/// The page with a section for each alert.
const PAGE: &str = "book/operate/runbooks.md";
/// The test that the page names.
const TEST: &str = "real_faults_make_their_alerts_fire_and_no_others";
/// What a reader replaces, and by what here.
const PLACEHOLDERS: [(&str, &str); 2] =
    [("NAMESPACE/FUNCTION", "default/sobel"), ("PLUGIN", "fpga-node-plugin")];

/// A shell of an operator of a site.
pub struct Shell {
    folder: TempDir,
    environment: Vec<(&'static str, String)>,
}

impl Shell {
    /// A shell in which `kubectl` and its plugin find the site.
    pub fn new(site: &Site) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plane = site.cluster.plane();
        write_kubectl(&folder.path().join("kubectl"), &plane.kubectl());
        // The site's programs run in no pods.
        let of_plane = |name: &str| plane.run_dir().log(name);
        let logs = [
            ("fpga-device-manager", of_plane("supervisor")),
            ("fpga-endpoint-picker", of_plane("fpga-endpoint-picker")),
            ("fpga-node-plugin", of_plane("plugin-1")),
            ("fpga-pool", site.pool.log_of_broker()),
            ("fpga-registry", of_plane("registry")),
            ("fpga-router", of_plane("fpga-endpoint-picker")),
            ("fpga-scheduler-extender", of_plane("fpga-scheduler-extender")),
            ("fpga-collector", of_plane(&format!("{}-fpga-collector", NODES[1]))),
        ];
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        for (name, log) in logs {
            symlink(log, folder.path().join("logs").join(name)).unwrap();
        }
        let plugin = built("kubectl-fpga").unwrap();
        let programs = [folder.path(), plugin.parent().unwrap()].map(|path| path.display().to_string());
        let path = format!("{}:{}", programs.join(":"), std::env::var("PATH").unwrap());
        let environment = vec![
            ("HOME", folder.path().display().to_string()),
            ("PATH", path),
            ("KUBECONFIG", plane.kubeconfig(&Identity::Admin).unwrap().display().to_string()),
            ("FPGA_EXTENDER", site.cluster.extender_url("")),
            ("FPGA_PICKER", site.router.picker_url()),
            ("FPGA_BROKER", format!("http://{}", site.pool.broker_address())),
            ("FPGA_BROKER_TOKEN_FILE", site.pool.token_file(OPERATOR).display().to_string()),
        ];
        Self { folder, environment }
    }

    /// Types the commands of the alert's section that this test runs. Each has to succeed, and to say something.
    pub async fn follow(&self, alert: &str) {
        let page = text(Path::new(PAGE)).unwrap();
        let section = page.split("\n## ").find(|section| section.lines().next() == Some(alert)).unwrap();
        let ours = blocks(section).into_iter().filter(|block| block.runner == Runner::Test(TEST.to_owned()));
        for command in ours.flat_map(|block| block.text.lines().map(str::to_owned).collect::<Vec<_>>()) {
            let typed =
                PLACEHOLDERS.iter().fold(command.clone(), |typed, (word, ours)| typed.replace(word, ours));
            let mut shell = Command::new("bash");
            let output = shell
                .args(["-euo", "pipefail", "-c", &typed])
                .current_dir(self.folder.path())
                .envs(self.environment.iter().cloned())
                .stdin(Stdio::null())
                .kill_on_drop(true)
                .output()
                .await
                .unwrap();
            let [said, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
            let is_well = output.status.success() && !said.trim().is_empty();
            assert!(is_well, "{alert}: {command}: {}\n{said}{error}", output.status);
        }
    }
}

/// Writes a `kubectl` that knows the logs of programs which run in no pods, by the names that their pods would have, and asks
/// the real one for all else.
fn write_kubectl(path: &Path, real: &Path) {
    let script = format!(
        r#"#!/bin/bash
if [[ " $* " != *" logs "* ]]; then exec {} "$@"; fi
for argument; do
    log="$HOME/logs/${{argument#app.kubernetes.io/name=}}"
    if [ -f "$log" ]; then exec cat "$log"; fi
done
echo "no logs for: $*" >&2
exit 1
"#,
        real.display()
    );
    std::fs::write(path, script).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
