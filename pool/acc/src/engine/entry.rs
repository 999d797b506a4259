//! What the engine has of a job beside the machine: data of steps, state between them, and who waits for what.

use crate::error::Error;
use crate::request::Request;
use crate::slot::{Done, SlotEnd, Work};
use crate::status::{Status, Where};
use crate::step::Step;
use bytes::Bytes;
use fpga_accelerators::{Accelerator, Arguments, Interface};
use fpga_core::bitstream::Digest;
use fpga_pool_api::client::{Cancelled, SealedTicket, Waits};
use fpga_pool_leases::client::{End, Job, Phase, Repetition};
use fpga_pool_leases::ids::{JobUuid, StepNumber};
use fpga_pool_leases::lease::{Wanted, Work as Workload};
use fpga_pool_leases::rules::Rules;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};

/// Number of failures in a row after which a job is given up: another board may do better, once or twice.
const MAX_FAILURES: u32 = 3;

/// A job that begins.
pub(crate) struct NewJob {
    pub(crate) job: JobUuid,
    pub(crate) request: Request,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) granted: oneshot::Sender<Result<Granted, Error>>,
}

/// What a job learns with its first slot.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) interface: Arc<Interface>,
}

/// A job, its machine, and its data.
pub(super) struct Entry {
    pub(super) machine: Job,
    request: Request,
    status: watch::Sender<Status>,
    granted: Option<oneshot::Sender<Result<Granted, Error>>>,
    ticket_code: Option<[u8; 32]>,
    accelerator: Option<(Arc<Interface>, Arc<Arguments>)>,
    /// The steps without an acknowledgement.
    steps: HashMap<StepNumber, Step>,
    /// What the latest ended step has left, until the machine has it delivered.
    done: Option<Done>,
    /// The accelerator's state after the last delivered step; empty before the first.
    state: Bytes,
    waits: String,
    failures: u32,
    /// Why the job can't go on.
    error: Option<Error>,
    slots: u32,
    was_running: bool,
}

impl Entry {
    pub(super) fn new(new: NewJob) -> (JobUuid, Self) {
        let NewJob { job, request, status, granted } = new;
        let accelerator = request.accelerator.as_str().into();
        let wanted = Wanted { accelerator, work: Workload::Run { bytes: request.workload_bytes } };
        let machine = Job::new(job, wanted, Repetition::Forbidden, Rules::default());
        let entry = Self {
            machine,
            request,
            status,
            granted: Some(granted),
            ticket_code: None,
            accelerator: None,
            steps: HashMap::new(),
            done: None,
            state: Bytes::new(),
            waits: "no broker has answered yet".to_owned(),
            failures: 0,
            error: None,
            slots: 0,
            was_running: false,
        };
        (job, entry)
    }

    pub(super) fn ticket_code(&self) -> Option<[u8; 32]> {
        self.ticket_code
    }

    /// The broker has put the job into its queue.
    pub(super) fn has_ticket(&mut self, sealed: &SealedTicket) {
        self.ticket_code.get_or_insert(sealed.code);
        self.waits("the broker looks for a slot".to_owned());
        if self.accelerator.is_none()
            && let Err(error) = self.learn_interface()
        {
            self.error = Some(error);
        }
    }

    fn learn_interface(&mut self) -> Result<(), Error> {
        let name = &self.request.accelerator;
        let shipped = Accelerator::ALL.into_iter().find(|accelerator| accelerator.name() == name);
        let interface = shipped.ok_or_else(|| Error::UnknownAccelerator(name.clone()))?.interface();
        let values = std::mem::take(&mut self.request.arguments);
        let values: Vec<_> = values.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let arguments = interface.arguments(&values)?;
        if interface.spec().pure {
            self.machine.set_repetition(Repetition::Allowed);
        }
        self.accelerator = Some((Arc::new(interface), Arc::new(arguments)));
        Ok(())
    }

    /// The broker gives the job no slot.
    pub(super) fn refused(&mut self, cancelled: &Cancelled) {
        let Cancelled { why, message, .. } = cancelled;
        let message = if message.is_empty() { why.to_string() } else { message.clone() };
        self.error = Some(Error::Refused { why: *why, message });
    }

    /// The job waits for this reason.
    pub(super) fn waits(&mut self, why: String) {
        self.waits = why;
    }

    /// The job waits in the broker's queue.
    pub(super) fn waits_in_queue(&mut self, waits: &Waits) {
        let Waits { ahead, reason, .. } = waits;
        self.waits(match ahead {
            0 => reason.clone(),
            1 => format!("{reason}; one job comes before"),
            _ => format!("{reason}; {ahead} jobs come before"),
        });
    }

    /// Whether the job can't go on.
    pub(super) fn is_wrong(&self) -> bool {
        self.error.is_some()
    }

    /// What a slot with this bitstream is to do; `None` before the accelerator is known.
    pub(super) fn work(&self, digest: Digest) -> Option<Work> {
        let (interface, arguments) = self.accelerator.clone()?;
        Some(Work { digest, interface, arguments, state: self.state.clone() })
    }

    /// The job attaches to a slot of a node.
    pub(super) fn takes_slot_of(&self, node: &Arc<str>) {
        self.status.send_modify(|status| status.node = Some(Arc::clone(node)));
    }

    /// Keeps a step until its output is there.
    pub(super) fn keep(&mut self, step: Step) {
        self.steps.insert(step.number, step);
    }

    /// A step to send.
    pub(super) fn step(&self, step: StepNumber) -> Option<Step> {
        self.steps.get(&step).cloned()
    }

    /// A step has ended under some lease. If that is the present one, the machine has it delivered at once.
    pub(super) fn done(&mut self, done: Done) {
        self.done = Some(done);
    }

    /// Gives the output of a step to the program.
    pub(super) fn deliver(&mut self, number: StepNumber) {
        let done = self.done.take_if(|done| done.step == number);
        let (Some(Done { output, state, .. }), Some(step)) = (done, self.steps.remove(&number)) else {
            return;
        };
        self.state = state;
        self.failures = 0;
        self.status.send_modify(|status| {
            status.input_bytes += step.input_bytes;
            status.output_bytes += output.len() as u64;
        });
        step.output.send(Ok(output));
    }

    /// The job's slot is lost.
    pub(super) fn lost_slot(&mut self, end: &SlotEnd) {
        self.waits(match end {
            SlotEnd::Gone => "the slot was given to others before this client took it".to_owned(),
            SlotEnd::Lost(why) => format!("the former board was lost ({why})"),
            SlotEnd::Failed(why) => format!("the former board failed ({why})"),
        });
        if let SlotEnd::Failed(why) = end {
            self.failures += 1;
            if self.failures >= MAX_FAILURES {
                self.error = Some(Error::Failed { times: self.failures, why: why.clone() });
            }
        }
    }

    /// Shows how far the job is, and tells the program of the first slot.
    pub(super) fn show(&mut self) {
        let at = match self.machine.phase() {
            Phase::Waiting => Where::Waiting(self.waits.clone()),
            Phase::Offered { .. } => Where::Attaching,
            Phase::Running { .. } => Where::Running,
            Phase::Ended(_) => Where::Ended,
        };
        let is_running = at == Where::Running;
        if is_running && !self.was_running {
            self.slots += 1;
        }
        self.was_running = is_running;
        let slots = self.slots;
        self.status.send_if_modified(|status| {
            let changed = status.at != at || status.slots != slots;
            (status.at, status.slots) = (at, slots);
            changed
        });
        if is_running
            && let Some((interface, _)) = &self.accelerator
            && let Some(granted) = self.granted.take()
        {
            // A program that has given the job up has sent a Cancel as well.
            let _ = granted.send(Ok(Granted { interface: Arc::clone(interface) }));
        }
    }

    /// Tells the program how the job has ended.
    pub(super) fn ended(self, end: End) {
        let Self { status, granted, steps, error, .. } = self;
        let error = error.unwrap_or(match end {
            End::Done => Error::Done,
            End::Cancelled => Error::Cancelled,
            End::Refused(why) => Error::Refused { why, message: why.to_string() },
            End::Lost(_) => Error::Lost,
        });
        status.send_modify(|status| status.at = Where::Ended);
        if let Some(granted) = granted {
            let _ = granted.send(Err(error.clone()));
        }
        for step in steps.into_values() {
            step.output.send(Err(error.clone()));
        }
    }
}
