//! The engine's thread and the handle by which others talk to it.

use super::{Engine, Input, link};
use crate::config::Config;
use crate::error::Error;
use fpga_core::units::{Millis, MonotonicTime};
use fpga_foreign_process::{generation, spawn_with_signals_blocked};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

/// How often the machines are told that the managers live, which is a part of the time after which they count as silent,
/// and that groups forecast.
const PERIOD: Duration = Duration::from_secs(1);
/// Time for the last messages to the broker when a pool is closed.
const FAREWELL: Duration = Duration::from_millis(500);

/// Access to an engine. The engine ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Inner>);

struct Inner {
    inputs: UnboundedSender<Input>,
    thread: Option<JoinHandle<()>>,
    /// The process that started the thread: a forked child has none.
    generation: u64,
}

impl Handle {
    /// Starts an engine.
    pub(crate) fn start(config: Config) -> Result<Self, Error> {
        let (inputs, receiver) = unbounded_channel();
        let thread = |error: std::io::Error| Error::Thread(Arc::new(error));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(thread)?;
        let engine = Engine::new(config.clone(), inputs.clone());
        let to_link = inputs.clone();
        let body = move || runtime.block_on(run(engine, receiver, config, to_link));
        let thread = spawn_with_signals_blocked("fpga-acc", body).map_err(thread)?;
        Ok(Self(Arc::new(Inner { inputs, thread: Some(thread), generation: generation() })))
    }

    /// Hands an input to the engine.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub(crate) fn send(&self, input: Input) -> Result<(), Error> {
        if self.0.generation != generation() {
            return Err(Error::Forked);
        }
        self.0.inputs.send(input).map_err(|_| super::ended())
    }

    /// Ends the engine, and waits until it has ended, unless others have handles as well.
    pub(crate) fn close(self) {
        if let Ok(mut inner) = Arc::try_unwrap(self.0) {
            let thread = inner.thread.take().filter(|_| inner.generation == generation());
            drop(inner);
            if let Some(thread) = thread {
                // A panic of the engine was told where it happened.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.generation == generation() {
            // The engine may have ended by itself.
            let _ = self.inputs.send(Input::Stop);
        }
    }
}

async fn run(
    mut engine: Engine,
    mut inputs: UnboundedReceiver<Input>,
    config: Config,
    to_link: UnboundedSender<Input>,
) {
    let start = Instant::now();
    let now = || MonotonicTime::after(start.elapsed());
    let moment = |at: MonotonicTime| start + Duration::from_millis((at - MonotonicTime::START).0);
    let mut seconds = interval(PERIOD);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let link = tokio::spawn(link::keep(config, to_link));
    loop {
        // An hour stands for no deadline.
        let deadline = engine.next_deadline().unwrap_or(now() + Millis::from_secs(3600));
        tokio::select! {
            biased;
            input = inputs.recv() => {
                if !input.is_some_and(|input| engine.take(input, now())) {
                    break;
                }
            }
            _ = seconds.tick() => engine.each_second(now()),
            () = sleep_until(moment(deadline)) => engine.tick(now()),
        }
    }
    engine.stop(now());
    drop(inputs);
    let link = std::pin::pin!(link);
    // The stream to the broker has no sender any more, so that it ends when the last message is sent.
    let _ = timeout(FAREWELL, link).await;
}
