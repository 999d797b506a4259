//! Jobs that the processor works on, since no slot came in time.
//!
//! Such a job has left the pool: the broker has forgotten it, and its machine is gone. A thread computes its steps, one after
//! the other.

use super::owner::Owner as _;
use super::{Engine, Input};
use crate::asked::Known;
use crate::error::Error;
use crate::fallback::Fallback;
use crate::slot::Done;
use crate::step::Step;
use bytes::Bytes;
use fpga_accelerators::ChunkInput;
use fpga_core::units::MonotonicTime;
use fpga_foreign_process::spawn_with_signals_blocked;
use fpga_pool_api::client::FromClient;
use fpga_pool_leases::client::{Action, End, Event};
use fpga_pool_leases::ids::JobUuid;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::mpsc::UnboundedSender;

/// What a thread computes.
pub(super) struct ProcessorWork {
    pub(super) accelerator: String,
    pub(super) fallback: Fallback,
    pub(super) known: Known,
    /// The state that the last delivered step has left; empty for zeros.
    pub(super) state: Bytes,
}

impl Engine {
    /// The next moment at which a job has waited for a slot for long enough.
    pub(super) fn next_fallback(&self) -> Option<MonotonicTime> {
        self.owners.runs.values().filter_map(|run| run.falls_back_at()).min()
    }

    /// Lets the jobs fall back that have waited for long enough.
    pub(super) fn fall_back_if_due(&mut self, now: MonotonicTime) {
        let runs = self.owners.runs.iter();
        let due = runs.filter(|(_, run)| run.falls_back_at().is_some_and(|at| at <= now));
        let due: Vec<JobUuid> = due.map(|(job, _)| *job).collect();
        for job in due {
            self.fall_back(job, now);
        }
    }

    /// Whether a job waits that may fall back.
    pub(super) fn may_fall_back(&self, job: JobUuid) -> bool {
        self.owners.runs.get(&job).is_some_and(|run| run.falls_back_at().is_some())
    }

    /// Lets the processor work on a job that waits.
    pub(super) fn fall_back(&mut self, job: JobUuid, now: MonotonicTime) {
        let Some(run) = self.owners.runs.get_mut(&job) else { return };
        let started = run.go_to_processor().and_then(|(work, kept)| {
            let steps = start(job, work, self.inputs.clone())?;
            // The thread ends when the sender is gone.
            kept.into_iter().for_each(|step| drop(steps.send(step)));
            Ok(steps)
        });
        // The broker hears that the job wants no slot any more. The end of the machine is not that of the job.
        let left = self.jobs.remove(&job).map(|mut entry| entry.machine.handle(Event::Cancel, now));
        for action in left.unwrap_or_default() {
            if let (Action::ToBroker(message), Some((_, broker))) = (action, &self.broker) {
                // The end of the stream comes as an input of its own.
                let _ = broker.send(FromClient::encode(message, None));
            }
        }
        match started {
            Ok(steps) => {
                self.processors.insert(job, steps);
                self.end_if_computed(job, now);
            }
            Err(error) => self.end_on_processor(job, Err(error), now),
        }
    }

    /// Hands a step to the processor, if that has the job.
    pub(super) fn compute(&mut self, job: JobUuid, step: Step) {
        if let Some(steps) = self.processors.get(&job) {
            // The end of a thread comes as an input.
            let _ = steps.send(step);
        }
    }

    /// Takes what the processor has computed.
    pub(super) fn processed(&mut self, job: JobUuid, result: Result<Done, String>, now: MonotonicTime) {
        let Some(run) = self.owners.runs.get_mut(&job).filter(|_| self.processors.contains_key(&job)) else {
            return;
        };
        match result {
            Ok(done) => {
                run.deliver(job, done, now);
                self.end_if_computed(job, now);
            }
            Err(why) => self.end_on_processor(job, Err(Error::Processor(why)), now),
        }
    }

    /// Ends a job on the processor that has nothing more to do.
    pub(super) fn end_if_computed(&mut self, job: JobUuid, now: MonotonicTime) {
        let is_done = self.owners.runs.get(&job).is_some_and(|run| run.is_done());
        if is_done && self.processors.contains_key(&job) {
            self.end_on_processor(job, Ok(End::Done), now);
        }
    }

    /// Ends a job on the processor. A step that has started ends unseen.
    pub(super) fn end_on_processor(&mut self, job: JobUuid, end: Result<End, Error>, now: MonotonicTime) {
        self.processors.remove(&job);
        if let Some(mut run) = self.owners.runs.remove(&job) {
            run.ended_with(job, end, now);
        }
    }

    /// Gives up a job on the processor. Returns false if it is not there.
    pub(super) fn cancel_on_processor(&mut self, job: JobUuid, now: MonotonicTime) -> bool {
        let is_there = self.processors.contains_key(&job);
        if is_there {
            self.end_on_processor(job, Ok(End::Cancelled), now);
        }
        is_there
    }

    /// Gives up all jobs on the processor.
    pub(super) fn stop_processors(&mut self, now: MonotonicTime) {
        let jobs: Vec<JobUuid> = self.processors.keys().copied().collect();
        for job in jobs {
            self.end_on_processor(job, Ok(End::Cancelled), now);
        }
    }
}

/// Starts the thread of a job. It ends when the sender of its steps is gone.
fn start(job: JobUuid, work: ProcessorWork, inputs: UnboundedSender<Input>) -> Result<Sender<Step>, Error> {
    let (steps, to_compute) = channel();
    let report = move |result| inputs.send(Input::Processed(job, result)).is_ok();
    let body = move || run(work, &to_compute, report);
    spawn_with_signals_blocked("fpga-acc-cpu", body).map_err(|error| Error::Thread(Arc::new(error)))?;
    Ok(steps)
}

/// Computes steps, until no more come, or one fails.
fn run(work: ProcessorWork, steps: &Receiver<Step>, report: impl Fn(Result<Done, String>) -> bool) {
    let ProcessorWork { accelerator, fallback, known, mut state } = work;
    if state.is_empty() {
        state = vec![0; usize::try_from(known.interface.spec().state_bytes).unwrap_or_default()].into();
    }
    for step in steps {
        let chunk = ChunkInput {
            bytes: &step.input,
            state: &state,
            arguments: known.arguments.expose(),
            position: step.chunk.position,
        };
        // At most 4 MB.
        let output_bytes = step.chunk.output.end - step.chunk.output.start;
        let output_bytes = usize::try_from(output_bytes).unwrap_or_default();
        let computed =
            catch_unwind(AssertUnwindSafe(|| fallback.compute(&accelerator, &known, &chunk, output_bytes)));
        let done = computed.unwrap_or_else(|_| Err("it panicked".to_owned())).map(|computed| {
            state = computed.state.into();
            Done { step: step.number, output: computed.bytes.into(), state: state.clone() }
        });
        let is_over = done.is_err();
        if !report(done) || is_over {
            break;
        }
    }
}
