//! How the program finds a cluster: as kubectl does, with the same files and variables.
use axum::http::{HeaderMap, Uri};
use axum::{Json, Router};
use fpga_test_kit::{Server, TunnelProxy, kubeconfig, output};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// An API server without Bitstreams, and a folder for kubeconfigs.
struct Bed {
    folder: TempDir,
    server: Server,
    /// The header `Authorization` of each request.
    logins: Arc<Mutex<Vec<String>>>,
}

impl Bed {
    fn start() -> Self {
        let logins = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&logins);
        let router = Router::new().fallback(async move |uri: Uri, headers: HeaderMap| {
            let login = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
            noted.lock().unwrap().push(login.unwrap_or_default());
            assert!(uri.path().ends_with("/bitstreams"), "{uri}");
            Json(json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []}))
        });
        Self { folder: tempfile::tempdir().unwrap(), server: Server::tcp("127.0.0.1:0", router), logins }
    }

    /// Writes a kubeconfig for this address of the API server, with a change.
    fn write(&self, name: &str, server: &str, change: impl FnOnce(&mut Value)) -> String {
        let mut content: Value = serde_json::from_str(&kubeconfig(server)).unwrap();
        change(&mut content);
        let path = self.folder.path().join(name);
        std::fs::write(&path, content.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Runs `kubectl fpga bitstreams` with these variables.
    fn run(&self, variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-fpga"));
        command.arg("bitstreams").env_clear().env("HOME", self.folder.path());
        output(command.envs(variables.iter().copied()))
    }

    fn succeeds(&self, variables: &[(&str, &str)]) {
        let output = self.run(variables);
        assert!(output.status.success(), "{variables:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn error(&self, variables: &[(&str, &str)]) -> String {
        let output = self.run(variables);
        assert!(!output.status.success(), "{variables:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn a_proxy_is_asked_as_kubectl_asks_it() {
    let bed = Bed::start();
    let direct = bed.write("direct", &format!("http://{}", bed.server.address()), |_| ());
    let dead = ["http://127.0.0.1:9", "127.0.0.1:9", "socks5://127.0.0.1:9"];
    for proxy in dead {
        for except in ["127.0.0.1", "127.0.0.0/8,", "*", ""] {
            let variables = [
                ("HTTPS_PROXY", proxy),
                ("HTTP_PROXY", proxy),
                ("NO_PROXY", except),
                ("KUBECONFIG", &direct),
            ];
            bed.succeeds(&variables);
        }
    }
    let tunnels = TunnelProxy::http(bed.server.address());
    let away = bed.write("away", "http://api.example:8001", |_| ());
    bed.succeeds(&[("http_proxy", tunnels.address()), ("KUBECONFIG", &away)]);
    let own = bed.write("own", "http://own.example", |content| {
        content["clusters"][0]["cluster"]["proxy-url"] =
            json!(format!("http://me:p%40ss@{}", tunnels.address()));
    });
    bed.succeeds(&[("NO_PROXY", "*"), ("KUBECONFIG", &own)]);
    let heads = tunnels.asked();
    assert_eq!(heads.len(), 2, "{heads:?}");
    assert!(heads[0].starts_with("CONNECT api.example:8001 HTTP/1.1"), "{heads:?}");
    assert!(heads[1].starts_with("CONNECT own.example:80 HTTP/1.1"), "{heads:?}");
    // `me:p@ss` in base64.
    assert!(heads[1].contains("Basic bWU6cEBzcw=="), "{heads:?}");

    let tunnels = TunnelProxy::socks(bed.server.address());
    let proxy = format!("socks5://{}", tunnels.address());
    bed.succeeds(&[("HTTP_PROXY", &proxy), ("KUBECONFIG", &away)]);
    assert_eq!(tunnels.asked(), ["api.example:8001"]);

    let error = bed.error(&[("HTTP_PROXY", "http://127.0.0.1:9"), ("KUBECONFIG", &away)]);
    assert!(error.contains("can't be reached") && error.contains("by way of the proxy 127.0.0.1"), "{error}");
    let error = bed.error(&[("HTTP_PROXY", "ftp://127.0.0.1"), ("KUBECONFIG", &away)]);
    assert!(error.contains("HTTP_PROXY names no proxy"), "{error}");
}

#[test]
fn files_contexts_and_what_is_missing_are_told() {
    let bed = Bed::start();
    let good = bed.write("good", &format!("http://{}", bed.server.address()), |_| ());
    bed.succeeds(&[("KUBECONFIG", &format!("/missing:{good}"))]);
    for (variables, told) in [
        (
            [("KUBECONFIG", "/missing"), ("LANG", "C")],
            "no cluster is configured: there is no kubeconfig (/missing)",
        ),
        (
            [("KUBECONFIG", &good), ("FPGA_CONTEXT", "other")],
            "has no context \"other\"; write --context with one of: c",
        ),
        ([("FPGA_KUBECONFIG", "/missing"), ("LANG", "C")], "the kubeconfig /missing can't be used"),
    ] {
        let error = bed.error(&variables);
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn a_plugin_gives_the_credentials_or_its_name_is_told() {
    let bed = Bed::start();
    let login = bed.folder.path().join("login");
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "abc"},
    });
    std::fs::write(&login, format!("#!/bin/sh\necho '{credential}'\n")).unwrap();
    std::fs::set_permissions(&login, std::fs::Permissions::from_mode(0o755)).unwrap();
    let with = |name: &str, command: &str| {
        bed.write(name, &format!("http://{}", bed.server.address()), |content| {
            content["users"][0]["user"]["exec"] = json!({
                "apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never",
                "installHint": "Install it by the shop's installer.",
            });
        })
    };
    bed.succeeds(&[("KUBECONFIG", &with("plugin", "./login"))]);
    assert_eq!(*bed.logins.lock().unwrap(), ["Bearer abc"]);
    for command in ["./missing", "no-such-program"] {
        let error = bed.error(&[("KUBECONFIG", &with("broken", command)), ("PATH", "/usr/bin:/bin")]);
        let told = error.contains(command.trim_start_matches("./")) && error.contains("No such file");
        assert!(told && error.contains("Install it by the shop's installer."), "{error}");
    }
}
