//! Delivery of grants and of the ends of commands to sessions, from any thread.

use crate::calls::{LoadedProgram, Waiting};
use crate::dependencies::EventId;
use crate::dispatcher::Dispatcher;
use crate::doze::Doze;
use crate::gate::ReconfigurationRefusal;
use crate::includes::Laid;
use crate::segments::FdChannel;
use dashmap::DashMap;
use fpga_board::dispatch::Grant;
use fpga_board::slots::SessionId;
use fpga_protocol::v1;
use fpga_vendor::Switched;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;
use tonic::Status;

/// Input to a session that does not come from its client's messages.
#[derive(Debug)]
pub enum Input {
    /// A command has ended with this status.
    Ended(EventId, i32),
    /// Ends of commands were left with the session's [`Doze`].
    EndsLeft,
    /// A part of a command has ended.
    PieceEnded(EventId),
    /// A task of the session may start.
    Granted(Grant),
    /// The client has connected to the side socket.
    FdChannel(FdChannel),
    /// The whole board has been reconfigured.
    Switched(Switched),
    /// A build has ended, with this reply. The included files come with it, since the thread that built may not
    /// remove them.
    Built(Box<v1::Reply>, Option<Arc<Laid>>),
    /// A program was made of its binaries.
    Loaded(Box<LoadedProgram>),
    /// The decision whether a program may be made of its bitstreams.
    Decided(Box<Waiting>, Result<(), ReconfigurationRefusal>),
    /// The client is to give the slot of the session's lease up: no later task starts.
    Yield,
    /// The proof of the session's tenant does not count any more. The session ends with this status.
    Revoked(Box<Status>),
}

/// The sending side of a session's inputs.
#[derive(Debug, Clone)]
pub struct Inbox {
    sender: UnboundedSender<Input>,
    doze: Arc<Doze>,
}

/// The session has ended, and takes no inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// All sessions of the manager. Every session's thread delivers to others, so the map has no single lock.
#[derive(Debug, Default)]
pub struct Router {
    sessions: DashMap<SessionId, Inbox>,
}

impl Inbox {
    /// An inbox whose inputs come out of the other end of `sender`.
    #[must_use]
    pub fn new(sender: UnboundedSender<Input>) -> Self {
        Self { sender, doze: Arc::default() }
    }

    /// The doze of the session's thread.
    #[must_use]
    pub fn doze(&self) -> &Arc<Doze> {
        &self.doze
    }

    /// Sends an input.
    ///
    /// # Errors
    /// [`Gone`], if the session has ended.
    pub fn send(&self, input: Input) -> Result<(), Gone> {
        self.sender.send(input).map_err(|_| Gone)?;
        self.doze.wake();
        Ok(())
    }
}

impl Router {
    /// Adds a session, which takes grants from now on.
    pub fn add(&self, session: SessionId, inbox: Inbox) {
        self.sessions.insert(session, inbox);
    }

    /// Removes a session. Its later grants are given back at once.
    pub fn remove(&self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// Sends an input to a session, if it still exists.
    pub fn send(&self, session: SessionId, input: Input) {
        if let Some(inbox) = self.sessions.get(&session) {
            // The session has ended, and needs no input.
            let _ = inbox.send(input);
        }
    }

    /// Delivers grants to their sessions. Returns those of `own`, in their order.
    pub fn deliver(&self, grants: Vec<Grant>, own: SessionId, dispatcher: &Dispatcher) -> Vec<Grant> {
        let mut mine = Vec::new();
        let mut left = std::collections::VecDeque::from(grants);
        while let Some(grant) = left.pop_front() {
            if grant.session == own {
                mine.push(grant);
                continue;
            }
            let task = grant.task;
            let inbox = self.sessions.get(&grant.session).map(|inbox| inbox.clone());
            let taken = inbox.is_some_and(|inbox| inbox.send(Input::Granted(grant)).is_ok());
            if !taken {
                left.extend(dispatcher.finished(task));
            }
        }
        mine
    }
}
