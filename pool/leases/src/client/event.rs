//! What a job takes in and gives out.

use crate::ids::{ConnectionId, LeaseId, StepNumber};
use crate::lease::Endpoint;
use crate::messages::{BrokerToClient, CancelCause, ClientToBroker, ClientToManager, ManagerToClient};

/// What happens to a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// The program has one more step, with a number that no other step of the job has.
    Submit {
        /// The step.
        step: StepNumber,
        /// Bytes of its input.
        bytes: u64,
    },
    /// The program will submit no more steps: the job ends with the last one.
    Finish,
    /// The program gives the job up.
    Cancel,
    /// A connection to the broker is open. It replaces the former one.
    BrokerConnected(ConnectionId),
    /// A connection to the broker has ended.
    BrokerClosed(ConnectionId),
    /// A broker's message.
    Broker(ConnectionId, BrokerToClient),
    /// A message on the connection that was made for a lease.
    Manager(LeaseId, ManagerToClient),
    /// A byte, ring activity, or an answered ping on the connection that was made for a lease.
    ManagerAlive(LeaseId),
    /// The connection that was made for a lease has ended, or could not be made.
    ManagerClosed(LeaseId),
}

/// What the job's owner must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send a message to the broker.
    ToBroker(ClientToBroker),
    /// Connect to a manager and attach in the handshake.
    Attach {
        /// The lease, by which the connection is named from now on.
        lease: LeaseId,
        /// The manager.
        endpoint: Endpoint,
    },
    /// Connect to a manager, release a lease, and close.
    Decline {
        /// The lease.
        lease: LeaseId,
        /// The manager.
        endpoint: Endpoint,
    },
    /// Send a message on the connection of a lease.
    ToManager(LeaseId, ClientToManager),
    /// Close the connection of a lease, after the messages before it.
    CloseManager(LeaseId),
    /// Give a step's output to the program.
    Deliver(StepNumber),
    /// Tell the program that the job has ended.
    Ended(End),
}

/// How a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// All steps' outputs are delivered.
    Done,
    /// The program gave the job up.
    Cancelled,
    /// The broker won't give the job a slot.
    Refused(CancelCause),
    /// A step was under way when its lease was lost, and it must not run twice.
    Lost(StepNumber),
}

/// Whether a step may run again when nobody knows how far it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repetition {
    /// A step's output depends on its input alone: it may run again.
    Allowed,
    /// A step has effects, or depends on a former one.
    Forbidden,
}
