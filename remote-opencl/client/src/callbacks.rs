//! The thread on which the application's callbacks run: one per process, all signals blocked, no lock held.

use crate::error::{ClError, Result};
use crate::process::Process;
use crate::signals::spawn_with_signals_blocked;
use crate::sync::lock;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

type Callback = Box<dyn FnOnce() + Send>;

/// The way to the callback thread.
#[derive(Debug)]
pub(crate) struct Callbacks(Mutex<Sender<Callback>>);

/// Runs `callback` on the callback thread, after those handed over before it.
///
/// # Errors
/// `CL_OUT_OF_RESOURCES` when the thread can't be started.
pub fn run(callback: impl FnOnce() + Send + 'static) -> Result<()> {
    let callbacks = Process::current().callbacks()?;
    lock(&callbacks.0).send(Box::new(callback)).map_err(|_| ClError::OUT_OF_RESOURCES)
}

impl Callbacks {
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel::<Callback>();
        spawn_with_signals_blocked("fpga-callbacks", move || {
            for callback in receiver {
                // A callback that panics (only Rust users' can) must not take the others' thread along.
                if catch_unwind(AssertUnwindSafe(callback)).is_err() {
                    tracing::warn!("A callback panicked");
                }
            }
        })?;
        Ok(Self(Mutex::new(sender)))
    }
}
