//! Dependency tracking of a session's commands (B-2): which of them can run, and which must wait for the client.
//! The module is pure.
//!
//! A command is deferred while an event that it depends on is a user event that the client has not set, or belongs
//! to another deferred command. A command depends on the events in its wait list and, where the order counts, on
//! the commands before it in its queue. Commands that were returned as ready defer no other command, since the
//! vendor's runtime orders by their events. The module knows no OpenCL objects; the caller chooses the type of a
//! command's body.

mod deferred;

use deferred::{Deferred, Free};
use std::collections::HashMap;

/// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST`: the command depends on an event that has failed.
pub const DEPENDENCY_FAILED: i32 = -14;
/// `CL_INVALID_EVENT_WAIT_LIST`: a wait list names an event that does not exist.
pub const UNKNOWN_EVENT: i32 = -57;
/// `CL_INVALID_EVENT`: the client has no such user event.
pub const NO_SUCH_EVENT: i32 = -58;
/// `CL_INVALID_OPERATION`: the user event has already been set.
pub const SET_TWICE: i32 = -59;

/// An event of one session, by the client's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u64);

/// A queue of one session, by the client's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// Whether a queue executes its commands in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueOrder {
    /// Each command comes after the one before it.
    InOrder,
    /// Only events, markers and barriers order the commands.
    OutOfOrder,
}

/// How a command orders others in an out-of-order queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// The command orders no others.
    None,
    /// A marker: with an empty wait list it comes after all commands before it.
    Marker,
    /// A barrier: a marker that also comes before all commands after it.
    Barrier,
}

/// A command of a flush.
#[derive(Debug, Clone)]
pub struct Item<C> {
    /// The event that completes with the command.
    pub event: EventId,
    /// The command's queue.
    pub queue: QueueId,
    /// The order of that queue.
    pub order: QueueOrder,
    /// How the command orders others of its queue.
    pub fence: Fence,
    /// The command's wait list.
    pub wait: Vec<EventId>,
    /// The command's content, or the error code with which it fails when its turn comes.
    pub body: Result<C, i32>,
}

/// A command that can run: all its dependencies have ended or were returned before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command<C> {
    /// The event that completes with the command.
    pub event: EventId,
    /// The command's queue.
    pub queue: QueueId,
    /// The order of that queue.
    pub order: QueueOrder,
    /// The events of the wait list whose commands may still run.
    pub wait: Vec<EventId>,
    /// The command's content.
    pub body: C,
}

/// The result of a flush or of setting a user event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<C> {
    /// Commands that can run now, in this order.
    pub ready: Vec<Command<C>>,
    /// Commands that have failed.
    pub failed: Vec<Failed>,
}

/// A command that failed before it could run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// The command's event.
    pub event: EventId,
    /// The error code.
    pub status: i32,
    /// The cause of the failure.
    pub cause: Cause,
}

/// The cause of a failure. If there are several, the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A user event that the client set to an error.
    UserEvent,
    /// A command that was refused, or that failed while it ran.
    Command,
}

/// A new event has an id that is in use: the client violates the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event {} is used twice", .0.0)]
pub struct UsedTwice(pub EventId);

/// The events and the deferred commands of one session.
#[derive(Debug)]
pub struct DependencyTracker<C> {
    events: HashMap<EventId, State>,
    deferred: Deferred<C>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    stage: Stage,
    /// The client will not refer to the event again.
    forgotten: bool,
    /// Number of wait lists with this event of commands that have not begun. They must see how the event ended.
    awaited: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A user event that the client has not set.
    User,
    /// The event's command is deferred.
    Deferred,
    /// The event's command was returned as ready.
    Running,
    /// The event completed with status 0.
    Complete,
    /// The event failed, for this cause.
    Failed(Cause),
}

/// The failures of a queue's commands in one step. Commands after them fail too.
#[derive(Debug, Clone, Copy)]
struct Broken {
    any: Cause,
    barrier: Option<Cause>,
}

impl<C> Default for DependencyTracker<C> {
    fn default() -> Self {
        Self { events: HashMap::new(), deferred: Deferred::default() }
    }
}

impl<C> DependencyTracker<C> {
    /// Adds commands of a flush, in the order of their enqueue calls.
    ///
    /// # Errors
    /// [`UsedTwice`]; the session must end then.
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

    /// Adds a user event.
    ///
    /// # Errors
    /// [`UsedTwice`], if the id is in use.
    pub fn create_user_event(&mut self, event: EventId) -> Result<(), UsedTwice> {
        self.learn(event)?;
        self.stage(event, Stage::User);
        Ok(())
    }

    /// Sets a user event to 0 or to a negative status. Returns the commands that can run now and those that fail.
    /// Only commands that waited for the event are visited.
    ///
    /// # Errors
    /// [`NO_SUCH_EVENT`] if there is no such user event; [`SET_TWICE`] if it has already been set.
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

    /// Records that a ready command has begun and no longer needs its wait list.
    pub fn begun(&mut self, wait: &[EventId]) {
        for event in wait {
            self.no_longer_awaited(*event);
        }
    }

    /// Records that a ready command has ended with this status.
    pub fn ended(&mut self, event: EventId, status: i32) {
        if self.events.get(&event).is_some_and(|state| state.stage == Stage::Running) {
            self.end(event, status, Cause::Command);
        }
    }

    /// Records that the client will not refer to this event again.
    pub fn forget(&mut self, event: EventId) {
        if let Some(state) = self.events.get_mut(&event) {
            state.forgotten = true;
            self.drop_if_over(event);
        }
    }

    /// Whether the event's command, or the user event, has failed.
    #[must_use]
    pub fn has_failed(&self, event: EventId) -> bool {
        self.events.get(&event).is_some_and(|state| matches!(state.stage, Stage::Failed(_)))
    }

    /// Number of deferred commands.
    #[must_use]
    pub fn deferred(&self) -> usize {
        self.deferred.len()
    }

    /// Number of known events.
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

    /// Returns a command that nothing defers as ready, or fails it.
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
                // A command without a body has a failure.
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

    /// Removes a forgotten event that has ended, or that is a user event and in no wait list. A failed event stays
    /// as long as a command that refers to it has not begun: a removed event counts as complete.
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
