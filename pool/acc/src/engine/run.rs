//! A job by itself: the data of its steps, the state between them, and who waits for what.

use super::owner::{MAX_FAILURES, Owner};
use super::processor::ProcessorWork;
use crate::asked::{Asked, Known};
use crate::error::Error;
use crate::fallback::OrElse;
use crate::request::Request;
use crate::slot::{Continuity, Done, SlotEnd, Work};
use crate::status::{Status, Where};
use crate::step::Step;
use bytes::Bytes;
use fpga_accelerators::Interface;
use fpga_core::bitstream::Digest;
use fpga_core::units::MonotonicTime;
use fpga_pool_api::client::Cancelled;
use fpga_pool_leases::client::{End, Repetition};
use fpga_pool_leases::ids::{JobUuid, StepNumber};
use fpga_pool_leases::lease::{Bundle, Wanted, Work as Workload};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};

/// A job that begins.
pub(crate) struct NewJob {
    pub(crate) job: JobUuid,
    pub(crate) request: Request,
    /// The jobs with which it gets its first slot.
    pub(crate) bundle: Option<Bundle>,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) granted: oneshot::Sender<Result<Granted, Error>>,
}

/// What a job learns with its first slot.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) interface: Arc<Interface>,
}

/// A job by itself.
pub(super) struct Run {
    asked: Asked,
    known: Option<Known>,
    status: watch::Sender<Status>,
    granted: Option<oneshot::Sender<Result<Granted, Error>>>,
    /// The steps without an acknowledgement.
    steps: HashMap<StepNumber, Step>,
    /// The accelerator's state after the last delivered step; empty before the first.
    state: Bytes,
    failures: u32,
    /// Why the job can't go on.
    error: Option<Error>,
    slots: u32,
    was_running: bool,
    /// Who does the job if no slot comes in time.
    or_else: Option<OrElse>,
    /// Since when the job has had no slot; `None` while it has one, and on the processor.
    without_slot_since: Option<MonotonicTime>,
    /// Whether no more steps come.
    is_finished: bool,
}

impl NewJob {
    /// What the job asks the broker for.
    pub(super) fn wanted(&self) -> Wanted {
        let accelerator = self.request.asked.accelerator.as_str().into();
        let work = Workload::Run { bytes: self.request.workload_bytes };
        Wanted { accelerator, work, bundle: self.bundle }
    }
}

impl Run {
    pub(super) fn new(new: NewJob) -> Self {
        let NewJob { request, status, granted, .. } = new;
        Self {
            asked: request.asked,
            known: None,
            status,
            granted: Some(granted),
            steps: HashMap::new(),
            state: Bytes::new(),
            failures: 0,
            error: None,
            slots: 0,
            was_running: false,
            or_else: request.or_else,
            without_slot_since: None,
            is_finished: false,
        }
    }

    /// The job ends for this reason.
    pub(super) fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// Why the job has ended.
    pub(super) fn error(self) -> Option<Error> {
        self.error
    }

    /// Keeps a step until its output is there.
    pub(super) fn keep(&mut self, step: Step) {
        self.steps.insert(step.number, step);
    }

    /// No more steps come.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Whether all steps are done, and no more come.
    pub(super) fn is_done(&self) -> bool {
        self.is_finished && self.steps.is_empty()
    }

    /// When the processor is to do the job, if it waits till then; `None` if the job does not wait, or has no fallback.
    pub(super) fn falls_back_at(&self) -> Option<MonotonicTime> {
        let or_else = self.or_else.as_ref()?;
        let waits = matches!(self.status.borrow().at, Where::Waiting(_));
        self.without_slot_since.filter(|_| waits).map(|since| since + or_else.after.into())
    }

    /// Leaves the pool for the processor. Returns what its thread computes, and the steps that are not done.
    pub(super) fn go_to_processor(&mut self) -> Result<(ProcessorWork, Vec<Step>), Error> {
        let OrElse { fallback, .. } = self.or_else.take().ok_or(Error::Cancelled)?;
        let known = match self.known.take() {
            Some(known) => known,
            None => self.asked.learn(None)?,
        };
        self.known = Some(known.clone());
        self.without_slot_since = None;
        self.status.send_modify(|status| status.processor_bytes = Some(0));
        self.show_at(Where::OnProcessor);
        let mut steps: Vec<Step> = self.steps.values().cloned().collect();
        steps.sort_unstable_by_key(|step| step.number);
        let (accelerator, state) = (self.asked.accelerator.clone(), self.state.clone());
        Ok((ProcessorWork { accelerator, fallback, known, state }, steps))
    }

    /// Shows how far the job is, and tells the program that the job has begun.
    fn show_at(&mut self, at: Where) {
        let slots = self.slots;
        let has_begun = matches!(at, Where::Running | Where::OnProcessor);
        self.status.send_if_modified(|status| {
            let changed = status.at != at || status.slots != slots;
            (status.at, status.slots) = (at, slots);
            changed
        });
        if has_begun
            && let Some(Known { interface, .. }) = &self.known
            && let Some(granted) = self.granted.take()
        {
            // A program that has given the job up has sent a Cancel as well.
            let _ = granted.send(Ok(Granted { interface: Arc::clone(interface) }));
        }
    }

    /// Tells the program how the job has ended.
    pub(super) fn ended_with(&mut self, job: JobUuid, end: Result<End, Error>, now: MonotonicTime) {
        match end {
            Ok(end) => self.ended(job, end, now),
            Err(error) => {
                self.error = Some(error);
                self.ended(job, End::Cancelled, now);
            }
        }
    }
}

impl Owner for Run {
    fn queued(&mut self, interface: Option<&str>, _: MonotonicTime) -> Repetition {
        if self.known.is_none() {
            match self.asked.learn(interface) {
                Ok(known) => self.known = Some(known),
                Err(error) => self.error = Some(error),
            }
        }
        self.known.as_ref().map_or(Repetition::Forbidden, Known::repetition)
    }

    fn refused(&mut self, _: JobUuid, cancelled: &Cancelled) {
        self.error = Some(Error::refused(cancelled));
    }

    fn is_wrong(&self) -> bool {
        self.error.is_some()
    }

    fn work(&self, digest: Digest) -> Option<Work> {
        let Known { interface, arguments } = self.known.clone()?;
        Some(Work {
            digest,
            interface,
            arguments,
            continuity: Continuity::Stream { state: self.state.clone() },
        })
    }

    fn takes_slot_of(&mut self, node: &Arc<str>) {
        self.status.send_modify(|status| status.node = Some(Arc::clone(node)));
    }

    fn send(&mut self, _: JobUuid, step: StepNumber, _: MonotonicTime) -> Option<Step> {
        self.steps.get(&step).cloned()
    }

    fn deliver(&mut self, _: JobUuid, done: Done, _: MonotonicTime) {
        let Done { step, output, state } = done;
        let Some(step) = self.steps.remove(&step) else { return };
        self.state = state;
        self.failures = 0;
        self.status.send_modify(|status| {
            if let Some(bytes) = &mut status.processor_bytes {
                *bytes += step.input_bytes;
            }
            status.input_bytes += step.input_bytes;
            status.output_bytes += output.len() as u64;
        });
        step.output.send(Ok(output));
    }

    fn lost_slot(&mut self, _: JobUuid, end: &SlotEnd) {
        if let SlotEnd::Failed(why) = end {
            self.failures += 1;
            if self.failures >= MAX_FAILURES {
                self.error = Some(Error::Failed { times: self.failures, why: why.clone() });
            }
        }
    }

    fn show(&mut self, _: JobUuid, at: Where, now: MonotonicTime) {
        let is_running = at == Where::Running;
        if is_running && !self.was_running {
            self.slots += 1;
        }
        self.was_running = is_running;
        if is_running {
            self.without_slot_since = None;
        } else {
            self.without_slot_since.get_or_insert(now);
        }
        self.show_at(at);
    }

    /// Tells the program how the job has ended.
    fn ended(&mut self, _: JobUuid, end: End, _: MonotonicTime) {
        let error = self.error.take().unwrap_or(match end {
            End::Done => Error::Done,
            End::Cancelled => Error::Cancelled,
            End::Refused(why) => Error::Refused { why, message: why.to_string() },
            End::Lost(_) => Error::Lost,
        });
        self.status.send_modify(|status| status.at = Where::Ended);
        if let Some(granted) = self.granted.take() {
            let _ = granted.send(Err(error.clone()));
        }
        for step in std::mem::take(&mut self.steps).into_values() {
            step.output.send(Err(error.clone()));
        }
        self.error = Some(error);
    }
}
