//! The same requests in `fpga-sim`, with the replicas on the nodes of the live cluster.

use super::plan::{Plan, Planned, draw};
use super::report::{Served, Totals};
use super::{Args, Routing};
use crate::modelled::simulated;
use anyhow::{Context as _, Result, ensure};
use fpga_sim::placement::engine::Engine;
use fpga_sim::placement::{Scenario, served};
use fpga_sim::time::Micros;
use fpga_sim::trace::{Request, Trace};
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Seconds between two states of a busy node, and milliseconds until the picker has one.
const FRESHNESS: (f64, f64) = (0.5, 50.0);

/// Number of simulations with other arrivals.
const DRAWS: u64 = 40;
/// How much later a request may arrive in one of them: as much as the way of live requests differs (p50 to p99).
const LATER: Duration = Duration::from_millis(2);

/// The scenario of the run, in which half of `way` is before the board.
fn scenario(args: &Args, routing: Routing, way: Duration) -> Result<Scenario> {
    let half_ms = way.as_secs_f64() * 1e3 / 2.0;
    serde_json::from_value(json!({
        "kind": "placement",
        "cluster": {
            "nodes": args.nodes,
            "slots": args.slots,
            "reconfiguration_ms": args.reconfiguration().as_secs_f64() * 1e3,
            "network_ms": half_ms,
        },
        // Each request of the plan is its time on the board.
        "workload": {"p": 1.0, "m_ms": 0.0, "r": 1.0},
        "placement": {"replicas": args.replicas},
        "routing": {"policy": routing.policy(), "way_ms": half_ms},
        "freshness": {"interval_s": FRESHNESS.0, "delay_ms": FRESHNESS.1},
        "slots": {"eviction": "predicted", "remembers": "board"},
    }))
    .context("the scenario is wrong")
}

/// Simulates the requests. The results are those after the warm-up, in the order of the plan.
pub(super) fn run(
    args: &Args,
    routing: Routing,
    plan: &Plan,
    placed: Vec<Vec<u32>>,
    way: Duration,
) -> Result<(Vec<Served>, Totals)> {
    let scenario = scenario(args, routing, way)?;
    let request = |planned: &Planned| simulated(planned.at, planned.function, planned.board());
    let requests: Vec<Request> = plan.requests.iter().map(request).collect::<Result<_>>()?;
    let mut trace = Trace::of("live", requests.into_iter());
    let (_, mut served) = Engine::new(&scenario)?.placed(placed)?.run_recorded(&mut trace)?;
    // A device manager does not see the time before a request reaches it.
    let before = Micros::from_millis(scenario.cluster.network_ms);
    served.iter_mut().for_each(|served| served.wait = served.wait - before);
    let counted = |served: &&served::Served| Duration::from_micros(served.at.0) >= args.warm_up();
    let cold = |served: &&served::Served| served.start == served::SlotStart::Cold;
    let totals = Totals {
        cold: served.iter().filter(counted).filter(cold).count() as f64,
        wait_seconds: served.iter().filter(counted).map(|served| served.wait.secs()).sum(),
    };
    let mut served = in_order(plan, served, args.reconfiguration())?;
    served.retain(|served| served.planned.at >= args.warm_up());
    Ok((served, totals))
}

/// Whether the order in which a function's replicas take turns is that of the live system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// The order of the live system.
    Live,
    /// Nobody knows that order: any may be.
    Any,
}

/// Simulates the requests [`DRAWS`] times, and returns the sums of each. Each time requests arrive up to [`LATER`] later,
/// and turns that nobody knows have another order. One request that takes another slot changes what all later ones find,
/// so that a figure of one run, simulated or live, is one draw of many.
pub(super) fn draws(
    args: &Args,
    routing: Routing,
    plan: &Plan,
    (placed, turns): (&[Vec<u32>], Turns),
    way: Duration,
) -> Result<Vec<Totals>> {
    let one = |seed| {
        let in_turn = |(function, nodes): (usize, &Vec<u32>)| match turns {
            Turns::Live => nodes.clone(),
            Turns::Any => shuffled(nodes, (seed, function)),
        };
        let placed = placed.iter().enumerate().map(in_turn).collect();
        run(args, routing, &plan.later(LATER, seed), placed, way).map(|(_, totals)| totals)
    };
    (0..DRAWS).map(one).collect()
}

/// The nodes of each function's replicas in the order in which they took turns in the live system.
pub(super) fn in_order_of_turns(live: &[Served], placed: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    let of_function = |(function, mut nodes): (usize, Vec<u32>)| {
        let asked =
            live.iter().filter(|served| served.planned.function == function).map(|served| served.node);
        let mut turns = Vec::new();
        for node in asked.take(nodes.len()) {
            if let Some(place) = nodes.iter().position(|it| *it == node) {
                turns.push(nodes.remove(place));
            }
        }
        // A function with fewer requests than replicas.
        turns.extend(nodes);
        turns
    };
    placed.into_iter().enumerate().map(of_function).collect()
}

/// The nodes in an order that follows from `seed`.
fn shuffled(nodes: &[u32], seed: (u64, usize)) -> Vec<u32> {
    let mut drawn: Vec<(f64, u32)> =
        nodes.iter().enumerate().map(|(place, node)| (draw(&(seed, place)), *node)).collect();
    drawn.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    drawn.into_iter().map(|(_, node)| node).collect()
}

/// Replicas on nodes in turn.
pub(super) fn spread(functions: u32, replicas: u8, nodes: u8) -> Vec<Vec<u32>> {
    let (replicas, nodes) = (u32::from(replicas), u32::from(nodes));
    (0..functions)
        .map(|function| (0..replicas).map(|turn| (function * replicas + turn) % nodes).collect())
        .collect()
}

/// The simulated requests in the order of the plan, by function and time of arrival.
fn in_order(plan: &Plan, served: Vec<served::Served>, load: Duration) -> Result<Vec<Served>> {
    ensure!(served.len() == plan.requests.len(), "the simulator served {} requests", served.len());
    let mut of_arrival: HashMap<(usize, Duration), VecDeque<served::Served>> = HashMap::new();
    for served in served {
        let at = Duration::from_micros(served.at.0);
        of_arrival.entry((served.unit as usize, at)).or_default().push_back(served);
    }
    let find = |planned: &Planned| {
        let served = of_arrival.get_mut(&(planned.function, planned.at)).and_then(VecDeque::pop_front);
        let served = served.context("the simulator left a request out")?;
        Ok(Served {
            planned: *planned,
            node: served.node,
            before_start: Duration::from_micros(served.wait.0)
                + match served.start {
                    served::SlotStart::Warm => Duration::ZERO,
                    served::SlotStart::Cold => load,
                },
            took: None,
        })
    };
    plan.requests.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_taken_in_the_order_of_the_live_system() {
        let live = |function, node| Served {
            planned: Planned { at: Duration::ZERO, function, items: 1 },
            node,
            before_start: Duration::ZERO,
            took: None,
        };
        // Function 0 has two replicas on node 4; function 1 was asked once only.
        let live = [live(0, 4), live(1, 5), live(0, 2), live(0, 4), live(0, 4)];
        let turns = in_order_of_turns(&live, vec![vec![2, 4, 4], vec![3, 5, 6]]);
        assert_eq!(turns, [vec![4, 2, 4], vec![5, 3, 6]]);
    }
}
