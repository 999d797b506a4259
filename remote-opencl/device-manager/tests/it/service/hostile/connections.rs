//! A tenant that takes all connections of a manager. The other tenant has the same user id, as containers have.

use crate::harness::{Client, Manager, next, try_raw};
use crate::service::revocation::say_hello;
use crate::service::shared_memory::open_side;
use fpga_protocol::v1;
use fpga_protocol::v1::server_message::Kind as ServerKind;
use fpga_test_kit::until_async;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const HOSTILE: &str = "token-of-the-hostile-one";
const OTHER: &str = "token-of-somebody-else";
/// More than a manager has.
const CONNECTIONS: usize = 520;
/// So much that no session is refused for its memory or its tenant's quota.
const ROOM: [&str; 4] = ["--client-memory", "64GiB", "--default-quota", "sessions=1024"];

/// A manager with both tenants, and the folder of their tokens.
fn manager(args: &[&str]) -> (Manager, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    for (name, token) in [("hostile", HOSTILE), ("other", OTHER)] {
        std::fs::write(folder.path().join(name), token).unwrap();
    }
    let tokens = ["--tokens", folder.path().to_str().unwrap()];
    (Manager::start(&[&tokens[..], &ROOM[..], args].concat()), folder)
}

/// A connection with pings. The manager may have closed it already.
async fn pinging(manager: &Manager) -> Option<Channel> {
    let socket = manager.socket();
    let connect = tower::service_fn(move |_: tonic::transport::Uri| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://manager")
        .http2_keep_alive_interval(Duration::from_millis(500))
        .keep_alive_while_idle(true)
        .connect_with_connector(connect)
        .await
        .ok()
}

/// The other tenant gets a session and results at its first attempt.
async fn the_other_works(manager: &Manager) {
    let mut other = Client::with_token(manager.channel().await, OTHER).await;
    let context = other.context().await;
    let queue = other.queue(context, 0).await;
    let buffer = other.buffer(context, 4).await;
    let read = other.read(queue, buffer, 4);
    let event = read.event;
    other.flush(vec![read]).await;
    assert_eq!(other.completion(event).await.1, [0; 4]);
}

#[tokio::test]
async fn connections_whose_sessions_have_ended_and_whose_streams_say_nothing_keep_nobody_out() {
    let (manager, _tokens) = manager(&[]);
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let Some(channel) = pinging(&manager).await else { continue };
        let Ok(session) = Client::try_with_token(channel.clone(), HOSTILE).await else { continue };
        drop(session);
        // The first message of this stream never comes.
        if let Ok(stream) = try_raw(channel.clone()).await {
            held.push((channel, stream));
        }
    }
    assert!(held.len() > CONNECTIONS / 2, "only {} got through", held.len());
    the_other_works(&manager).await;
}

#[tokio::test]
async fn sessions_on_all_connections_that_a_tenant_gets_leave_connections_for_another_tenant() {
    let (manager, _tokens) = manager(&[]);
    let mut held = Vec::new();
    let refused = loop {
        match Client::try_with_token(manager.channel().await, HOSTILE).await {
            Ok(session) => held.push(session),
            Err(status) => break status,
        }
        assert!(held.len() < CONNECTIONS);
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("connections"), "{refused}");
    the_other_works(&manager).await;
    drop(held.pop());
    until_async("the tenant to get in again", async || {
        Client::try_with_token(manager.channel().await, HOSTILE).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_session_that_is_resumed_over_many_connections_has_one() {
    const RESUMED: usize = 300;
    let (manager, _tokens) = manager(&[]);
    let mut first = say_hello(&manager, HOSTILE, None).await;
    let Ok(Some(ServerKind::Welcome(welcome))) = next(&mut first.1).await else { panic!("no Welcome") };
    let mut held = vec![first];
    for _ in 0..RESUMED {
        let resume = v1::Resume { key: welcome.resume_key.clone(), received: 0 };
        let mut stream = say_hello(&manager, HOSTILE, Some(resume)).await;
        let answer = next(&mut stream.1).await;
        assert!(matches!(answer, Ok(Some(ServerKind::Welcome(_)))), "{answer:?}");
        held.push(stream);
    }
    the_other_works(&manager).await;
}

#[tokio::test]
async fn silent_clients_of_the_side_socket_keep_nobody_from_shared_memory() {
    const SILENT: usize = 200;
    const STAY: usize = 32;
    let manager = Manager::start(&[]);
    let side = format!("{}.fd", manager.socket().display());
    // The silent ones end by themselves after 2 s: that another client gets in then shows nothing.
    until_async("a client to get in while silent ones are there", async || {
        let mut silent = Vec::new();
        for _ in 0..SILENT {
            silent.push(tokio::net::UnixStream::connect(&side).await.unwrap());
        }
        let client = Client::connect(&manager).await;
        let _side = open_side(&manager, &client);
        let open = silent.iter().filter(|socket| super::exhaustion::is_open(socket)).count();
        if open >= STAY { Ok(()) } else { Err(format!("{open} silent ones are left")) }
    })
    .await;
}
