//! When a pod's annotation names its boards.

use crate::bed::{BOARD, Bed, Mode};
use fpga_test_kit::until_async;

/// A node whose pod `cart` waits for a bitstream that does not come.
async fn with_waiting_pod() -> Bed {
    let bed = Bed::start();
    bed.add_bitstream("sobel");
    bed.registry_sends(false);
    bed.admit("cart", "sobel").await;
    bed
}

/// Waits until the pod's annotation names the board, while the kubelet tries to start its container.
async fn until_announced(bed: &Bed) {
    let announced = until_async("the annotation", async || bed.announced("cart"));
    tokio::select! {
        () = bed.start_container_at_last("cart") => panic!("it has started without its bitstream"),
        boards = announced => assert_eq!(boards, BOARD),
    }
}

#[tokio::test]
async fn a_pod_that_waits_for_its_bitstreams_says_which_boards_it_has() {
    let bed = with_waiting_pod().await;
    until_announced(&bed).await;
    bed.registry_sends(true);
    bed.start_container_at_last("cart").await;
    assert_eq!(bed.announced("cart").as_deref(), Some(BOARD));
}

#[tokio::test]
async fn a_pod_says_its_boards_also_if_the_plugin_ended_between_its_claim_and_the_write() {
    let mut bed = with_waiting_pod().await;
    bed.api_server(Mode::SilentToWrites);
    let token = until_async("the claim", async || bed.tokens().pop());
    let token = tokio::select! {
        () = bed.start_container_at_last("cart") => panic!("it has started without its bitstream"),
        token = token => token,
    };
    bed.restart_plugin();
    bed.api_server(Mode::Answers);
    until_announced(&bed).await;
    assert_eq!(bed.tokens(), [token]);
}

#[tokio::test]
async fn a_container_starts_while_the_api_server_takes_no_annotation() {
    let bed = Bed::start();
    bed.add_bitstream("sobel");
    bed.admit("cart", "sobel").await;
    bed.api_server(Mode::SilentToWrites);
    bed.start_container("cart").await.unwrap();
    assert_eq!(bed.announced("cart"), None);
}

#[tokio::test]
async fn a_container_that_starts_again_with_its_boards_writes_no_annotation() {
    let bed = Bed::start();
    bed.add_bitstream("sobel");
    bed.admit("cart", "sobel").await;
    bed.start_container("cart").await.unwrap();
    until_async("the annotation", async || bed.announced("cart")).await;
    bed.start_container("cart").await.unwrap();
    assert_eq!(bed.writes(), 1);
}
