//! The state that exists once per process: the driver, the global client, and the callback thread.
//!
//! The state is never dropped: at exit its memory goes away with the process. A forked child gets new state.

use crate::base::fork;
use crate::client::Client;
use crate::error::{ClError, Result};
use crate::session::callbacks::Callbacks;
use crate::session::driver::Driver;
use std::sync::OnceLock;

/// The state of one process. The states of forked children form a list by generation.
#[derive(Debug)]
pub(crate) struct Process {
    generation: u32,
    driver: OnceLock<Option<Driver>>,
    callbacks: OnceLock<Option<Callbacks>>,
    client: OnceLock<Client>,
    child: OnceLock<Box<Self>>,
}

static FIRST: OnceLock<Process> = OnceLock::new();

impl Process {
    fn new(generation: u32) -> Self {
        Self {
            generation,
            driver: OnceLock::new(),
            callbacks: OnceLock::new(),
            client: OnceLock::new(),
            child: OnceLock::new(),
        }
    }

    /// The state of the calling process.
    pub(crate) fn current() -> &'static Self {
        fork::install();
        let generation = fork::generation();
        let mut process = FIRST.get_or_init(|| Self::new(generation));
        while process.generation != generation {
            process = process.child.get_or_init(|| Box::new(Self::new(generation)));
        }
        process
    }

    /// The driver, started on first use.
    pub(crate) fn driver(&'static self) -> Result<&'static Driver> {
        self.driver.get_or_init(|| Driver::new().ok()).as_ref().ok_or(ClError::OUT_OF_RESOURCES)
    }

    pub(crate) fn callbacks(&'static self) -> Result<&'static Callbacks> {
        self.callbacks.get_or_init(|| Callbacks::start().ok()).as_ref().ok_or(ClError::OUT_OF_RESOURCES)
    }

    /// The client for `FPGA_DEVICE_MANAGERS`, made on first use.
    pub(crate) fn client(&'static self) -> &'static Client {
        self.client.get_or_init(Client::from_environment)
    }
}
