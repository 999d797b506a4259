//! A connection between two parties.

use crate::ids::ConnectionId;
use std::collections::VecDeque;

/// A side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The party that made the connection.
    Dialer,
    /// The party that took it.
    Listener,
}

/// A connection. Each direction keeps the order of its messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Link<K, U, D> {
    pub(super) id: ConnectionId,
    /// The parties.
    pub(super) between: K,
    /// Under way to the listener.
    pub(super) up: VecDeque<U>,
    /// Under way to the dialer.
    pub(super) down: VecDeque<D>,
    pub(super) is_cut: bool,
    is_open_at_dialer: bool,
    is_open_at_listener: bool,
}

impl<K, U, D> Link<K, U, D> {
    pub(super) fn new(id: ConnectionId, between: K) -> Self {
        Self {
            id,
            between,
            up: VecDeque::new(),
            down: VecDeque::new(),
            is_cut: false,
            is_open_at_dialer: true,
            is_open_at_listener: true,
        }
    }

    pub(super) fn is_open_at(&self, side: Side) -> bool {
        match side {
            Side::Dialer => self.is_open_at_dialer,
            Side::Listener => self.is_open_at_listener,
        }
    }

    /// Whether what is sent now arrives.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_cut && self.is_open_at_dialer && self.is_open_at_listener
    }

    pub(super) fn is_over(&self) -> bool {
        !self.is_open_at_dialer && !self.is_open_at_listener
    }

    pub(super) fn send_up(&mut self, message: U) {
        if self.is_whole() {
            self.up.push_back(message);
        }
    }

    pub(super) fn send_down(&mut self, message: D) {
        if self.is_whole() {
            self.down.push_back(message);
        }
    }

    /// Closes one side. What that side has sent goes on.
    pub(super) fn close(&mut self, side: Side) {
        match side {
            Side::Dialer => self.is_open_at_dialer = false,
            Side::Listener => self.is_open_at_listener = false,
        }
    }

    /// Whether a side may notice now that the connection has ended: at any moment after a cut, and after the last
    /// message if the other side has closed.
    pub(super) fn may_notice(&self, side: Side) -> bool {
        let (other, is_empty) = match side {
            Side::Dialer => (Side::Listener, self.down.is_empty()),
            Side::Listener => (Side::Dialer, self.up.is_empty()),
        };
        self.is_open_at(side) && (self.is_cut || (!self.is_open_at(other) && is_empty))
    }

    /// One side notices the end. What is under way to it is lost.
    pub(super) fn notice(&mut self, side: Side) {
        match side {
            Side::Dialer => self.down.clear(),
            Side::Listener => self.up.clear(),
        }
        self.close(side);
    }

    /// The process of a side ends.
    pub(super) fn crash(&mut self, side: Side) {
        self.is_cut = true;
        self.notice(side);
    }
}
