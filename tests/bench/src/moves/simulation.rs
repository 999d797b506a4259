//! The same requests in `fpga-sim`, from the same placement.

use super::{Args, BOARD_TIME, Counted, Moves, Requests};
use crate::modelled::simulated;
use anyhow::{Context as _, Result};
use fpga_sim::placement::engine::Engine;
use fpga_sim::placement::{Scenario, served};
use fpga_sim::trace::{Request, Trace};
use serde_json::json;
use std::time::Duration;

fn scenario(args: &Args, moves: Moves) -> Result<Scenario> {
    let minutes = match moves {
        Moves::Off => 0.0,
        Moves::On => f64::from(args.interval) / 60.0,
    };
    serde_json::from_value(json!({
        "kind": "placement",
        "cluster": {"nodes": args.nodes, "slots": args.slots, "reconfiguration_ms": args.reconfiguration_ms},
        // Each request is its time on the board.
        "workload": {"p": 1.0, "m_ms": 0.0, "r": 1.0},
        "placement": {"replicas": 1, "move_minutes": minutes, "moves": 1, "move_gain": args.least_gain},
        "slots": {"eviction": "predicted", "remembers": "board"},
    }))
    .context("the scenario is wrong")
}

/// Simulates the requests.
pub(super) fn run(args: &Args, moves: Moves, requests: &Requests) -> Result<Counted> {
    let scenario = scenario(args, moves)?;
    let request = |(at, function): &(Duration, usize)| simulated(*at, *function, BOARD_TIME);
    let requests: Vec<Request> = requests.all.iter().map(request).collect::<Result<_>>()?;
    let mut trace = Trace::of("moves", requests.into_iter());
    let placed = args.placed().into_iter().map(|(serves, _)| vec![serves]).collect();
    let (outcome, served) = Engine::new(&scenario)?.placed(placed)?.run_recorded(&mut trace)?;
    let is_cold = |served: &&served::Served| {
        served.start == served::SlotStart::Cold && Duration::from_micros(served.at.0) >= args.counted_from()
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    let moved = outcome.metric("moves").unwrap_or_default() as usize;
    Ok(Counted { cold: served.iter().filter(is_cold).count() as f64, moves: moved })
}
