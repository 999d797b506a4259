//! The one dispatch of the device, for the threads of all sessions, with the clock and the reports attached.
//!
//! The policy is `fpga_core::dispatch`. The lock is held for a decision only, never across a call into the vendor's
//! runtime or any I/O. A [`Grant`] for another session is the caller's to pass on.

use crate::gate::Others;
use crate::reporting::{Reports, SlotsNow};
use fpga_core::bitstream::Digest;
use fpga_core::dispatch::Dispatch;
use fpga_core::dispatch::policy::Rules;
pub use fpga_core::dispatch::{Finished, Grant, Kind, Lanes, Refusal, TaskId, TaskRequest, Tenant};
pub use fpga_core::slots::{Bitstreams, Demand, Load, OtherKernels, SessionId, SlotIndex};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The queue and the slots of the device. Shared by all sessions.
#[derive(Debug)]
pub struct Dispatcher {
    state: Mutex<State>,
    epoch: Instant,
    reports: Reports,
    above: Option<Box<dyn Above>>,
    last_session: AtomicU64,
    last_task: AtomicU64,
    /// Told when tasks wait where none did.
    tasks_wait: Notify,
}

#[derive(Debug)]
struct State {
    dispatch: Dispatch,
    /// What was said last of the slots and the queue.
    said: SlotsNow,
}

/// More bitstreams are to be resident than there are slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are more bitstreams to preload than slots ({0}); name fewer, or raise --slots")]
pub struct NoEmptySlot(usize);

/// Another process's dispatch, which decides for this one: grants come by the router.
pub trait Above: std::fmt::Debug + Send + Sync {
    /// A task wants to start.
    fn submit(&self, request: &TaskRequest);
    /// A task has ended.
    fn finished(&self, task: TaskId);
    /// A session has gone.
    fn cancelled(&self, session: SessionId);
    /// What a granted task was to load is not loaded.
    fn load_failed(&self, task: TaskId);
}

impl Dispatcher {
    /// Below another's dispatch of `slots` slots; ids of tasks come after `first_task`.
    #[must_use]
    pub fn below(slots: NonZeroU32, first_task: u64, above: Box<dyn Above>) -> Self {
        let here = Self::new(slots, Rules::default(), Reports::off());
        Self { above: Some(above), last_task: AtomicU64::new(first_task), ..here }
    }

    /// A device with `slots` empty slots, and the rules by which it is shared.
    #[must_use]
    pub fn new(slots: NonZeroU32, rules: Rules, reports: Reports) -> Self {
        let mut dispatch = Dispatch::new(slots);
        // Nobody waits yet.
        dispatch.set_rules(rules, Duration::ZERO);
        let said = now_in(&dispatch, 1);
        reports.slots_changed(said.clone());
        Self {
            state: Mutex::new(State { dispatch, said }),
            epoch: Instant::now(),
            reports,
            above: None,
            last_session: AtomicU64::new(0),
            last_task: AtomicU64::new(0),
            tasks_wait: Notify::new(),
        }
    }

    /// Other rules from now on; returns what may start now, of whatever session.
    pub fn set_rules(&self, rules: Rules) -> Vec<Grant> {
        let now = self.now();
        self.change(|dispatch| dispatch.set_rules(rules, now))
    }

    /// The id of a new session.
    pub fn new_session(&self) -> SessionId {
        SessionId(self.last_session.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The id of a new task.
    pub fn new_task(&self) -> TaskId {
        TaskId(self.last_task.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// A task arrives; the grant, if it may start at once.
    ///
    /// # Errors
    /// [`Refusal::TooManyBitstreams`]: the session splits the task in command order and submits the parts.
    pub fn submit(&self, request: TaskRequest) -> Result<Option<Grant>, Refusal> {
        if let Some(above) = &self.above {
            above.submit(&request);
            return Ok(None);
        }
        let now = self.now();
        self.change(|dispatch| dispatch.submit(request, now))
    }

    /// A granted task has ended: reports its use of slots; returns what may start now, of whatever session.
    ///
    /// Must be called for every granted task, also when its session has gone.
    pub fn finished(&self, task: TaskId) -> Vec<Grant> {
        if let Some(above) = &self.above {
            above.finished(task);
            return Vec::new();
        }
        let now = self.now();
        let finished = self.change(|dispatch| dispatch.finish(task, now));
        if let Some(task) = &finished.task {
            let held = finished.usage.iter().map(|usage| usage.until.saturating_sub(usage.from)).sum();
            self.reports.task_ended(task, held);
        }
        for usage in &finished.usage {
            self.reports.slot_used(usage);
        }
        finished.grants
    }

    /// What a granted task was to load is not loaded: its slots hold nothing. The task is still to be finished.
    pub fn load_failed(&self, task: TaskId) {
        match &self.above {
            Some(above) => above.load_failed(task),
            None => self.change(|dispatch| dispatch.load_failed(task)),
        }
    }

    /// Starts what may not wait: see [`Dispatch::start_stalled`]; returns it, of whatever session. To be called every few
    /// milliseconds while tasks wait.
    pub fn start_stalled(&self) -> Vec<Grant> {
        let now = self.now();
        self.change(|dispatch| dispatch.start_stalled(now))
    }

    /// Waits until tasks wait.
    pub async fn tasks_wait(&self) {
        while self.waiting() == 0 {
            self.tasks_wait.notified().await;
        }
    }

    /// Reports the use so far of slots that have been held for `at_least`: called now and then, so that the collector
    /// hears of long tasks before their end.
    pub fn report_progress(&self, at_least: Duration) {
        let now = self.now();
        let told = self.lock().dispatch.progress(at_least, now);
        for usage in &told {
            self.reports.slot_in_use(usage);
        }
    }

    /// A session has gone: its waiting tasks are dropped; returns what may start now, of other sessions.
    ///
    /// Its running tasks hold their slots until [`Self::finished`].
    pub fn cancel_session(&self, session: SessionId) -> Vec<Grant> {
        if let Some(above) = &self.above {
            above.cancelled(session);
            return Vec::new();
        }
        let now = self.now();
        self.change(|dispatch| dispatch.cancel(session, now))
    }

    /// How many slots the device has.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.lock().dispatch.slots().len()
    }

    /// A bitstream is resident from the start.
    ///
    /// # Errors
    /// [`NoEmptySlot`].
    pub fn preload(&self, bitstreams: impl IntoIterator<Item = Digest>) -> Result<(), NoEmptySlot> {
        self.change(|dispatch| {
            bitstreams.into_iter().try_for_each(|bitstream| match dispatch.preload(bitstream) {
                Some(_) => Ok(()),
                None => Err(NoEmptySlot(dispatch.slots().len())),
            })
        })
    }

    /// Whether a slot holds the bitstream.
    #[must_use]
    pub fn is_resident(&self, bitstream: Digest) -> bool {
        self.lock().dispatch.slots().resident().any(|resident| resident == Some(bitstream))
    }

    /// What sessions other than this one do.
    #[must_use]
    pub fn others(&self, session: SessionId) -> Others {
        if self.lock().dispatch.others_want_slots(session) { Others::Busy } else { Others::Idle }
    }

    /// How many tasks wait for a slot or for their session's earlier ones.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().dispatch.waiting()
    }

    /// How many tasks run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.lock().dispatch.running()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Dispatch) -> T) -> T {
        let mut state = self.lock();
        let none_waited = state.dispatch.waiting() == 0;
        let result = change(&mut state.dispatch);
        let now_wait = none_waited && state.dispatch.waiting() > 0;
        let changed = state.changed();
        drop(state);
        if now_wait {
            self.tasks_wait.notify_one();
        }
        if let Some(now) = changed {
            self.reports.slots_changed(now);
        }
        result
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while it was held would be a bug of the pure code; the others still get their answers.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What there is to say about the slots and the queue, if it is news.
    fn changed(&mut self) -> Option<SlotsNow> {
        let slots = self.dispatch.slots();
        let same = self.said.waiting == self.dispatch.waiting()
            && self.said.in_use == slots.in_use()
            && slots.resident().eq(self.said.resident.iter().copied());
        if same {
            return None;
        }
        self.said = now_in(&self.dispatch, self.said.revision + 1);
        Some(self.said.clone())
    }
}

fn now_in(dispatch: &Dispatch, revision: u64) -> SlotsNow {
    SlotsNow {
        revision,
        resident: dispatch.slots().resident().collect(),
        in_use: dispatch.slots().in_use(),
        waiting: dispatch.waiting(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::thread;

    fn request(dispatcher: &Dispatcher, session: SessionId, bitstream: u8) -> TaskRequest {
        TaskRequest {
            session,
            task: dispatcher.new_task(),
            tenant: Tenant::new("uid:0"),
            lanes: Lanes::Any,
            kind: None,
            demand: Demand::of([Digest::from_bytes([bitstream; 32])], OtherKernels::None),
        }
    }

    #[test]
    fn a_waiting_task_of_another_session_is_granted_when_a_slot_gets_free() {
        let dispatcher = Dispatcher::new(NonZeroU32::MIN, Rules::default(), Reports::off());
        let (a, b) = (dispatcher.new_session(), dispatcher.new_session());
        let first = dispatcher.submit(request(&dispatcher, a, 1)).unwrap().unwrap();
        assert_eq!(dispatcher.submit(request(&dispatcher, b, 2)).unwrap(), None);
        assert_eq!((dispatcher.waiting(), dispatcher.running()), (1, 1));
        let next = dispatcher.finished(first.task);
        assert_eq!((next.len(), next[0].session, next[0].load.len()), (1, b, 1));
        assert_eq!(dispatcher.finished(first.task), [], "told twice, nothing happens");
        dispatcher.finished(next[0].task);
        assert_eq!((dispatcher.waiting(), dispatcher.running()), (0, 0));
    }

    #[test]
    fn sessions_on_their_own_threads_all_get_their_turns() {
        const TASKS: usize = 200;
        let slots = NonZeroU32::new(2).unwrap();
        let rules = Rules::of(fpga_core::dispatch::policy::Policy::DeficitRoundRobin);
        let dispatcher = Arc::new(Dispatcher::new(slots, rules, Reports::off()));
        let mut inboxes = std::collections::HashMap::new();
        let mut sessions = Vec::new();
        for _ in 0..6 {
            let (sender, receiver) = mpsc::channel::<Grant>();
            let session = dispatcher.new_session();
            inboxes.insert(session, sender);
            sessions.push((session, receiver));
        }
        let inboxes = Arc::new(inboxes);
        let threads: Vec<_> = sessions
            .into_iter()
            .map(|(session, receiver)| {
                let (dispatcher, inboxes) = (Arc::clone(&dispatcher), Arc::clone(&inboxes));
                thread::spawn(move || {
                    let pass_on = |grants: Vec<Grant>| {
                        for grant in grants {
                            // A session that has ended has no tasks.
                            let _ = inboxes[&grant.session].send(grant);
                        }
                    };
                    for n in 0..TASKS {
                        let bitstream = u8::try_from(n % 3).unwrap();
                        let grant = match dispatcher.submit(request(&dispatcher, session, bitstream)).unwrap()
                        {
                            Some(grant) => grant,
                            None => receiver.recv_timeout(Duration::from_secs(30)).unwrap(),
                        };
                        assert_eq!((grant.session, grant.slots.len()), (session, 1));
                        pass_on(dispatcher.finished(grant.task));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!((dispatcher.waiting(), dispatcher.running()), (0, 0));
    }
}
