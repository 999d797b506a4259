//! From any thread to the thread of a session: grants that arise elsewhere, and the ends of commands.

use crate::calls::Waiting;
use crate::dispatcher::{Dispatcher, Grant, SessionId};
use crate::execute::Notify;
use crate::gate::Refusal;
use crate::includes::Laid;
use crate::ready::EventId;
use crate::segments::Side;
use crate::vendor::Switched;
use dashmap::DashMap;
use fpga_protocol::v1;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// What comes to a session from elsewhere than its client.
#[derive(Debug)]
pub enum Input {
    /// A command has ended with this status.
    Ended(EventId, i32),
    /// A piece of a command has ended.
    PieceEnded(EventId),
    /// A task of the session may start.
    Granted(Grant),
    /// The client has connected for descriptors.
    Side(Side),
    /// The whole board has been reconfigured.
    Switched(Switched),
    /// A build has ended. With the files that it included: the thread that built may not remove them.
    Built(Box<v1::Reply>, Option<Arc<Laid>>),
    /// Whether a program may be made of bitstreams is known.
    Decided(Box<Waiting>, Result<(), Refusal>),
}

/// Where a session takes its input from.
#[derive(Debug, Clone)]
pub struct Inbox(pub UnboundedSender<Input>);

/// All sessions of the manager. Every session's thread delivers to any other, so they share no one lock.
#[derive(Debug, Default)]
pub struct Router {
    sessions: DashMap<SessionId, Inbox>,
}

impl Notify for Inbox {
    fn ended(&self, event: EventId, status: i32) {
        // A session lives until all its commands have ended.
        let _ = self.0.send(Input::Ended(event, status));
    }

    fn piece_ended(&self, event: EventId) {
        let _ = self.0.send(Input::PieceEnded(event));
    }
}

impl Router {
    /// A session takes grants from now on.
    pub fn add(&self, session: SessionId, inbox: Inbox) {
        self.sessions.insert(session, inbox);
    }

    /// A session takes no more: what is granted to it later is given back at once.
    pub fn remove(&self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// Gives something to a session, if it is there.
    pub fn send(&self, session: SessionId, input: Input) {
        if let Some(inbox) = self.sessions.get(&session) {
            // One that has gone takes nothing.
            let _ = inbox.0.send(input);
        }
    }

    /// Gives grants to their sessions; those of `own` are returned, in their order.
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
            let taken = inbox.is_some_and(|inbox| inbox.0.send(Input::Granted(grant)).is_ok());
            if !taken {
                left.extend(dispatcher.finished(task));
            }
        }
        mine
    }
}
