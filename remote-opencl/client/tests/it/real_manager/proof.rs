//! The proofs that a program shows to a manager. They come from the environment, so each case runs in its own
//! process.

use super::start;
use std::path::Path;
use std::process::Command;

/// Whether a program with these variables finds the manager's platform.
fn finds_the_platform(manager: &str, variables: &[(&str, &Path)]) -> bool {
    let test = "real_manager::proof::child_finds_a_platform";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--ignored", "--nocapture"]).env("FPGA_DEVICE_MANAGERS", manager);
    for variable in ["FPGA_TOKEN", "FPGA_TOKEN_FILE", "FPGA_TLS_CA", "FPGA_TLS_CERT", "FPGA_TLS_KEY"] {
        child.env_remove(variable);
    }
    child.envs(variables.iter().copied());
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("platforms: "), "{output:?}");
    text.contains("platforms: 1")
}

#[test]
#[ignore = "the child of other tests"]
fn child_finds_a_platform() {
    println!("platforms: {}", fpga_client::Client::global().platforms().len());
}

#[test]
fn a_token_from_a_file_or_a_variable_opens_a_session_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::create_dir(&tokens).unwrap();
    std::fs::write(tokens.join("alice"), "alices-secret-token\n").unwrap();
    let manager = start(&["--tokens", tokens.to_str().unwrap()]);
    let address = manager.address();
    let (good, bad) = (tokens.join("alice"), folder.path().join("bad"));
    std::fs::write(&bad, "another-secret-token").unwrap();
    assert!(finds_the_platform(address, &[("FPGA_TOKEN_FILE", &good)]));
    assert!(finds_the_platform(address, &[("FPGA_TOKEN", Path::new("alices-secret-token"))]));
    assert!(!finds_the_platform(address, &[("FPGA_TOKEN_FILE", &bad)]));
    assert!(!finds_the_platform(address, &[("FPGA_TOKEN_FILE", &folder.path().join("none"))]));
    assert!(!finds_the_platform(address, &[]));
}

#[test]
fn by_tls_a_program_reaches_a_manager_that_both_trust() {
    use fpga_test_kit::Authority;
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    let (server, client) =
        (authority.issue("server", &["localhost"]), authority.issue("client", &["client.example"]));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let manager = start(&[
        "--listen",
        "tcp://127.0.0.1:0",
        "--tls-cert",
        &path(&server.certificate),
        "--tls-key",
        &path(&server.key),
        "--tls-client-ca",
        &path(&authority.ca),
    ]);
    let address = &manager.tcp_address().replace("127.0.0.1", "localhost");
    let identity = [("FPGA_TLS_CERT", client.certificate.as_path()), ("FPGA_TLS_KEY", &client.key)];
    let ca = ("FPGA_TLS_CA", authority.ca.as_path());
    assert!(finds_the_platform(address, &[ca, identity[0], identity[1]]));
    assert!(!finds_the_platform(address, &[ca]));
    assert!(!finds_the_platform(address, &[]));
}
