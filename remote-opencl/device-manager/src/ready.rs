//! Which commands of a flush can run now, and which have to wait for something outside (B-2); pure.
//!
//! A command waits aside while an event that it depends on is a user event that nobody has set, or belongs to a
//! command that waits aside itself: named in its wait list, or before it in its queue where the order counts.
//! Events of commands that were handed over as ready hold nobody back, since the vendor's runtime orders by them.
//! Nothing here knows OpenCL objects: a command's body is whatever the caller makes it.

use std::collections::HashMap;
use std::mem::take;

/// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST`: something that the command depends on has failed.
pub const DEPENDENCY_FAILED: i32 = -14;
/// `CL_INVALID_EVENT_WAIT_LIST`: a wait list names an event that does not exist.
pub const UNKNOWN_EVENT: i32 = -57;
/// `CL_INVALID_EVENT`.
pub const NO_SUCH_EVENT: i32 = -58;
/// `CL_INVALID_OPERATION`.
pub const SET_TWICE: i32 = -59;

/// An event of one session, as the client named it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u64);

/// A queue of one session, as the client named it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// Whether a queue keeps the order of its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueOrder {
    /// One after the other.
    InOrder,
    /// By events and barriers only.
    OutOfOrder,
}

/// Whether a command orders others in an out-of-order queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// No.
    None,
    /// With an empty wait list it comes after all before it.
    Marker,
    /// As a marker, and all after it come after it.
    Barrier,
}

/// A command as it was flushed.
#[derive(Debug, Clone)]
pub struct Item<C> {
    /// Completes with it.
    pub event: EventId,
    /// Its queue.
    pub queue: QueueId,
    /// That queue's order.
    pub order: QueueOrder,
    /// What it does to others of its queue.
    pub fence: Fence,
    /// What it waits for, besides its queue's order.
    pub wait: Vec<EventId>,
    /// What it does; or the error code with which it fails when its turn comes.
    pub body: Result<C, i32>,
}

/// A command that can run: all that it depends on has ended or was handed over before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command<C> {
    /// Completes with it.
    pub event: EventId,
    /// Its queue.
    pub queue: QueueId,
    /// That queue's order.
    pub order: QueueOrder,
    /// What of its wait list may still run.
    pub wait: Vec<EventId>,
    /// What it does.
    pub body: C,
}

/// What a step brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<C> {
    /// These can run, in this order.
    pub ready: Vec<Command<C>>,
    /// These have failed, with the code.
    pub failed: Vec<(EventId, i32)>,
}

/// An event id that is in use was taken again: the client breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event {} is used twice", .0.0)]
pub struct UsedTwice(pub EventId);

/// The events of one session and its commands that wait aside.
#[derive(Debug)]
pub struct Ready<C> {
    events: HashMap<EventId, State>,
    /// In the order in which they were flushed.
    deferred: Vec<Item<C>>,
    /// What of each queue is deferred; only queues that have something.
    held: HashMap<QueueId, Held>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    stage: Stage,
    /// The client will not name it again.
    forgotten: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A user event that nobody has set.
    User,
    /// Its command waits aside.
    Deferred,
    /// Its command was handed over.
    Running,
    /// With this status.
    Ended(i32),
}

#[derive(Debug, Clone, Copy, Default)]
struct Held {
    any: bool,
    barrier: bool,
}

/// Where the wait list of an item was checked before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Nowhere: it is new, and an unknown event is an error.
    New,
    /// When it was new: an event that is gone since has ended well.
    Before,
}

enum Verdict {
    Ready,
    Defer,
    Fail(i32),
}

impl<C> Default for Ready<C> {
    fn default() -> Self {
        Self { events: HashMap::new(), deferred: Vec::new(), held: HashMap::new() }
    }
}

impl<C> Ready<C> {
    /// Commands that were flushed, in the order of their enqueue calls.
    ///
    /// # Errors
    /// [`UsedTwice`]; the session can't go on then.
    pub fn flush(&mut self, items: impl IntoIterator<Item = Item<C>>) -> Result<Step<C>, UsedTwice> {
        let items = items.into_iter();
        let mut step = Step { ready: Vec::with_capacity(items.size_hint().0), failed: Vec::new() };
        let mut broken = HashMap::new();
        for item in items {
            let verdict = self.judge(&item, &broken, Seen::New);
            self.learn(item.event)?;
            self.place(item, verdict, &mut broken, &mut step);
        }
        Ok(step)
    }

    /// A new user event.
    ///
    /// # Errors
    /// [`UsedTwice`].
    pub fn create_user_event(&mut self, event: EventId) -> Result<(), UsedTwice> {
        self.learn(event)?;
        self.stage(event, Stage::User);
        Ok(())
    }

    /// Sets a user event to 0 or a negative status; what that lets run, and what it makes fail.
    ///
    /// # Errors
    /// The code of the standard where there is no such user event, or it was set before.
    pub fn set_user_event(&mut self, event: EventId, status: i32) -> Result<Step<C>, i32> {
        match self.events.get(&event).map(|state| state.stage) {
            Some(Stage::User) => {}
            Some(Stage::Ended(_)) => return Err(SET_TWICE),
            _ => return Err(NO_SUCH_EVENT),
        }
        self.end(event, status.min(0));
        let mut step = Step { ready: Vec::new(), failed: Vec::new() };
        let mut broken = HashMap::new();
        self.held.clear();
        for item in take(&mut self.deferred) {
            let verdict = self.judge(&item, &broken, Seen::Before);
            self.place(item, verdict, &mut broken, &mut step);
        }
        Ok(step)
    }

    /// A command that was handed over has ended with this status.
    pub fn ended(&mut self, event: EventId, status: i32) {
        if self.events.get(&event).is_some_and(|state| state.stage == Stage::Running) {
            self.end(event, status);
        }
    }

    /// The client will name this event in no wait list again.
    pub fn forget(&mut self, event: EventId) {
        let Some(state) = self.events.get_mut(&event) else { return };
        state.forgotten = true;
        if state.stage == Stage::Ended(0) {
            self.events.remove(&event);
        }
    }

    /// Whether the event is that of a command, or a user event, that has failed.
    #[must_use]
    pub fn has_failed(&self, event: EventId) -> bool {
        matches!(self.events.get(&event), Some(State { stage: Stage::Ended(status), .. }) if *status < 0)
    }

    /// How many commands wait aside.
    #[must_use]
    pub fn deferred(&self) -> usize {
        self.deferred.len()
    }

    /// How many events are known.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events.len()
    }

    fn learn(&mut self, event: EventId) -> Result<(), UsedTwice> {
        let state = State { stage: Stage::Running, forgotten: false };
        match self.events.insert(event, state) {
            None => Ok(()),
            Some(_) => Err(UsedTwice(event)),
        }
    }

    fn judge(&self, item: &Item<C>, broken: &HashMap<QueueId, Held>, seen: Seen) -> Verdict {
        let after_all = item.fence != Fence::None && item.wait.is_empty();
        let before = |of: &HashMap<QueueId, Held>| match of.get(&item.queue) {
            None => false,
            Some(held) if item.order == QueueOrder::InOrder || after_all => held.any,
            Some(held) => held.barrier,
        };
        let mut failure = if before(broken) { Some(DEPENDENCY_FAILED) } else { None };
        if before(&self.held) {
            return Verdict::Defer;
        }
        for event in &item.wait {
            match self.events.get(event).map(|state| state.stage) {
                Some(Stage::User | Stage::Deferred) => return Verdict::Defer,
                Some(Stage::Ended(status)) if status < 0 => failure = Some(DEPENDENCY_FAILED),
                None if seen == Seen::New => failure = Some(UNKNOWN_EVENT),
                Some(Stage::Running | Stage::Ended(_)) | None => {}
            }
        }
        match (&item.body, failure) {
            (_, Some(code)) => Verdict::Fail(code),
            (Err(code), None) => Verdict::Fail(*code),
            (Ok(_), None) => Verdict::Ready,
        }
    }

    fn place(
        &mut self,
        item: Item<C>,
        verdict: Verdict,
        broken: &mut HashMap<QueueId, Held>,
        step: &mut Step<C>,
    ) {
        let Item { event, queue, order, fence, wait, body } = item;
        let mark = |of: &mut HashMap<QueueId, Held>| {
            let held = of.entry(queue).or_default();
            held.any = true;
            held.barrier |= fence == Fence::Barrier;
        };
        match (verdict, body) {
            (Verdict::Ready, Ok(body)) => {
                self.stage(event, Stage::Running);
                let wait = wait.into_iter().filter(|event| self.may_run(*event)).collect();
                step.ready.push(Command { event, queue, order, wait, body });
            }
            (Verdict::Defer, body) => {
                self.stage(event, Stage::Deferred);
                mark(&mut self.held);
                self.deferred.push(Item { event, queue, order, fence, wait, body });
            }
            (Verdict::Fail(code), _) | (Verdict::Ready, Err(code)) => {
                mark(broken);
                step.failed.push((event, code));
                self.end(event, code);
            }
        }
    }

    fn may_run(&self, event: EventId) -> bool {
        self.events.get(&event).is_some_and(|state| state.stage == Stage::Running)
    }

    fn stage(&mut self, event: EventId, stage: Stage) {
        if let Some(state) = self.events.get_mut(&event) {
            state.stage = stage;
        }
    }

    /// A failure stays known after it was forgotten: commands that were flushed before still have to see it.
    fn end(&mut self, event: EventId, status: i32) {
        let Some(state) = self.events.get_mut(&event) else { return };
        state.stage = Stage::Ended(status);
        if state.forgotten && status == 0 {
            self.events.remove(&event);
        }
    }
}

#[cfg(test)]
mod tests;
