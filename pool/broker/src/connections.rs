//! The open connections. A connection without a stream makes room for a new one, and is closed after a while: nobody
//! keeps managers and clients out by connections alone, which need no token.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// Most connections at once: a manager for each board and a client for each process of the largest cluster.
const MAX_CONNECTIONS: usize = 16 * 1024;
/// Time after which a connection without a stream is closed. A Hello, its turn, and the check of its token take up to 13 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// The open connections. Clones share them.
#[derive(Debug, Clone)]
pub struct Connections {
    open: Arc<Mutex<Table>>,
    most: usize,
    idle_timeout: Duration,
}

#[derive(Debug, Default)]
struct Table {
    /// In the order of arrival.
    connections: BTreeMap<u64, Arc<State>>,
    last: u64,
}

#[derive(Debug)]
struct State {
    /// Address of the peer.
    address: IpAddr,
    /// Number of streams of peers that have proved who they are.
    streams: watch::Sender<usize>,
    close: Notify,
}

/// An open connection. Dropping it frees its place.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    state: Arc<State>,
    connections: Connections,
}

/// The connection of a request, as an extension of the request.
#[derive(Debug, Clone)]
pub struct ConnectionOfRequest(Arc<State>);

/// A use of a connection, which is not closed meanwhile. Dropping it ends the use.
#[derive(Debug)]
pub struct ConnectionUse(Arc<State>);

impl Default for Connections {
    fn default() -> Self {
        Self::new(MAX_CONNECTIONS, IDLE_TIMEOUT)
    }
}

impl Connections {
    /// Up to `most` connections, each of which is closed when it has had no stream for `idle_timeout`.
    #[must_use]
    pub fn new(most: usize, idle_timeout: Duration) -> Self {
        Self { open: Arc::default(), most, idle_timeout }
    }

    /// A place for a connection of the peer at this address. If all places are taken the oldest connection without a
    /// stream is closed; `None` if each connection has a stream.
    #[must_use]
    pub fn open(&self, address: IpAddr) -> Option<Connection> {
        let mut table = self.open.lock();
        if table.connections.len() >= self.most {
            let idle = table.connections.iter().find(|(_, state)| *state.streams.borrow() == 0);
            let id = idle.map(|(id, _)| *id)?;
            table.connections.remove(&id)?.close.notify_one();
        }
        table.last += 1;
        let state = Arc::new(State { address, streams: watch::Sender::default(), close: Notify::new() });
        let id = table.last;
        table.connections.insert(id, Arc::clone(&state));
        Some(Connection { id, state, connections: self.clone() })
    }
}

impl Connection {
    /// The connection as an extension of its requests.
    #[must_use]
    pub fn of_request(&self) -> ConnectionOfRequest {
        ConnectionOfRequest(Arc::clone(&self.state))
    }

    /// Waits until the connection is to be closed: it is idle, or makes room for another one.
    pub async fn is_to_close(&self) {
        tokio::select! {
            () = self.state.close.notified() => {}
            () = self.idle() => {}
        }
    }

    /// Waits until there has been no stream for a while.
    async fn idle(&self) {
        let mut streams = self.state.streams.subscribe();
        loop {
            // The channel can't be closed: the state holds its sender.
            let _ = streams.wait_for(|streams| *streams == 0).await;
            if timeout(self.connections.idle_timeout, streams.changed()).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.open.lock().connections.remove(&self.id);
    }
}

impl ConnectionOfRequest {
    /// Address of the peer.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.0.address
    }

    /// A peer that has proved who it is begins to use the connection.
    #[must_use]
    pub fn begin_use(&self) -> ConnectionUse {
        self.0.streams.send_modify(|streams| *streams += 1);
        ConnectionUse(Arc::clone(&self.0))
    }
}

impl Drop for ConnectionUse {
    fn drop(&mut self) {
        self.0.streams.send_modify(|streams| *streams -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::net::Ipv4Addr;

    #[test]
    fn the_oldest_connection_without_a_stream_makes_room_and_one_with_a_stream_never_does() {
        let connections = Connections::new(3, IDLE_TIMEOUT);
        let open = || connections.open(Ipv4Addr::LOCALHOST.into());
        let [first, second, third] = [0; 3].map(|_| open().unwrap());
        let of_first = first.of_request().begin_use();
        let told = |connection: &Connection| connection.state.close.notified().now_or_never().is_some();
        let fourth = open().unwrap();
        assert_eq!([&first, &second, &third].map(told), [false, true, false]);
        let of_others = [&third, &fourth].map(|connection| connection.of_request().begin_use());
        assert!(open().is_none(), "each has a stream");
        drop(of_first);
        assert!(open().is_some());
        assert!(told(&first));
        drop((first, second, third, fourth, of_others));
        assert!(connections.open.lock().connections.is_empty());
    }
}
