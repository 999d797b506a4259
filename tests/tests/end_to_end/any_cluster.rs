//! The chart on a cluster of yours: `KUBECONFIG=FILE FPGA_TEST_IMAGE=IMAGE make test-cluster`. `tests/real_node` asks the
//! same of the test bed's own cluster, and besides what needs its nodes: killed parts, hostile kernels, upgrades.

use fpga_tests::testbed::any_cluster::AnyCluster;

#[tokio::test]
#[ignore = "needs a cluster with the chart: make test-cluster"]
async fn a_pod_gets_a_board_by_one_line_and_computes() {
    AnyCluster::from_env().await.unwrap().a_pod_gets_a_board_by_one_line_and_computes().await.unwrap();
}

#[tokio::test]
#[ignore = "needs a cluster with the chart: make test-cluster"]
async fn a_pod_that_would_pass_us_by_is_refused_with_the_line_to_write() {
    let cluster = AnyCluster::from_env().await.unwrap();
    cluster.a_pod_that_would_pass_us_by_is_refused_with_the_line_to_write().await.unwrap();
}

#[tokio::test]
#[ignore = "needs a cluster with the chart: make test-cluster"]
async fn a_pod_that_suits_no_board_waits_with_the_reason() {
    AnyCluster::from_env().await.unwrap().a_pod_that_suits_no_board_waits_with_the_reason().await.unwrap();
}
