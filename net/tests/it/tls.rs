//! TLS between the client and the server of this crate: which peers are let in, and what happens when files change.

use fpga_net::tls::{
    ClientFiles, ConnectError, HTTP_1, HandshakeError, KnownClients, PinnedKey, Reload, ServerFiles,
    ServerTls, dns_names,
};
use fpga_test_kit::{Authority, Identity};
use rustls::ProtocolVersion;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Expiry of the certificates for which a test sets none, in seconds since the epoch: 4096-01-01.
const NEVER: i64 = 67_090_118_400;

/// The two results of one connection: the names that each end saw, or why there was no connection.
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

/// The first message of a client whose newest version is `version`: TLS 1.1 is 3.2, TLS 1.2 is 3.3.
fn hello(version: [u8; 2]) -> Vec<u8> {
    let vector = |body: &[u8]| [&u16::try_from(body.len()).unwrap().to_be_bytes(), body].concat();
    let extension = |kind: u8, body: &[u8]| [&[0, kind], vector(&vector(body)).as_slice()].concat();
    // The extensions that a server with such a key needs: curves and signature algorithms.
    let extensions = [extension(10, &[0, 29, 0, 23]), extension(13, &[4, 3, 5, 3, 8, 7])].concat();
    // Cipher suites with AES-GCM, for TLS 1.2, and with AES-CBC, for older versions.
    let suites = vector(&[0xc0, 0x2b, 0xc0, 0x2c, 0xc0, 0x09, 0xc0, 0x13]);
    let body = [&version[..], &[7; 32], &[0], &suites, &[1, 0], &vector(&extensions)].concat();
    let handshake = [&[1, 0], vector(&body).as_slice()].concat();
    [&[22, 3, 1], vector(&handshake).as_slice()].concat()
}

/// The first bytes of the server's answer to `hello`.
async fn answer(server: &Arc<ServerTls>, hello: &[u8]) -> [u8; 7] {
    let (near, mut far) = tokio::io::duplex(64 * 1024);
    let server = Arc::clone(server);
    let serving = tokio::spawn(async move { server.accept(near).await.map(drop) });
    far.write_all(hello).await.unwrap();
    let mut first = [0; 7];
    far.read_exact(&mut first).await.unwrap();
    drop(far);
    assert!(serving.await.unwrap().is_err(), "nobody can end the handshake here");
    first
}

#[tokio::test]
async fn a_server_speaks_tls_1_2_and_1_3_and_nothing_older() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let server = loaded(authority.issue("server", &["svc"]).server(None));
    // A fatal alert (2), protocol_version (70). The same hello with TLS 1.2 gets a handshake record.
    for old in [[3, 0], [3, 1], [3, 2]] {
        let answered = answer(&server, &hello(old)).await;
        assert_eq!((answered[0], &answered[3..]), (21, &[0, 2, 2, 70][..]), "{old:?}");
    }
    assert_eq!(answer(&server, &hello([3, 3])).await[0], 22);
    for (only, version) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let accepting = {
            let server = Arc::clone(&server);
            async move { server.accept(near).await }
        };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&authority.ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[only])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let connecting = connector.connect("svc".try_into().unwrap(), far);
        let (accepted, connected) = tokio::join!(accepting, connecting);
        assert_eq!(connected.unwrap().get_ref().1.protocol_version(), Some(version));
        assert_eq!(accepted.unwrap().0.get_ref().1.protocol_version(), Some(version));
    }
}

#[tokio::test]
async fn a_client_offers_tls_1_2_and_1_3_and_nothing_older() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let (near, mut far) = tokio::io::duplex(64 * 1024);
    let client = authority.client(None);
    let connecting = tokio::spawn(async move { client.connect(near, "svc", HTTP_1).await.map(drop) });
    let mut head = [0; 5];
    far.read_exact(&mut head).await.unwrap();
    let mut hello = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    far.read_exact(&mut hello).await.unwrap();
    drop(far);
    assert!(connecting.await.unwrap().is_err());
    // The extension supported_versions (43): its length, the list's length, and 1.3 and 1.2 in either order.
    let offers = |versions: [u8; 4]| {
        let extension = [&[0, 43, 0, 5, 4], &versions[..]].concat();
        hello.windows(extension.len()).any(|window| window == extension)
    };
    assert!(offers([3, 4, 3, 3]) || offers([3, 3, 3, 4]), "{hello:02x?}");
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

    // Only one of two files is replaced: the key does not belong to the certificate.
    let next = authority.issue_until("next", &["new.svc", "svc"], (2031, 1, 2));
    assert_eq!((tls.expiry().certificate, tls.expiry().client_ca), (Some(NEVER), None));
    std::fs::copy(&next.certificate, &server.certificate).unwrap();
    let Reload::Failed(error) = tls.reload() else { panic!() };
    assert!(error.to_string().contains("server.pem"), "{error}");
    assert!(matches!(tls.reload(), Reload::Same), "told once");
    assert_eq!(shown().await, ["old.svc", "svc"]);
    copy(&next, &server);
    assert!(matches!(tls.reload(), Reload::Loaded));
    assert_eq!(shown().await, ["new.svc", "svc"]);
    assert_eq!(tls.expiry().certificate, Some(1_925_078_400));

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
    // The server's own certificate was issued by the authority before.
    let again = Authority::new(dir.path(), "unrelated");
    assert!(meet(&tls, &late, "svc").await.0.is_err(), "its own trust is gone");
    assert!(meet(&tls, &again.client(Some(&node)), "svc").await.0.is_err());
}

#[tokio::test]
async fn clients_that_no_file_names_are_known_by_authority_and_common_name() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new(dir.path(), "ours"), Authority::new(dir.path(), "theirs"));
    let (tell, known) = tokio::sync::watch::channel(None);
    let tls = ServerTls::new(ours.issue("server", &["svc"]).server(None), HTTP_1);
    assert!(matches!(tls.reload(), Reload::Loaded));
    let tls = Arc::new(tls.for_clients(known));
    let proxy = theirs.issue_as("proxy", "front-proxy-client");
    let node = theirs.issue_as("node", "system:node:n1");
    let with = |identity: Option<&Identity>| ours.client(identity);
    // Nobody is known.
    assert!(matches!(tls.reload(), Reload::Failed(_)));
    assert!(meet(&tls, &with(Some(&proxy)), "svc").await.0.is_err());

    let authorities = std::fs::read_to_string(&theirs.ca).unwrap();
    let common_names = vec!["front-proxy-client".to_owned()];
    tell.send_replace(Some(KnownClients { authorities: authorities.clone(), common_names }));
    assert!(matches!(tls.reload(), Reload::Loaded));
    assert!(meet(&tls, &with(Some(&proxy)), "svc").await.1.is_ok());
    assert!(matches!(meet(&tls, &with(Some(&node)), "svc").await.0, Err(HandshakeError::Stranger)));
    let same_name = ours.issue_as("other", "front-proxy-client");
    for stranger in [None, Some(&same_name)] {
        assert!(matches!(meet(&tls, &with(stranger), "svc").await.0, Err(HandshakeError::Failed(_))));
    }
    // Without names the authority is enough.
    tell.send_replace(Some(KnownClients { authorities, common_names: Vec::new() }));
    assert!(meet(&tls, &with(Some(&node)), "svc").await.1.is_ok());
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

#[tokio::test]
async fn a_pinned_key_needs_no_authority_and_no_other_key_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let [ours, other] = ["server", "other"].map(|file| authority.issue(file, &["board.svc"]));
    let key = |identity: &Identity| {
        let certificate = CertificateDer::from_pem_file(&identity.certificate).unwrap();
        PinnedKey::of(&certificate).unwrap()
    };
    assert_ne!(key(&ours), key(&other));
    for (pinned, is_taken) in [(key(&ours), true), (key(&other), false)] {
        let server = loaded(ours.server(None));
        let (near, far) = tokio::io::duplex(64 * 1024);
        let serving = tokio::spawn(async move { server.accept(near).await.map(drop) });
        let connected = pinned.connect(far, HTTP_1).await;
        match is_taken {
            true => assert_eq!(connected.unwrap().get_ref().1.alpn_protocol(), Some(HTTP_1)),
            false => assert!(connected.unwrap_err().to_string().contains("another key")),
        }
        assert_eq!(serving.await.unwrap().is_ok(), is_taken);
    }
    assert_eq!(PinnedKey::of(&CertificateDer::from(vec![0x30, 0])), None);
}
