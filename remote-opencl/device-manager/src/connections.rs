//! Limits the number of connections. A connection without a session makes room for new ones, and the sessions of
//! one tenant leave connections for others.

use crate::peer::Peer;
use fpga_board::dispatch::Tenant;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tonic::Status;

/// Most connections at a time.
const MAX_CONNECTIONS: usize = 512;
/// Connections that are kept for tenants without a session.
const KEPT_FOR_NEW_TENANTS: usize = 64;
/// Time that a new connection has for its first handshake before the connection can be closed to make room.
const HANDSHAKE_GRACE: Duration = Duration::from_secs(1);

/// The open connections. Clones share them.
#[derive(Debug, Clone)]
pub struct Connections {
    table: Arc<Mutex<Table>>,
    /// Number of connections whose threads run.
    running: watch::Sender<usize>,
}

#[derive(Debug)]
struct Table {
    /// Connections in the order of arrival.
    entries: BTreeMap<u64, Entry>,
    last: u64,
    /// Most connections without a session.
    most_without_session: usize,
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    use_: watch::Sender<Use>,
    close: Arc<Notify>,
}

/// The use that is made of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Use {
    /// No session has begun since the connection was opened.
    New(Instant),
    /// The number of sessions, and the tenant of the latest one.
    Sessions(usize, Tenant),
    /// The last session ended then.
    Idle(Instant),
}

/// An open connection; dropping the value frees its place.
#[derive(Debug)]
pub struct Open {
    id: u64,
    connections: Connections,
    use_: watch::Sender<Use>,
    close: Arc<Notify>,
}

/// A session on a connection, until the value is dropped.
#[derive(Debug)]
pub struct OnConnection {
    connections: Connections,
    use_: watch::Sender<Use>,
}

/// The reason why a session can't begin on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoSession {
    /// The tenant has as many connections as are left for all others.
    #[error(
        "the tenant has sessions on {0} connections, which is all that it may have now; end some, or begin several \
         sessions on one connection"
    )]
    TooMany(usize),
    /// The connection is being closed to make room for another one.
    #[error("the device manager closes this connection to make room for others; connect again")]
    Closing,
}

impl From<NoSession> for Status {
    fn from(reason: NoSession) -> Self {
        match reason {
            NoSession::TooMany(_) => Self::resource_exhausted(reason.to_string()),
            NoSession::Closing => Self::unavailable(reason.to_string()),
        }
    }
}

impl Connections {
    /// No connections yet; at most `most_without_session` may be without a session.
    #[must_use]
    pub fn new(most_without_session: usize) -> Self {
        let table = Table { entries: BTreeMap::new(), last: 0, most_without_session };
        Self { table: Arc::new(Mutex::new(table)), running: watch::Sender::new(0) }
    }

    /// A place for a connection of this peer; `None` if there is none and no connection can be closed.
    #[must_use]
    pub fn open(&self, peer: &Peer) -> Option<Open> {
        self.open_at(peer, Instant::now())
    }

    fn open_at(&self, peer: &Peer, now: Instant) -> Option<Open> {
        let mut table = self.table.lock();
        if table.entries.len() >= MAX_CONNECTIONS
            || table.without_session().count() >= table.most_without_session
        {
            table.make_room(now, peer)?;
        }
        table.last += 1;
        let id = table.last;
        let (use_, close) = (watch::Sender::new(Use::New(now)), Arc::<Notify>::default());
        table.entries.insert(id, Entry { peer: peer.clone(), use_: use_.clone(), close: close.clone() });
        drop(table);
        self.running.send_modify(|count| *count += 1);
        Some(Open { id, connections: self.clone(), use_, close })
    }

    /// Waits until all connections are closed.
    pub async fn all_closed(&self) {
        // The channel can't be closed: this value holds a sender.
        let _ = self.running.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Table {
    fn without_session(&self) -> impl Iterator<Item = (u64, &Entry)> {
        self.entries.iter().filter(|(_, entry)| entry.since().is_some()).map(|(id, entry)| (*id, entry))
    }

    /// Closes a connection without a session. If one peer has more than half of them, the oldest one of that peer goes,
    /// for another peer whatever its age. Otherwise the connection goes that has been without a session for longest.
    fn make_room(&mut self, now: Instant, newcomer: &Peer) -> Option<()> {
        let all = self.without_session().count();
        let of = |peer: &Peer| self.without_session().filter(|(_, entry)| entry.peer == *peer).count();
        let greedy = self.without_session().map(|(_, entry)| &entry.peer).find(|peer| 2 * of(peer) > all);
        let candidates = self.without_session().filter(|(_, entry)| match greedy {
            Some(greedy) if greedy != newcomer => entry.peer == *greedy,
            Some(greedy) => entry.peer == *greedy && entry.can_make_room(now),
            None => entry.can_make_room(now),
        });
        let longest = candidates.min_by_key(|(_, entry)| entry.since())?.0;
        self.close(longest)
    }

    /// The place of a closed connection is free at once.
    fn close(&mut self, id: u64) -> Option<()> {
        self.entries.remove(&id)?.close.notify_one();
        Some(())
    }

    /// Begins a session on a connection. A tenant may have sessions on as many connections as are left for others, less
    /// those that are kept for tenants without a session.
    fn begin(&mut self, id: u64, tenant: &Tenant) -> Result<(), NoSession> {
        let Some(entry) = self.entries.get(&id) else { return Err(NoSession::Closing) };
        let sessions = entry.sessions_of(tenant);
        if sessions.is_none() {
            let others = || self.entries.iter().filter(|(other, _)| **other != id).map(|(_, entry)| entry);
            let taken = others().filter(|entry| entry.since().is_none()).count();
            let own = others().filter(|entry| entry.sessions_of(tenant).is_some()).count();
            let left = MAX_CONNECTIONS - taken;
            if own > 0 && own + KEPT_FOR_NEW_TENANTS >= left {
                return Err(NoSession::TooMany(own));
            }
        }
        entry.use_.send_modify(|use_| {
            let before = if let Use::Sessions(sessions, _) = use_ { *sessions } else { 0 };
            *use_ = Use::Sessions(before + 1, tenant.clone());
        });
        Ok(())
    }
}

impl Entry {
    /// Since when the connection has had no session; `None` if it has one.
    fn since(&self) -> Option<Instant> {
        self.use_.borrow().since()
    }

    /// The number of sessions if they are this tenant's.
    fn sessions_of(&self, tenant: &Tenant) -> Option<usize> {
        match &*self.use_.borrow() {
            Use::Sessions(sessions, of) if of == tenant => Some(*sessions),
            _ => None,
        }
    }

    /// Whether the connection may be closed for one of any peer.
    fn can_make_room(&self, now: Instant) -> bool {
        match *self.use_.borrow() {
            Use::New(since) => now.saturating_duration_since(since) >= HANDSHAKE_GRACE,
            Use::Sessions(..) => false,
            Use::Idle(_) => true,
        }
    }
}

impl Use {
    fn since(&self) -> Option<Instant> {
        match self {
            Self::New(since) | Self::Idle(since) => Some(*since),
            Self::Sessions(..) => None,
        }
    }
}

impl Open {
    /// Begins a session of this tenant on the connection.
    ///
    /// # Errors
    /// [`NoSession`]
    pub fn begin(&self, tenant: &Tenant) -> Result<OnConnection, NoSession> {
        self.connections.table.lock().begin(self.id, tenant)?;
        Ok(OnConnection { connections: self.connections.clone(), use_: self.use_.clone() })
    }

    /// Waits until the connection is to be closed to make room for another.
    pub async fn makes_room(&self) {
        self.close.notified().await;
    }

    /// Waits until the connection has had no session for `timeout`.
    pub async fn is_idle_for(&self, timeout: Duration) {
        let mut use_ = self.use_.subscribe();
        loop {
            // The channel can't be closed: this value holds a sender.
            let since = use_.wait_for(|use_| use_.since().is_some()).await.ok().and_then(|use_| use_.since());
            let Some(since) = since else { continue };
            tokio::time::sleep_until((since + timeout).into()).await;
            if use_.borrow_and_update().since() == Some(since) {
                return;
            }
        }
    }
}

impl Drop for OnConnection {
    fn drop(&mut self) {
        // A session that begins meanwhile is counted before or after this change.
        let mut table = self.connections.table.lock();
        self.use_.send_modify(|use_| {
            *use_ = match std::mem::replace(use_, Use::Idle(Instant::now())) {
                Use::Sessions(sessions, tenant) if sessions > 1 => Use::Sessions(sessions - 1, tenant),
                _ => Use::Idle(Instant::now()),
            }
        });
        while table.without_session().count() > table.most_without_session {
            let idle = table.without_session().filter(|(_, entry)| entry.can_make_room(Instant::now()));
            let Some((longest, _)) = idle.min_by_key(|(_, entry)| entry.since()) else { break };
            table.close(longest);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.table.lock().entries.remove(&self.id);
        self.connections.running.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests;
