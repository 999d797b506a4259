//! A job whose pieces overlap: one is sent through the modelled network while another is processed and a third returns.

use super::super::machines::GRAIN;
use super::super::text::Text;
use super::{Route, pieces};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use fpga_acc::Job;
use futures::TryStreamExt as _;
use futures::io::AsyncWrite;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

/// Pieces that are at the board's node, beyond those that the job has taken.
const AHEAD: usize = 1;

/// Streams the text but for its last work group, and returns when all output is at home. The slot is the job's until then:
/// a byte more comes at the end, which the board takes for a work group. The other bytes are whole pieces, so that the job
/// runs them before the end.
pub(super) async fn stream(open: &mut Job, text: Text, route: Route, piece: u64) -> Result<()> {
    let bytes = text.plain.len().saturating_sub(usize::try_from(GRAIN)?);
    let text = text.first(bytes as u64)?;
    let (to_board, at_board) = mpsc::channel(AHEAD);
    let (from_board, outputs) = mpsc::unbounded_channel();
    let (home, is_home) = oneshot::channel();
    let input = ReceiverStream::new(at_board).into_async_read();
    let piece_bytes = u32::try_from(piece)?;
    let (sent, returned, streamed) = tokio::join!(
        send(&text.plain, &route, piece, to_board, is_home),
        take_back(&text.secret, &route, outputs, home),
        open.stream_in_pieces(piece_bytes, input, ToNetwork(from_board)),
    );
    streamed?;
    returned?;
    sent
}

/// Sends the pieces, then the last byte, and ends the input when all output is at home.
async fn send(
    plain: &Bytes,
    route: &Route,
    piece: u64,
    to_board: mpsc::Sender<io::Result<Bytes>>,
    is_home: oneshot::Receiver<()>,
) -> Result<()> {
    for range in pieces(plain.len(), piece)? {
        route.there(range.len() as u64).await;
        to_board.send(Ok(plain.slice(range))).await.context("the job takes no more")?;
    }
    to_board.send(Ok(Bytes::from_static(&[0]))).await.context("the job takes no more")?;
    is_home.await.context("outputs are missing")
}

/// Takes the outputs home, and checks them.
async fn take_back(
    secret: &Bytes,
    route: &Route,
    mut outputs: mpsc::UnboundedReceiver<Bytes>,
    home: oneshot::Sender<()>,
) -> Result<()> {
    let mut at = 0;
    while at < secret.len() {
        let output = outputs.recv().await.context("the job gives no more")?;
        route.back(output.len() as u64).await;
        ensure!(secret[at..].starts_with(&output), "a wrong result");
        at += output.len();
    }
    // A job that has failed takes no more.
    let _ = home.send(());
    Ok(())
}

/// A writer whose bytes wait for the network, and nobody for them.
struct ToNetwork(mpsc::UnboundedSender<Bytes>);

impl AsyncWrite for ToNetwork {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // The last byte comes when nobody waits any more.
        let _ = self.0.send(Bytes::copy_from_slice(bytes));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
