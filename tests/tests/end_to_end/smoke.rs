//! The smoke test: place a pod, run its program on a board, measure it, and place the next pod by the measurement.

use super::full_loop::{Bed, knows, usage};
use fpga_tests::functions::Function;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::wait;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_placed_its_program_runs_and_is_measured_and_the_next_pod_goes_to_the_idle_board() {
    let bed = Bed::start(&["n1", "n2"]).await;
    let (address, case) = bed.answering_function("sobel-1").await;
    for _ in 0..10 {
        case.invoke(bed.cluster.http(), &address).await.unwrap();
    }
    let busy = bed.cluster.node_of("sobel-1").await.unwrap();
    let idle = if busy == "n1" { "n2" } else { "n1" };
    let measured = |state: &Value| usage(state) > 0 && knows(state, "sobel");
    bed.wait_until_annotated(&busy, "used, with the bitstream", measured).await;
    wait::until("the extender to know it", async || {
        let nodes = bed.cluster.extender_nodes().await?;
        Ok(nodes.iter().any(|node| node["name"] == *busy && measured(&node["known"]["state"])).then_some(()))
    })
    .await
    .unwrap();

    bed.cluster.create(&bed.function("matmul-1", Function::Matmul)).await.unwrap();
    assert_eq!(bed.cluster.node_of("matmul-1").await.unwrap(), idle);
    let address = bed.cluster.ready_address("matmul-1").await.unwrap();
    Case::new(Function::Matmul, 64, 2).unwrap().invoke(bed.cluster.http(), &address).await.unwrap();
    bed.cluster.check_running().unwrap();
    bed.cluster.stop().await;
}
