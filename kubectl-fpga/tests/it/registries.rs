//! How the program finds a registry: by way of the proxies of the environment.
use axum::Router;
use axum::http::StatusCode;
use fpga_test_kit::{Server, TunnelProxy, output};
use std::process::Command;

/// The error of `kubectl fpga bitstream inspect` for a registry without artifacts.
fn inspect(reference: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-fpga"));
    command.args(["bitstream", "inspect", "--plain-http", reference]).env_clear();
    let output = output(command.envs(variables.iter().copied()));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn registries_are_asked_through_the_proxy_except_those_of_no_proxy_and_this_machine() {
    let registry = Server::tcp("127.0.0.1:0", Router::new().fallback(async || StatusCode::NOT_FOUND));
    let tunnels = TunnelProxy::http(registry.address());
    let with_user = format!("http://me:p%40ss@{}", tunnels.address());
    for (name, place) in [("r.example:5000", "r.example:5000"), ("r.example", "r.example:80")] {
        let error = inspect(&format!("{name}/team/sobel:1.0"), &[("HTTP_PROXY", &with_user)]);
        assert!(error.contains("is not in the registry"), "{error}");
        let head = tunnels.asked().pop().unwrap();
        assert!(head.starts_with(&format!("CONNECT {place} HTTP/1.1")), "{head}");
        // `me:p@ss` in base64.
        assert!(head.contains("Basic bWU6cEBzcw=="), "{head}");
    }
    let tunnels = TunnelProxy::socks(registry.address());
    let proxy = format!("socks5h://{}", tunnels.address());
    let error = inspect("r.example/team/sobel:1.0", &[("HTTP_PROXY", &proxy)]);
    assert!(error.contains("is not in the registry"), "{error}");
    assert_eq!(tunnels.asked(), ["r.example:80"]);
    let own = format!("{}/team/sobel:1.0", registry.address());
    let error = inspect(&own, &[("HTTP_PROXY", "http://127.0.0.1:9")]);
    assert!(error.contains("is not in the registry"), "{error}");
    for (proxy, told) in [
        ("http://me:secret@127.0.0.1:9", "the proxy 127.0.0.1:9 does not lead there"),
        ("socks5://127.0.0.1:9", "the proxy 127.0.0.1:9 does not lead there"),
        ("ftp://me:secret@127.0.0.1:9", "HTTP_PROXY names no proxy"),
    ] {
        let error = inspect("r.example/team/sobel:1.0", &[("HTTP_PROXY", proxy)]);
        assert!(error.contains(told) && !error.contains("secret"), "{error}");
    }
    let variables = [("HTTP_PROXY", "http://127.0.0.1:9"), ("NO_PROXY", ".invalid")];
    let error = inspect("r.invalid/team/sobel:1.0", &variables);
    assert!(error.contains("can't be reached") && !error.contains("proxy"), "{error}");
}
