//! The socket on which device managers ask the gate. Whoever can open the file is a manager: its folder lets in root and
//! the managers' group alone.

use crate::layout::Layout;
use crate::plugin::Plugin;
use fpga_core::gate::{GateAnswer, GateRequest, InvalidMessage, MAX_MESSAGE_BYTES};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

/// Most questions at the same time. Others wait in the socket's queue.
const MAX_QUESTIONS: usize = 64;
/// Longest time for a question and its answer.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Pause after a connection could not be taken, because the process has no file left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The reason why a question has no answer.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Message(#[from] InvalidMessage),
}

/// Makes the socket, in place of that of an earlier plugin.
///
/// # Errors
/// The socket can't be made.
pub(crate) fn bind(layout: &Layout) -> io::Result<UnixListener> {
    let path = layout.gate_socket();
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    chown(&path, None, layout.managers_gid)?;
    fs::set_permissions(&path, Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Answers for ever.
pub(crate) async fn serve(listener: UnixListener, plugin: Arc<Plugin>) {
    let places = Arc::new(Semaphore::new(MAX_QUESTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let plugin = Arc::clone(&plugin);
                tokio::spawn(async move {
                    match timeout(TIMEOUT, answer(stream, &plugin)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => debug!(%error, "A question of a manager has no answer"),
                        Err(_) => warn!("A question of a manager was not answered in {TIMEOUT:?}"),
                    }
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "A manager's connection can't be taken");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Reads a question and answers it.
async fn answer(mut stream: UnixStream, plugin: &Plugin) -> Result<(), Unanswered> {
    let mut line = Vec::new();
    let (read, mut write) = stream.split();
    BufReader::new(read.take(MAX_MESSAGE_BYTES as u64)).read_until(b'\n', &mut line).await?;
    let answer = match GateRequest::parse(&line) {
        Ok(request) => plugin.may_have(&request).await,
        // Above all a manager of another version.
        Err(error) => GateAnswer::Refused(error.to_string()),
    };
    write.write_all(answer.line()?.as_bytes()).await?;
    Ok(write.shutdown().await?)
}
