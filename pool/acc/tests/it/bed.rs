//! Device managers with a broker that obeys the test.

use crate::broker::TestBroker;
use crate::managers::{library, start_manager};
use fpga_acc::{Config, Pool};
use fpga_core::bitstream::Digest;
use fpga_test_kit::{Manager, Proxy, until};
use std::collections::HashMap;

/// A broker, and managers that lend it slots.
pub struct Bed {
    /// `None` while there is none.
    broker: Option<TestBroker>,
    /// The address at which brokers are reached.
    proxy: Proxy,
    pub managers: Vec<Manager>,
    library: tempfile::TempDir,
    bitstreams: HashMap<String, Digest>,
}

/// Whether clients reach a manager by its socket or by TCP.
#[derive(Clone, Copy)]
pub enum Way {
    Socket,
    Tcp,
}

impl Bed {
    /// A bed whose managers lend one slot each.
    pub fn new(managers: usize) -> Self {
        let (library, bitstreams) = library();
        let broker = TestBroker::start(bitstreams.clone());
        let proxy = Proxy::to(&broker.address, &[]);
        let mut bed = Self { broker: Some(broker), proxy, managers: Vec::new(), library, bitstreams };
        for _ in 0..managers {
            bed.add_manager();
        }
        bed
    }

    /// Starts one more manager, and waits until it has registered.
    pub fn add_manager(&mut self) {
        let before = self.broker().seen().registered;
        self.managers.push(start_manager(&self.address(), self.library.path(), 1, "localhost", &[]));
        until("the manager registers", || self.broker().seen().registered > before);
    }

    pub fn broker(&self) -> &TestBroker {
        self.broker.as_ref().unwrap()
    }

    pub fn address(&self) -> String {
        self.proxy.address().to_string()
    }

    /// Ends the broker as a killed process.
    pub fn kill_broker(&mut self) {
        self.broker = None;
    }

    /// Starts a broker that knows nothing of the former one.
    pub fn start_broker(&mut self) {
        let broker = TestBroker::start(self.bitstreams.clone());
        self.proxy.redirect(&broker.address);
        self.broker = Some(broker);
    }

    pub fn pool(&self, way: Way) -> Pool {
        Pool::connect(self.config(way)).unwrap()
    }

    pub fn config(&self, way: Way) -> Config {
        let node = match way {
            Way::Socket => "localhost",
            Way::Tcp => "elsewhere",
        };
        Config { node: Some(node.to_owned()), ..Config::of(&self.address()).unwrap() }
    }
}
