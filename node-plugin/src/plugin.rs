//! The plugin's state and its acts: the one place where the allocations change.

use crate::allocations::{
    Act, AllocationId, Allocations, Event, Holder, InstanceId, Owner, Refusal, Start, Token,
};
use crate::boards::Boards;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::holders::{ListError, PodResources};
use crate::identity::{Asks, IdentityError, Life, Pods};
use crate::layout::Layout;
use crate::refusals::Refusals;
use fpga_cluster::allocation::Shortage;
use fpga_core::matching::Rejection;
use fpga_core::node_state::{Instances, MAX_KEPT_OFF, PluginReport};
use fpga_core::requirement::InvalidRequirement;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Instant;
use tokio::sync::watch;
use tracing::{info, warn};

/// What the service, the revocation and the registration share.
pub(crate) struct Plugin {
    pub(crate) layout: Layout,
    pub(crate) pods: Pods,
    pub(crate) pod_resources: PodResources,
    pub(crate) boards: watch::Receiver<Boards>,
    /// Folder of bitstreams on the node, for containers.
    pub(crate) bitstreams: Option<PathBuf>,
    /// Number of containers that a board has at most where another board has fewer.
    pub(crate) limit: u32,
    checkpoint: Checkpoint,
    allocations: Mutex<Allocations>,
    refusals: Mutex<Refusals>,
    /// Held while an annotation is written.
    pub(crate) announcing: tokio::sync::Mutex<()>,
}

/// What a new [`Plugin`] is made of.
pub(crate) struct Parts {
    pub(crate) layout: Layout,
    pub(crate) pods: Pods,
    pub(crate) pod_resources: PodResources,
    pub(crate) boards: watch::Receiver<Boards>,
    pub(crate) bitstreams: Option<PathBuf>,
    pub(crate) limit: u32,
}

/// A container that has its boards.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) owner: Owner,
    pub(crate) announced: Announced,
}

/// Whether the pod's annotation names its boards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announced {
    Yes,
    No,
}

/// The reason why a container can't start now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    /// The kubelet does not tell who has the instances.
    #[error(transparent)]
    List(#[from] ListError),
    /// The kubelet lists nobody who has the instances.
    #[error(
        "the kubelet lists no container that has {}; ordinary init containers can't have boards: ask for the resource \
         in a container, or in a native sidecar", .0.iter().map(InstanceId::as_str).collect::<Vec<_>>().join(" ")
    )]
    Nobody(BTreeSet<InstanceId>),
    /// The API server does not tell what the container asks for.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// What the pod asks for can't be understood.
    #[error(transparent)]
    Requirement(#[from] InvalidRequirement),
    /// The collector has not yet told the state of the boards.
    #[error("the state of this node's boards is not known yet; does fpga-collector run?")]
    NoState,
    /// There are not the boards that the container asks for.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The decision can't be saved or carried out.
    #[error(transparent)]
    Act(#[from] ActError),
}

/// A decision can't be saved or carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActError {
    /// The checkpoint can't be written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A file can't be written.
    #[error("the files of a container's boards: {0}")]
    Files(#[from] io::Error),
    /// The state has no such event.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl PrepareError {
    /// Whether it may be otherwise a moment later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Identity(error) => error.is_transient(),
            Self::Refused(Refusal::UnknownAllocation) => false,
            Self::Refused(Refusal::Shortage(_)) | Self::Requirement(_) => !self.is_permanent(),
            Self::List(_) | Self::Nobody(_) | Self::NoState | Self::Act(_) => true,
        }
    }

    /// Whether neither time nor another pod's end will change it, only other boards or another pod. The list is
    /// closed: the boards of the node can never meet the requirement, or the requirement can't be understood. A node
    /// without any board is not on it, since its managers may be about to report.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            Self::Requirement(_) => true,
            Self::Refused(Refusal::Shortage(Shortage { rejection, .. })) => {
                rejection.is_permanent() && *rejection != Rejection::NoDevice
            }
            Self::Refused(Refusal::UnknownAllocation)
            | Self::List(_)
            | Self::Nobody(_)
            | Self::Identity(_)
            | Self::NoState
            | Self::Act(_) => false,
        }
    }
}

impl Plugin {
    /// Goes on from the checkpoint: folders and tokens agree with it afterwards.
    ///
    /// # Errors
    /// The checkpoint can't be read, or files can't be written.
    pub(crate) fn recover(parts: Parts) -> Result<Self, ActError> {
        let Parts { layout, pods, pod_resources, boards, bitstreams, limit } = parts;
        let (checkpoint, allocations) = Checkpoint::open(&layout.checkpoint())?;
        let (ids, claims) = (allocations.ids().collect(), allocations.claims().collect());
        layout.remove_strays(&ids, &claims)?;
        info!(allocations = ids.len(), claims = claims.len(), "Checkpoint read");
        for act in allocations.recover() {
            carry_out(&layout, &act)?;
        }
        Ok(Self {
            layout,
            pods,
            pod_resources,
            boards,
            bitstreams,
            limit,
            checkpoint,
            allocations: Mutex::new(allocations),
            refusals: Mutex::default(),
            announcing: tokio::sync::Mutex::default(),
        })
    }

    /// Makes the allocation of a container.
    ///
    /// # Errors
    /// The allocation can't be saved, or its folder can't be made.
    pub(crate) fn allocate(
        &self,
        id: &AllocationId,
        instances: BTreeSet<InstanceId>,
    ) -> Result<(), ActError> {
        self.act(Event::Allocated { id: id.clone(), instances }).map(drop)
    }

    /// Gives the container that has these instances, and that starts now, boards and a token.
    ///
    /// # Errors
    /// [`PrepareError`], if the container can't start now.
    pub(crate) async fn prepare(&self, instances: &BTreeSet<InstanceId>) -> Result<Prepared, PrepareError> {
        let holders = self.pod_resources.list().await?;
        let holder = holders.into_iter().find(|holder| !holder.instances.is_disjoint(instances));
        let Holder { namespace, pod, container, .. } =
            holder.ok_or_else(|| PrepareError::Nobody(instances.clone()))?;
        let asks = self.pods.asks(&namespace, &pod, &container).await?;
        let result = self.give(instances, &asks);
        match &result {
            Ok(()) => self.refusals.lock().serve(&asks.owner.uid),
            Err(error) if error.is_permanent() => {
                self.refusals.lock().refuse(&asks.owner.uid, asks.controller.as_deref(), Instant::now());
            }
            Err(_) => {}
        }
        result?;
        let announced = match asks.announced == Some(self.boards_of(&asks.owner.uid)) {
            true => Announced::Yes,
            false => Announced::No,
        };
        Ok(Prepared { owner: asks.owner, announced })
    }

    /// Gives the container boards and a token.
    fn give(&self, instances: &BTreeSet<InstanceId>, asks: &Asks) -> Result<(), PrepareError> {
        let Asks { owner, requirement, .. } = asks;
        let requirement = requirement.as_ref().map_err(Clone::clone)?;
        let state = self.boards.borrow().state.clone().ok_or(PrepareError::NoState)?;
        let token = Token::fresh().map_err(|error| ActError::Files(io::Error::other(error)))?;
        let start =
            Start { instances, owner: owner.clone(), requirement, node: &state, limit: self.limit, token };
        let acts = match self.act(Event::Starts(start)) {
            Err(ActError::Refused(refusal)) => return Err(refusal.into()),
            result => result?,
        };
        let granted = acts.iter().find_map(|act| match act {
            Act::Grant(_, claim) => Some(&claim.boards),
            _ => None,
        });
        let Owner { namespace, pod, container, uid } = owner;
        info!(%namespace, %pod, %container, %uid, boards = ?granted, "A container has its boards");
        Ok(())
    }

    /// The boards of the pod with this UID, as its annotation has them.
    pub(crate) fn boards_of(&self, uid: &str) -> String {
        self.allocations.lock().boards_of(uid).into_iter().collect::<Vec<_>>().join(",")
    }

    /// What the plugin can give now, and whose pods it can't serve.
    pub(crate) fn report(&self) -> PluginReport {
        let healthy = self.boards.borrow().healthy.clone();
        let allocations = self.allocations.lock();
        let instances = |board: &String| Instances { used: allocations.instances(board), limit: self.limit };
        PluginReport {
            boards: healthy.into_iter().map(|board| (board.clone(), instances(&board))).collect(),
            kept_off: self.refusals.lock().kept_off(Instant::now(), MAX_KEPT_OFF),
        }
    }

    /// Tells the state who holds instances, and ends the claims of owners that have ended. `Err` if the kubelet does
    /// not tell: then nobody has ended.
    pub(crate) async fn observe(&self) -> Result<(), PrepareError> {
        let holders = self.pod_resources.list().await?;
        let acts = self.act(Event::Listed(&holders))?;
        let looks = acts.iter().filter_map(|act| match act {
            Act::Look(id, owner) => Some((id, owner)),
            _ => None,
        });
        for (id, owner) in looks {
            if self.pods.life(owner).await == Some(Life::Ended) {
                self.act(Event::Ended(id))?;
                let Owner { namespace, pod, container, .. } = owner;
                info!(%namespace, %pod, %container, "A container has ended: its token is revoked");
            }
        }
        Ok(())
    }

    /// Decides, saves, and carries out. Where saving fails the state is as before.
    fn act(&self, event: Event<'_>) -> Result<Vec<Act>, ActError> {
        let mut allocations = self.allocations.lock();
        let mut new = allocations.clone();
        let acts = new.decide(event)?;
        if acts.iter().any(Act::changes_something) {
            self.checkpoint.save(&new)?;
        }
        *allocations = new;
        for act in &acts {
            carry_out(&self.layout, act)?;
        }
        Ok(acts)
    }
}

fn carry_out(layout: &Layout, act: &Act) -> io::Result<()> {
    let done = match act {
        Act::MakeFolder(id) => layout.make_claim_folder(id),
        Act::Grant(id, claim) => layout.grant(id, claim),
        Act::Revoke(id, claim) => layout.revoke(id, claim),
        Act::RemoveFolder(id) => layout.remove_claim_folder(id),
        Act::Look(..) => Ok(()),
    };
    done.inspect_err(|error| warn!(%error, ?act, "An act failed"))
}
