//! The connection to a broker, as the lender sees it.

use super::{Lender, State};
use fpga_pool_leases::ids::ConnectionId;
use fpga_pool_leases::manager::Event;
use fpga_pool_leases::messages::{BrokerToManager, ManagerToBroker};
use tokio::sync::mpsc;

/// Messages that wait for a broker. A broker that does not read more than these is given up.
const MAX_WAITING: usize = 1024;

/// The sending end of a connection to a broker.
#[derive(Debug)]
pub(super) struct BrokerLink(mpsc::Sender<ManagerToBroker>);

/// The broker has gone, or does not read.
#[derive(Debug)]
pub(super) struct Deaf;

impl BrokerLink {
    pub(super) fn say(&self, message: ManagerToBroker) -> Result<(), Deaf> {
        self.0.try_send(message).map_err(|_| Deaf)
    }
}

impl Lender {
    /// Registers with a broker: the first message for it is a Register. The messages end if another broker takes the place
    /// of this one, or if it does not read.
    pub fn register(&self) -> (ConnectionId, mpsc::Receiver<ManagerToBroker>) {
        let (sender, messages) = mpsc::channel(MAX_WAITING);
        let mut state = self.0.state.lock();
        let connection = state.new_broker();
        state.broker = Some(BrokerLink(sender));
        self.0.metrics.broker_connected.set(1);
        self.0.handle(&mut state, Event::BrokerConnected(connection));
        (connection, messages)
    }

    /// Takes a broker's message.
    pub fn broker_says(&self, connection: ConnectionId, message: BrokerToManager) {
        let mut state = self.0.state.lock();
        self.0.handle(&mut state, Event::Broker(connection, message));
    }

    /// Notes that the connection to a broker has ended.
    pub fn broker_closed(&self, connection: ConnectionId) {
        let mut state = self.0.state.lock();
        if state.machine.broker_connection() == Some(connection) {
            state.broker = None;
            self.0.metrics.broker_connected.set(0);
        }
        self.0.handle(&mut state, Event::BrokerClosed(connection));
    }
}

impl State {
    /// The id of a new connection to a broker.
    pub(super) fn new_broker(&mut self) -> ConnectionId {
        self.last_broker += 1;
        ConnectionId(self.last_broker)
    }
}
