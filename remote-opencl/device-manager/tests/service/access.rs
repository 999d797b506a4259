//! Who may have a session, and as whose it counts.

use crate::harness::{Client, DEADLINE, Manager};
use std::time::{Duration, Instant};
use tonic::Code;

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
    let since = Instant::now();
    while Client::try_token(manager.channel().await, ALICE).await.is_ok() {
        assert!(since.elapsed() < DEADLINE, "the old token is still good");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut again = Client::with_token(manager.channel().await, BOB).await;
    again.context().await;
    // Who is in stays in.
    alice.context().await;
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
