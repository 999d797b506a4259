//! What the picker knows, for people and their tools.

use super::recent::Pick;
use super::{BoardEntry, FunctionEntry, ReplicaEntry, State};
use crate::function::FunctionName;
use fpga_cluster::replicas::apportion;
use fpga_cluster::router::SlotState;
use fpga_core::units::MonotonicTime;
use fpga_picker_api::{FunctionView, OutcomeView, PickView, PicksView, ReplicaView};
use std::collections::HashMap;

/// Demand in flight is handed on in thousandths.
const THOUSANDTHS: f64 = 1e3;

impl State {
    /// All functions by name. `per_function` is the mean number of replicas of a function that are recommended.
    #[must_use]
    pub fn functions(&self, per_function: f64, now: MonotonicTime) -> Vec<FunctionView> {
        let recommended = self.recommended(per_function, now);
        let mut names: Vec<(&FunctionName, &FunctionEntry)> = self.functions.iter().collect();
        names.sort_unstable_by_key(|(name, _)| *name);
        names.into_iter().map(|(name, function)| self.view(name, function, &recommended, now)).collect()
    }

    /// A function as it is, without a recommendation; `None` if nobody knows it.
    #[must_use]
    pub fn function(&self, name: &FunctionName, now: MonotonicTime) -> Option<FunctionView> {
        Some(self.view(name, self.functions.get(name)?, &HashMap::new(), now))
    }

    /// A function with its last picks; `None` if nobody knows the function.
    #[must_use]
    pub fn picks(&self, name: &FunctionName, per_function: f64, now: MonotonicTime) -> Option<PicksView> {
        let function = self.functions.get(name)?;
        Some(PicksView {
            function: self.view(name, function, &self.recommended(per_function, now), now),
            picks: function.picks.latest_first().map(|pick| self.pick(pick, now)).collect(),
        })
    }

    /// How many replicas each function should have of a budget, by its demand. A function gets no more than there are
    /// boards.
    fn recommended(&self, per_function: f64, now: MonotonicTime) -> HashMap<&FunctionName, u32> {
        let mut names: Vec<(&FunctionName, &FunctionEntry)> = self.functions.iter().collect();
        // Of equal demands the first gets more, so the order must not change from look to look.
        names.sort_unstable_by_key(|(name, _)| *name);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        let demand: Vec<u64> = names
            .iter()
            .map(|(_, function)| (function.demand.mean_in_flight(now) * THOUSANDTHS).ceil() as u64)
            .collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        let budget = (per_function * names.len() as f64).round() as usize;
        let boards = self.boards.values().filter(|board| board.is_in_rotation(now)).count();
        let most = u32::try_from(boards.max(1)).unwrap_or(u32::MAX);
        names.into_iter().map(|(name, _)| name).zip(apportion(&demand, budget, most)).collect()
    }

    fn view(
        &self,
        name: &FunctionName,
        function: &FunctionEntry,
        recommended: &HashMap<&FunctionName, u32>,
        now: MonotonicTime,
    ) -> FunctionView {
        let replicas = function.replicas.iter().filter_map(|id| self.replicas.get(id));
        let mut replicas: Vec<ReplicaView> = replicas.map(|replica| self.replica(replica, now)).collect();
        replicas.sort_unstable_by_key(|replica| replica.address);
        FunctionView {
            namespace: name.namespace.as_ref().into(),
            name: name.name.as_ref().into(),
            bitstream: function.asked.as_ref().map(ToString::to_string),
            in_flight: function.in_flight,
            per_second: function.demand.per_second(now),
            mean_in_flight: function.demand.mean_in_flight(now),
            recent_in_flight: function.recent.mean_in_flight(now),
            recent_per_second: function.recent.per_second(now),
            recent_seen: function.recent.seen(now),
            requests: function.requests,
            recommended_replicas: recommended.get(name).copied().unwrap_or(1),
            replicas,
        }
    }

    fn replica(&self, replica: &ReplicaEntry, now: MonotonicTime) -> ReplicaView {
        let boards = || replica.boards.iter().filter_map(|used| self.boards.get(&used.board));
        let names: Vec<&str> = boards().map(|board| board.name.device.as_ref()).collect();
        let fresh = boards().filter(|board| board.is_fresh(now));
        let cordon = |board: &BoardEntry| {
            Some((board.name.device.as_ref().to_owned(), String::from(board.cordon.clone()?)))
        };
        let views: Vec<_> = fresh.map(|board| board.tracked.board()).collect();
        let slots = || views.iter().flat_map(|board| board.slots);
        let idle = || slots().filter(|slot| slot.state == SlotState::Idle);
        let wanted = |slot: &&_| replica.bitstream.is_some() && resident(slot) == replica.bitstream;
        ReplicaView {
            address: replica.replica.address,
            node: replica.replica.node.as_deref().map(str::to_owned),
            board: (!names.is_empty()).then(|| names.join(",")),
            fresh: !views.is_empty(),
            cordons: boards().filter_map(cordon).collect(),
            in_flight: replica.in_flight,
            slots: slots().count(),
            idle_with_bitstream: idle().filter(wanted).count(),
            idle: idle().count(),
            waiting: views.iter().map(|board| board.waiting).sum(),
        }
    }

    fn pick(&self, pick: &Pick, now: MonotonicTime) -> PickView {
        let outcome = match &pick.outcome {
            Ok(choice) => {
                let replica = self.replicas.get(&choice.assignment.replica);
                let board = choice.assignment.board.and_then(|id| self.boards.get(&id));
                OutcomeView::Picked {
                    basis: choice.basis.name().to_owned(),
                    endpoints: choice.endpoints.clone(),
                    node: replica.and_then(|replica| replica.replica.node.as_deref()).map(str::to_owned),
                    board: board.map(|board| board.name.device.as_ref().into()),
                    in_flight: choice.in_flight,
                    waiting: choice.waiting,
                }
            }
            Err(refusal) => OutcomeView::Refused { refused: refusal.name().to_owned() },
        };
        PickView { ago_ms: (now - pick.at).0, candidates: pick.candidates, outcome }
    }
}

fn resident<B: Copy>(slot: &fpga_cluster::router::Slot<B>) -> Option<B> {
    slot.resident
}

#[cfg(test)]
mod tests;
