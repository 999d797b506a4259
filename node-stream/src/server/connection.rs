//! A collector's connection, and the calls on it.

use super::authenticator::NodeScope;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A connection, as an extension of its requests.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The nodes that the client certificate of the connection names.
    pub nodes: NodeScope,
    calls: Arc<AtomicUsize>,
}

/// A call in progress; dropping it ends the call.
#[derive(Debug)]
pub struct Call(Arc<AtomicUsize>);

impl Connection {
    /// A connection without calls, whose client certificate names `nodes`.
    pub fn new(nodes: NodeScope) -> Self {
        Self { nodes, calls: Arc::default() }
    }

    /// Whether no call is in progress.
    pub fn is_unused(&self) -> bool {
        self.calls.load(Ordering::Relaxed) == 0
    }

    /// Counts a call until the result is dropped.
    pub fn begin(&self) -> Call {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Call(Arc::clone(&self.calls))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
