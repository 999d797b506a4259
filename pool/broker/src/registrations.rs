//! The open streams: the boards of each node, and the number of streams of each tenant.

use fpga_board::dispatch::Tenant;
use fpga_pool_leases::ids::ManagerId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// Maximum number of boards of a node that have a stream.
pub const MAX_BOARDS_OF_NODE: usize = 64;
/// Maximum number of streams of a tenant's clients; each is a process with up to
/// [`fpga_pool_api::limits::MAX_WAITING_JOBS_OF_CLIENT`] jobs.
pub const MAX_STREAMS_OF_TENANT: usize = 1024;

/// Streams of boards and of tenants. A board or tenant without a stream is forgotten.
#[derive(Debug, Default)]
pub struct Registrations {
    open: Mutex<Open>,
    ids: RandomState,
}

#[derive(Debug, Default)]
struct Open {
    /// Number of streams of each board, by node and board. A board has two while a new stream replaces an old one.
    boards: BTreeMap<Arc<str>, BTreeMap<Arc<str>, usize>>,
    tenants: HashMap<Tenant, usize>,
}

/// A manager's stream. Dropping it makes room for another board of the node.
#[derive(Debug)]
pub struct ManagerStream {
    registrations: Arc<Registrations>,
    node: Arc<str>,
    board: Arc<str>,
}

/// A client's stream. Dropping it makes room for another one.
#[derive(Debug)]
pub struct ClientStream {
    registrations: Arc<Registrations>,
    tenant: Tenant,
}

impl Registrations {
    /// A place for a stream of a board's manager; `None` if the node has too many boards.
    #[must_use]
    pub fn manager(self: &Arc<Self>, node: &Arc<str>, board: &Arc<str>) -> Option<ManagerStream> {
        let mut open = self.open.lock();
        let of_node = open.boards.entry(Arc::clone(node)).or_default();
        // A node without a board is not full, so no empty entry stays.
        if of_node.len() >= MAX_BOARDS_OF_NODE && !of_node.contains_key(board) {
            return None;
        }
        *of_node.entry(Arc::clone(board)).or_default() += 1;
        let (node, board) = (Arc::clone(node), Arc::clone(board));
        Some(ManagerStream { registrations: Arc::clone(self), node, board })
    }

    /// A place for a client's stream; `None` if the tenant has too many.
    #[must_use]
    pub fn client(self: &Arc<Self>, tenant: &Tenant) -> Option<ClientStream> {
        let mut open = self.open.lock();
        let streams = open.tenants.entry(tenant.clone()).or_default();
        if *streams >= MAX_STREAMS_OF_TENANT {
            return None;
        }
        *streams += 1;
        Some(ClientStream { registrations: Arc::clone(self), tenant: tenant.clone() })
    }
}

impl ManagerStream {
    /// The id of the board's manager: a hash with a random key, so that a board that comes back has the same id although
    /// it was forgotten. Two of 10,000 boards share an id with a probability of 3·10⁻¹².
    #[must_use]
    pub fn id(&self) -> ManagerId {
        ManagerId(self.registrations.ids.hash_one((&self.node, &self.board)))
    }
}

impl Drop for ManagerStream {
    fn drop(&mut self) {
        let mut open = self.registrations.open.lock();
        let Some(of_node) = open.boards.get_mut(&self.node) else { return };
        if let Some(streams) = of_node.get_mut(&self.board) {
            *streams -= 1;
            if *streams == 0 {
                of_node.remove(&self.board);
            }
        }
        if of_node.is_empty() {
            open.boards.remove(&self.node);
        }
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        let mut open = self.registrations.open.lock();
        if let Some(streams) = open.tenants.get_mut(&self.tenant) {
            *streams -= 1;
            if *streams == 0 {
                open.tenants.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_maximum_number_of_boards_with_a_stream() {
        let registrations = Arc::new(Registrations::default());
        let manager =
            |node: &str, board: usize| registrations.manager(&node.into(), &board.to_string().into());
        let mut streams: Vec<_> = (0..MAX_BOARDS_OF_NODE).map(|board| manager("a", board).unwrap()).collect();
        assert!(manager("a", MAX_BOARDS_OF_NODE).is_none());
        assert!(manager("b", MAX_BOARDS_OF_NODE).is_some());
        // A board that is there already may connect again, and keeps its place until both streams have ended.
        let again = manager("a", 0).unwrap();
        assert_eq!(again.id(), streams[0].id());
        assert_ne!(again.id(), streams[1].id());
        drop(streams.remove(0));
        assert!(manager("a", MAX_BOARDS_OF_NODE).is_none());
        drop(again);
        assert!(manager("a", MAX_BOARDS_OF_NODE).is_some());
    }

    #[test]
    fn a_board_without_a_stream_is_forgotten_and_comes_back_under_its_id() {
        let registrations = Arc::new(Registrations::default());
        let manager = |node: usize| registrations.manager(&node.to_string().into(), &"dm0".into());
        let first = manager(0).unwrap().id();
        // More boards than a broker kept before, one after another.
        assert!((0..70_000).all(|node| manager(node).is_some()));
        assert!(registrations.open.lock().boards.is_empty());
        assert_eq!(manager(0).unwrap().id(), first);
    }

    #[test]
    fn a_tenant_has_a_maximum_number_of_streams() {
        let (registrations, tenant) = (Arc::new(Registrations::default()), Tenant::new("a"));
        let mut streams: Vec<_> =
            (0..MAX_STREAMS_OF_TENANT).map(|_| registrations.client(&tenant).unwrap()).collect();
        assert!(registrations.client(&tenant).is_none());
        assert!(registrations.client(&Tenant::new("b")).is_some());
        streams.pop();
        assert!(registrations.client(&tenant).is_some());
    }
}
