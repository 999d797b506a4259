//! What a manager takes in and gives out.

use crate::ids::{ConnectionId, LeaseId, StepNumber};
use crate::lease::Usage;
use crate::messages::{BrokerToManager, ClientToManager, ManagerToBroker, ManagerToClient};
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;

/// What happens to a manager.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// No process of a former life is left: the answer to [`Action::ReapChildren`].
    ChildrenReaped,
    /// A connection to a broker is open. It replaces the former one.
    BrokerConnected(ConnectionId),
    /// A connection to a broker has ended.
    BrokerClosed(ConnectionId),
    /// A broker's message.
    Broker(ConnectionId, BrokerToManager),
    /// A client's message.
    Client(ConnectionId, ClientToManager),
    /// A byte, ring activity, or an answered ping of a client.
    ClientAlive(ConnectionId),
    /// A client's connection has ended.
    ClientClosed(ConnectionId),
    /// The answer to [`Action::Load`].
    Loaded {
        /// The slot.
        slot: SlotIndex,
        /// The lease.
        lease: LeaseId,
        /// Whether the bitstream is in the slot.
        outcome: LoadOutcome,
    },
    /// A step has ended: the answer to [`Action::Start`].
    StepEnded {
        /// The slot.
        slot: SlotIndex,
        /// The lease.
        lease: LeaseId,
        /// The step.
        step: StepNumber,
        /// What the step used.
        usage: Usage,
    },
    /// The answer to [`Action::Kill`].
    Killed {
        /// The slot.
        slot: SlotIndex,
        /// The lease.
        lease: LeaseId,
        /// Whether the process is reaped.
        outcome: Outcome,
    },
    /// The answer to [`Action::Probe`].
    Probed {
        /// The slot.
        slot: SlotIndex,
        /// Whether the slot is usable.
        outcome: Outcome,
    },
}

/// Whether something succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// What was asked for is done.
    Done,
    /// What was asked for is not done.
    Failed,
}

/// How a load has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadOutcome {
    /// The bitstream is in the slot.
    Loaded,
    /// The bitstream is not in the slot.
    Failed,
    /// The manager has no file of the bitstream, so that nothing was loaded.
    NoFile,
}

/// What the manager's owner must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Kill and reap the tenant processes of a former life.
    ReapChildren,
    /// Send a message on the present connection to the broker.
    ToBroker(ManagerToBroker),
    /// Send a message to a client.
    ToClient(ConnectionId, ManagerToClient),
    /// Close a client's connection, after the messages before it.
    CloseClient(ConnectionId),
    /// Load a bitstream.
    Load {
        /// The slot.
        slot: SlotIndex,
        /// The lease.
        lease: LeaseId,
        /// The bitstream.
        digest: Digest,
    },
    /// Run a step.
    Start {
        /// The slot.
        slot: SlotIndex,
        /// The lease.
        lease: LeaseId,
        /// The step.
        step: StepNumber,
    },
    /// Kill and reap the tenant's process that has the lease's session.
    Kill {
        /// The slot.
        slot: SlotIndex,
        /// The lease.
        lease: LeaseId,
    },
    /// Find out whether a bad slot is usable. A probe fails as long as a load, or a process of a former tenant of the
    /// slot, lives.
    Probe(SlotIndex),
}
