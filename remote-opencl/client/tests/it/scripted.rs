//! The client against a scripted manager: batches, events, transfers, and failures.
//!
//! Tests over PoCL check that real managers and runtimes behave like the scripted one.

mod commands;
mod events;
mod failures;
mod lease;
mod maps;
mod random_programs;
mod rects;
mod synchronous_loop;
mod traces;
mod transfers;
mod unheard;
mod unwatched;
mod waiting;

use crate::scripted_manager::ScriptedManager;
use fpga_client::{Buffer, Client, Context, Device, HostSource, HostTarget, Initial, Queue};
use std::sync::Arc;

/// A client of a scripted manager, with the objects that most tests need.
struct Setup {
    manager: ScriptedManager,
    client: Client,
    device: Arc<Device>,
    context: Arc<Context>,
    queue: Arc<Queue>,
}

const PROFILING: u64 = fpga_client::cl::QUEUE_PROFILING_ENABLE;

impl Setup {
    fn new() -> Self {
        Self::with_properties(PROFILING)
    }

    fn with_properties(properties: u64) -> Self {
        Self::of(ScriptedManager::start(), properties)
    }

    fn of(manager: ScriptedManager, properties: u64) -> Self {
        let client = Client::with_managers(manager.address()).unwrap();
        let platforms = client.platforms();
        let device = Arc::clone(&platforms[0].devices()[0]);
        let context = Context::new(&[Arc::clone(&device)]).unwrap();
        let queue = Queue::new(&context, &device, properties).unwrap();
        Self { manager, client, device, context, queue }
    }

    fn buffer(&self, size: usize) -> Arc<Buffer> {
        Buffer::new(&self.context, 0, size, Initial::Nothing).unwrap()
    }
}

/// A target for `bytes`, which must live until the read has ended.
fn target(bytes: &mut [u8]) -> HostTarget {
    // SAFETY: every test that uses this waits for the read before it accesses or drops the bytes.
    unsafe { HostTarget::borrowed(bytes.as_mut_ptr(), bytes.len()) }
}

/// A source of `bytes`, which must live until the write has ended.
fn source(bytes: &[u8]) -> HostSource {
    // SAFETY: every test that uses this waits for the write before it drops the bytes.
    unsafe { HostSource::borrowed(bytes.as_ptr(), bytes.len()) }
}
