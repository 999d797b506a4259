//! Envoy's configuration in the chart, as Envoy itself judges it.

use super::render;
use fpga_test_kit::envoy_program;

/// Envoy's configuration in the rendered chart, in a folder with what it reads.
fn envoy_configuration(rendered: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let map = rendered
        .split("\n---\n")
        .find(|object| object.contains("kind: ConfigMap\n") && object.contains("  name: fpga-router\n"));
    let data = map.unwrap().split("\ndata:\n").nth(1).unwrap();
    let mut name = String::new();
    let mut files = std::collections::BTreeMap::<String, String>::new();
    for line in data.lines() {
        match line.strip_prefix("    ") {
            Some(text) => {
                let file = files.entry(name.clone()).or_default();
                file.push_str(text);
                file.push('\n');
            }
            None if line.is_empty() => files.entry(name.clone()).or_default().push('\n'),
            None => name = line.trim().trim_end_matches(": |").to_owned(),
        }
    }
    for (name, text) in files {
        let text = text.replace("/config/", &format!("{}/", folder.path().display()));
        let text = text.replace("/tls/", &format!("{}/", folder.path().display()));
        let text = text.replace("path: /tls", &format!("path: {}", folder.path().display()));
        let text = text.replace("/run/fpga-router/", &format!("{}/", folder.path().display()));
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[tokio::test]
async fn envoy_takes_its_configuration_whatever_the_values_say() {
    for settings in [
        "router.enabled=true",
        "router.enabled=true,router.domain=fn.example,router.envoy.ipv6=false",
        "router.enabled=true,router.domain=fn.example,router.tlsSecret=mine,router.envoy.memoryMiB=64",
    ] {
        let (well, text) = render(&["--set", settings]).await;
        assert!(well, "{text}");
        let folder = envoy_configuration(&text);
        std::fs::write(folder.path().join("endpoints.json"), "{}").unwrap();
        // The arguments of Envoy's container, which are a list of lines.
        let arguments = text.split("command: [envoy]").nth(1).unwrap().split("args:\n").nth(1).unwrap();
        let arguments = arguments.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let arguments =
            arguments.map_while(|line| line.strip_prefix("- ")).map(|text| text.trim_matches('"'));
        let at = format!("{}/", folder.path().display());
        let output = tokio::process::Command::new(envoy_program())
            .args(["--mode", "validate"])
            .args(arguments.map(|argument| argument.replace("/config/", &at)))
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{settings}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
