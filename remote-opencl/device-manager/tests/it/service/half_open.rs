//! A client that is gone without a word: a proxy on the way has stopped forwarding and closes nothing.

use crate::harness::{Client, Manager};
use fpga_test_kit::Proxy;
use tonic::transport::Endpoint;

#[tokio::test]
async fn a_client_behind_what_stopped_to_forward_is_gone_and_one_that_answers_stays() {
    let tcp = ["--listen", "tcp://127.0.0.1:0", "--insecure-tcp", "--keepalive", "2s"];
    let manager = Manager::start(&tcp);
    let proxy = Proxy::to(manager.tcp_address(), &[]);
    let channel = Endpoint::from_shared(format!("http://{}", proxy.address())).unwrap();
    let mut client = Client::over(channel.connect().await.unwrap()).await;
    client.context().await;
    let mut idle = Client::over(manager.tcp_channel().await).await;
    let mut on_the_node = Client::connect(&manager).await;
    assert_eq!(manager.sessions(), 3);
    proxy.fall_silent();
    // The other clients of this test answer meanwhile.
    manager.has_no_more_sessions_than(2).await;
    idle.context().await;
    on_the_node.context().await;
    assert_eq!(manager.sessions(), 2);
}
