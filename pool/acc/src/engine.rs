//! The thread of a pool: it has the stream of the broker, the state machine of each job, and their timers.
//!
//! Everything that happens comes as an [`Input`] through one channel: what handles of jobs want, what the broker says,
//! and what the threads of slots report. [`Engine::take`] passes it to the job's machine ([`fpga_pool_leases`]) and carries
//! out what the machine decides.

mod bundles;
mod entry;
mod group;
mod groups;
mod link;
mod owner;
mod owners;
mod processor;
mod run;
mod slots;
mod thread;

use crate::config::Config;
use crate::error::Error;
use crate::slot::{Done, SlotEnd, SlotEvent};
use crate::step::Step;
use entry::Entry;
use fpga_client::LeasedSession;
use fpga_core::bitstream::Digest;
use fpga_core::units::MonotonicTime;
use fpga_pool_api::client::{FromClient, Offer, ToClient};
use fpga_pool_api::v1;
use fpga_pool_leases::client::{Action, Event};
use fpga_pool_leases::ids::{ConnectionId, GroupUuid, JobUuid, LeaseId};
use fpga_pool_leases::messages::{ClientToManager, ManagerToClient};
use owner::OwnerId;
use owners::Owners;
use run::Run;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

pub(crate) use group::{NewAction, NewGroup};
pub(crate) use run::{Granted, NewJob};
pub(crate) use thread::Handle;

/// What happens to an engine.
pub(crate) enum Input {
    /// A job begins.
    Open(Box<NewJob>),
    /// A job has one more step.
    Submit(JobUuid, Step),
    /// A job gets no more steps.
    Finish(JobUuid),
    /// A job is given up.
    Cancel(JobUuid),
    /// A group begins.
    OpenGroup(Box<NewGroup>),
    /// A group has one more action.
    SubmitAction(GroupUuid, NewAction),
    /// A group gets no more actions. The answer comes when all have ended.
    FinishGroup(GroupUuid, oneshot::Sender<Result<(), Error>>),
    /// A group is given up.
    CancelGroup(GroupUuid),
    /// A stream to a broker is open; what is put into the channel is sent.
    BrokerConnected(ConnectionId, UnboundedSender<v1::FromClient>),
    /// The broker's word.
    Broker(ConnectionId, ToClient),
    /// A stream has ended, or none could be opened, for this reason.
    BrokerClosed(ConnectionId, String),
    /// What the threads of a lease report.
    Slot(LeaseId, SlotEvent),
    /// What the processor has computed of a job, or why it has not.
    Processed(JobUuid, Result<Done, String>),
    /// Nobody has the pool any more.
    Stop,
}

/// The state of a pool's thread.
pub(crate) struct Engine {
    config: Config,
    inputs: UnboundedSender<Input>,
    jobs: HashMap<JobUuid, Entry>,
    owners: Owners,
    /// Groups of which something has changed.
    touched: BTreeSet<GroupUuid>,
    slots: HashMap<LeaseId, SlotUse>,
    /// The ways to the threads of the jobs that the processor does.
    processors: HashMap<JobUuid, Sender<Step>>,
    broker: Option<(ConnectionId, UnboundedSender<v1::FromClient>)>,
    /// Where and what the latest offers are: the jobs' machines know only the leases.
    offers: HashMap<LeaseId, Offered>,
}

/// What an offer says beyond the lease.
struct Offered {
    node: Arc<str>,
    digest: Digest,
}

/// A lease whose threads run.
struct SlotUse {
    job: JobUuid,
    /// `None` after the job has no use for the lease any more.
    steps: Option<Sender<Step>>,
    session: Option<Arc<LeasedSession>>,
}

impl Engine {
    pub(crate) fn new(config: Config, inputs: UnboundedSender<Input>) -> Self {
        let (owners, touched) = (Owners::default(), BTreeSet::new());
        let (jobs, slots, offers) = (HashMap::new(), HashMap::new(), HashMap::new());
        let processors = HashMap::new();
        Self { config, inputs, jobs, owners, touched, slots, processors, broker: None, offers }
    }

    /// The next moment at which [`Self::tick`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<MonotonicTime> {
        let of_machines = self.jobs.values().filter_map(|entry| entry.machine.next_deadline());
        of_machines.chain(self.next_fallback()).min()
    }

    /// Lets timers fire.
    pub(crate) fn tick(&mut self, now: MonotonicTime) {
        let due = |entry: &Entry| entry.machine.next_deadline().is_some_and(|at| at <= now);
        let due: Vec<JobUuid> =
            self.jobs.iter().filter(|(_, entry)| due(entry)).map(|(job, _)| *job).collect();
        for job in due {
            let actions = self.jobs.get_mut(&job).map(|entry| entry.machine.tick(now));
            self.carry_out(job, actions.unwrap_or_default(), now);
        }
        self.fall_back_if_due(now);
        self.feed_groups(now);
    }

    /// What is done about once a second: the machines are told that the managers of all open sessions live, and groups
    /// forecast anew. The sessions themselves notice a silent manager, by pings, and end.
    pub(crate) fn each_second(&mut self, now: MonotonicTime) {
        let open = self.slots.iter().filter(|(_, slot)| slot.session.is_some());
        let open: Vec<(LeaseId, JobUuid)> = open.map(|(lease, slot)| (*lease, slot.job)).collect();
        for (lease, job) in open {
            self.tell(job, Event::ManagerAlive(lease), now);
        }
        self.ask_by_themselves(now);
        for (id, group) in &mut self.owners.groups {
            group.end_period(now);
            if group.lacks_jobs() {
                self.touched.insert(*id);
            }
        }
        self.feed_groups(now);
    }

    /// Takes one input. Returns false at the end.
    pub(crate) fn take(&mut self, input: Input, now: MonotonicTime) -> bool {
        if let Input::Stop = input {
            return false;
        }
        self.happens(input, now);
        self.feed_groups(now);
        true
    }

    fn happens(&mut self, input: Input, now: MonotonicTime) {
        match input {
            Input::Open(new) => {
                let (job, wanted) = (new.job, new.wanted());
                self.owners.runs.insert(job, Run::new(*new));
                self.begin(job, Entry::new(job, wanted, OwnerId::Run(job)), now);
            }
            Input::Submit(job, step) => {
                if let Some(run) = self.owners.runs.get_mut(&job) {
                    let (number, bytes) = (step.number, step.input_bytes);
                    run.keep(step.clone());
                    self.compute(job, step);
                    self.tell(job, Event::Submit { step: number, bytes }, now);
                }
            }
            Input::Finish(job) => {
                if let Some(run) = self.owners.runs.get_mut(&job) {
                    run.finish();
                }
                self.end_if_computed(job, now);
                self.tell(job, Event::Finish, now);
            }
            Input::Cancel(job) => {
                if !self.cancel_on_processor(job, now) {
                    self.tell(job, Event::Cancel, now);
                }
            }
            Input::OpenGroup(new) => self.open_group(*new),
            Input::SubmitAction(group, action) => self.submit_action(group, action),
            Input::FinishGroup(group, closed) => self.finish_group(group, closed),
            Input::CancelGroup(group) => self.cancel_group(group, now),
            Input::BrokerConnected(connection, sender) => {
                self.broker = Some((connection, sender));
                self.tell_all(|| Event::BrokerConnected(connection), now);
            }
            Input::Broker(connection, message) => self.broker(connection, message, now),
            Input::BrokerClosed(connection, why) => {
                if self.broker.as_ref().is_some_and(|(its, _)| *its == connection) {
                    self.broker = None;
                }
                self.offers.clear();
                for entry in self.jobs.values_mut() {
                    entry.waits(format!("no broker of the pool answers: {why}"));
                }
                self.tell_all(|| Event::BrokerClosed(connection), now);
            }
            Input::Slot(lease, event) => self.slot(lease, event, now),
            Input::Processed(job, result) => self.processed(job, result, now),
            Input::Stop => {}
        }
    }

    /// A job begins to wait.
    fn begin(&mut self, job: JobUuid, mut entry: Entry, now: MonotonicTime) {
        let connected = self.broker.as_ref().map(|(connection, _)| *connection);
        let actions = connected.map(|it| entry.machine.handle(Event::BrokerConnected(it), now));
        self.jobs.insert(job, entry);
        self.carry_out(job, actions.unwrap_or_default(), now);
    }

    fn broker(&mut self, connection: ConnectionId, message: ToClient, now: MonotonicTime) {
        let job = match &message {
            ToClient::Ticket(sealed, _) => sealed.ticket.job,
            ToClient::Offer(Offer { job, .. }) => {
                self.leave_bundle_of(*job);
                *job
            }
            ToClient::Cancelled(cancelled) => cancelled.job,
            ToClient::Waits(waits) => waits.job,
        };
        if matches!(message, ToClient::Cancelled(_)) && self.may_fall_back(job) {
            return self.fall_back(job, now);
        }
        let entry = self.jobs.get_mut(&job);
        let found = entry.and_then(|entry| self.owners.get_mut(entry.owner).map(|owner| (entry, owner)));
        let Some((entry, owner)) = found else {
            // A job that was given up: the broker has heard of it, or will. Its slot is declined.
            if let ToClient::Offer(offer) = message {
                self.decline(job, &offer);
            }
            return;
        };
        match &message {
            ToClient::Ticket(sealed, interface) => {
                entry.has_ticket(sealed);
                entry.machine.set_repetition(owner.queued(interface.as_deref(), now));
            }
            ToClient::Offer(Offer { lease, node, digest, .. }) => {
                self.offers.insert(*lease, Offered { node: Arc::clone(node), digest: *digest });
            }
            ToClient::Cancelled(cancelled) => owner.refused(job, cancelled),
            ToClient::Waits(waits) => entry.waits_in_queue(waits),
        }
        if let Some(message) = message.message() {
            self.tell(job, Event::Broker(connection, message), now);
        } else {
            owner.show(job, entry.at(), now);
        }
        self.fail_if_wrong(job, now);
    }

    fn slot(&mut self, lease: LeaseId, event: SlotEvent, now: MonotonicTime) {
        let Some(slot) = self.slots.get_mut(&lease) else { return };
        let job = slot.job;
        match event {
            SlotEvent::Opened(session) if slot.steps.is_none() => session.close(),
            SlotEvent::Opened(session) => {
                slot.session = Some(session);
                self.tell(job, Event::Manager(lease, ManagerToClient::Attached { lease }), now);
            }
            SlotEvent::Yield => self.tell(job, Event::Manager(lease, ManagerToClient::Yield { lease }), now),
            SlotEvent::Done(done) => {
                let step = done.step;
                if let Some(entry) = self.jobs.get_mut(&job) {
                    entry.done(done);
                }
                self.tell(job, Event::Manager(lease, ManagerToClient::StepDone { lease, step }), now);
            }
            SlotEvent::Refused(step) => {
                self.tell(job, Event::Manager(lease, ManagerToClient::StepRefused { lease, step }), now);
            }
            SlotEvent::Ended(end) => {
                let event = match &end {
                    SlotEnd::Gone => Event::Manager(lease, ManagerToClient::Gone { lease }),
                    SlotEnd::Lost(_) | SlotEnd::Failed(_) => Event::ManagerClosed(lease),
                };
                let was_used = slot.steps.is_some();
                self.slots.remove(&lease);
                if let Some(entry) = self.jobs.get_mut(&job).filter(|_| was_used) {
                    entry.lost_slot(&end);
                    if let Some(owner) = self.owners.get_mut(entry.owner) {
                        owner.lost_slot(job, &end);
                    }
                }
                self.tell(job, event, now);
                self.fail_if_wrong(job, now);
            }
        }
    }

    /// Ends a job for which something was found that no other slot can mend.
    fn fail_if_wrong(&mut self, job: JobUuid, now: MonotonicTime) {
        let owner = self.jobs.get(&job).and_then(|entry| self.owners.get_mut(entry.owner));
        if owner.is_some_and(|owner| owner.is_wrong()) {
            self.tell(job, Event::Cancel, now);
        }
    }

    fn tell(&mut self, job: JobUuid, event: Event, now: MonotonicTime) {
        let actions = self.jobs.get_mut(&job).map(|entry| entry.machine.handle(event, now));
        self.carry_out(job, actions.unwrap_or_default(), now);
    }

    fn tell_all(&mut self, event: impl Fn() -> Event, now: MonotonicTime) {
        let jobs: Vec<JobUuid> = self.jobs.keys().copied().collect();
        for job in jobs {
            self.tell(job, event(), now);
        }
    }

    fn carry_out(&mut self, job: JobUuid, actions: Vec<Action>, now: MonotonicTime) {
        for action in actions {
            let Some(entry) = self.jobs.get_mut(&job) else { return };
            let Some(owner) = self.owners.get_mut(entry.owner) else { return };
            match action {
                Action::ToBroker(message) => {
                    let message = FromClient::encode(message, entry.ticket_code());
                    if let Some((_, sender)) = &self.broker {
                        // The end of the stream comes as an input of its own.
                        let _ = sender.send(message);
                    }
                }
                Action::Attach { lease, endpoint } => self.attach(job, lease, &endpoint),
                Action::Decline { lease, endpoint } => {
                    if let Some(Offered { node, digest }) = self.offers.remove(&lease) {
                        self.decline(job, &Offer { job, lease, endpoint, node, digest });
                    }
                }
                Action::ToManager(lease, ClientToManager::Step { step, .. }) => {
                    let slot = self.slots.get(&lease).and_then(|slot| slot.steps.as_ref());
                    if let (Some(steps), Some(step)) = (slot, owner.send(job, step, now)) {
                        // The end of the slot's threads comes as an input of its own.
                        let _ = steps.send(step);
                    }
                }
                // The end of the session releases the lease; the handshake attaches.
                Action::ToManager(_, ClientToManager::Release { .. } | ClientToManager::Attach { .. }) => {}
                Action::CloseManager(lease) => self.close(lease),
                Action::Deliver(step) => {
                    if let Some(done) = entry.take_done(step) {
                        owner.deliver(job, done, now);
                    }
                }
                Action::Ended(end) => {
                    owner.ended(job, end, now);
                    let (bundle, run) = (entry.machine.bundle(), self.owners.runs.remove(&job));
                    self.touch(job);
                    self.jobs.remove(&job);
                    if let (Some(bundle), Some(error)) = (bundle, run.and_then(Run::error)) {
                        self.end_bundle(bundle, &error, now);
                    }
                    return;
                }
            }
        }
        if let Some(entry) = self.jobs.get_mut(&job)
            && let Some(owner) = self.owners.get_mut(entry.owner)
        {
            owner.show(job, entry.at(), now);
        }
        self.touch(job);
    }

    /// Ends all jobs.
    pub(crate) fn stop(&mut self, now: MonotonicTime) {
        self.stop_processors(now);
        self.tell_all(|| Event::Cancel, now);
        self.broker = None;
    }
}

/// The error of a call whose engine has ended.
pub(crate) fn ended() -> Error {
    Error::Cancelled
}
