//! Which clients may have a session, and as which tenant.

use crate::harness::{Client, Manager};
use crate::service::command_ring::Ring;
use crate::service::shared_memory::{create, open_side};
use fpga_net::tls::{ClientFiles, HTTP_2};
use fpga_test_kit::{Authority, Identity, until_async};
use hyper_util::rt::TokioIo;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const ALICE: &str = "token-of-alice-0123456789";
const BOB: &str = "token-of-bob-0123456789";

#[tokio::test]
async fn where_there_are_tokens_a_session_has_to_show_one_and_they_can_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, token: &str| std::fs::write(folder.path().join(name), token).unwrap();
    write("alice", ALICE);
    let manager = Manager::start(&["--tokens", folder.path().to_str().unwrap()]);
    for (token, reason) in [("", "FPGA_TOKEN_FILE"), (BOB, "doesn't know"), (&ALICE[..20], "doesn't know")] {
        let status = Client::refused_with(manager.channel().await, token).await;
        assert_eq!(status.code(), Code::Unauthenticated);
        assert!(status.message().contains(reason), "{status}");
    }
    let mut alice = Client::with_token(manager.channel().await, ALICE).await;
    alice.context().await;
    assert!(manager.metrics_text().contains("fpga_device_manager_access_refusals_total 3"));

    write("alice", BOB);
    until_async("the old token to be refused", async || {
        Client::try_token(manager.channel().await, ALICE).await.is_err()
    })
    .await;
    let mut again = Client::with_token(manager.channel().await, BOB).await;
    again.context().await;
    assert_eq!(alice.end().await.expect("an error").code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_user_an_address_and_a_certificate_prove_nothing_where_there_are_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new(folder.path(), "ours");
    let (server, client) = (ours.issue("server", &["localhost"]), ours.issue("client", &["client.example"]));
    let tokens = folder.path().join("tokens");
    std::fs::create_dir(&tokens).unwrap();
    std::fs::write(tokens.join("alice"), ALICE).unwrap();
    let more = ["--tokens", tokens.to_str().unwrap()];
    let with_tls = start_with_tls(&server, &ours.ca, &more);
    let without = Manager::start(&[&["--listen", "tcp://127.0.0.1:0", "--insecure-tcp"], &more[..]].concat());
    let channels = [
        with_tls.channel().await,
        tls_channel(&with_tls, ours.client(Some(&client))).await.unwrap(),
        without.channel().await,
        without.tcp_channel().await,
    ];
    for channel in channels {
        for token in ["", BOB] {
            let status = Client::refused_with(channel.clone(), token).await;
            assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        }
        Client::with_token(channel, ALICE).await.context().await;
    }
    for manager in [with_tls, without] {
        assert!(manager.metrics_text().contains("fpga_device_manager_access_refusals_total 4"));
    }
}

#[tokio::test]
async fn optional_tokens_let_those_without_one_in_as_the_user_that_they_are() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("alice"), ALICE).unwrap();
    let tokens = folder.path().to_str().unwrap();
    let manager = Manager::start(&["--tokens", tokens, "--tokens-optional"]);
    Client::with_token(manager.channel().await, ALICE).await.context().await;
    Client::connect(&manager).await.context().await;
    let status = Client::refused_with(manager.channel().await, BOB).await;
    assert_eq!(status.code(), Code::Unauthenticated, "a wrong token is not the same as none");
}

#[tokio::test]
async fn a_session_with_a_token_has_shared_memory_and_a_ring_as_one_without_has() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("alice"), ALICE).unwrap();
    let tokens = folder.path().to_str().unwrap();
    for isolate in ["protocol", "process"] {
        let manager = Manager::start(&["--tokens", tokens, "--isolate", isolate]);
        let mut alice = Client::with_token(manager.channel().await, ALICE).await;
        let side = open_side(&manager, &alice);
        create(&mut alice, &side, 1 << 20).await;
        let mut other = Client::with_token(manager.channel().await, ALICE).await;
        let _ring = Ring::open(&manager, &mut other).await;
    }
}

/// A connection by TLS to the manager's TCP address.
async fn tls_channel(manager: &Manager, files: ClientFiles) -> Result<Channel, tonic::transport::Error> {
    let address = manager.tcp_address().replace("tcp://", "");
    let connect = tower::service_fn(move |_: tonic::transport::Uri| {
        let (address, files) = (address.clone(), files.clone());
        async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            let stream = files.connect(stream, "localhost", HTTP_2).await.map_err(std::io::Error::other)?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    Endpoint::from_static("http://manager").connect_with_connector(connect).await
}

fn start_with_tls(server: &Identity, client_ca: &std::path::Path, more: &[&str]) -> Manager {
    let (certificate, key) = (server.certificate.to_str().unwrap(), server.key.to_str().unwrap());
    let mut args = vec!["--listen", "tcp://127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key];
    args.extend(["--tls-client-ca", client_ca.to_str().unwrap()]);
    args.extend(more);
    Manager::start(&args)
}

#[tokio::test]
async fn over_tls_a_certificate_proves_the_tenant_and_without_a_good_one_nobody_gets_in() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new(folder.path(), "ours"), Authority::new(folder.path(), "theirs"));
    let server = ours.issue("server", &["localhost"]);
    let alice = ours.issue("alice", &["alice.tenants.example", "other.example"]);
    let mallory = theirs.issue("mallory", &["alice.tenants.example"]);
    let quotas = folder.path().join("tenants.json");
    let text = r#"{"tenants": {"cert:alice.tenants.example": {"quota": {"sessions": 1}}}}"#;
    std::fs::write(&quotas, text).unwrap();
    let manager = start_with_tls(&server, &ours.ca, &["--tenants", quotas.to_str().unwrap()]);

    let channel = tls_channel(&manager, ours.client(Some(&alice))).await.unwrap();
    let mut client = Client::over(channel.clone()).await;
    client.context().await;
    let status = Client::refused(channel).await;
    assert_eq!(status.code(), Code::ResourceExhausted, "it is alice, who may have one session: {status}");

    // Without a certificate, with another authority's, without TLS.
    for identity in [None, Some(&mallory)] {
        let files = ClientFiles { ca: ours.ca.clone(), ..theirs.client(identity) };
        assert!(!gets_in(tls_channel(&manager, files).await).await);
    }
    let plain =
        Endpoint::from_shared(manager.tcp_address().replace("tcp://", "http://")).unwrap().connect().await;
    assert!(!gets_in(plain).await);
    client.context().await;
}

/// Whether a session begins. With TLS 1.3 a client learns only from the first answer that its certificate is
/// refused.
async fn gets_in(channel: Result<Channel, tonic::transport::Error>) -> bool {
    use fpga_protocol::v1::device_manager_client::DeviceManagerClient;
    let Ok(channel) = channel else { return false };
    let hello = crate::harness::hello(fpga_protocol::limits::PROTOCOL_VERSION);
    let session = DeviceManagerClient::new(channel).session(tokio_stream::iter([hello])).await;
    match session {
        Ok(response) => matches!(response.into_inner().message().await, Ok(Some(_))),
        Err(_) => false,
    }
}

#[tokio::test]
async fn a_new_certificate_serves_new_connections_and_the_old_ones_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(folder.path(), "old"), Authority::new(folder.path(), "new"));
    let server = old.issue("server", &["localhost"]);
    let client = old.issue("client", &["client.example"]);
    let manager = start_with_tls(&server, &old.ca, &[]);
    let mut before = Client::over(tls_channel(&manager, old.client(Some(&client))).await.unwrap()).await;
    new.issue("server", &["localhost"]);
    let trusting_new = ClientFiles { ca: new.ca.clone(), ..old.client(Some(&client)) };
    until_async("the new certificate to be used", async || {
        gets_in(tls_channel(&manager, trusting_new.clone()).await).await
    })
    .await;
    before.context().await;
}
