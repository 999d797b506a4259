//! One lent slot: its dispatch, its loads, and what its sessions run with.

use super::gate::LeaseGate;
use fpga_board::dispatch::{Lanes, TaskRequest, Tenant};
use fpga_board::slots::{Demand, OtherKernels, SessionId, SlotIndex};
use fpga_core::bitstream::Digest;
use fpga_pool_leases::manager::LoadOutcome;
use fpga_session::config::{Config, Loads};
use fpga_session::dispatcher::{Dispatcher, TaskWatch};
use fpga_session::metrics::Metrics;
use fpga_session::programs::Sources;
use fpga_session::reporting::{DeviceFacts, Reconfigured, Reports};
use fpga_session::session::Shared;
use std::sync::Arc;
use std::time::Duration;

/// The session for which the lender itself loads bitstreams. Sessions of clients are numbered from 1.
pub(super) const LENDER: SessionId = SessionId(0);

/// A lent slot.
#[derive(Debug)]
pub(super) struct LentSlot {
    dispatcher: Arc<Dispatcher>,
    reports: Reports,
}

impl LentSlot {
    /// The slot with this index on the board.
    ///
    /// Its use is reported neither to the collector nor among the metrics of the board's other slots: what is lent is
    /// no capacity of the node.
    pub(super) fn new(config: &Config, slot: SlotIndex, watch: Arc<dyn TaskWatch>) -> Self {
        let facts =
            DeviceFacts { id: config.reports.device().to_owned(), slots: 1, ..DeviceFacts::default() };
        let (catalogue, trace) = (Arc::clone(&config.catalogue), config.trace.clone());
        let reports = Reports::new(None, facts, catalogue, Metrics::default(), trace);
        let dispatcher = Arc::new(config.dispatcher.lent(slot, reports.clone(), watch));
        Self { dispatcher, reports }
    }

    /// The slot's dispatch.
    pub(super) fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    /// What a session runs with that has a lease for this bitstream.
    pub(super) fn shared(&self, board: &Shared, bitstream: Digest) -> Shared {
        board.with_config(Config {
            dispatcher: Arc::clone(&self.dispatcher),
            reports: self.reports.clone(),
            gate: Arc::new(LeaseGate(bitstream)),
            // A program from source is a bitstream too, which is not that of the lease.
            sources: Sources::AsBitstream,
            // The lease protocol ends tasks of clients that have gone, or calls the slot bad.
            abandoned_grace: Duration::MAX,
            ..board.config.clone()
        })
    }

    /// Loads a bitstream into the slot, which no session holds. Of a board that the vendor loads only the bitstream's
    /// presence is checked: the vendor loads it when the session makes its program.
    pub(super) async fn load(&self, config: &Config, bitstream: Digest) -> LoadOutcome {
        if config.catalogue.name_of(&bitstream).is_none() && !config.store.contains(&bitstream) {
            tracing::warn!(%bitstream, "A lease names a bitstream that this manager does not have");
            return LoadOutcome::NoFile;
        }
        if config.loads == Loads::ByVendor {
            return LoadOutcome::Loaded;
        }
        let task = self.dispatcher.new_task();
        let request = TaskRequest {
            session: LENDER,
            task,
            tenant: Tenant::new("pool"),
            demand: Demand::of([bitstream], OtherKernels::None),
            lanes: Lanes::Any,
            kind: None,
            bytes: 0,
        };
        let Ok(Some(grant)) = self.dispatcher.submit(request) else {
            // No task runs in a free slot, so a slot that can't be had is at fault.
            self.dispatcher.cancel_session(LENDER);
            return LoadOutcome::Failed;
        };
        for load in grant.load {
            config.port.load(config.reconfiguration_time).await;
            self.reports.reconfigured(&Reconfigured {
                slot: load.slot,
                bitstream,
                took: config.reconfiguration_time,
                tenant: Tenant::new("pool"),
            });
        }
        self.dispatcher.finished(task);
        LoadOutcome::Loaded
    }

    /// Whether no task and no load has the slot.
    pub(super) fn is_idle(&self) -> bool {
        self.dispatcher.running() == 0
    }
}
