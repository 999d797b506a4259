//! TLS between our own ends: who is let in, and what happens when files change.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use fpga_net::testing::{Authority, Identity};
use fpga_net::tls::{
    ClientFiles, ConnectError, HTTP_1, HandshakeError, Reload, ServerFiles, ServerTls, dns_names,
};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Both ends of one connection: the names that each saw, or why it did not come about.
async fn meet(
    server: &Arc<ServerTls>,
    client: &ClientFiles,
    name: &str,
) -> (Result<Vec<String>, HandshakeError>, Result<Vec<String>, ConnectError>) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let server = Arc::clone(server);
    let serving = tokio::spawn(async move {
        let (mut stream, names) = server.accept(near).await?;
        // A client learns that its certificate was refused only when it reads.
        let _ = stream.write_all(b"x").await;
        let _ = stream.shutdown().await;
        Ok(names)
    });
    let connecting = async {
        let mut stream = client.connect(far, name, HTTP_1).await?;
        let shown = stream.get_ref().1.peer_certificates().unwrap().first().map(dns_names).unwrap();
        stream.read_exact(&mut [0]).await?;
        Ok(shown)
    };
    let connected = connecting.await;
    (serving.await.unwrap(), connected)
}

fn loaded(files: ServerFiles) -> Arc<ServerTls> {
    let tls = ServerTls::new(files, HTTP_1);
    assert!(matches!(tls.reload(), Reload::Loaded));
    Arc::new(tls)
}

fn copy(from: &Identity, to: &Identity) {
    std::fs::copy(&from.certificate, &to.certificate).unwrap();
    std::fs::copy(&from.key, &to.key).unwrap();
}

#[tokio::test]
async fn a_server_proves_its_name_and_a_client_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new(dir.path(), "ours");
    let theirs = Authority::new(dir.path(), "theirs");
    let server = ours.issue("server", &["extender.svc", "127.0.0.1"]);
    let open = loaded(server.server(None));
    assert_eq!(meet(&open, &ours.client(None), "extender.svc").await.1.unwrap(), ["extender.svc"]);
    assert!(meet(&open, &ours.client(None), "127.0.0.1").await.1.is_ok());
    assert!(meet(&open, &ours.client(None), "other.svc").await.1.is_err(), "another name");
    assert!(meet(&open, &theirs.client(None), "extender.svc").await.1.is_err(), "another authority");

    let mutual = loaded(server.server(Some(&ours.ca)));
    let node = ours.issue("node", &["worker-1", "*.wild.example"]);
    let (names, shown) = meet(&mutual, &ours.client(Some(&node)), "extender.svc").await;
    assert_eq!(names.unwrap(), ["worker-1", "*.wild.example"]);
    assert!(shown.is_ok());
    assert!(meet(&mutual, &ours.client(None), "extender.svc").await.0.is_err(), "no certificate");
    let stranger = theirs.issue("stranger", &["worker-1"]);
    let shown = ClientFiles { ca: ours.ca.clone(), ..theirs.client(Some(&stranger)) };
    let (names, connected) = meet(&mutual, &shown, "extender.svc").await;
    assert!(names.is_err() && connected.is_err(), "a certificate of another authority");
}

#[tokio::test]
async fn changed_files_are_for_new_connections_and_bad_ones_for_none() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let server = authority.issue("server", &["old.svc", "svc"]);
    let tls = loaded(server.server(None));
    assert!(matches!(tls.reload(), Reload::Same));
    let shown = async || meet(&tls, &authority.client(None), "svc").await.1.unwrap();
    assert_eq!(shown().await, ["old.svc", "svc"]);

    // Half of a change: the key does not belong to the certificate.
    let next = authority.issue("next", &["new.svc", "svc"]);
    std::fs::copy(&next.certificate, &server.certificate).unwrap();
    let Reload::Failed(error) = tls.reload() else { panic!() };
    assert!(error.to_string().contains("server.pem"), "{error}");
    assert!(matches!(tls.reload(), Reload::Same), "told once");
    assert_eq!(shown().await, ["old.svc", "svc"]);
    copy(&next, &server);
    assert!(matches!(tls.reload(), Reload::Loaded));
    assert_eq!(shown().await, ["new.svc", "svc"]);

    for nonsense in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        std::fs::write(&server.certificate, nonsense).unwrap();
        assert!(matches!(tls.reload(), Reload::Failed(_)), "{nonsense:?}");
        assert_eq!(shown().await, ["new.svc", "svc"]);
    }
    std::fs::remove_file(&server.certificate).unwrap();
    assert!(matches!(tls.reload(), Reload::Failed(_)));
    assert_eq!(shown().await, ["new.svc", "svc"]);
}

#[tokio::test]
async fn another_authority_for_clients_holds_from_the_next_connection_on() {
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (Authority::new(dir.path(), "before"), Authority::new(dir.path(), "after"));
    let server = before.issue("server", &["svc"]);
    let tls = loaded(server.server(Some(&dir.path().join("before-ca.pem"))));
    let node = before.issue("node", &["n1"]);
    assert!(meet(&tls, &before.client(Some(&node)), "svc").await.0.is_ok());
    std::fs::copy(&after.ca, &before.ca).unwrap();
    assert!(matches!(tls.reload(), Reload::Loaded));
    let late = ClientFiles { ca: dir.path().join("kept.pem"), ..before.client(Some(&node)) };
    // The server's own certificate is still of the authority before.
    let again = Authority::new(dir.path(), "unrelated");
    assert!(meet(&tls, &late, "svc").await.0.is_err(), "its own trust is gone");
    assert!(meet(&tls, &again.client(Some(&node)), "svc").await.0.is_err());
}

#[tokio::test]
async fn without_a_certificate_nobody_is_let_in_until_there_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let later = dir.path().join("later");
    std::fs::create_dir(&later).unwrap();
    let files =
        ServerFiles { certificate: later.join("server.pem"), key: later.join("server.key"), client_ca: None };
    let tls = Arc::new(ServerTls::new(files, HTTP_1));
    assert!(matches!(tls.reload(), Reload::Failed(_)));
    let (accepted, connected) = meet(&tls, &authority.client(None), "svc").await;
    assert!(matches!(accepted, Err(HandshakeError::NoCertificate)));
    assert!(connected.is_err());
    let server = authority.issue("server", &["svc"]);
    let target = Identity { certificate: later.join("server.pem"), key: later.join("server.key") };
    copy(&server, &target);
    assert!(matches!(tls.reload(), Reload::Loaded));
    assert!(meet(&tls, &authority.client(None), "svc").await.1.is_ok());
}
