//! The requests of a run: an hour of a trace, compressed in time.

use super::Args;
use crate::modelled::ITEM;
use anyhow::{Result, ensure};
use fpga_sim::trace::{Origin, Request, Trace};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

/// Requests of the synthetic trace in two weeks, as many as the published one has.
const REQUESTS: u64 = 1_980_000;
/// Part of a request that runs on the board (S-9).
const BOARD_PART: f64 = 0.75;
/// Longest board time of a request in the trace's time. A run would last as long as its last request otherwise.
const LONGEST: Duration = Duration::from_secs(120);
/// Most requests that a replica serves at a time, each in a process of its own.
const MAX_WORKERS: usize = 12;

/// The requests of a run.
#[derive(Debug)]
pub(super) struct Plan {
    /// The requests in the order of their arrival.
    pub requests: Vec<Planned>,
    /// For each function, the largest number of its requests that would run at once if none waited.
    pub peaks: Vec<usize>,
    source: String,
}

/// A request of the trace, at its place in the compressed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    /// Time of arrival, from the start of the run.
    pub at: Duration,
    /// Number of the function, from 0.
    pub function: usize,
    /// Number of work items, each of which takes [`ITEM`].
    pub items: u32,
}

impl Planned {
    /// Time that the kernel takes on the board.
    pub fn board(&self) -> Duration {
        ITEM * self.items
    }
}

impl Plan {
    /// Reads the hour of the trace.
    pub fn read(args: &Args) -> Result<Self> {
        let origin = match &args.trace {
            Some(path) => Origin::Azure2021(path.clone()),
            None => Origin::Synthetic { seed: 1, requests: REQUESTS },
        };
        let trace = Trace::open(&origin)?;
        let source = trace.name.clone();
        let begin = f64::from(args.hour) * 3600.0;
        let of_hour: Vec<Request> = trace
            .skip_while(|request| request.at.secs() < begin)
            .take_while(|request| request.at.secs() < begin + 3600.0)
            .enumerate()
            .filter(|(number, _)| draw(number) < args.share)
            .map(|(_, request)| request)
            .collect();
        let names = most_called(&of_hour, args.functions.into());
        ensure!(
            names.len() == usize::from(args.functions),
            "hour {} of the trace has {} functions that use a board; choose another --hour, or fewer --functions",
            args.hour,
            names.len()
        );
        let planned = of_hour.iter().filter_map(|request| {
            let board = Duration::from_secs_f64(request.duration.secs() * BOARD_PART).min(LONGEST);
            let items = (board.mul_f64(args.scale()).as_secs_f64() / ITEM.as_secs_f64()).ceil().max(1.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "at most LONGEST / ITEM"
            )]
            let items = items as u32;
            let at = Duration::from_secs_f64((request.at.secs() - begin) * args.scale());
            // The simulator has whole microseconds.
            let at = Duration::from_micros(u64::try_from(at.as_micros()).ok()?);
            Some(Planned { at, function: *names.get(&request.function)?, items })
        });
        let requests: Vec<Planned> = planned.collect();
        let peaks = (0..names.len()).map(|function| peak(&requests, function)).collect();
        Ok(Self { requests, peaks, source })
    }

    /// The same requests, each up to `most` later.
    pub fn later(&self, most: Duration, seed: u64) -> Self {
        let later = |(number, planned): (usize, &Planned)| {
            let late = most.mul_f64(draw(&(seed, number)));
            // The simulator has whole microseconds.
            let late = Duration::from_micros(u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
            Planned { at: planned.at + late, ..*planned }
        };
        let mut requests: Vec<Planned> = self.requests.iter().enumerate().map(later).collect();
        requests.sort_by_key(|planned| planned.at);
        Self { requests, peaks: self.peaks.clone(), source: self.source.clone() }
    }

    /// Number of requests that a replica of a function should serve at a time.
    pub fn workers(&self, function: usize, replicas: u8) -> usize {
        let peak = self.peaks.get(function).copied().unwrap_or(1);
        (peak.div_ceil(replicas.into()) * 2).clamp(2, MAX_WORKERS)
    }

    /// A description for people.
    pub fn told(&self, args: &Args) -> String {
        let board: Duration = self.requests.iter().map(Planned::board).sum();
        let slots = f64::from(args.nodes) * f64::from(args.slots);
        format!(
            "Modelled boards: the times of kernels and loads are those of a model, none is measured on a board.\n\
             Requests: hour {} of the {} trace, compressed {:.0} times into {} s: {} board requests of {} functions, \
             {} replicas each; the first {} s are not counted.\n\
             Boards: {} with {} slots, {} ms per load ({:.1} ms compressed); {:.0} % of the slots' time is asked for.",
            args.hour,
            self.source,
            1.0 / args.scale(),
            args.seconds,
            self.requests.len(),
            args.functions,
            args.replicas,
            args.warm_up,
            args.nodes,
            args.slots,
            args.reconfiguration_ms,
            args.reconfiguration().as_secs_f64() * 1e3,
            100.0 * board.as_secs_f64() / (slots * f64::from(args.seconds)),
        )
    }
}

/// A number from 0 to 1 for `what`, the same in each run.
pub(crate) fn draw(what: &impl Hash) -> f64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
}

/// New numbers for the functions that are called most.
fn most_called(requests: &[Request], functions: usize) -> HashMap<u32, usize> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for request in requests {
        *counts.entry(request.function).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|(a, more), (b, less)| less.cmp(more).then(a.cmp(b)));
    counts.into_iter().take(functions).enumerate().map(|(number, (function, _))| (function, number)).collect()
}

/// The largest number of requests of a function that would run at once if none waited.
fn peak(requests: &[Planned], function: usize) -> usize {
    let mut ends: Vec<Duration> = Vec::new();
    let mut most = 0;
    for request in requests.iter().filter(|request| request.function == function) {
        ends.retain(|end| *end > request.at);
        ends.push(request.at + request.board());
        most = most.max(ends.len());
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_a_function_counts_its_own_requests_that_overlap() {
        let request =
            |millis, function, items| Planned { at: Duration::from_millis(millis), function, items };
        // Function 0: from 0 to 10 ms, from 5 to 15 ms, from 12 to 13 ms.
        let requests = [request(0, 0, 100), request(1, 1, 500), request(5, 0, 100), request(12, 0, 10)];
        assert_eq!((peak(&requests, 0), peak(&requests, 1), peak(&requests, 2)), (2, 1, 0));
    }

    #[test]
    fn about_the_asked_for_share_of_requests_is_drawn() {
        let drawn = (0..10_000).filter(|number| draw(number) < 0.25).count();
        assert!((2_300..2_700).contains(&drawn), "{drawn}");
    }
}
