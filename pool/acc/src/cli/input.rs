//! The standard input.

use futures::executor::block_on;
use futures::io::AsyncRead;
use futures::{SinkExt as _, TryStreamExt as _};
use std::io::{self, Read as _};

/// Bytes of a read, which are those of a large pipe.
const READ_BYTES: usize = 1 << 20;
/// Reads that wait.
const READS_AHEAD: usize = 4;

/// The standard input, read by a thread of its own: output is written while more input is waited for.
pub(super) fn standard_input() -> io::Result<impl AsyncRead + Unpin> {
    let (mut sender, receiver) = futures::channel::mpsc::channel(READS_AHEAD);
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            let mut bytes = vec![0; READ_BYTES];
            let read = match input.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => {
                    bytes.truncate(count);
                    Ok(bytes)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let is_last = read.is_err();
            if block_on(sender.send(read)).is_err() || is_last {
                break;
            }
        }
    })?;
    Ok(receiver.into_async_read())
}
