//! Clients that mean no good: thousands of headers, bodies without end, and a byte now and then.

use anyhow::{Result, anyhow};
use fpga_tests::testbed::routed_function::NAME;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Longest life of a hostile client.
const LIFE: Duration = Duration::from_secs(5);
/// Pause between two bytes of a slow client.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause between two pieces of a body without end, so that the others have some of the machine left.
const PIECE_PAUSE: Duration = Duration::from_millis(20);

/// Keeps `count` hostile clients running; returns an error if one ends for good.
pub(super) async fn send(address: SocketAddr, count: u16) -> anyhow::Error {
    let mut running = JoinSet::new();
    for number in 0..count {
        running.spawn(again_and_again(address, number));
    }
    match running.join_next().await {
        Some(Err(error)) => anyhow!(error),
        Some(Ok(never)) => match never {},
        None => std::future::pending().await,
    }
}

async fn again_and_again(address: SocketAddr, number: u16) -> Infallible {
    loop {
        // Envoy may refuse them at any moment.
        let _ = tokio::time::timeout(LIFE, one(address, number)).await;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn one(address: SocketAddr, number: u16) -> Result<Infallible> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_zero_linger()?;
    let head = format!("POST /function/{NAME} HTTP/1.1\r\nhost: x\r\n");
    match number % 3 {
        0 => {
            let headers: String = (0..10_000).map(|header| format!("x-{header}: {header}\r\n")).collect();
            stream.write_all(format!("{head}{headers}content-length: 0\r\n\r\n").as_bytes()).await?;
        }
        1 => {
            stream.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).await?;
            let piece = [b"1000\r\n".as_slice(), &[b'y'; 0x1000], b"\r\n"].concat();
            loop {
                stream.write_all(&piece).await?;
                tokio::time::sleep(PIECE_PAUSE).await;
            }
        }
        _ => {
            for byte in head.bytes().cycle() {
                stream.write_all(&[byte]).await?;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    std::future::pending().await
}
