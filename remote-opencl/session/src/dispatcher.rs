//! The one dispatch of the device, shared by the threads of all sessions, with a clock and reports.
//!
//! The policy is in `fpga_board::dispatch`. The lock is held for a decision only, never during a call into the
//! vendor's runtime or any I/O. The caller must pass on a [`Grant`] for another session.

use crate::reporting::{Reports, SlotsNow};
use fpga_board::dispatch::Dispatch;
use fpga_board::dispatch::policy::DispatchRules;
use fpga_board::dispatch::{Grant, TaskId, TaskRefusal, TaskRequest};
use fpga_board::slots::SessionId;
use fpga_core::bitstream::Digest;
use fpga_core::gate::{Others, Residency};
use parking_lot::{Mutex, MutexGuard};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The queue and the slots of the device, shared by all sessions.
#[derive(Debug)]
pub struct Dispatcher {
    state: Mutex<State>,
    epoch: Instant,
    reports: Reports,
    above: Option<Box<dyn Above>>,
    last_session: AtomicU64,
    last_task: AtomicU64,
    /// Notified when tasks begin to wait.
    tasks_wait: Notify,
}

#[derive(Debug)]
struct State {
    dispatch: Dispatch,
    /// The last report on the slots and the queue.
    said: SlotsNow,
}

/// There are more bitstreams to preload than slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are more bitstreams to preload than slots ({0}); name fewer, or raise --slots")]
pub struct NoEmptySlot(usize);

/// The dispatch of another process, which decides for this one. Its grants arrive through the router.
pub trait Above: std::fmt::Debug + Send + Sync {
    /// Most bitstreams that a submitted task may need: more would not fit a packet.
    fn max_bitstreams(&self) -> usize;
    /// Submits a task.
    fn submit(&self, request: &TaskRequest);
    /// Reports the end of a task.
    fn finished(&self, task: TaskId);
    /// Reports the end of a session.
    fn cancelled(&self, session: SessionId);
    /// Reports that loading the bitstreams of a granted task has failed.
    fn load_failed(&self, task: TaskId);
}

impl Dispatcher {
    /// A dispatcher that asks `above` for the `slots` slots of the device. Ids of tasks are greater than
    /// `first_task`.
    #[must_use]
    pub fn below(slots: NonZeroU32, first_task: u64, above: Box<dyn Above>) -> Self {
        let here = Self::new(slots, DispatchRules::default(), Reports::off());
        Self { above: Some(above), last_task: AtomicU64::new(first_task), ..here }
    }

    /// A device with `slots` empty slots that is shared by `rules`.
    #[must_use]
    pub fn new(slots: NonZeroU32, rules: DispatchRules, reports: Reports) -> Self {
        let mut dispatch = Dispatch::new(slots);
        // No task waits yet.
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

    /// Changes the rules. Returns the grants of tasks that may start now, of any session.
    pub fn set_rules(&self, rules: DispatchRules) -> Vec<Grant> {
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

    /// Submits a task. Returns its grant if it may start at once.
    ///
    /// # Errors
    /// [`TaskRefusal::TooManyBitstreams`]: the session then splits the task in command order and submits the
    /// parts.
    pub fn submit(&self, request: TaskRequest) -> Result<Option<Grant>, TaskRefusal> {
        if let Some(above) = &self.above {
            let (needed, slots) = (request.demand.slots(), self.max_bitstreams());
            if needed > slots {
                return Err(TaskRefusal::TooManyBitstreams { needed, slots });
            }
            above.submit(&request);
            return Ok(None);
        }
        let now = self.now();
        self.change(|dispatch| dispatch.submit(request, now))
    }

    /// Ends a granted task and reports its use of slots. Returns the grants of tasks that may start now, of
    /// any session.
    ///
    /// Must be called for every granted task, even if its session has gone.
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

    /// Notes that loading the bitstreams of a granted task has failed, so its slots hold none. The task still
    /// has to be finished.
    pub fn load_failed(&self, task: TaskId) {
        match &self.above {
            Some(above) => above.load_failed(task),
            None => self.change(|dispatch| dispatch.load_failed(task)),
        }
    }

    /// Starts tasks that must not wait any longer (see [`Dispatch::start_stalled`]) and returns their grants,
    /// of any session. Call it every few milliseconds while tasks wait.
    pub fn start_stalled(&self) -> Vec<Grant> {
        let now = self.now();
        self.change(|dispatch| dispatch.start_stalled(now))
    }

    /// Waits until at least one task waits.
    pub async fn tasks_wait(&self) {
        while self.waiting() == 0 {
            self.tasks_wait.notified().await;
        }
    }

    /// Reports the use so far of slots that have been held for `at_least`. It is called now and then, so that
    /// the collector learns of long tasks before they end.
    pub fn report_progress(&self, at_least: Duration) {
        let now = self.now();
        let told = self.lock().dispatch.progress(at_least, now);
        for usage in &told {
            self.reports.slot_in_use(usage);
        }
    }

    /// Drops the waiting tasks of a session that has gone. Returns the grants of tasks that may start now, of
    /// other sessions.
    ///
    /// The session's running tasks hold their slots until [`Self::finished`].
    pub fn cancel_session(&self, session: SessionId) -> Vec<Grant> {
        if let Some(above) = &self.above {
            above.cancelled(session);
            return Vec::new();
        }
        let now = self.now();
        self.change(|dispatch| dispatch.cancel(session, now))
    }

    /// Number of slots of the device.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.lock().dispatch.slots().len()
    }

    /// Most bitstreams that one task may need: one for each slot, or fewer if another process decides.
    #[must_use]
    pub fn max_bitstreams(&self) -> usize {
        let most = self.above.as_ref().map_or(usize::MAX, |above| above.max_bitstreams());
        self.slots().min(most)
    }

    /// Puts bitstreams into empty slots at the start.
    ///
    /// # Errors
    /// [`NoEmptySlot`], if there are more bitstreams than slots.
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
    pub fn residency(&self, bitstream: Digest) -> Residency {
        let is_there = self.lock().dispatch.slots().resident().any(|resident| resident == Some(bitstream));
        if is_there { Residency::Resident } else { Residency::Absent }
    }

    /// Whether sessions other than this one use slots or wait for them.
    #[must_use]
    pub fn others(&self, session: SessionId) -> Others {
        if self.lock().dispatch.others_want_slots(session) { Others::Busy } else { Others::Idle }
    }

    /// Number of tasks that wait for a slot or for earlier tasks of their session.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().dispatch.waiting()
    }

    /// Number of running tasks.
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
        // A panic while the lock was held would be a bug in the pure code; the other sessions continue.
        self.state.lock()
    }
}

impl State {
    /// The state of the slots and the queue, if it has changed since the last report.
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
    use fpga_board::dispatch::Lanes;
    use fpga_board::dispatch::Tenant;
    use fpga_board::slots::Demand;
    use fpga_board::slots::OtherKernels;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
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
        let dispatcher = Dispatcher::new(NonZeroU32::MIN, DispatchRules::default(), Reports::off());
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

    /// Takes tasks of one bitstream, and counts them.
    #[derive(Debug, Default)]
    struct OneBitstream(Arc<AtomicUsize>);

    impl Above for OneBitstream {
        fn max_bitstreams(&self) -> usize {
            1
        }

        fn submit(&self, _: &TaskRequest) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn finished(&self, _: TaskId) {}

        fn cancelled(&self, _: SessionId) {}

        fn load_failed(&self, _: TaskId) {}
    }

    #[test]
    fn a_task_with_more_bitstreams_than_another_process_takes_is_refused_here() {
        let submitted = Arc::default();
        let above = Box::new(OneBitstream(Arc::clone(&submitted)));
        let dispatcher = Dispatcher::below(NonZeroU32::new(4).unwrap(), 0, above);
        assert_eq!(dispatcher.max_bitstreams(), 1);
        let session = dispatcher.new_session();
        let digests = [1, 2].map(|n| Digest::from_bytes([n; 32]));
        let demand = Demand::of(digests, OtherKernels::None);
        let two = TaskRequest { demand, ..request(&dispatcher, session, 1) };
        assert_eq!(dispatcher.submit(two), Err(TaskRefusal::TooManyBitstreams { needed: 2, slots: 1 }));
        assert_eq!(dispatcher.submit(request(&dispatcher, session, 1)), Ok(None));
        assert_eq!(submitted.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn sessions_on_their_own_threads_all_get_their_turns() {
        const TASKS: usize = 200;
        let slots = NonZeroU32::new(2).unwrap();
        let rules = DispatchRules::of(fpga_board::dispatch::policy::DispatchPolicy::DeficitRoundRobin);
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
                            // Sending fails if the session has ended, which then has no tasks.
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
