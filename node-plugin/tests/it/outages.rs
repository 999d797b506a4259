//! An outage of the API server: containers that have boards restart, and device managers get answers, as before.

use crate::bed::{Bed, Mode, file};
use fpga_core::gate::GateAnswer;
use fpga_test_kit::until;
use std::fs;

/// A node whose pod `cart` runs with the bitstream `sobel`, and the pod's token.
async fn with_container() -> (Bed, String) {
    let bed = Bed::start();
    bed.add_bitstream("sobel");
    bed.add_bitstream("mm");
    bed.admit("cart", "sobel").await;
    bed.start_container("cart").await.unwrap();
    let [token] = bed.tokens().try_into().unwrap();
    (bed, token)
}

async fn a_restart_keeps_everything_while_the_api_server_is(mode: Mode) {
    let (mut bed, token) = with_container().await;
    bed.api_server(mode);
    bed.start_container("cart").await.unwrap();
    bed.restart_plugin();
    bed.start_container("cart").await.unwrap();
    assert_eq!(bed.tokens(), std::slice::from_ref(&token));
    assert_eq!(bed.bitstreams(), [file("sobel")].into());
    // Back again, the API server decides again.
    bed.api_server(Mode::Answers);
    bed.start_container("cart").await.unwrap();
    assert_eq!((bed.tokens(), bed.bitstreams()), (vec![token], [file("sobel")].into()));
}

#[tokio::test]
async fn a_container_that_restarts_while_the_api_server_refuses_keeps_its_board_token_and_bitstreams() {
    a_restart_keeps_everything_while_the_api_server_is(Mode::Unavailable).await;
}

#[tokio::test]
async fn a_container_that_restarts_while_the_api_server_is_silent_keeps_its_board_token_and_bitstreams() {
    a_restart_keeps_everything_while_the_api_server_is(Mode::Silent).await;
}

#[tokio::test]
async fn a_container_that_has_never_started_waits_for_the_api_server() {
    let (bed, _) = with_container().await;
    bed.admit("late", "sobel").await;
    bed.api_server(Mode::Unavailable);
    let refused = bed.start_container("late").await.unwrap_err();
    assert!(refused.contains("the API server does not tell about the pod"), "{refused}");
    bed.api_server(Mode::Answers);
    bed.start_container("late").await.unwrap();
}

#[tokio::test]
async fn a_container_whose_files_are_damaged_does_not_start_with_them() {
    let (bed, _) = with_container().await;
    let path = bed.only_folder().join(file("sobel").0);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "other bytes").unwrap();
    bed.api_server(Mode::Unavailable);
    let refused = bed.start_container("cart").await.unwrap_err();
    assert!(refused.contains("the API server does not tell about the pod"), "{refused}");
    bed.api_server(Mode::Answers);
    bed.start_container("cart").await.unwrap();
    assert_eq!(bed.bitstreams(), [file("sobel")].into());
}

#[tokio::test]
async fn the_gate_lets_a_container_load_what_another_namespace_gave_it_and_nothing_else_of_that_namespace() {
    let bed = Bed::start();
    bed.add_bitstream_of("mill", "mm", "All");
    bed.add_bitstream_of("mill", "sobel", "All");
    bed.admit("cart", "mill/mm").await;
    bed.start_container("cart").await.unwrap();
    let [token] = bed.tokens().try_into().unwrap();
    gate_allows(&bed, &token);
    let refused = bed.gate(&token, "sobel");
    assert!(
        matches!(&refused, GateAnswer::Refused(reason) if reason.contains("lists no bitstream")),
        "{refused:?}"
    );
}

/// Asks until the container may have `mm`, which nobody has asked for before the outage.
fn gate_allows(bed: &Bed, token: &str) {
    until("the gate to allow the bitstream", || match bed.gate(token, "mm") {
        GateAnswer::Allowed => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
}

#[tokio::test]
async fn the_gate_goes_on_by_its_last_library_while_the_api_server_refuses_and_after_a_restart_of_the_plugin()
{
    let (mut bed, token) = with_container().await;
    gate_allows(&bed, &token);
    bed.api_server(Mode::Unavailable);
    bed.restart_plugin();
    gate_allows(&bed, &token);
    let refused = bed.gate(&token, "nobody-has-this");
    assert!(
        matches!(&refused, GateAnswer::Refused(reason) if reason.contains("lists no bitstream")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_gate_answers_a_manager_in_time_while_the_api_server_is_silent() {
    let (mut bed, token) = with_container().await;
    gate_allows(&bed, &token);
    bed.api_server(Mode::Silent);
    bed.restart_plugin();
    for _ in 0..3 {
        assert_eq!(bed.gate(&token, "mm"), GateAnswer::Allowed);
    }
}

#[tokio::test]
async fn a_container_that_has_never_asked_the_gate_gets_its_answer_in_an_outage() {
    let (mut bed, token) = with_container().await;
    bed.library_is_kept();
    bed.api_server(Mode::Unavailable);
    bed.restart_plugin();
    gate_allows(&bed, &token);
}
