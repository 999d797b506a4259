//! What becomes of sessions whose token is revoked.

use crate::harness::wire::{next, raw};
use crate::harness::{Client, Manager};
use crate::service::command_ring::Ring;
use crate::service::shared_memory::{create, open_side};
use fpga_protocol::limits::PROTOCOL_VERSION;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::server_message::Kind as ServerKind;
use fpga_protocol::v1::{self, ServerMessage};
use fpga_test_kit::patience;
use std::path::Path;
use tokio::sync::mpsc::Sender;
use tonic::{Code, Status, Streaming};

const FIRST: &str = "first-token-of-the-shop-0123456789";
const SECOND: &str = "second-token-of-the-shop-0123456789";

/// A folder in which the tenant `shop` has two tokens, as the node plugin writes them.
fn tokens_of_shop() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let shop = folder.path().join("shop");
    std::fs::create_dir(&shop).unwrap();
    std::fs::write(shop.join("1"), FIRST).unwrap();
    std::fs::write(shop.join("2"), SECOND).unwrap();
    folder
}

fn revoke_first(folder: &Path) {
    std::fs::remove_file(folder.join("shop/1")).unwrap();
}

fn is_revoked(status: &Status) -> bool {
    status.code() == Code::Unauthenticated && status.message().contains("revoked")
}

#[tokio::test]
async fn sessions_of_a_revoked_token_end_and_those_of_the_tenants_other_token_go_on() {
    for isolate in ["protocol", "process"] {
        let folder = tokens_of_shop();
        let manager = Manager::start(&["--tokens", folder.path().to_str().unwrap(), "--isolate", isolate]);
        let mut with_ring = Client::with_token(manager.channel().await, FIRST).await;
        let _ring = Ring::open(&manager, &mut with_ring).await;
        let mut with_memory = Client::with_token(manager.channel().await, FIRST).await;
        let side = open_side(&manager, &with_memory);
        create(&mut with_memory, &side, 1 << 20).await;
        let mut busy = Client::with_token(manager.channel().await, FIRST).await;
        let context = busy.context().await;
        let queue = busy.queue(context, 0).await;
        let mut other = Client::with_token(manager.channel().await, SECOND).await;

        revoke_first(folder.path());
        // A client that always has something to say is heard no longer than a silent one.
        let busy = tokio::time::timeout(patience(), async {
            loop {
                let marker = busy.command(queue, Operation::Marker(v1::Marker {}));
                if busy.try_send(Kind::Flush(v1::Flush { commands: vec![marker] })).await.is_err() {
                    return busy.end().await;
                }
            }
        });
        for ended in [busy.await.unwrap(), with_ring.end().await, with_memory.end().await] {
            let status = ended.expect("an error");
            assert!(is_revoked(&status), "{isolate}: {status}");
        }
        other.context().await;
        manager.has_no_more_sessions_than(1).await;
        let status = Client::refused_with(manager.channel().await, FIRST).await;
        assert_eq!(status.code(), Code::Unauthenticated);
    }
}

pub type Stream = (Sender<v1::ClientMessage>, Streaming<ServerMessage>);

pub async fn say_hello(manager: &Manager, token: &str, resume: Option<v1::Resume>) -> Stream {
    let (to, from) = raw(manager.channel().await).await;
    let (protocol_version, token) = (PROTOCOL_VERSION, token.to_owned());
    let hello = v1::Hello { protocol_version, token, resumable: true, resume, ..v1::Hello::default() };
    to.send(v1::ClientMessage { kind: Some(Kind::Hello(hello)) }).await.unwrap();
    (to, from)
}

#[tokio::test]
async fn a_session_that_waits_for_its_client_ends_with_its_token_and_can_not_be_resumed() {
    for isolate in ["protocol", "process"] {
        let folder = tokens_of_shop();
        let tokens = folder.path().to_str().unwrap();
        let manager = Manager::start(&["--tokens", tokens, "--isolate", isolate, "--reconnect-grace", "1h"]);
        let (to, mut from) = say_hello(&manager, FIRST, None).await;
        let Some(ServerKind::Welcome(welcome)) = next(&mut from).await.unwrap() else { panic!("no Welcome") };
        assert!(!welcome.resume_key.is_empty());
        // The connection is lost, not ended.
        drop(from);
        revoke_first(folder.path());
        manager.has_no_session().await;
        drop(to);
        let resume = v1::Resume { key: welcome.resume_key, received: 1 };
        for (token, code) in [(FIRST, Code::Unauthenticated), (SECOND, Code::NotFound)] {
            let (_to, mut from) = say_hello(&manager, token, Some(resume.clone())).await;
            let status = next(&mut from).await.unwrap_err();
            assert_eq!(status.code(), code, "{isolate}: {status}");
        }
    }
}
