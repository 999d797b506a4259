//! Connections for a gRPC server: accepted here, with TLS if there is a certificate and a bound on their number, and
//! served by tonic.

use crate::tls::ServerTls;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tracing::{debug, warn};

/// Pause after a failed accept, which mostly means that the process has no free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Number of connections that wait for the server to take them.
const ACCEPTED: usize = 64;

/// A port that accepts connections. Dropping it closes the port; accepted connections go on.
#[derive(Debug)]
pub struct Accepting(JoinHandle<()>);

/// Accepts up to `most` connections at once, for `Server::serve_with_incoming_shutdown`.
#[must_use]
pub fn accept(
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    most: usize,
) -> (Accepting, ReceiverStream<io::Result<Connection>>) {
    let (accepted, connections) = mpsc::channel(ACCEPTED);
    let accepting = tokio::spawn(accept_all(listener, tls, most, accepted));
    (Accepting(accepting), ReceiverStream::new(connections))
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Accepts connections and does their TLS handshakes, many at once.
async fn accept_all(
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    most: usize,
    accepted: mpsc::Sender<io::Result<Connection>>,
) {
    let permits = Arc::new(Semaphore::new(most));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "Cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // A failure costs latency only.
        let _ = stream.set_nodelay(true);
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let (tls, accepted) = (tls.clone(), accepted.clone());
        tokio::spawn(async move {
            let io: Box<dyn Io> = match tls {
                None => Box::new(stream),
                Some(tls) => match tls.accept(stream).await {
                    Ok((stream, _)) => Box::new(stream),
                    Err(error) => return debug!(%error, "A client could not agree on TLS"),
                },
            };
            // The receiver is gone if the server has ended.
            let _ = accepted.send(Ok(Connection { io, _permit: permit })).await;
        });
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// An accepted connection.
pub struct Connection {
    io: Box<dyn Io>,
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
