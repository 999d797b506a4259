//! The program over HTTPS: client certificates, and changed certificates. The end-to-end tests do the same with a
//! real kube-scheduler.

use crate::extender::{Extender, assert_refused, command};
use fpga_net::tls::{ClientFiles, ConnectError, HTTP_1, dns_names};
use fpga_test_kit::{Authority, Identity, patience, until};
use std::path::Path;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The extender with certificates from `authority`.
struct Bed {
    extender: Extender,
    authority: Authority,
    server: Identity,
    dir: TempDir,
}

impl Bed {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let authority = Authority::new(dir.path(), "ours");
        let server = authority.issue("server", &["first.svc", "127.0.0.1"]);
        let path = |path: &'_ Path| path.to_str().unwrap().to_owned();
        let files = [path(&server.certificate), path(&server.key), path(&authority.ca)];
        let [certificate, key, ca] = files.each_ref().map(String::as_str);
        let args = ["--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", ca];
        Self { extender: Extender::start(&args), authority, server, dir }
    }

    /// The answer to a GET as this client, and the names of the certificate that the extender showed.
    async fn get(&self, client: &ClientFiles, path: &str) -> Result<(String, Vec<String>), ConnectError> {
        let stream = TcpStream::connect(&self.extender.address).await?;
        let mut stream = client.connect(stream, "127.0.0.1", HTTP_1).await?;
        let shown = stream.get_ref().1.peer_certificates().unwrap().first().map(dns_names).unwrap();
        stream.write_all(get(path).as_bytes()).await?;
        let mut answer = String::new();
        tokio::time::timeout(patience(), stream.read_to_string(&mut answer)).await.unwrap()?;
        Ok((answer, shown))
    }

    fn until_metric(&self, line: &str) {
        until(line, || {
            let text = self.extender.probe("/metrics").text;
            if text.lines().any(|shown| shown == line) { Ok(()) } else { Err(text) }
        });
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn only_who_has_a_certificate_is_answered_and_probes_have_a_port_of_their_own() {
    let bed = Bed::start();
    let scheduler = bed.authority.issue("scheduler", &["kube-scheduler"]);
    let known = bed.authority.client(Some(&scheduler));
    let (answer, shown) = bed.get(&known, "/healthz").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
    assert_eq!(shown, ["first.svc"]);

    assert!(bed.get(&bed.authority.client(None), "/healthz").await.is_err());
    let strangers = Authority::new(bed.dir.path(), "strangers");
    let stranger = strangers.issue("stranger", &["kube-scheduler"]);
    let stranger = ClientFiles { ca: bed.authority.ca.clone(), ..strangers.client(Some(&stranger)) };
    assert!(bed.get(&stranger, "/healthz").await.is_err());
    bed.until_metric("fpga_extender_connections_refused_total{port=\"http\",reason=\"handshake\"} 2");

    let mut plain = TcpStream::connect(&bed.extender.address).await.unwrap();
    plain.write_all(get("/healthz").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(patience(), plain.read_to_end(&mut answer)).await.unwrap();
    assert!(!String::from_utf8_lossy(&answer).contains("200"), "plain HTTP on a TLS port");

    let status = |path| bed.extender.probe(path).status;
    assert_eq!((status("/healthz"), status("/readyz")), (200, 503));
    for path in ["/nodes", "/explain/a/b", "/filter", "/config"] {
        assert_eq!(status(path), 404, "{path}");
    }
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections_and_a_bad_one_changes_nothing() {
    let bed = Bed::start();
    let scheduler = bed.authority.issue("scheduler", &["kube-scheduler"]);
    let client = bed.authority.client(Some(&scheduler));
    let stream = TcpStream::connect(&bed.extender.address).await.unwrap();
    let mut kept = client.connect(stream, "127.0.0.1", HTTP_1).await.unwrap();
    // A connection without any request would end after 5 s.
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = Vec::new();
    while !first.ends_with(b"\r\n\r\nok\n") {
        assert!(kept.read_buf(&mut first).await.unwrap() > 0, "{}", String::from_utf8_lossy(&first));
    }

    let ends = "fpga_extender_certificate_expires_seconds{port=\"http\",certificate=";
    // Certificates of tests end on 4096-01-01 if the test sets no date.
    bed.until_metric(&format!("{ends}\"own\"}} 67090118400"));
    bed.until_metric(&format!("{ends}\"client_ca\"}} 67090118400"));
    bed.authority.issue_until("server", &["second.svc", "127.0.0.1"], (2031, 1, 2));
    bed.until_metric("fpga_extender_certificate_reloads_total{port=\"http\",outcome=\"loaded\"} 1");
    bed.until_metric(&format!("{ends}\"own\"}} 1925078400"));
    assert_eq!(bed.get(&client, "/healthz").await.unwrap().1, ["second.svc"]);
    kept.write_all(get("/healthz").as_bytes()).await.unwrap();
    let mut answer = String::new();
    kept.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "a connection that is open goes on");

    std::fs::write(&bed.server.certificate, "nonsense").unwrap();
    bed.until_metric("fpga_extender_certificate_unused{port=\"http\"} 1");
    assert_eq!(bed.get(&client, "/healthz").await.unwrap().1, ["second.svc"]);
    bed.authority.issue("server", &["third.svc", "127.0.0.1"]);
    bed.until_metric("fpga_extender_certificate_unused{port=\"http\"} 0");
    assert_eq!(bed.get(&client, "/healthz").await.unwrap().1, ["third.svc"]);
}

#[test]
fn without_a_good_certificate_it_does_not_start_and_says_which_file_is_wrong() {
    let dir = TempDir::new().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let (server, other) = (authority.issue("server", &["a"]), authority.issue("other", &["b"]));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let refused = |args: &[&str], hint: &str| assert_refused(&mut command(dir.path()), args, hint);
    refused(&["--tls-cert", "x"], "--tls-key");
    refused(&["--tls-client-ca", "x"], "--tls-cert");
    refused(&["--tls-cert", "/nowhere/cert", "--tls-key", &path(&server.key)], "/nowhere/cert");
    refused(&["--tls-cert", &path(&server.certificate), "--tls-key", &path(&other.key)], "server.pem");
    let good = ["--tls-cert", &path(&server.certificate), "--tls-key", &path(&server.key)];
    refused(&[good.as_slice(), &["--tls-client-ca", &path(&empty)]].concat(), "empty.pem");
}
