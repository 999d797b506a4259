//! A job's input from a reader, and its output to a writer.

use crate::engine::ended;
use crate::error::Error;
use crate::job::{Job, Output};
use crate::piece::most_bytes;
use crate::wait::wait;
use bytes::Bytes;
use fpga_accelerators::Position;
use futures::io::{AllowStdIo, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;

/// Number of pieces that are under way: two at the board, whose bytes move while the other one computes, and one that
/// follows without a pause.
const PIECES_AHEAD: usize = 3;

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
    /// output in order. The reader may be of another length than the workload that was announced.
    ///
    /// # Errors
    /// [`Error::Read`] and [`Error::Write`] for the reader and the writer. After any error the job is over.
    pub async fn stream(
        &mut self,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
    ) -> Result<Streamed, Error> {
        self.check()?;
        let used = self.begin_use();
        let job = &mut *used.job;
        let most = usize::try_from(most_bytes(job.interface())).unwrap_or(usize::MAX);
        let mut outputs: VecDeque<Output> = VecDeque::new();
        let mut streamed = Streamed { input_bytes: 0, output_bytes: 0 };
        // Whether a piece is the last one is known when the next one is read.
        let mut next = Some(read(&mut reader, most).await?);
        while next.is_some() || !outputs.is_empty() {
            // A stream whose ends never wait still lets its task be cancelled.
            yield_now().await;
            if let Some(piece) = next.take_if(|_| outputs.len() < PIECES_AHEAD) {
                let after = if piece.len() < most { Bytes::new() } else { read(&mut reader, most).await? };
                let position = if after.is_empty() { Position::Last } else { Position::BeforeOthers };
                streamed.input_bytes += piece.len() as u64;
                outputs.extend(job.submit(piece, position)?);
                next = Some(after).filter(|after| !after.is_empty());
            } else if let Some(output) = outputs.pop_front() {
                let bytes = output.await.unwrap_or_else(|_| Err(ended()))?;
                writer.write_all(&bytes).await.map_err(written)?;
                // Whoever reads the output is not to wait for the next piece.
                writer.flush().await.map_err(written)?;
                streamed.output_bytes += bytes.len() as u64;
            }
        }
        used.end();
        Ok(streamed)
    }

    /// [`Self::stream`] for readers and writers that block. The limit is looked at between their calls.
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

/// Reads `most` bytes, or fewer at the reader's end.
async fn read(reader: &mut (impl AsyncRead + Unpin), most: usize) -> Result<Bytes, Error> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX);
    let read = reader.take(limit).read_to_end(&mut bytes).await;
    read.map_err(|error| Error::Read(Arc::new(error)))?;
    Ok(bytes.into())
}

fn written(error: io::Error) -> Error {
    Error::Write(Arc::new(error))
}
