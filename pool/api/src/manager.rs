//! The messages of a manager's stream.

use crate::enums::{refusal, refused};
use crate::hello::Hello;
use crate::lease::digest;
use crate::limits::{MAX_NAME_BYTES, MAX_SLOTS, MIN_USAGE_INTERVAL};
use crate::wire::{id, id_bytes, name, optional_name, present};
use crate::{Malformed, v1};
use fpga_core::bitstream::Digest;
use fpga_core::units::Millis;
use fpga_pool_leases::ids::{Incarnation, LeaseId, Term};
use fpga_pool_leases::messages::{BrokerToManager, ManagerToBroker, SlotStatus};
use std::sync::Arc;

/// What a manager says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromManager {
    /// The first message.
    Hello(Hello),
    /// The second message: [`ManagerToBroker::Register`], and what the policy must know of the board.
    Register(LentBoard, ManagerToBroker),
    /// Any other message of the lease protocol.
    Message(ManagerToBroker),
}

/// A board with lent slots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LentBoard {
    /// The board.
    pub board: Board,
    /// Its lent slots by index, as many as the Register has.
    pub slots: Vec<LentSlot>,
}

/// A board.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Board {
    /// Name of the board, unique on its node.
    pub name: Arc<str>,
    /// Kind of the board, as Bitstream objects name it.
    pub kind: Arc<str>,
    /// Shell that the board has.
    pub shell: Option<Arc<str>>,
    /// Node of the board, as the manager says; a token that names a node counts for more.
    pub node: Arc<str>,
}

/// What does not change of a lent slot while its manager's stream lasts, and what is loaded at its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LentSlot {
    /// Region of the board, for bitstreams that fit one region only.
    pub region: Option<Arc<str>>,
    /// Digest of the bitstream that is loaded.
    pub loaded: Option<Digest>,
}

impl FromManager {
    /// A message of the manager's state machine as it is sent. Of `board` nothing but a Register tells; slots that it
    /// lacks are sent without a region and a bitstream.
    #[must_use]
    pub fn encode(message: ManagerToBroker, board: &LentBoard) -> v1::FromManager {
        use v1::from_manager::Kind;
        let kind = match message {
            ManagerToBroker::Register { incarnation, max_term, endpoint, slots } => {
                let lent = board.slots.iter().cloned().chain(std::iter::repeat(LentSlot::default()));
                Kind::Register(v1::Register {
                    incarnation: id_bytes(incarnation.0),
                    max_term: max_term.0,
                    endpoint: Some(endpoint.into()),
                    board: Some(board.board.clone().into()),
                    slots: slots.into_iter().zip(lent).map(|(status, lent)| lent.with(status)).collect(),
                })
            }
            ManagerToBroker::Slot(report) => Kind::Slot(report.into()),
            ManagerToBroker::Prepared { lease } => Kind::Prepared(lease_ref(lease)),
            ManagerToBroker::Refused { lease, why } => Kind::Refused(refused(lease, why)),
        };
        v1::FromManager { kind: Some(kind) }
    }
}

impl TryFrom<v1::FromManager> for FromManager {
    type Error = Malformed;

    fn try_from(message: v1::FromManager) -> Result<Self, Malformed> {
        use v1::from_manager::Kind;
        let message = match present(message.kind, "FromManager.kind")? {
            Kind::Hello(hello) => return Ok(Self::Hello(hello.try_into()?)),
            Kind::Register(register) => return read_register(register),
            Kind::Slot(report) => ManagerToBroker::Slot(report.try_into()?),
            Kind::Prepared(lease) => ManagerToBroker::Prepared { lease: read_lease_ref(&lease)? },
            Kind::Refused(refused) => ManagerToBroker::Refused {
                lease: LeaseId(id(&refused.lease, "Refused.lease")?),
                why: refusal(&refused)?,
            },
        };
        Ok(Self::Message(message))
    }
}

impl From<Hello> for v1::FromManager {
    fn from(hello: Hello) -> Self {
        Self { kind: Some(v1::from_manager::Kind::Hello(hello.into())) }
    }
}

fn read_register(register: v1::Register) -> Result<FromManager, Malformed> {
    let v1::Register { incarnation, max_term, endpoint, board, slots } = register;
    if slots.len() > MAX_SLOTS {
        return Err(Malformed::TooLong { field: "Register.slots", length: slots.len(), most: MAX_SLOTS });
    }
    let (mut statuses, mut lent) = (Vec::new(), Vec::new());
    for slot in slots {
        let v1::LentSlot { status, region, loaded } = slot;
        statuses.push(SlotStatus::try_from(present(status, "LentSlot.status")?)?);
        let region = optional_name(&region, MAX_NAME_BYTES, "LentSlot.region")?;
        let loaded = if loaded.is_empty() { None } else { Some(digest(&loaded)?) };
        lent.push(LentSlot { region, loaded });
    }
    let message = ManagerToBroker::Register {
        incarnation: Incarnation(id(&incarnation, "Register.incarnation")?),
        max_term: Term(max_term),
        endpoint: present(endpoint, "Register.endpoint")?.try_into()?,
        slots: statuses,
    };
    let board = present(board, "Register.board")?.try_into()?;
    Ok(FromManager::Register(LentBoard { board, slots: lent }, message))
}

impl TryFrom<v1::ToManager> for BrokerToManager {
    type Error = Malformed;

    fn try_from(message: v1::ToManager) -> Result<Self, Malformed> {
        use v1::to_manager::Kind;
        match present(message.kind, "ToManager.kind")? {
            Kind::Prepare(v1::Prepare { term, lease, usage_every_ms }) => {
                let lease = present(lease, "Prepare.lease")?.try_into()?;
                let usage_every = (usage_every_ms > 0).then(|| Millis(usage_every_ms.into()));
                let usage_every = usage_every.map(|every| every.max(MIN_USAGE_INTERVAL));
                Ok(Self::Prepare { term: Term(term), lease, usage_every })
            }
            Kind::Recall(lease) => Ok(Self::Recall { lease: read_lease_ref(&lease)? }),
        }
    }
}

impl From<BrokerToManager> for v1::ToManager {
    fn from(message: BrokerToManager) -> Self {
        use v1::to_manager::Kind;
        let kind = match message {
            BrokerToManager::Prepare { term, lease, usage_every } => {
                let millis = |every: Millis| u32::try_from(every.0).unwrap_or(u32::MAX);
                let usage_every_ms = usage_every.map_or(0, millis);
                Kind::Prepare(v1::Prepare { term: term.0, lease: Some(lease.into()), usage_every_ms })
            }
            BrokerToManager::Recall { lease } => Kind::Recall(lease_ref(lease)),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Board> for Board {
    type Error = Malformed;

    fn try_from(board: v1::Board) -> Result<Self, Malformed> {
        Ok(Self {
            name: name(&board.name, MAX_NAME_BYTES, "Board.name")?,
            kind: name(&board.kind, MAX_NAME_BYTES, "Board.kind")?,
            shell: optional_name(&board.shell, MAX_NAME_BYTES, "Board.shell")?,
            node: name(&board.node, MAX_NAME_BYTES, "Board.node")?,
        })
    }
}

impl From<Board> for v1::Board {
    fn from(board: Board) -> Self {
        let Board { name, kind, shell, node } = board;
        let text = |text: &str| text.to_owned();
        let shell = text(shell.as_deref().unwrap_or_default());
        Self { name: text(&name), kind: text(&kind), shell, node: text(&node) }
    }
}

impl LentSlot {
    fn with(self, status: SlotStatus) -> v1::LentSlot {
        v1::LentSlot {
            status: Some(status.into()),
            region: self.region.as_deref().unwrap_or_default().to_owned(),
            loaded: self.loaded.map(|digest| digest.as_bytes().to_vec()).unwrap_or_default(),
        }
    }
}

fn lease_ref(lease: LeaseId) -> v1::LeaseRef {
    v1::LeaseRef { lease: id_bytes(lease.0) }
}

fn read_lease_ref(lease: &v1::LeaseRef) -> Result<LeaseId, Malformed> {
    id(&lease.lease, "LeaseRef.lease").map(LeaseId)
}

#[cfg(test)]
mod tests;
