//! The tasks of one session that have not started, in the order in which they start; pure.
//!
//! The dispatcher grants a session's tasks in order, but a grant from another thread may arrive after the
//! grant of a later task that was granted at once. The backlog starts tasks in the order of submission, which
//! in-order queues need.

use fpga_board::dispatch::{Grant, TaskId};
use std::collections::VecDeque;

/// Waiting tasks, each with its contents `C`.
#[derive(Debug)]
pub struct Backlog<C> {
    waiting: VecDeque<Waiting<C>>,
}

#[derive(Debug)]
struct Waiting<C> {
    task: TaskId,
    contents: C,
    grant: Option<Grant>,
}

impl<C> Default for Backlog<C> {
    fn default() -> Self {
        Self { waiting: VecDeque::new() }
    }
}

impl<C> Backlog<C> {
    /// Adds a task behind all others.
    pub fn push(&mut self, task: TaskId, contents: C) {
        self.waiting.push_back(Waiting { task, contents, grant: None });
    }

    /// Notes that a task may start when its turn comes.
    ///
    /// # Errors
    /// The grant, if the backlog does not have the task.
    pub fn grant(&mut self, grant: Grant) -> Result<(), Grant> {
        match self.waiting.iter_mut().find(|waiting| waiting.task == grant.task) {
            Some(waiting) => {
                waiting.grant = Some(grant);
                Ok(())
            }
            None => Err(grant),
        }
    }

    /// The grant of the first task; `None` if there is no task or it has no grant yet.
    #[must_use]
    pub fn first(&self) -> Option<&Grant> {
        self.waiting.front()?.grant.as_ref()
    }

    /// The contents of the first task, with its grant; `None` if it has no grant yet.
    #[must_use]
    pub fn first_with_contents(&self) -> Option<(&Grant, &C)> {
        let first = self.waiting.front()?;
        Some((first.grant.as_ref()?, &first.contents))
    }

    /// Removes the first task if it has its grant.
    pub fn pop(&mut self) -> Option<(TaskId, C)> {
        self.first()?;
        self.waiting.pop_front().map(|waiting| (waiting.task, waiting.contents))
    }

    /// Drops all tasks, and returns those that had their grant.
    pub fn clear(&mut self) -> Vec<TaskId> {
        self.waiting.drain(..).filter(|waiting| waiting.grant.is_some()).map(|waiting| waiting.task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_board::slots::SessionId;

    fn grant(task: u64) -> Grant {
        Grant { session: SessionId(1), task: TaskId(task), slots: Vec::new(), load: Vec::new() }
    }

    #[test]
    fn a_grant_that_overtakes_another_on_its_way_does_not_change_the_order() {
        let mut backlog = Backlog::default();
        backlog.push(TaskId(1), "one");
        backlog.push(TaskId(2), "two");
        backlog.grant(grant(2)).unwrap();
        assert_eq!(backlog.pop(), None);
        backlog.grant(grant(1)).unwrap();
        assert_eq!(backlog.pop(), Some((TaskId(1), "one")));
        assert_eq!(backlog.pop(), Some((TaskId(2), "two")));
    }

    #[test]
    fn clearing_tells_which_tasks_hold_slots() {
        let mut backlog = Backlog::default();
        backlog.push(TaskId(1), ());
        backlog.push(TaskId(2), ());
        backlog.grant(grant(1)).unwrap();
        assert_eq!(backlog.clear(), [TaskId(1)]);
        assert_eq!(backlog.grant(grant(2)), Err(grant(2)));
    }
}
