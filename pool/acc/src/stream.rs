//! A job's input from a reader, and its output to a writer.

use crate::engine::ended;
use crate::error::Error;
use crate::job::{Job, Output};
use crate::piece::{MAX_PIECE_BYTES, most_bytes};
use crate::wait::wait;
use bytes::Bytes;
use fpga_accelerators::{Interface, Position};
use futures::future::poll_fn;
use futures::io::{AllowStdIo, AsyncRead, AsyncWrite, AsyncWriteExt as _};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::yield_now;

/// Number of pieces that are under way: two at the board, whose bytes move while the other one computes, and one that
/// follows without a pause.
const PIECES_AHEAD: usize = 3;
/// Bytes that a read asks for at first; a piece's buffer grows with what comes.
const READ_BYTES: usize = 64 << 10;

/// What a stream has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streamed {
    /// Bytes of the input.
    pub input_bytes: u64,
    /// Bytes of the output.
    pub output_bytes: u64,
}

impl Job {
    /// Runs all input until the reader's end, in pieces of at most 4 MB (P-6) of which several are under way, and writes the
    /// output in order, as soon as it is there. The reader may be of another length than the workload that was announced.
    ///
    /// # Errors
    /// [`Error::Read`] and [`Error::Write`] for the reader and the writer. After any error the job is over.
    pub async fn stream(
        &mut self,
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin,
    ) -> Result<Streamed, Error> {
        self.stream_in_pieces(MAX_PIECE_BYTES, reader, writer).await
    }

    /// [`Self::stream`] in pieces of at most so many bytes, rounded down to whole blocks, at least one. Smaller pieces give
    /// the first output sooner, and cost more: each is a step of its own.
    ///
    /// # Errors
    /// Those of [`Self::stream`].
    pub async fn stream_in_pieces(
        &mut self,
        most_bytes: u32,
        reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
    ) -> Result<Streamed, Error> {
        self.check()?;
        let used = self.begin_use();
        let job = &mut *used.job;
        let mut pieces = Pieces::new(reader, piece_bytes(job.interface(), most_bytes));
        let mut outputs: VecDeque<Output> = VecDeque::new();
        let mut streamed = Streamed { input_bytes: 0, output_bytes: 0 };
        while !pieces.is_over || !outputs.is_empty() {
            // A stream whose ends never wait still lets its task be cancelled.
            yield_now().await;
            let next = poll_fn(|context| {
                if let Some(output) = outputs.front_mut()
                    && let Poll::Ready(output) = Pin::new(output).poll(context)
                {
                    return Poll::Ready(Next::Output(output.unwrap_or_else(|_| Err(ended()))));
                }
                if pieces.is_over || outputs.len() >= PIECES_AHEAD {
                    return Poll::Pending;
                }
                pieces.poll_next(context).map(Next::Piece)
            });
            match next.await {
                Next::Piece(piece) => {
                    let (piece, position) = piece.map_err(|error| Error::Read(Arc::new(error)))?;
                    streamed.input_bytes += piece.len() as u64;
                    outputs.extend(job.submit(piece, position)?);
                }
                Next::Output(bytes) => {
                    let bytes = bytes?;
                    outputs.pop_front();
                    writer.write_all(&bytes).await.map_err(written)?;
                    // Whoever reads the output is not to wait for the next piece.
                    writer.flush().await.map_err(written)?;
                    streamed.output_bytes += bytes.len() as u64;
                }
            }
        }
        used.end();
        Ok(streamed)
    }

    /// [`Self::stream`] for readers and writers that block. The limit is looked at between their calls, and output waits
    /// for a read that blocks.
    ///
    /// # Errors
    /// Those of [`Self::stream`], and [`Error::TimedOut`].
    pub fn stream_blocking(
        &mut self,
        reader: impl io::Read,
        writer: impl io::Write,
        limit: Option<Duration>,
    ) -> Result<Streamed, Error> {
        wait(self.stream(AllowStdIo::new(reader), AllowStdIo::new(writer)), limit)
    }
}

/// What happens next in a stream.
enum Next {
    Piece(io::Result<(Bytes, Position)>),
    Output(Result<Bytes, Error>),
}

/// The pieces of a reader's bytes.
struct Pieces<R> {
    reader: R,
    most: usize,
    /// A whole piece of which it is not known yet whether others follow.
    whole: Option<Bytes>,
    /// What is read of the next piece: `filled` bytes of the buffer.
    buffer: Vec<u8>,
    filled: usize,
    is_over: bool,
}

impl<R: AsyncRead + Unpin> Pieces<R> {
    fn new(reader: R, most: usize) -> Self {
        Self { reader, most, whole: None, buffer: Vec::new(), filled: 0, is_over: false }
    }

    /// The next piece. Whether one is the last is known with the first byte of the next, or with the end.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(Bytes, Position)>> {
        loop {
            if self.filled > 0
                && let Some(piece) = self.whole.take()
            {
                return Poll::Ready(Ok((piece, Position::BeforeOthers)));
            }
            if self.filled == self.most {
                self.whole = Some(self.take());
            }
            if self.filled == self.buffer.len() {
                let grown = (self.buffer.len() * 2).max(READ_BYTES).min(self.most);
                self.buffer.resize(grown, 0);
            }
            let read = Pin::new(&mut self.reader).poll_read(context, &mut self.buffer[self.filled..]);
            match ready!(read) {
                Ok(0) => {
                    self.is_over = true;
                    let last = self.whole.take().unwrap_or_else(|| self.take());
                    return Poll::Ready(Ok((last, Position::Last)));
                }
                Ok(bytes) => self.filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn take(&mut self) -> Bytes {
        let mut piece = std::mem::take(&mut self.buffer);
        piece.truncate(std::mem::take(&mut self.filled));
        piece.into()
    }
}

/// Bytes of a whole piece, of which a program wants no more than so many.
fn piece_bytes(interface: &Interface, wanted: u32) -> usize {
    let block = u64::from(interface.spec().block_bytes);
    let whole = (u64::from(wanted) / block * block).clamp(block, most_bytes(interface));
    usize::try_from(whole).unwrap_or(usize::MAX)
}

fn written(error: io::Error) -> Error {
    Error::Write(Arc::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_accelerators::Accelerator;
    use futures::StreamExt as _;
    use futures::stream::TryStreamExt as _;

    /// The lengths and positions of the pieces that come of reads of these lengths.
    fn pieces(reads: &[usize]) -> Vec<(usize, Position)> {
        let reads = futures::stream::iter(reads.iter().map(|bytes| Ok(vec![7; *bytes])));
        let mut pieces = Pieces::new(reads.chain(futures::stream::empty()).into_async_read(), 100);
        let mut found = Vec::new();
        while !pieces.is_over {
            let next = poll_fn(|context| pieces.poll_next(context).map_err(|_| Error::Cancelled));
            let (piece, position) = wait(next, None).unwrap();
            found.push((piece.len(), position));
        }
        found
    }

    #[test]
    fn a_reader_is_cut_into_whole_pieces_and_a_last_one() {
        let (before, last) = (Position::BeforeOthers, Position::Last);
        assert_eq!(pieces(&[]), [(0, last)]);
        assert_eq!(pieces(&[1, 2]), [(3, last)]);
        assert_eq!(pieces(&[60, 40]), [(100, last)]);
        assert_eq!(pieces(&[60, 41]), [(100, before), (1, last)]);
        assert_eq!(pieces(&[250]), [(100, before), (100, before), (50, last)]);
        assert_eq!(pieces(&[300]), [(100, before), (100, before), (100, last)]);
    }

    #[test]
    fn a_piece_has_whole_blocks_at_least_one_and_no_more_than_wanted() {
        let interface = Accelerator::Aes256Ctr.interface();
        let of = |wanted| piece_bytes(&interface, wanted);
        assert_eq!([0, 1, 16, 31, 4096].map(of), [16, 16, 16, 16, 4096]);
        assert_eq!([MAX_PIECE_BYTES, u32::MAX].map(of), [4_000_000; 2]);
    }

    #[test]
    fn a_piece_comes_with_the_first_byte_of_the_next_one() {
        let reads = futures::stream::iter([Ok(vec![1; 100]), Ok(vec![2; 1])]);
        let reads = reads.chain(futures::stream::pending::<io::Result<Vec<u8>>>());
        let mut pieces = Pieces::new(reads.into_async_read(), 100);
        let first = poll_fn(|context| pieces.poll_next(context).map_err(|_| Error::Cancelled));
        let (piece, position) = wait(first, None).unwrap();
        assert_eq!((piece.len(), position), (100, Position::BeforeOthers));
        let mut context = Context::from_waker(futures::task::noop_waker_ref());
        assert!(pieces.poll_next(&mut context).is_pending());
    }
}
