//! Streams over TLS: the node of a client certificate, and changed certificates.

use fpga_net::http::Refusal;
use fpga_net::tls::{HTTP_2, ServerFiles, ServerTls};
use fpga_net::token_file::TokenFile;
use fpga_node_stream::access::Access;
use fpga_node_stream::client::{Address, Credentials, NodeStream, StreamError};
use fpga_node_stream::server::serve_with;
use fpga_node_stream::v1::{Introduction, Verdict};
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::Clock;
use fpga_scheduler_extender::index::Shown;
use fpga_scheduler_extender::stream::IndexReceiver;
use fpga_test_kit::{Authority, Identity, until_async};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::Code;

/// A replica that knows the nodes n1 and n2 and has a certificate for 127.0.0.1.
struct Replica {
    app: Arc<App>,
    port: u16,
    authority: Authority,
    dir: TempDir,
}

impl Replica {
    /// A replica with the certificates of `files` and the authentication of `access`.
    async fn start(files: impl Fn(&Authority) -> ServerFiles, access: impl Fn(&TempDir) -> Access) -> Self {
        let dir = TempDir::new().unwrap();
        let authority = Authority::new(dir.path(), "ours");
        let app = Arc::new(App::new(Default::default(), Clock::system()));
        for name in ["n1", "n2"] {
            let (name, uid) = (Some(name.to_owned()), Some(format!("uid-of-{name}")));
            app.index.apply(ObjectMeta { name, uid, ..Default::default() }, Shown::Listed, app.clock.read());
        }
        app.index.listed(&["n1", "n2"].map(str::to_owned).into());
        let (index, metrics) = (Arc::clone(&app.index), Arc::clone(&app.metrics));
        let streams = IndexReceiver { index, metrics, clock: app.clock.clone() }.streams(access(&dir));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tls = Arc::new(ServerTls::new(files(&authority), HTTP_2));
        let _ = tls.reload();
        tokio::spawn(serve_with(listener, Some(tls), streams));
        Self { app, port, authority, dir }
    }

    async fn open_as(
        &self,
        identity: Option<&Identity>,
        access: Access,
        node: &str,
    ) -> Result<NodeStream, StreamError> {
        let tls = Some(self.authority.client(identity));
        let introduction = Introduction { node: node.to_owned(), uid: format!("uid-of-{node}") };
        NodeStream::open(&self.address("https"), &Credentials { access, tls }, introduction).await
    }

    async fn open(&self, identity: Option<&Identity>, node: &str) -> Result<NodeStream, StreamError> {
        self.open_as(identity, Access::Open, node).await
    }

    fn address(&self, scheme: &str) -> Address {
        Address { uri: format!("{scheme}://127.0.0.1:{}", self.port).parse().unwrap(), name: None }
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.app.registry).unwrap();
        text
    }

    async fn until_metric(&self, line: &str) {
        until_async(line, async || {
            let text = self.metrics();
            if text.lines().any(|shown| shown == line) { Ok(()) } else { Err(text) }
        })
        .await;
    }
}

fn mutual(authority: &Authority) -> ServerFiles {
    authority.issue("server", &["127.0.0.1", "extender.svc"]).server(Some(&authority.ca))
}

fn state(seq: u64) -> String {
    format!(
        r#"{{"v":1,"boot":1,"seq":{seq},"heartbeatMs":60000,"measuredAtMs":5,"windowMs":300000,"usageMs":0,"reconfigurationMs":0,"window":{{"bucketMs":10000}}}}"#
    )
}

async fn takes(stream: &mut NodeStream, seq: u64) {
    assert_eq!(stream.send(state(seq)).await.unwrap().verdict(), Verdict::Taken);
}

#[tokio::test]
async fn a_certificate_speaks_for_the_node_that_it_names_and_no_other() {
    let replica = Replica::start(mutual, |_| Access::Open).await;
    let n1 = replica.authority.issue("n1", &["n1"]);
    takes(&mut replica.open(Some(&n1), "n1").await.unwrap(), 1).await;
    let refused = replica.open(Some(&n1), "n2").await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
    for names in [["n", "N2"].as_slice(), &["*.n2", "n1.n2", "n2.example"], &[]] {
        let other = replica.authority.issue("other", names);
        let refused = replica.open(Some(&other), "n2").await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::PermissionDenied), "{names:?}: {refused}");
    }
    replica.until_metric("fpga_extender_streams_refused_total{reason=\"other_node\"} 4").await;

    // Without a certificate, or with one of another authority, the handshake fails.
    assert!(replica.open(None, "n2").await.is_err());
    let strangers = Authority::new(replica.dir.path(), "strangers");
    let stranger = strangers.issue("stranger", &["n2"]);
    assert!(replica.open(Some(&stranger), "n2").await.is_err());
    replica
        .until_metric("fpga_extender_connections_refused_total{port=\"stream\",reason=\"handshake\"} 2")
        .await;
    assert_eq!(Refusal::Handshake.name(), "handshake");
}

#[tokio::test]
async fn certificate_and_token_must_both_hold() {
    let replica = Replica::start(mutual, |dir| {
        std::fs::write(dir.path().join("token"), "a-token-for-these-tests").unwrap();
        Access::Token(TokenFile::new(dir.path().join("token")))
    })
    .await;
    let n1 = replica.authority.issue("n1", &["n1"]);
    let token = || Access::Token(TokenFile::new(replica.dir.path().join("token")));
    takes(&mut replica.open_as(Some(&n1), token(), "n1").await.unwrap(), 1).await;
    let code = async |access, node| replica.open_as(Some(&n1), access, node).await.unwrap_err().code();
    assert_eq!(code(Access::Open, "n1").await, Some(Code::Unauthenticated));
    assert_eq!(code(token(), "n2").await, Some(Code::PermissionDenied));
}

#[tokio::test]
async fn neither_side_speaks_to_one_that_is_not_what_it_should_be() {
    let open = |authority: &Authority| authority.issue("server", &["127.0.0.1"]).server(None);
    let replica = Replica::start(open, |_| Access::Open).await;
    takes(&mut replica.open(None, "n1").await.unwrap(), 1).await;
    let introduction = || Introduction { node: "n1".to_owned(), uid: "uid-of-n1".to_owned() };
    let credentials = |tls| Credentials { access: Access::Open, tls };
    // Clients without TLS, without an authority, with another authority, and with another name.
    let plain = NodeStream::open(&replica.address("http"), &credentials(None), introduction()).await;
    assert!(plain.is_err());
    let blind = NodeStream::open(&replica.address("https"), &credentials(None), introduction()).await;
    assert!(matches!(blind, Err(StreamError::Unreachable(_))));
    let strangers = Authority::new(replica.dir.path(), "strangers");
    let trusting = credentials(Some(strangers.client(None)));
    let other = NodeStream::open(&replica.address("https"), &trusting, introduction()).await;
    assert!(matches!(other, Err(StreamError::Tls(_))));
    let ours = credentials(Some(replica.authority.client(None)));
    let named = Address { name: Some("extender.svc".to_owned()), ..replica.address("https") };
    assert!(matches!(NodeStream::open(&named, &ours, introduction()).await, Err(StreamError::Tls(_))));
}

#[tokio::test]
async fn a_certificate_may_come_late_and_change_under_open_streams() {
    let later = |authority: &Authority| {
        let files = authority.issue("server", &["127.0.0.1"]).server(None);
        std::fs::rename(&files.key, files.key.with_extension("hidden")).unwrap();
        files
    };
    let replica = Replica::start(later, |_| Access::Open).await;
    assert!(replica.open(None, "n1").await.is_err(), "there is no certificate yet");
    replica.authority.issue("server", &["127.0.0.1"]);
    replica
        .until_metric("fpga_extender_certificate_reloads_total{port=\"stream\",outcome=\"loaded\"} 1")
        .await;
    let mut stream = replica.open(None, "n1").await.unwrap();
    takes(&mut stream, 1).await;
    let server = replica.authority.issue("server", &["127.0.0.1", "another.name"]);
    replica
        .until_metric("fpga_extender_certificate_reloads_total{port=\"stream\",outcome=\"loaded\"} 2")
        .await;
    takes(&mut stream, 2).await;
    std::fs::write(&server.certificate, "nonsense").unwrap();
    replica.until_metric("fpga_extender_certificate_unused{port=\"stream\"} 1").await;
    takes(&mut stream, 3).await;
    takes(&mut replica.open(None, "n2").await.unwrap(), 1).await;
}
