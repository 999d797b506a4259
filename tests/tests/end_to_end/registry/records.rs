//! The records of moves that somebody has spoilt: no bound could be kept, so nothing is moved until they begin anew.

use super::bed::{Bed, outcome_is};
use fpga_tests::testbed::manifests::NAMESPACE;
use fpga_tests::testbed::wait;
use serde_json::json;

/// Looks for moves in which the registry does nothing.
const LOOKS: f64 = 10.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_can_not_be_understood_stop_all_moves_until_they_begin_anew() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    let map = ["configmap", "fpga-registry-moves", "-n", NAMESPACE];
    let kubectl = async |verb: &str, more: &[&str]| bed.kubectl(&[&[verb], &map[..], more].concat()).await;
    let garbage = "[{\"pod\": 1}, garbage";
    let patch = json!({"data": {"moves.json": garbage}}).to_string();
    kubectl("patch", &["--type=merge", "-p", &patch]).await;
    let registry = bed.registry("registry", "evict", &[]).await;
    let pod = bed.lose_board_of("sobel").await;
    let errors = async || registry.metric(&bed.http, "fpga_registry_write_errors_total").await;
    let before = errors().await.unwrap();
    wait::until("the registry to look some times", async || {
        Ok((errors().await? >= before + LOOKS).then_some(()))
    })
    .await
    .unwrap();
    assert!(bed.is_there(&pod).await);
    assert_eq!(
        kubectl("get", &["-o", "jsonpath={.data.moves\\.json}"]).await,
        garbage,
        "nobody writes over it"
    );
    let log = std::fs::read_to_string(registry.process().log()).unwrap();
    assert!(log.contains("moves.json of the ConfigMap fpga-registry-moves can't be understood"), "{log}");
    assert!(log.contains("delete the key to begin anew"), "{log}");

    let delete = json!({"data": {"moves.json": null}}).to_string();
    kubectl("patch", &["--type=merge", "-p", &delete]).await;
    bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    assert!(!bed.is_there(&pod).await);
    assert_eq!(bed.moved().await.len(), 1);
    bed.stop().await;
}
