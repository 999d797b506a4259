use crate::bed::{Bed, Client, Options, want};
use fpga_pool::connections::Connections;
use fpga_test_kit::{on_paused_clock, patience};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What an HTTP/2 client sends first: the preface, and a SETTINGS frame without settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Maximum number of connections that the broker of these tests keeps open.
const MOST: usize = 4;

async fn with_connections(idle_timeout: Duration) -> Bed {
    let connections = Connections::new(MOST, idle_timeout);
    Bed::start(Options { connections, ..Options::default() }).await
}

/// A connection on which nothing is asked.
async fn silent(bed: &Bed) -> TcpStream {
    let mut stream = TcpStream::connect(&bed.address).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    // The broker has accepted it when its own settings come.
    assert_ne!(stream.read(&mut [0; 9]).await.unwrap(), 0);
    stream
}

/// Waits until the broker has closed a connection.
async fn closed(mut stream: TcpStream) {
    let read = async { while stream.read(&mut [0; 1024]).await.is_ok_and(|bytes| bytes > 0) {} };
    timeout(patience(), read).await.unwrap();
}

#[tokio::test]
async fn connections_without_a_stream_keep_nobody_out() {
    let bed = with_connections(Duration::from_secs(3600)).await;
    let mut first = bed.client("n1").await;
    let mut silent_ones = Vec::new();
    for _ in 0..2 * MOST {
        silent_ones.push(silent(&bed).await);
    }
    let mut second = Client::hello(bed.connect().await, "", "n2").await.unwrap();
    first.want(want(1, 10)).await;
    second.want(want(2, 10)).await;
    closed(silent_ones.swap_remove(0)).await;
}

#[tokio::test]
async fn a_connection_without_a_stream_is_closed_after_a_while_and_one_with_a_stream_is_not() {
    let idle = Duration::from_secs(10);
    let bed = with_connections(idle).await;
    on_paused_clock(async {
        let mut client = bed.client("n1").await;
        let silent = silent(&bed).await;
        tokio::time::advance(idle + Duration::from_millis(1)).await;
        closed(silent).await;
        client.want(want(1, 10)).await;
    })
    .await;
}
