//! The thread that runs the application's callbacks: one per process, with all signals blocked and no lock held.

use crate::base::sync::lock;
use crate::error::{ClError, Result};
use fpga_foreign_process::PerProcess;
use fpga_foreign_process::spawn_with_signals_blocked;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

type Callback = Box<dyn FnOnce() + Send>;

/// The sender to the callback thread.
#[derive(Debug)]
struct Callbacks(Mutex<Sender<Callback>>);

/// Runs `callback` on the callback thread, after all callbacks passed earlier.
///
/// # Errors
/// `CL_OUT_OF_RESOURCES` if the thread can't be started.
pub(crate) fn run(callback: impl FnOnce() + Send + 'static) -> Result<()> {
    static CALLBACKS: PerProcess<Option<Callbacks>> = PerProcess::new(|_parents| Callbacks::start().ok());
    let callbacks = CALLBACKS.get().as_ref().ok_or(ClError::OUT_OF_RESOURCES)?;
    lock(&callbacks.0).send(Box::new(callback)).map_err(|_| ClError::OUT_OF_RESOURCES)
}

impl Callbacks {
    fn start() -> io::Result<Self> {
        let (sender, receiver) = channel::<Callback>();
        spawn_with_signals_blocked("fpga-callbacks", move || {
            for callback in receiver {
                // A callback of a Rust user may panic. That must not end the thread, which runs all callbacks.
                if catch_unwind(AssertUnwindSafe(callback)).is_err() {
                    tracing::warn!("A callback panicked");
                }
            }
        })?;
        Ok(Self(Mutex::new(sender)))
    }
}
