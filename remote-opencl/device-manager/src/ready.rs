//! Which commands of a flush can run now, and which have to wait for something outside (B-2); pure.
//!
//! A command waits aside while an event that it depends on is a user event that nobody has set, or belongs to a
//! command that waits aside itself: named in its wait list, or before it in its queue where the order counts.
//! Events of commands that were handed over as ready hold nobody back, since the vendor's runtime orders by them.
//! Nothing here knows OpenCL objects: a command's body is whatever the caller makes it.

mod deferred;

use deferred::{Deferred, Free};
use std::collections::HashMap;

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
    /// These have failed.
    pub failed: Vec<Failed>,
}

/// A command that has failed before it could run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// Its event.
    pub event: EventId,
    /// The code.
    pub status: i32,
    /// What that goes back to.
    pub cause: Cause,
}

/// What a failure goes back to; where there are several causes, the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A user event that the client set to an error.
    UserEvent,
    /// A command that was refused, or whose run failed.
    Command,
}

/// An event id that is in use was taken again: the client breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event {} is used twice", .0.0)]
pub struct UsedTwice(pub EventId);

/// The events of one session and its commands that wait aside.
#[derive(Debug)]
pub struct Ready<C> {
    events: HashMap<EventId, State>,
    deferred: Deferred<C>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    stage: Stage,
    /// The client will not name it again.
    forgotten: bool,
    /// How often it is named by commands that have not begun: these have to see how it ended.
    awaited: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A user event that nobody has set.
    User,
    /// Its command waits aside.
    Deferred,
    /// Its command was handed over.
    Running,
    /// With 0.
    Complete,
    /// With an error, for this cause.
    Failed(Cause),
}

/// The commands of a queue that have failed in one step: those behind them fail with them.
#[derive(Debug, Clone, Copy)]
struct Broken {
    any: Cause,
    barrier: Option<Cause>,
}

impl<C> Default for Ready<C> {
    fn default() -> Self {
        Self { events: HashMap::new(), deferred: Deferred::default() }
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
        for mut item in items {
            if item.wait.iter().any(|event| !self.events.contains_key(event)) {
                item.body = Err(UNKNOWN_EVENT);
            }
            self.learn(item.event)?;
            for event in &item.wait {
                if let Some(state) = self.events.get_mut(event) {
                    state.awaited += 1;
                }
            }
            let events = &self.events;
            let is_open = |event: &EventId| {
                events.get(event).is_some_and(|state| matches!(state.stage, Stage::User | Stage::Deferred))
            };
            let open = item.wait.iter().copied().filter(|event| *event != item.event && is_open(event));
            let open: Vec<EventId> = open.collect();
            let event = item.event;
            match self.deferred.defer(item, &open) {
                Some(item) => self.place(item, &mut broken, &mut step),
                None => self.stage(event, Stage::Deferred),
            }
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

    /// Sets a user event to 0 or a negative status; what that lets run, and what it makes fail. Only what waited for it is
    /// looked at.
    ///
    /// # Errors
    /// The code of the standard where there is no such user event, or it was set before.
    pub fn set_user_event(&mut self, event: EventId, status: i32) -> Result<Step<C>, i32> {
        match self.events.get(&event).map(|state| state.stage) {
            Some(Stage::User) => {}
            Some(Stage::Complete | Stage::Failed(_)) => return Err(SET_TWICE),
            _ => return Err(NO_SUCH_EVENT),
        }
        self.end(event, status, Cause::UserEvent);
        let mut step = Step { ready: Vec::new(), failed: Vec::new() };
        let mut broken = HashMap::new();
        let mut free = Free::default();
        self.deferred.settled(event, &mut free);
        while let Some(item) = self.deferred.take(&mut free) {
            self.place(item, &mut broken, &mut step);
        }
        Ok(step)
    }

    /// A command that was handed over will not look at its wait list any more.
    pub fn begun(&mut self, wait: &[EventId]) {
        for event in wait {
            self.no_longer_awaited(*event);
        }
    }

    /// A command that was handed over has ended with this status.
    pub fn ended(&mut self, event: EventId, status: i32) {
        if self.events.get(&event).is_some_and(|state| state.stage == Stage::Running) {
            self.end(event, status, Cause::Command);
        }
    }

    /// The client will name this event in no wait list again, and not set it.
    pub fn forget(&mut self, event: EventId) {
        if let Some(state) = self.events.get_mut(&event) {
            state.forgotten = true;
            self.drop_if_over(event);
        }
    }

    /// Whether the event is that of a command, or a user event, that has failed.
    #[must_use]
    pub fn has_failed(&self, event: EventId) -> bool {
        self.events.get(&event).is_some_and(|state| matches!(state.stage, Stage::Failed(_)))
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
        let state = State { stage: Stage::Running, forgotten: false, awaited: 0 };
        match self.events.insert(event, state) {
            None => Ok(()),
            Some(_) => Err(UsedTwice(event)),
        }
    }

    /// Hands over a command that nothing holds back, or fails it.
    fn place(&mut self, item: Item<C>, broken: &mut HashMap<QueueId, Broken>, step: &mut Step<C>) {
        let comes_after_all = item.comes_after_all();
        let Item { event, queue, order, fence, mut wait, body } = item;
        let before = broken.get(&queue).and_then(|broken| match comes_after_all {
            true => Some(broken.any),
            false => broken.barrier,
        });
        let failed = |event: &EventId| match self.events.get(event)?.stage {
            Stage::Failed(cause) => Some(cause),
            _ => None,
        };
        let dependency = wait.iter().filter_map(failed).chain(before).max();
        let failure = match (&body, dependency) {
            (Err(UNKNOWN_EVENT), _) => Some((UNKNOWN_EVENT, Cause::Command)),
            (_, Some(cause)) => Some((DEPENDENCY_FAILED, cause)),
            (Err(status), None) => Some((*status, Cause::Command)),
            (Ok(_), None) => None,
        };
        match (body, failure) {
            (Ok(body), None) => {
                self.stage(event, Stage::Running);
                wait.retain(|event| {
                    let may_run = self.may_run(*event);
                    if !may_run {
                        self.no_longer_awaited(*event);
                    }
                    may_run
                });
                step.ready.push(Command { event, queue, order, wait, body });
            }
            (_, failure) => {
                // Without a body there is a failure.
                let (status, cause) = failure.unwrap_or((DEPENDENCY_FAILED, Cause::Command));
                let broken = broken.entry(queue).or_insert(Broken { any: cause, barrier: None });
                broken.any = broken.any.max(cause);
                if fence == Fence::Barrier {
                    broken.barrier = broken.barrier.max(Some(cause));
                }
                self.begun(&wait);
                step.failed.push(Failed { event, status, cause });
                self.end(event, status, cause);
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

    fn end(&mut self, event: EventId, status: i32, cause: Cause) {
        self.stage(event, if status < 0 { Stage::Failed(cause) } else { Stage::Complete });
        self.drop_if_over(event);
    }

    fn no_longer_awaited(&mut self, event: EventId) {
        if let Some(state) = self.events.get_mut(&event) {
            state.awaited = state.awaited.saturating_sub(1);
            self.drop_if_over(event);
        }
    }

    /// A failure stays known after it was forgotten for as long as a command that names it has not begun; one that is gone
    /// has ended well.
    fn drop_if_over(&mut self, event: EventId) {
        let Some(State { stage, forgotten: true, awaited }) = self.events.get(&event) else { return };
        let over = match stage {
            Stage::Complete => true,
            Stage::Failed(_) | Stage::User => *awaited == 0,
            Stage::Deferred | Stage::Running => false,
        };
        if over {
            self.events.remove(&event);
        }
    }
}

#[cfg(test)]
mod tests;
