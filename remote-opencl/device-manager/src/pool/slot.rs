//! One lent slot: its dispatch, its loads, and what its sessions run with.

use super::gate::LeaseGate;
use fpga_board::dispatch::{Grant, Lanes, TaskRequest, Tenant};
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
/// Interval at which a load looks whether the slot is empty.
const EMPTY_TICK: Duration = Duration::from_millis(1);

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

    /// Loads a bitstream into the slot, which no session holds, once it is empty. Of a board that the vendor loads only the bitstream's
    /// presence is checked: the vendor loads it when the session makes its program.
    pub(super) async fn load(&self, config: &Config, bitstream: Digest) -> LoadOutcome {
        if config.catalogue.name_of(&bitstream).is_none() && !config.store.contains(&bitstream) {
            tracing::warn!(%bitstream, "A lease names a bitstream that this manager does not have");
            return LoadOutcome::NoFile;
        }
        if config.loads == Loads::ByVendor {
            return LoadOutcome::Loaded;
        }
        let grant = self.take(bitstream).await;
        for load in grant.load {
            config.port.load(config.reconfiguration_time).await;
            self.reports.reconfigured(&Reconfigured {
                slot: load.slot,
                bitstream,
                took: config.reconfiguration_time,
                tenant: Tenant::new("pool"),
            });
        }
        self.dispatcher.finished(grant.task);
        LoadOutcome::Loaded
    }

    /// Takes the slot for a load, as soon as no task is left in it. While the lease protocol calls it free, waiting tasks of a
    /// former lease may still be refused one by one, and a killed one not be noted as ended. If that goes on for too long, the
    /// protocol calls the slot bad, as for every load that does not end.
    async fn take(&self, bitstream: Digest) -> Grant {
        loop {
            let request = TaskRequest {
                session: LENDER,
                task: self.dispatcher.new_task(),
                tenant: Tenant::new("pool"),
                demand: Demand::of([bitstream], OtherKernels::None),
                lanes: Lanes::Any,
                kind: None,
                bytes: 0,
            };
            if let Some(grant) = self.dispatcher.submit_alone(request) {
                return grant;
            }
            tokio::time::sleep(EMPTY_TICK).await;
        }
    }

    /// The bitstream that the slot has.
    pub(super) fn loaded(&self) -> Option<Digest> {
        self.dispatcher.resident().into_iter().next().flatten()
    }

    /// Whether no task and no load has the slot.
    pub(super) fn is_idle(&self) -> bool {
        self.dispatcher.running() == 0
    }
}

#[cfg(test)]
mod tests;
