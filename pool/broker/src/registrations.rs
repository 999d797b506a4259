//! What streams share: the numbers of managers, and how many streams each tenant has.

use fpga_board::dispatch::Tenant;
use fpga_pool_leases::ids::ManagerId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Maximum number of boards of a node. A node's token could else fill the broker with names.
const MAX_BOARDS_OF_NODE: usize = 64;
/// Maximum number of boards of all nodes, over the life of the broker.
const MAX_BOARDS: usize = 1 << 16;
/// Maximum number of streams of a tenant's clients; each is a process with up to
/// [`fpga_pool_api::limits::MAX_WAITING_JOBS_OF_CLIENT`] jobs.
pub const MAX_STREAMS_OF_TENANT: usize = 1024;

/// Numbers of managers, and streams of tenants.
#[derive(Debug, Default)]
pub struct Registrations(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    managers: BTreeMap<Arc<str>, BTreeMap<Arc<str>, ManagerId>>,
    boards: usize,
    streams: HashMap<Tenant, usize>,
}

/// A client's stream. Dropping it makes room for another one.
#[derive(Debug)]
pub struct ClientStream {
    registrations: Arc<Registrations>,
    tenant: Tenant,
}

impl Registrations {
    /// The number of the manager of a board; `None` if there are too many.
    #[must_use]
    pub fn manager(&self, node: &Arc<str>, board: &Arc<str>) -> Option<ManagerId> {
        let mut known = self.0.lock();
        let boards = known.boards;
        let of_node = known.managers.entry(Arc::clone(node)).or_default();
        if let Some(id) = of_node.get(board) {
            return Some(*id);
        }
        if of_node.len() >= MAX_BOARDS_OF_NODE || boards >= MAX_BOARDS {
            return None;
        }
        let id = ManagerId(boards as u64);
        of_node.insert(Arc::clone(board), id);
        known.boards += 1;
        Some(id)
    }

    /// A place for a client's stream; `None` if the tenant has too many.
    #[must_use]
    pub fn client(self: &Arc<Self>, tenant: &Tenant) -> Option<ClientStream> {
        let mut known = self.0.lock();
        let streams = known.streams.entry(tenant.clone()).or_default();
        if *streams >= MAX_STREAMS_OF_TENANT {
            return None;
        }
        *streams += 1;
        Some(ClientStream { registrations: Arc::clone(self), tenant: tenant.clone() })
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        let mut known = self.registrations.0.lock();
        if let Some(streams) = known.streams.get_mut(&self.tenant) {
            *streams -= 1;
            if *streams == 0 {
                known.streams.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_has_one_number_and_a_node_not_too_many_boards() {
        let registrations = Registrations::default();
        let manager =
            |node: &str, board: usize| registrations.manager(&node.into(), &board.to_string().into());
        assert_eq!(manager("a", 0), manager("a", 0));
        assert_ne!(manager("a", 0), manager("b", 0));
        assert!((0..MAX_BOARDS_OF_NODE).all(|board| manager("a", board).is_some()));
        assert_eq!(manager("a", MAX_BOARDS_OF_NODE), None);
        assert!(manager("b", MAX_BOARDS_OF_NODE).is_some());
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
