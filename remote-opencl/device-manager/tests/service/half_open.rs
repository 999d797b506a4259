//! A client that is gone without a word: a proxy on the way has stopped forwarding and closes nothing.

use crate::harness::{Client, DEADLINE, Manager};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Endpoint;

/// Forwards until it is told to stop; keeps its connections open.
struct Proxy {
    address: SocketAddr,
    silent: Arc<AtomicBool>,
}

impl Proxy {
    async fn to(manager: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silent = Arc::new(AtomicBool::new(false));
        let (manager, its) = (manager.to_owned(), silent.clone());
        tokio::spawn(async move {
            let (from_client, to_client) = listener.accept().await.unwrap().0.into_split();
            let (from_manager, to_manager) = TcpStream::connect(manager).await.unwrap().into_split();
            tokio::join!(forward(from_client, to_manager, &its), forward(from_manager, to_client, &its));
        });
        Self { address, silent }
    }
}

async fn forward(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, silent: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if !silent.load(Ordering::SeqCst) && to.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
    if silent.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test]
async fn a_client_behind_what_stopped_to_forward_is_gone_and_one_that_answers_stays() {
    let tcp = ["--listen", "tcp://127.0.0.1:0", "--insecure-tcp", "--keepalive", "2s"];
    let manager = Manager::start(&tcp);
    let address = manager.addresses.iter().find_map(|address| address.strip_prefix("tcp://")).unwrap();
    let proxy = Proxy::to(address).await;
    let channel = Endpoint::from_shared(format!("http://{}", proxy.address)).unwrap();
    let mut client = Client::over(channel.connect().await.unwrap()).await;
    client.context().await;
    let mut idle = Client::over(manager.tcp_channel().await).await;
    let mut on_the_node = Client::connect(&manager).await;
    assert_eq!(manager.sessions(), 3);
    proxy.silent.store(true, Ordering::SeqCst);
    let since = Instant::now();
    while manager.sessions() > 2 {
        assert!(since.elapsed() < DEADLINE, "the session is still there");
        // The other clients of this test answer meanwhile.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    idle.context().await;
    on_the_node.context().await;
    assert_eq!(manager.sessions(), 2);
}
