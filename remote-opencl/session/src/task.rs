//! Grouping of ready commands into as few tasks as the slots allow, in the order of the commands (B-2, S-7). The
//! module is pure.

use crate::dependencies::Command;
use fpga_board::slots::{Demand, OtherKernels};
use fpga_core::bitstream::Digest;

/// The slot that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// No slot: the command runs no kernel.
    Nothing,
    /// Any slot: the command runs a kernel from source.
    AnySlot,
    /// A slot with this bitstream.
    Bitstream(Digest),
}

/// Commands that start together once their task has its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task<C> {
    /// The commands in their order.
    pub commands: Vec<Command<C>>,
    /// The slots that the commands need.
    pub demand: Demand,
}

/// Makes one task of all commands, or several in the order of the commands if they need more bitstreams than there
/// are slots.
pub fn split<C>(commands: Vec<Command<C>>, slots: usize, need: impl Fn(&C) -> Need) -> Vec<Task<C>> {
    let mut tasks = Vec::new();
    let mut part = Part::default();
    for command in commands {
        let need = need(&command.body);
        if let Need::Bitstream(digest) = need
            && !part.bitstreams.contains(&digest)
            && part.bitstreams.len() >= slots.max(1)
        {
            tasks.push(std::mem::take(&mut part).finish());
        }
        part.add(command, need);
    }
    if !part.commands.is_empty() {
        tasks.push(part.finish());
    }
    tasks
}

struct Part<C> {
    commands: Vec<Command<C>>,
    bitstreams: Vec<Digest>,
    other: OtherKernels,
}

impl<C> Default for Part<C> {
    fn default() -> Self {
        Self { commands: Vec::new(), bitstreams: Vec::new(), other: OtherKernels::None }
    }
}

impl<C> Part<C> {
    fn add(&mut self, command: Command<C>, need: Need) {
        match need {
            Need::Nothing => {}
            Need::AnySlot => self.other = OtherKernels::Some,
            Need::Bitstream(digest) if self.bitstreams.contains(&digest) => {}
            Need::Bitstream(digest) => self.bitstreams.push(digest),
        }
        self.commands.push(command);
    }

    fn finish(self) -> Task<C> {
        Task { commands: self.commands, demand: Demand::of(self.bitstreams, self.other) }
    }
}

#[cfg(test)]
mod tests;
