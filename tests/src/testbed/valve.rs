//! A connection that breaks off where a test wants it: a proxy that stops what a server sends after a number of bytes.

use anyhow::{Context as _, Result};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

/// Bytes that are passed on at a time.
const CHUNK_BYTES: usize = 16 * 1024;

/// Passes connections on to a server, and stops what comes back after a number of bytes until it is opened. Dropping it
/// ends all connections.
#[derive(Debug)]
pub struct Valve {
    address: SocketAddr,
    passing: Arc<Semaphore>,
    connections: Arc<Mutex<JoinSet<()>>>,
    accepting: AbortHandle,
}

impl Valve {
    /// Listens at `host`, and passes at most `bytes` bytes of what `upstream` (`HOST:PORT`) sends.
    ///
    /// # Errors
    /// The address can't be listened at.
    pub async fn before(upstream: String, host: IpAddr, bytes: usize) -> Result<Self> {
        let listener = TcpListener::bind((host, 0)).await.context("the valve can't listen")?;
        let address = listener.local_addr().context("the valve has no address")?;
        let (passing, connections) = (Arc::new(Semaphore::new(bytes)), Arc::default());
        let accept = accept(listener, upstream, Arc::clone(&passing), Arc::clone(&connections));
        Ok(Self { address, passing, connections, accepting: tokio::spawn(accept).abort_handle() })
    }

    /// Where the valve listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the connections that are there, with the bytes that are on their way.
    pub fn cut(&self) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    /// Passes no byte from now on, and keeps the connections: those of a network that loses everything.
    pub fn shut(&self) {
        self.passing.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Passes all bytes from now on.
    pub fn open(&self) {
        self.passing.add_permits(Semaphore::MAX_PERMITS / 2);
    }
}

impl Drop for Valve {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    upstream: String,
    passing: Arc<Semaphore>,
    connections: Arc<Mutex<JoinSet<()>>>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let pass = pass(client, upstream.clone(), Arc::clone(&passing));
        connections.lock().unwrap_or_else(PoisonError::into_inner).spawn(pass);
    }
}

/// Passes one connection on until an end closes it.
async fn pass(client: TcpStream, upstream: String, passing: Arc<Semaphore>) {
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let up = async { tokio::io::copy(&mut from_client, &mut to_server).await.map(drop) };
    let down = async {
        let mut buffer = [0; CHUNK_BYTES];
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            // A chunk is far smaller than that, and the semaphore is never closed.
            let many = u32::try_from(read).unwrap_or(u32::MAX);
            let Ok(permits) = passing.acquire_many(many).await else { return };
            permits.forget();
            if to_client.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = up => {}
        () = down => {}
    }
}
