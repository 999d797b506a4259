//! The modelled times of a task's commands, on a modelled board.
//!
//! A command starts when its slots are loaded, the command before it in its queue has ended, and so have those that it
//! waits for. Only kernels take time.

use super::{Executor, Notify};
use crate::clock;
use crate::commands::{Body, Operation};
use crate::dependencies::{Command, EventId, QueueId, QueueOrder};
use crate::model::{ModelledBoard, Start};
use crate::moments::Span;
use std::collections::HashMap;
use std::sync::Arc;

impl<N: Notify> Executor<N> {
    /// Takes the times of commands from a model from now on.
    pub fn model_by(&mut self, board: Arc<ModelledBoard>) {
        self.model = Some(board);
    }

    /// Gives the commands of a task that starts their modelled times.
    pub fn model(&self, start: &Start, commands: &mut [Command<Box<Body>>]) {
        let Some(board) = &self.model else { return };
        let (granted, loaded) = board.begin(start);
        let mut queues: HashMap<QueueId, u64> = HashMap::new();
        let mut ends: HashMap<EventId, u64> = HashMap::new();
        let mut spans = Vec::with_capacity(commands.len());
        for Command { event, queue, order, wait, body } in commands.iter() {
            let in_order = *order == QueueOrder::InOrder
                || matches!(body.operation, Operation::Marker(_) | Operation::Barrier(_));
            let before = queues.entry(*queue).or_insert_with(|| self.queue_ends(body));
            let after =
                |event: &EventId| ends.get(event).copied().unwrap_or_else(|| self.task_of_ends(*event));
            let waits = wait.iter().map(after).max().unwrap_or(0);
            let started = loaded.max(waits).max(if in_order { *before } else { 0 });
            let ended = match &body.operation {
                Operation::Launch(launch) => board.end_of(launch, started),
                _ => started,
            };
            *before = ended.max(*before);
            ends.insert(*event, ended);
            spans.push((started, ended));
        }
        let task_ends = spans.iter().map(|(_, ended)| *ended).max().unwrap_or(0);
        if task_ends <= clock::now_ns() && spans.iter().all(|(started, ended)| started == ended) {
            // Nothing is modelled: neither a kernel of the model, nor a wait for one.
            return;
        }
        board.in_use(&start.slots, task_ends);
        for (command, (started, ended)) in commands.iter_mut().zip(spans) {
            command.body.span = Some(Span { granted, started, ended, task_ends });
        }
    }

    /// The modelled end of the commands that run in the queue of a command.
    fn queue_ends(&self, body: &Body) -> u64 {
        let same = self.running.values().filter(|running| Arc::ptr_eq(&running.body.queue, &body.queue));
        same.filter_map(|running| running.body.span).map(|span| span.task_ends).max().unwrap_or(0)
    }

    /// The modelled end of the task of a command that runs; 0 if it does not run or is not modelled.
    fn task_of_ends(&self, event: EventId) -> u64 {
        let running = self.running.get(self.leaders.get(&event).unwrap_or(&event));
        running.and_then(|running| running.body.span).map_or(0, |span| span.task_ends)
    }
}
