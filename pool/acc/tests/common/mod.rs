//! Beds with device managers: one with a broker that obeys the test, and one with the real broker.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod broker;
pub mod cipher;
pub mod managers;
pub mod real;

use broker::TestBroker;
use fpga_acc::{Config, Pool};
use fpga_core::bitstream::Digest;
use managers::{Manager, library};
use std::collections::HashMap;

pub use managers::{DEADLINE, bytes, eventually};

/// A broker, and managers that lend it slots.
pub struct Bed {
    pub broker: TestBroker,
    pub managers: Vec<Manager>,
    library: tempfile::TempDir,
    pub bitstreams: HashMap<String, Digest>,
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
        let mut bed = Self { broker, managers: Vec::new(), library, bitstreams };
        for _ in 0..managers {
            bed.add_manager();
        }
        bed
    }

    /// Starts one more manager, and waits until it has registered.
    pub fn add_manager(&mut self) {
        let before = self.broker.seen().registered;
        self.managers.push(Manager::start(&self.broker.address, self.library.path(), 1, "localhost"));
        eventually("the manager registers", || self.broker.seen().registered > before);
    }

    pub fn pool(&self, way: Way) -> Pool {
        Pool::connect(self.config(way)).unwrap()
    }

    pub fn config(&self, way: Way) -> Config {
        let node = match way {
            Way::Socket => "localhost",
            Way::Tcp => "elsewhere",
        };
        Config { node: Some(node.to_owned()), ..Config::of(&self.broker.address).unwrap() }
    }
}
