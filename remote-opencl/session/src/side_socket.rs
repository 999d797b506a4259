//! The side socket: descriptors can't travel in gRPC, so a session's client makes one more connection, and sends its key.
//!
//! The key binds that connection to the session, and only the process that opened the session's connection may use the
//! key. The tenant is not compared: it may come from a token, which the side socket does not know.

use crate::locality::Credentials;
use crate::router::{Inbox, Input};
use crate::segments::{FdChannel, Key};
use fpga_protocol::segments::KEY_BYTES;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

/// Time in which a client must send its key.
const KEY_TIMEOUT: Duration = Duration::from_secs(2);

/// The sessions whose clients may still connect to the side socket. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SideSocket(Arc<Mutex<HashMap<u64, Expected>>>);

#[derive(Debug)]
struct Expected {
    key: Key,
    process: Credentials,
    inbox: Inbox,
}

impl SideSocket {
    /// Lets `process` connect to the side socket for `session` with `key`.
    pub fn expect(&self, session: u64, key: Key, process: Credentials, inbox: Inbox) {
        self.0.lock().insert(session, Expected { key, process, inbox });
    }

    /// Removes a session that has ended.
    pub fn forget(&self, session: u64) {
        self.0.lock().remove(&session);
    }

    fn take(&self, shown: &[u8; KEY_BYTES], process: Credentials) -> Option<Inbox> {
        let mut expected = self.0.lock();
        let matching = expected.iter().filter(|(_, it)| it.key.is(shown) && it.process == process);
        let session = *matching.map(|(session, _)| session).next()?;
        // The key is valid once.
        expected.remove(&session).map(|it| it.inbox)
    }

    /// Reads the key from a new connection, and gives the connection to its session. Closes the connection if the
    /// key is wrong.
    ///
    /// # Errors
    /// The socket's error, or a timeout.
    pub async fn greet(&self, stream: UnixStream) -> io::Result<()> {
        let process = Credentials::of(&stream)?;
        stream.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(stream)?;
        let mut shown = [0; KEY_BYTES];
        tokio::time::timeout(KEY_TIMEOUT, stream.read_exact(&mut shown)).await??;
        match self.take(&shown, process) {
            Some(inbox) => {
                // If the session has ended, the connection is dropped and so closed.
                let _ = inbox.send(Input::FdChannel(FdChannel::of(stream.into_std()?.into())));
            }
            None => tracing::info!(?process, "A wrong key on the side socket"),
        }
        Ok(())
    }
}
