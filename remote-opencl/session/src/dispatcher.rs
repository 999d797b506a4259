//! The one dispatch of the device, shared by the threads of all sessions, with a clock and reports.
//!
//! The policy is in `fpga_board::dispatch`. The lock is held for a decision only, never during a call into the
//! vendor's runtime or any I/O. The caller must pass on a [`Grant`] for another session.

use crate::reporting::{Reports, SlotsNow};
use fpga_board::dispatch::Dispatch;
use fpga_board::dispatch::policy::DispatchRules;
use fpga_board::dispatch::{Grant, TaskId, TaskRefusal, TaskRequest};
use fpga_board::slots::{Demand, SessionId, SlotIndex};
use fpga_core::bitstream::Digest;
use fpga_core::gate::{Others, Residency};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
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
    watch: Option<Arc<dyn TaskWatch>>,
    ids: Arc<Ids>,
    /// Index on the board of the first of these slots.
    first_slot: SlotIndex,
    /// Notified when tasks begin to wait.
    tasks_wait: Notify,
}

/// The ids that the dispatchers of a board have given.
#[derive(Debug, Default)]
struct Ids {
    last_session: AtomicU64,
    last_task: AtomicU64,
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

/// Admits the tasks of a lent slot, and learns when they end.
pub trait TaskWatch: std::fmt::Debug + Send + Sync {
    /// Whether a task that has its slot may start. A refused task never starts.
    fn starts(&self, session: SessionId, task: TaskId) -> Admission;
    /// An admitted task has ended.
    fn ended(&self, session: SessionId, task: TaskId, used: TaskUse);
}

/// Whether a task may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It starts.
    Admitted,
    /// Its session has no slot any more.
    Refused,
}

/// What a task has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskUse {
    /// Bytes that its commands took in from the client.
    pub bytes: u64,
    /// What it did.
    pub work: TaskWork,
    /// Slot time that is charged to it.
    pub held: Duration,
}

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskWork {
    /// It runs kernels in slots.
    Kernels,
    /// It holds slots and runs no kernel: it makes a call that loads a bitstream, or that needs one on the board.
    Load,
    /// It holds no slot: it moves bytes.
    Transfers,
}

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
        here.ids.last_task.store(first_task, Ordering::Relaxed);
        Self { above: Some(above), ..here }
    }

    /// The dispatcher of one more slot of the same board, which the tasks of this dispatcher can't use. Ids of sessions
    /// and tasks differ from those of this dispatcher.
    #[must_use]
    pub fn lent(&self, slot: SlotIndex, reports: Reports, watch: Arc<dyn TaskWatch>) -> Self {
        let one = Self::new(NonZeroU32::MIN, DispatchRules::default(), reports);
        Self { watch: Some(watch), ids: Arc::clone(&self.ids), first_slot: slot, ..one }
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
            watch: None,
            ids: Arc::default(),
            first_slot: SlotIndex(0),
            tasks_wait: Notify::new(),
        }
    }

    /// Changes the rules. Returns the grants of tasks that may start now, of any session.
    pub fn set_rules(&self, rules: DispatchRules) -> Vec<Grant> {
        let now = self.now();
        let grants = self.change(|dispatch| dispatch.set_rules(rules, now));
        self.admitted(grants)
    }

    /// The id of a new session.
    pub fn new_session(&self) -> SessionId {
        SessionId(self.ids.last_session.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The id of a new task.
    pub fn new_task(&self) -> TaskId {
        TaskId(self.ids.last_task.fetch_add(1, Ordering::Relaxed) + 1)
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
        if self.watch.is_some() && request.demand == Demand::AnySlot {
            return Err(TaskRefusal::NoBitstream);
        }
        let now = self.now();
        let grant = self.change(|dispatch| dispatch.submit(request, now))?;
        match grant {
            Some(grant) if self.watch.is_some() => {
                self.admitted(vec![grant]).pop().map(Some).ok_or(TaskRefusal::NoSlot)
            }
            grant => Ok(grant),
        }
    }

    /// Submits a task if no other one runs or waits. Returns its grant; without one the task is forgotten.
    pub fn submit_alone(&self, request: TaskRequest) -> Option<Grant> {
        let now = self.now();
        let grant = self.change(|dispatch| {
            let is_empty = dispatch.running() == 0 && dispatch.waiting() == 0;
            if is_empty { dispatch.submit(request, now).ok().flatten() } else { None }
        });
        self.admitted(vec![grant?]).pop()
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
        let mut finished = self.change(|dispatch| dispatch.finish(task, now));
        for usage in &mut finished.usage {
            usage.slot = self.on_board(usage.slot);
            self.reports.slot_used(usage);
        }
        if let Some(ended) = &finished.task {
            let held = finished.usage.iter().map(|usage| usage.until.saturating_sub(usage.from)).sum();
            self.reports.task_ended(ended, held);
            if let Some(watch) = &self.watch {
                let work = match ended.kind {
                    _ if finished.usage.is_empty() => TaskWork::Transfers,
                    Some(_) => TaskWork::Kernels,
                    None => TaskWork::Load,
                };
                let used = TaskUse { bytes: ended.bytes, work, held };
                watch.ended(ended.session, task, used);
            }
        }
        self.admitted(finished.grants)
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
        let grants = self.change(|dispatch| dispatch.start_stalled(now));
        self.admitted(grants)
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
        let mut told = self.lock().dispatch.progress(at_least, now);
        for usage in &mut told {
            usage.slot = self.on_board(usage.slot);
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
        let grants = self.change(|dispatch| dispatch.cancel(session, now));
        self.admitted(grants)
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

    /// The bitstream in each slot.
    #[must_use]
    pub fn resident(&self) -> Vec<Option<Digest>> {
        self.lock().dispatch.slots().resident().collect()
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

    /// The grants of tasks that may start, if the slot is a lent one. The others end at once.
    fn admitted(&self, grants: Vec<Grant>) -> Vec<Grant> {
        let Some(watch) = &self.watch else { return grants };
        let mut left = VecDeque::from(grants);
        let mut admitted = Vec::with_capacity(left.len());
        while let Some(mut grant) = left.pop_front() {
            if watch.starts(grant.session, grant.task) == Admission::Refused {
                let now = self.now();
                left.extend(self.change(|dispatch| dispatch.finish(grant.task, now)).grants);
                continue;
            }
            grant.slots.iter_mut().for_each(|slot| *slot = self.on_board(*slot));
            grant.load.iter_mut().for_each(|load| load.slot = self.on_board(load.slot));
            admitted.push(grant);
        }
        admitted
    }

    /// The index on the board of one of these slots.
    fn on_board(&self, slot: SlotIndex) -> SlotIndex {
        SlotIndex(self.first_slot.0 + slot.0)
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
mod tests;
