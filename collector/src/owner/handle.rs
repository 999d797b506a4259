//! The commands of the owner, and the handle that sends them.

use crate::state::{Counted, NoRoom};
use fpga_core::cordon::CordonedBoards;
use fpga_core::device::{DeviceStatus, Rotation};
use fpga_core::event::Event;
use fpga_core::node_state::{NodeState, PluginReport};
use fpga_net::http::Charge;
use std::sync::mpsc::{SyncSender, TrySendError};
use tokio::sync::{oneshot, watch};

/// Sends commands to the owner; clones send to the same owner.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(super) sender: SyncSender<Command>,
    pub(super) changes: watch::Receiver<u64>,
    pub(super) storage: watch::Receiver<Storage>,
}

/// Whether the checkpoint can be written, and so reports be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// The checkpoint can be written.
    Good,
    /// The checkpoint can't be written.
    Failing,
}

/// Reason why a command was not carried out. It has no effect unless it is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no room for a new reporter or device.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error("too many requests wait; try again")]
    Busy,
    /// The checkpoint can't be written.
    #[error("the checkpoint can't be written now, so nothing can be acknowledged; try again")]
    Storage,
    #[error("the collector is ending")]
    Ending,
}

/// The events of a request. The client may be gone before they are counted, so the charge for their memory is part of
/// the report.
#[derive(Debug)]
pub struct Report {
    /// The checked events.
    pub events: Vec<Event>,
    /// The body of the request.
    pub body: Vec<u8>,
    /// The charge for events and body.
    pub charge: Charge,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// A command, with the sender of its answer.
#[derive(Debug)]
pub(super) enum Command {
    Events { report: Report, reply: Reply<Counted> },
    Device { status: Box<DeviceStatus>, reply: Reply<Option<Rotation>> },
    Gone { id: String, reply: Reply<bool> },
    Plugin { report: PluginReport, reply: Reply<()> },
    PluginLeaves { reply: Reply<()> },
    Cordons { boards: CordonedBoards, reply: Reply<()> },
    Measure { reply: Reply<NodeState> },
    Publish { reply: Reply<NodeState> },
    Reuse { reply: Reply<String> },
    Seen { state: Box<NodeState>, reply: Reply<()> },
    Stop,
}

impl Handle {
    /// Counts the events of `report`; returns when they are on disk.
    ///
    /// # Errors
    /// [`Refusal`]; nothing of the request is counted then.
    pub async fn events(&self, report: Report) -> Result<Counted, Refusal> {
        self.ask(|reply| Command::Events { report, reply }).await
    }

    /// Records a device's status; returns whether the device is in rotation, if that is known.
    ///
    /// # Errors
    /// [`Refusal`] for the reason.
    pub async fn device(&self, status: DeviceStatus) -> Result<Option<Rotation>, Refusal> {
        self.ask(|reply| Command::Device { status: Box::new(status), reply }).await
    }

    /// Records that a device has left; returns whether it was known.
    ///
    /// # Errors
    /// [`Refusal`] for the reason.
    pub async fn gone(&self, id: String) -> Result<bool, Refusal> {
        self.ask(|reply| Command::Gone { id, reply }).await
    }

    /// Takes a report of the node plugin.
    ///
    /// # Errors
    /// [`Refusal`] for the reason.
    pub async fn plugin(&self, report: PluginReport) -> Result<(), Refusal> {
        self.ask(|reply| Command::Plugin { report, reply }).await
    }

    /// Takes the node plugin's word that it ends.
    ///
    /// # Errors
    /// [`Refusal`] for the reason.
    pub async fn plugin_leaves(&self) -> Result<(), Refusal> {
        self.ask(|reply| Command::PluginLeaves { reply }).await
    }

    /// Takes the boards that the node's annotation takes out of rotation.
    ///
    /// # Errors
    /// [`Refusal`] for the reason.
    pub async fn cordons(&self, boards: CordonedBoards) -> Result<(), Refusal> {
        self.ask(|reply| Command::Cordons { boards, reply }).await
    }

    /// The state now.
    ///
    /// # Errors
    /// [`Refusal`] for the reason.
    pub async fn measure(&self) -> Result<NodeState, Refusal> {
        self.ask(|reply| Command::Measure { reply }).await
    }

    /// The state now, numbered as the next publication.
    ///
    /// # Errors
    /// [`Refusal`] for the reason.
    pub async fn publish(&self) -> Result<NodeState, Refusal> {
        self.ask(|reply| Command::Publish { reply }).await
    }

    /// The text of the annotation with the gaps between the uses of bitstreams.
    ///
    /// # Errors
    /// [`Refusal`] for the reason.
    pub async fn reuse(&self) -> Result<String, Refusal> {
        self.ask(|reply| Command::Reuse { reply }).await
    }

    /// Passes on the annotation that the node has.
    ///
    /// # Errors
    /// [`Refusal`] for the reason.
    pub async fn seen(&self, state: NodeState) -> Result<(), Refusal> {
        self.ask(|reply| Command::Seen { state: Box::new(state), reply }).await
    }

    /// Ends the owner after the commands that were sent before. Blocks while the queue is full.
    pub fn stop(&self) {
        // An error means that the owner has ended already.
        let _ = self.sender.send(Command::Stop);
    }

    /// Receives a new number after every change of the state.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Whether the checkpoint can be written now.
    pub fn storage(&self) -> Storage {
        *self.storage.borrow()
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        match self.sender.try_send(command(reply)) {
            Ok(()) => answer.await.unwrap_or(Err(Refusal::Ending)),
            Err(TrySendError::Full(_)) => Err(Refusal::Busy),
            Err(TrySendError::Disconnected(_)) => Err(Refusal::Ending),
        }
    }
}
