//! The plugin's state and its acts: the one place where the allocations change.

mod announcement;

use crate::allocations::{
    Act, AllocationId, Allocations, Claim, Event, Holder, InstanceId, Owner, Refusal, Start, Token,
};
use crate::boards::Boards;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::holders::{ListError, PodResources};
use crate::identity::{Asks, IdentityError, Life, Pods};
use crate::layout::Layout;
use crate::library::LibraryError;
use crate::meanings::Meanings;
use crate::node_bitstreams::{NodeBitstreams, ProvideError};
use crate::refusal_events::RefusalEvents;
use crate::refusals::Refusals;
use crate::turns::Turns;
use announcement::announce;
use fpga_bitstream_store::Wanted;
use fpga_cluster::allocation::Shortage;
use fpga_core::bitstream::{BitstreamId, Digest};
use fpga_core::gate::Allocated;
use fpga_core::matching::Rejection;
use fpga_core::node_state::{Instances, MAX_KEPT_OFF, NodeState, PluginReport};
use fpga_core::requirement::InvalidRequirement;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use tokio::time;
use tracing::{info, warn};

/// What the service, the revocation and the registration share.
pub(crate) struct Plugin {
    pub(crate) layout: Layout,
    pub(crate) pods: Pods,
    pub(crate) pod_resources: PodResources,
    pub(crate) boards: watch::Receiver<Boards>,
    pub(crate) bitstreams: NodeBitstreams,
    /// The requests of the gate that come first.
    pub(crate) turns: Turns,
    pub(crate) refusal_events: RefusalEvents,
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
    pub(crate) bitstreams: NodeBitstreams,
    pub(crate) turns: Turns,
    pub(crate) limit: u32,
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
    /// It is unknown what the container's bitstreams mean.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The container does not get its bitstreams.
    #[error(transparent)]
    Bitstreams(#[from] ProvideError),
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
    /// Whether the API server gave no answer.
    fn is_silence_of_api_server(&self) -> bool {
        matches!(self, Self::Identity(IdentityError::Api(_)) | Self::Library(LibraryError::Api(_)))
    }

    /// Whether it may be otherwise a moment later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Identity(error) => error.is_transient(),
            Self::Refused(Refusal::UnknownAllocation) => false,
            // The store has tried again itself, and goes on with what is on its way.
            Self::Bitstreams(error) => matches!(error, ProvideError::Folder(_)),
            Self::Library(error) => !matches!(error, LibraryError::Source(_)),
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
            | Self::Library(_)
            | Self::Bitstreams(_)
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
        let Parts { layout, pods, pod_resources, boards, bitstreams, turns, limit } = parts;
        let refusal_events = RefusalEvents::new(pods.client.clone(), &pods.node);
        let (checkpoint, allocations) = Checkpoint::open(&layout.checkpoint())?;
        let (ids, claims) = (allocations.ids().collect(), allocations.claims().collect());
        layout.remove_strays(&ids, &claims)?;
        info!(allocations = ids.len(), claims = claims.len(), "Checkpoint read");
        for act in allocations.recover() {
            carry_out(&layout, &act)?;
        }
        let plugin = Self {
            layout,
            pods,
            pod_resources,
            boards,
            bitstreams,
            turns,
            refusal_events,
            limit,
            checkpoint,
            allocations: Mutex::new(allocations),
            refusals: Mutex::default(),
            announcing: tokio::sync::Mutex::default(),
        };
        plugin.forget_libraries();
        Ok(plugin)
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

    /// Gives the container that has these instances, and that starts now, boards, a token and its bitstreams, which are
    /// waited for until `deadline`. Returns the container. `announced` has what the tries of the same start have begun to
    /// write into the pod's annotation.
    ///
    /// # Errors
    /// [`PrepareError`], if the container can't start now.
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        instances: &BTreeSet<InstanceId>,
        deadline: time::Instant,
        announced: &mut Option<String>,
    ) -> Result<Owner, PrepareError> {
        let holders = self.pod_resources.list().await?;
        let holder = holders.into_iter().find(|holder| !holder.instances.is_disjoint(instances));
        let holder = holder.ok_or_else(|| PrepareError::Nobody(instances.clone()))?;
        match self.prepare_as_asked(instances, &holder, deadline, announced).await {
            Err(error) if error.is_silence_of_api_server() => self.keep(&holder).await.ok_or(error),
            result => result,
        }
    }

    /// Gives the container what the API server says that it asks for.
    async fn prepare_as_asked(
        self: &Arc<Self>,
        instances: &BTreeSet<InstanceId>,
        holder: &Holder,
        deadline: time::Instant,
        announced: &mut Option<String>,
    ) -> Result<Owner, PrepareError> {
        let Holder { namespace, pod, container, .. } = holder;
        let asks = self.pods.asks(namespace, pod, container).await?;
        let meanings = self.meanings(&asks).await?;
        let result = self.give(instances, &asks, &meanings);
        match &result {
            Ok(_) => self.refusals.lock().serve(&asks.owner.uid),
            Err(error) if error.is_permanent() => {
                self.refusals.lock().refuse(&asks.owner.uid, asks.controller.as_deref(), Instant::now());
            }
            Err(_) => {}
        }
        // Before the bitstreams have come, and also after a refusal, which leaves an earlier claim of the pod as it is: `kubectl
        // fpga drain` must find each pod that has a claim.
        let boards = Some(self.boards_of(&asks.owner.uid)).filter(|boards| !boards.is_empty());
        if boards.is_some() && boards != asks.announced && boards != *announced {
            tokio::spawn(announce(Arc::clone(self), asks.owner.clone()));
            *announced = boards;
        }
        let (id, files) = result?;
        // The claim is saved, so that no other container's files take the place of these.
        let plugin = Arc::clone(self);
        let in_use = move |digest: &Digest| plugin.is_in_use(digest);
        let of = (&id, namespace.as_str());
        let provided = self.bitstreams.provide(&self.layout, of, &files, in_use, deadline).await;
        if !self.allocations.lock().ids().any(|other| *other == id) {
            // The container ended meanwhile.
            self.bitstreams.leave(&id);
        }
        provided?;
        Ok(asks.owner)
    }

    /// Lets a container that has started before start again with what it had: boards, token and bitstreams. `None` if it
    /// never had them, or the node has them no more.
    async fn keep(self: &Arc<Self>, holder: &Holder) -> Option<Owner> {
        let (id, claim) =
            self.allocations.lock().of_holder(holder).map(|(id, claim)| (id.clone(), claim.clone()))?;
        if !claim.boards.is_subset(&self.boards.borrow().healthy) {
            return None;
        }
        let (layout, owner) = (self.layout.clone(), claim.owner.clone());
        let kept = move || layout.has_bitstreams(&id, &claim) && layout.grant(&id, &claim).is_ok();
        if !tokio::task::spawn_blocking(kept).await.unwrap_or(false) {
            return None;
        }
        let Owner { namespace, pod, container, uid } = &owner;
        info!(%namespace, %pod, %container, %uid, "The API server is away: a container keeps what it had");
        tokio::spawn(announce(Arc::clone(self), owner.clone()));
        Some(owner)
    }

    /// What the bitstreams of the container mean by the library. Nothing, where its wish can't be understood.
    async fn meanings(&self, asks: &Asks) -> Result<Meanings, PrepareError> {
        match (&self.bitstreams.library, &asks.requirement) {
            (Some(library), Ok(requirement)) => {
                Ok(library.bitstreams.meanings(&asks.owner.namespace, requirement).await?)
            }
            (None, _) | (_, Err(_)) => Ok(Meanings::default()),
        }
    }

    /// Whether a file of the store must stay: a container has it, or a board.
    fn is_in_use(&self, digest: &Digest) -> bool {
        let id = BitstreamId::Digest(*digest);
        let on_board =
            |state: &NodeState| state.devices.iter().any(|device| state.holds(device, &id).may_be());
        self.allocations.lock().has_bitstream(digest)
            || self.boards.borrow().state.as_ref().is_some_and(on_board)
    }

    /// Gives the container boards and a token. Returns its allocation, and the files that it needs.
    fn give(
        &self,
        instances: &BTreeSet<InstanceId>,
        asks: &Asks,
        meanings: &Meanings,
    ) -> Result<(AllocationId, BTreeMap<String, Wanted>), PrepareError> {
        let Asks { owner, workload, requirement, .. } = asks;
        let requirement = requirement.as_ref().map_err(Clone::clone)?;
        let requirement = &meanings.required(requirement);
        let state = self.boards.borrow().state.clone().ok_or(PrepareError::NoState)?;
        let state = meanings.in_words_of_pod(state);
        let token = Token::fresh().map_err(|error| ActError::Files(io::Error::other(error)))?;
        let start = Start {
            instances,
            owner: owner.clone(),
            workload: workload.clone(),
            requirement,
            meanings,
            node: &state,
            limit: self.limit,
            token,
        };
        let acts = match self.act(Event::Starts(start)) {
            Err(ActError::Refused(refusal)) => return Err(refusal.into()),
            result => result?,
        };
        let granted = acts.into_iter().find_map(|act| match act {
            Act::Grant(id, claim) => Some((id, claim)),
            _ => None,
        });
        // Every start is a grant.
        let (id, claim) = granted.ok_or(Refusal::UnknownAllocation)?;
        let Owner { namespace, pod, container, uid } = owner;
        let Claim { boards, bitstreams, .. } = &claim;
        info!(%namespace, %pod, %container, %uid, ?boards, ?bitstreams, "A container has its boards");
        Ok((id, meanings.files(boards, &state)))
    }

    /// The containers that have boards, as the gate knows them.
    pub(crate) fn allocated(&self) -> Allocated {
        self.allocations.lock().allocated()
    }

    /// The boards of the pod with this UID, as its annotation has them.
    pub(crate) fn boards_of(&self, uid: &str) -> String {
        self.allocations.lock().boards_of(uid).into_iter().collect::<Vec<_>>().join(",")
    }

    /// The reasons why the pod with this UID has its boards, as its annotation has them.
    pub(crate) fn reasons_of(&self, uid: &str) -> String {
        self.allocations.lock().reasons_of(uid)
    }

    /// What the plugin can give now, and whose pods it can't serve.
    pub(crate) fn report(&self) -> PluginReport {
        let healthy = self.boards.borrow().healthy.clone();
        let wanted = self.turns.wanted();
        let allocations = self.allocations.lock();
        let instances = |board: &String| {
            let used = allocations.instances(board);
            // A board off which pods are moved takes no new ones.
            let limit = if wanted.contains_key(board) { used.min(self.limit) } else { self.limit };
            Instances { used, limit }
        };
        PluginReport {
            boards: healthy.into_iter().map(|board| (board.clone(), instances(&board))).collect(),
            kept_off: self.refusals.lock().kept_off(Instant::now(), MAX_KEPT_OFF),
            wanted,
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
                self.bitstreams.leave(id);
                self.forget_libraries();
                let Owner { namespace, pod, container, .. } = owner;
                info!(%namespace, %pod, %container, "A container has ended: its token is revoked");
            }
        }
        Ok(())
    }

    /// Forgets the libraries of namespaces that have no boards.
    fn forget_libraries(&self) {
        if let Some(library) = &self.bitstreams.library {
            let allocations = self.allocations.lock();
            library
                .listed
                .retain(&allocations.claims().map(|(_, claim)| claim.owner.namespace.clone()).collect());
        }
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
