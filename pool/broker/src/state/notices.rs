//! What the protocol tells the policy.

use super::State;
use crate::policy::{AskedJob, Policy, SlotId};
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::Moment;
use fpga_pool_api::manager::{Board, LentBoard};
use fpga_pool_leases::broker::{Notice, SlotRecord};
use fpga_pool_leases::ids::{JobUuid, ManagerId};
use fpga_pool_leases::lease::Usage;
use fpga_pool_leases::messages::Refusal;
use tracing::warn;

impl State {
    pub(super) fn notice(&mut self, notice: &Notice, now: Moment) {
        match *notice {
            Notice::Active => self.begin(now),
            Notice::Inactive => {
                self.policy.forget();
                self.boards.clear();
                self.jobs.clear();
                self.jobs_of.clear();
                self.granted.clear();
                self.metrics.forget();
            }
            Notice::Waiting(job) => {
                // It was granted a slot whose lease was refused, or came when the client was gone: the slot is not its
                // own any more. While the lease is prepared the slot is its own, however often it asks.
                let is_preparing = self.broker.job(job).is_some_and(|job| job.preparing.is_some());
                if !is_preparing && let Some(granted) = self.granted.remove(&job) {
                    self.follow(granted.slot, None, now);
                }
                self.wait(job, now);
            }
            Notice::Left(job) => {
                self.forget_origin(job);
                self.granted.remove(&job);
                self.policy.leave(job, now);
            }
            Notice::Registered(manager) => self.registered(manager, now),
            Notice::Lost(manager) => {
                self.boards.remove(&manager);
                self.policy.lose(manager, now);
            }
            Notice::Slot { manager, slot, usage, .. } => {
                self.follow(SlotId { manager, slot }, Some(usage), now);
            }
            Notice::Refused { manager, slot, why } => {
                let id = SlotId { manager, slot };
                self.metrics.refused(why);
                let refused = self.granted.iter().find(|(_, granted)| granted.slot == id);
                let refused = refused.map(|(job, granted)| (*job, granted.digest));
                if let (Refusal::BadBitstream | Refusal::NoFile, Some((job, digest))) = (why, refused) {
                    self.policy.bitstream_failed(id, digest, job, now);
                    if let Some(lent) = self.boards.get(&manager) {
                        self.policy.explain_fault(digest, fault(&lent.board, &digest, why), now);
                    }
                }
                self.follow(id, None, now);
            }
        }
    }

    /// Makes the policy anew, of what the protocol knows: when the broker begins to grant, and when names are used up.
    pub(super) fn begin(&mut self, now: Moment) {
        self.policy.forget();
        self.policy.learn_slots();
        for (manager, board) in &self.boards {
            set_board(&mut self.policy, *manager, board);
        }
        // Leases come first: they count for quotas. Free slots come last: the policy chooses among all jobs.
        self.follow_where(|record| !matches!(record, SlotRecord::Free), now);
        let mut jobs: Vec<_> = self.broker.jobs().map(|job| (job.first_arrival, job.id)).collect();
        jobs.sort_unstable();
        for (_, job) in jobs {
            self.wait(job, now);
        }
        self.follow_where(|record| matches!(record, SlotRecord::Free), now);
        self.policy.knows_all(now);
        self.next_tick = now.now + super::TICK;
    }

    /// Follows all slots' records.
    pub(super) fn follow_all(&mut self, now: Moment) {
        self.follow_where(|_| true, now);
    }

    fn follow_where(&mut self, is_meant: impl Fn(&SlotRecord) -> bool, now: Moment) {
        for (manager, slot, record) in self.broker.slots() {
            if is_meant(record) {
                self.policy.follow(SlotId { manager, slot }, record, None, now);
            }
        }
    }

    fn registered(&mut self, manager: ManagerId, now: Moment) {
        let Some(board) = self.registering.take() else { return };
        if self.is_active() {
            set_board(&mut self.policy, manager, &board);
            self.policy.learn_slots();
            let slots = u32::try_from(board.slots.len()).unwrap_or(0);
            for slot in (0..slots).map(SlotIndex) {
                self.follow(SlotId { manager, slot }, None, now);
            }
            self.policy.knows_all(now);
        }
        self.boards.insert(manager, board);
    }

    /// Follows the record of a slot.
    pub(super) fn follow(&mut self, id: SlotId, usage: Option<Usage>, now: Moment) {
        if self.is_active()
            && let Some(record) = self.broker.slot(id.manager, id.slot)
        {
            self.policy.follow(id, record, usage, now);
        }
    }

    /// Lets a job wait in the policy, if the protocol's queue has it with its client.
    pub(super) fn wait(&mut self, uuid: JobUuid, now: Moment) {
        if !self.is_active() {
            return;
        }
        let Some(job) = self.broker.job(uuid) else { return };
        if job.connection.is_none() || job.preparing.is_some() {
            return;
        }
        let asked = AskedJob {
            tenant: job.tenant.clone(),
            home: self.jobs.get(&uuid).and_then(|origin| origin.home.clone()),
            wanted: job.wanted.clone(),
            first_arrival: job.first_arrival,
        };
        self.policy.wait(uuid, asked, &self.catalog, now);
    }
}

/// Tells the policy of a board, and people of slots that are not used.
fn set_board(policy: &mut Policy, manager: ManagerId, lent: &LentBoard) {
    if policy.set_board(manager, lent) {
        let Board { name, node, .. } = &lent.board;
        warn!(
            board = &**name,
            node = &**node,
            "Slots of this node are not used: it lends too many kinds (board, shell, region) that no other node does"
        );
    }
}

/// Why a board does not run a bitstream, and what to do.
fn fault(board: &Board, digest: &Digest, why: Refusal) -> String {
    let Board { name, node, .. } = board;
    match why {
        Refusal::NoFile => format!(
            "the device manager of board {name} on node {node} has no file of the bitstream {digest}; bring the file into the \
             manager's folder of bitstreams (--bitstreams)"
        ),
        _ => format!(
            "the bitstream {digest} failed to load on board {name} of node {node}; the log of its device manager says why"
        ),
    }
}
