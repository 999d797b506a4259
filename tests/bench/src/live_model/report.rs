//! What became of the requests, live and simulated, side by side.

use super::Routing;
use super::plan::Planned;
use crate::modelled::Late;
use crate::report::Sorted;
use std::fmt::{self, Write as _};
use std::ops::Sub;
use std::time::Duration;

/// Difference up to which live and simulated figures agree, as a part of the simulated one.
const AGREES: f64 = 0.1;
/// Mean waits agree, too, if they differ by no more than this: a machine's timers are not more exact.
const AGREES_WAIT: Duration = Duration::from_millis(1);

/// A request that was served.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served {
    /// The request.
    pub planned: Planned,
    /// Number of the node that served it.
    pub node: u32,
    /// Time that it waited for a slot and for its bitstream; in the live system with the way to the manager, since a
    /// program can't tell these apart.
    pub before_start: Duration,
    /// Time from sending the request to its answer; `None` in the simulator.
    pub took: Option<Duration>,
}

/// Sums over all requests: in the live system those of the device managers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    /// Bitstreams that were loaded.
    pub cold: f64,
    /// Time that requests waited for slots.
    pub wait_seconds: f64,
}

impl Sub for Totals {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { cold: self.cold - before.cold, wait_seconds: self.wait_seconds - before.wait_seconds }
    }
}

/// Live and simulated results for the same requests, in the same order.
#[derive(Debug)]
pub(super) struct Comparison {
    pub routing: Routing,
    /// Time of a request beside its board, as the simulator has it.
    pub way: Duration,
    pub live: (Vec<Served>, Totals),
    pub simulated: Vec<Served>,
    /// The sums of several simulations.
    pub draws: Vec<Totals>,
    pub late: Late,
}

/// A figure of several simulations.
#[derive(Debug, Clone, Copy)]
struct Spread {
    mean: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(figures: impl Iterator<Item = f64> + Clone) -> Self {
        let count = figures.clone().count().max(1) as f64;
        Self {
            mean: figures.clone().sum::<f64>() / count,
            least: figures.clone().fold(f64::INFINITY, f64::min),
            most: figures.fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// What the report says of a live figure.
    fn verdict(self, live: f64, tolerance: f64) -> &'static str {
        if (live - self.mean).abs() <= tolerance {
            "reached"
        } else if (self.least..=self.most).contains(&live) {
            "MISSED, but among what fpga-sim has itself"
        } else {
            "MISSED"
        }
    }
}

/// The median time of a live request beside its board: all but the kernel, and but the waiting before its start. What is
/// before the start of a request that neither waits nor loads is a part of the way.
pub(super) fn way(live: &[Served], load: Duration) -> Duration {
    let undelayed = live.iter().map(|live| live.before_start).filter(|before| *before < load);
    overhead(live).percentile(50) + Sorted::new(undelayed.collect()).percentile(50)
}

/// Time of each request beside the kernel and what is before its start: HTTP, the client library, and the machine.
fn overhead(live: &[Served]) -> Sorted {
    let of = |live: &Served| Some(live.took?.saturating_sub(live.before_start + live.planned.board()));
    Sorted::new(live.iter().filter_map(of).collect())
}

impl Comparison {
    /// The requests as CSV, one in each line, live beside simulated.
    pub fn csv(&self) -> String {
        let mut text = "routing,at_us,function,board_us,live_node,live_before_start_us,live_took_us,\
                        simulated_node,simulated_before_start_us\n"
            .to_owned();
        for (live, simulated) in self.live.0.iter().zip(&self.simulated) {
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{}",
                self.routing.policy(),
                live.planned.at.as_micros(),
                live.planned.function,
                live.planned.board().as_micros(),
                live.node,
                live.before_start.as_micros(),
                live.took.unwrap_or_default().as_micros(),
                simulated.node,
                simulated.before_start.as_micros(),
            );
        }
        text
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, live: f64, simulated: f64, range: &str| {
            let difference = if simulated > 0.0 { 100.0 * (live / simulated - 1.0) } else { 0.0 };
            writeln!(f, "| {name} | {live:.2} | {simulated:.2} | {difference:+.1} % | {range} |")
        };
        let requests = self.live.0.len().max(1) as f64;
        let wait_ms = |totals: &Totals| totals.wait_seconds * 1e3 / requests;
        let (cold, wait) = (self.live.1.cold, wait_ms(&self.live.1));
        let colds = Spread::of(self.draws.iter().map(|totals| totals.cold));
        let waits = Spread::of(self.draws.iter().map(wait_ms));
        let [of_live, of_simulated] = [&self.live.0, &self.simulated]
            .map(|served| Sorted::new(served.iter().map(|served| served.before_start).collect()));
        writeln!(
            f,
            "| modelled boards, {} | live | fpga-sim | difference | {} runs of fpga-sim |\n|---|---|---|---|---|",
            self.routing,
            self.draws.len()
        )?;
        row(f, "requests", requests, self.simulated.len() as f64, "")?;
        let range = |spread: Spread| format!("{:.2} to {:.2}", spread.least, spread.most);
        row(f, "cold starts", cold, colds.mean, &range(colds))?;
        row(f, "mean wait for a slot, ms", wait, waits.mean, &range(waits))?;
        for percent in [50, 90, 99] {
            let [live, simulated] =
                [&of_live, &of_simulated].map(|sorted| sorted.percentile(percent).as_secs_f64());
            row(
                f,
                &format!("wait and load, p{percent}, ms (live: and the way)"),
                live * 1e3,
                simulated * 1e3,
                "",
            )?;
        }
        writeln!(
            f,
            "\nTime of a request beside that and the kernel: {}. fpga-sim has {:.2} ms for the way.",
            overhead(&self.live.0).told(),
            self.way.as_secs_f64() * 1e3
        )?;
        writeln!(f, "{}.", self.late)?;
        if self.late.is_void() {
            writeln!(f, "VOID: the machine was too slow for this model. Choose more --seconds.")?;
        }
        write!(
            f,
            "Goal, within 10 %: cold starts {}, mean wait {}.",
            colds.verdict(cold, AGREES * colds.mean),
            waits.verdict(wait, (AGREES * waits.mean).max(AGREES_WAIT.as_secs_f64() * 1e3))
        )
    }
}

/// The figures of the simulator alone, as text.
pub(super) fn summary(name: &str, requests: usize, draws: &[Totals]) -> String {
    let colds = Spread::of(draws.iter().map(|totals| totals.cold));
    let waits = Spread::of(draws.iter().map(|totals| totals.wait_seconds * 1e3 / requests.max(1) as f64));
    format!(
        "{name}, {} runs: {:.1} cold starts ({} to {}), mean wait {:.2} ms ({:.2} to {:.2})",
        draws.len(),
        colds.mean,
        colds.least,
        colds.most,
        waits.mean,
        waits.least,
        waits.most
    )
}
