//! The gate of a cluster: the manager asks the node plugin whether a session may have a bitstream on its board.
//!
//! A question is one connection, with a line each way ([`fpga_core::gate`]). It shows the digest of the session's token,
//! by which the plugin knows the container. While the plugin says "wait", or says nothing, the manager asks again, until
//! the time for a question is over; then the session is refused, and may try later. Nothing else waits meanwhile: the
//! question holds neither slot nor board.

use fpga_board::dispatch::Tenant;
use fpga_board::slots::SessionId;
use fpga_core::bitstream::Digest;
use fpga_core::gate::{GateAnswer as Answer, GateRequest, InvalidMessage, MAX_MESSAGE_BYTES, Origin};
use fpga_session::dispatcher::Dispatcher;
use fpga_session::gate::{Gate, GateAnswer, Question, Verdict};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

/// Pause before the plugin is asked again.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Longest time that the plugin may take for one answer: the API server has a part of it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Most questions of a tenant that are open at the same time: each has a thread.
const MAX_OPEN: usize = 16;

/// The node plugin, as a gate.
#[derive(Debug)]
pub struct NodePluginGate {
    socket: PathBuf,
    /// Longest time for a question.
    patience: Duration,
    dispatcher: Arc<Dispatcher>,
    open: OpenQuestions,
}

/// A question to the plugin.
struct Asking {
    socket: PathBuf,
    patience: Duration,
    dispatcher: Arc<Dispatcher>,
    session: SessionId,
    token: Digest,
    board: String,
    bitstream: Digest,
    origin: Origin,
    #[expect(dead_code, reason = "the question is open as long as the value lives")]
    open: OpenQuestion,
}

/// Number of open questions by tenant.
#[derive(Debug, Clone, Default)]
struct OpenQuestions(Arc<Mutex<BTreeMap<Tenant, usize>>>);

/// An open question; dropping the value ends it.
struct OpenQuestion {
    all: OpenQuestions,
    tenant: Tenant,
}

/// The reason why the plugin gives no answer.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    /// The socket can't be reached, or breaks.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// It did not answer in time.
    #[error("it was silent for too long")]
    Late,
    /// The answer can't be understood.
    #[error(transparent)]
    Message(#[from] InvalidMessage),
}

impl NodePluginGate {
    /// The plugin behind this socket. A question takes `patience` at most.
    #[must_use]
    pub fn new(socket: &Path, patience: Duration, dispatcher: Arc<Dispatcher>) -> Self {
        Self { socket: socket.to_owned(), patience, dispatcher, open: OpenQuestions::default() }
    }
}

impl Gate for NodePluginGate {
    fn may_reconfigure(&self, question: &Question) -> GateAnswer {
        let refused = |reason: &str| GateAnswer::Now(Verdict::Refused(reason.to_owned()));
        let Some(token) = question.token else {
            return refused("the session has shown no token, by which the node plugin knows its pod");
        };
        let Some(open) = self.open.enter(&question.tenant) else {
            return refused("too many programs of this tenant wait for the node plugin; try again later");
        };
        let asking = Asking {
            socket: self.socket.clone(),
            patience: self.patience,
            dispatcher: Arc::clone(&self.dispatcher),
            session: question.session,
            token,
            board: question.device.clone(),
            bitstream: question.bitstream,
            origin: question.origin,
            open,
        };
        GateAnswer::Later(Box::new(move || asking.verdict()))
    }
}

impl Asking {
    /// Asks until the decision or the end of the patience.
    fn verdict(&self) -> Verdict {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.ask()),
            Err(error) => Verdict::Refused(format!("the node plugin can't be asked: {error}")),
        }
    }

    async fn ask(&self) -> Verdict {
        let since = Instant::now();
        let mut before = None;
        loop {
            let left = self.patience.saturating_sub(since.elapsed()).max(POLL_INTERVAL);
            let answer = timeout(left.min(ANSWER_TIMEOUT), self.exchange()).await;
            let reason = match (answer.unwrap_or(Err(NoAnswer::Late)), before.take()) {
                (Ok(Answer::Allowed), _) => return Verdict::Allowed,
                (Ok(Answer::Refused(reason)), _) => return Verdict::Refused(reason),
                (Ok(Answer::Wait(reason)), _) => reason,
                // The last question has the rest of the patience only, which says little about the plugin.
                (Err(NoAnswer::Late), Some(reason)) if left < ANSWER_TIMEOUT => reason,
                (Err(error), _) => format!("the node plugin gives no answer: {error}"),
            };
            // A build holds the board while it asks, so that nobody whom it waits for could end.
            if self.origin == Origin::Source || since.elapsed() + POLL_INTERVAL >= self.patience {
                let waited = since.elapsed().as_secs();
                return Verdict::Refused(format!("{reason}; after {waited} s: try again later"));
            }
            before = Some(reason);
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Asks once.
    async fn exchange(&self) -> Result<Answer, NoAnswer> {
        let request = GateRequest {
            token: self.token,
            board: self.board.clone(),
            bitstream: self.bitstream,
            origin: self.origin,
            // As it is now: others may have ended since the last time.
            residency: self.dispatcher.residency(self.bitstream),
            others: self.dispatcher.others(self.session),
        };
        let mut stream = UnixStream::connect(&self.socket).await?;
        stream.write_all(request.line()?.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_MESSAGE_BYTES as u64).read_to_end(&mut answer).await?;
        Ok(Answer::parse(&answer)?)
    }
}

impl OpenQuestions {
    fn enter(&self, tenant: &Tenant) -> Option<OpenQuestion> {
        let mut all = self.0.lock();
        let open = all.entry(tenant.clone()).or_default();
        if *open >= MAX_OPEN {
            return None;
        }
        *open += 1;
        drop(all);
        Some(OpenQuestion { all: self.clone(), tenant: tenant.clone() })
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(open) = all.get_mut(&self.tenant) {
            *open -= 1;
            if *open == 0 {
                all.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests;
