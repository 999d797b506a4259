//! The program over HTTPS: client certificates, and changed certificates. The end-to-end tests do the same with a
//! real kube-scheduler.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use fpga_test_kit::{Authority, Identity, kubeconfig};
use fpga_net::tls::{ClientFiles, ConnectError, HTTP_1, dns_names};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const DEADLINE: Duration = Duration::from_secs(20);

/// The extender with certificates from `authority`.
struct Extender {
    process: Child,
    address: String,
    metrics: String,
    authority: Authority,
    server: Identity,
    dir: TempDir,
}

fn command(dir: &Path) -> Command {
    std::fs::write(dir.join("kubeconfig"), kubeconfig("http://127.0.0.1:9")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpga-scheduler-extender"));
    command
        .args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--ready-file"])
        .arg(dir.join("ready"))
        .arg("--kubeconfig")
        .arg(dir.join("kubeconfig"))
        .env_clear();
    command
}

impl Extender {
    async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let authority = Authority::new(dir.path(), "ours");
        let server = authority.issue("server", &["first.svc", "127.0.0.1"]);
        let process = command(dir.path())
            .arg("--tls-cert")
            .arg(&server.certificate)
            .arg("--tls-key")
            .arg(&server.key)
            .arg("--tls-client-ca")
            .arg(&authority.ca)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let ready = dir.path().join("ready");
        let begin = Instant::now();
        let addresses = loop {
            if let Ok(text) = std::fs::read_to_string(&ready) {
                break text;
            }
            assert!(begin.elapsed() < DEADLINE);
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let mut lines = addresses.lines();
        let address = lines.next().unwrap().to_owned();
        let metrics = lines.find_map(|line| line.strip_prefix("metrics:")).unwrap().to_owned();
        Self { process, address, metrics, authority, server, dir }
    }

    /// The answer to a GET as this client, and the names of the certificate that the extender showed.
    async fn get(&self, client: &ClientFiles, path: &str) -> Result<(String, Vec<String>), ConnectError> {
        let stream = TcpStream::connect(&self.address).await?;
        let mut stream = client.connect(stream, "127.0.0.1", HTTP_1).await?;
        let shown = stream.get_ref().1.peer_certificates().unwrap().first().map(dns_names).unwrap();
        stream.write_all(get(path).as_bytes()).await?;
        let mut answer = String::new();
        tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap()?;
        Ok((answer, shown))
    }

    async fn probe(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.metrics).await.unwrap();
        stream.write_all(get(path).as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        answer
    }

    async fn until_metric(&self, line: &str) {
        let begin = Instant::now();
        while !self.probe("/metrics").await.lines().any(|shown| shown == line) {
            assert!(begin.elapsed() < DEADLINE, "no {line:?} in\n{}", self.probe("/metrics").await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Extender {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn only_who_has_a_certificate_is_answered_and_probes_have_a_port_of_their_own() {
    let extender = Extender::start().await;
    let scheduler = extender.authority.issue("scheduler", &["kube-scheduler"]);
    let known = extender.authority.client(Some(&scheduler));
    let (answer, shown) = extender.get(&known, "/healthz").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
    assert_eq!(shown, ["first.svc"]);

    assert!(extender.get(&extender.authority.client(None), "/healthz").await.is_err());
    let strangers = Authority::new(extender.dir.path(), "strangers");
    let stranger = strangers.issue("stranger", &["kube-scheduler"]);
    let stranger = ClientFiles { ca: extender.authority.ca.clone(), ..strangers.client(Some(&stranger)) };
    assert!(extender.get(&stranger, "/healthz").await.is_err());
    extender
        .until_metric("fpga_extender_connections_refused_total{port=\"http\",reason=\"handshake\"} 2")
        .await;

    let mut plain = TcpStream::connect(&extender.address).await.unwrap();
    plain.write_all(get("/healthz").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, plain.read_to_end(&mut answer)).await.unwrap();
    assert!(!String::from_utf8_lossy(&answer).contains("200"), "plain HTTP on a TLS port");

    assert!(extender.probe("/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(extender.probe("/readyz").await.starts_with("HTTP/1.1 503"));
    for path in ["/nodes", "/explain/a/b", "/filter", "/config"] {
        assert!(extender.probe(path).await.starts_with("HTTP/1.1 404"), "{path}");
    }
    let metrics = extender.probe("/metrics").await;
    assert!(metrics.contains("content-type: application/openmetrics-text; version=1.0.0"), "{metrics}");
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections_and_a_bad_one_changes_nothing() {
    let extender = Extender::start().await;
    let scheduler = extender.authority.issue("scheduler", &["kube-scheduler"]);
    let client = extender.authority.client(Some(&scheduler));
    let stream = TcpStream::connect(&extender.address).await.unwrap();
    let mut kept = client.connect(stream, "127.0.0.1", HTTP_1).await.unwrap();

    let ends = "fpga_extender_certificate_expires_seconds{port=\"http\",certificate=";
    // Certificates of tests end on 4096-01-01 if the test sets no date.
    extender.until_metric(&format!("{ends}\"own\"}} 67090118400")).await;
    extender.until_metric(&format!("{ends}\"client_ca\"}} 67090118400")).await;
    extender.authority.issue_until("server", &["second.svc", "127.0.0.1"], (2031, 1, 2));
    extender
        .until_metric("fpga_extender_certificate_reloads_total{port=\"http\",outcome=\"loaded\"} 1")
        .await;
    extender.until_metric(&format!("{ends}\"own\"}} 1925078400")).await;
    assert_eq!(extender.get(&client, "/healthz").await.unwrap().1, ["second.svc"]);
    kept.write_all(get("/healthz").as_bytes()).await.unwrap();
    let mut answer = String::new();
    kept.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "a connection that is open goes on");

    std::fs::write(&extender.server.certificate, "nonsense").unwrap();
    extender.until_metric("fpga_extender_certificate_unused{port=\"http\"} 1").await;
    assert_eq!(extender.get(&client, "/healthz").await.unwrap().1, ["second.svc"]);
    extender.authority.issue("server", &["third.svc", "127.0.0.1"]);
    extender.until_metric("fpga_extender_certificate_unused{port=\"http\"} 0").await;
    assert_eq!(extender.get(&client, "/healthz").await.unwrap().1, ["third.svc"]);
}

#[test]
fn without_a_good_certificate_it_does_not_start_and_says_which_file_is_wrong() {
    let dir = TempDir::new().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let (server, other) = (authority.issue("server", &["a"]), authority.issue("other", &["b"]));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let refused = |args: &[&str], hint: &str| {
        let output = command(dir.path()).args(args).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(hint), "{args:?}: {text}");
    };
    refused(&["--tls-cert", "x"], "--tls-key");
    refused(&["--tls-client-ca", "x"], "--tls-cert");
    refused(&["--tls-cert", "/nowhere/cert", "--tls-key", &path(&server.key)], "/nowhere/cert");
    refused(&["--tls-cert", &path(&server.certificate), "--tls-key", &path(&other.key)], "server.pem");
    let good = ["--tls-cert", &path(&server.certificate), "--tls-key", &path(&server.key)];
    refused(&[good.as_slice(), &["--tls-client-ca", &path(&empty)]].concat(), "empty.pem");
}
