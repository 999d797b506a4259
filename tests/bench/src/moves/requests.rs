//! The requests of a run.

use super::{Args, Arrivals};
use fpga_tests::testbed::chance::Chance;
use std::time::Duration;

/// The requests in the order of their arrival.
#[derive(Debug)]
pub(super) struct Requests {
    /// Moment of arrival from the start of the run, in whole microseconds, and number of the function.
    pub all: Vec<(Duration, usize)>,
}

impl Requests {
    /// The requests of a seed.
    pub fn new(args: &Args, seed: u64) -> Self {
        let functions = usize::from(args.functions);
        let mut all: Vec<(Duration, usize)> = match args.arrivals {
            Arrivals::Random => {
                (0..functions).flat_map(|function| of_function(args, seed, function)).collect()
            }
            Arrivals::InTurn => {
                let apart = 1.0 / (args.rate * functions as f64);
                let moment = |turn: usize| turn as f64 * apart;
                let turns = (0..).map(|turn| (moment(turn), turn % functions));
                let turns = turns.take_while(|(at, _)| *at < f64::from(args.seconds));
                turns.map(|(at, function)| (micros(at), function)).collect()
            }
        };
        all.sort();
        Self { all }
    }
}

/// Number of different gaps between requests.
const MANY: u64 = 1 << 40;

fn of_function(args: &Args, seed: u64, function: usize) -> Vec<(Duration, usize)> {
    let mut chance = Chance::new(seed.wrapping_mul(1_000).wrapping_add(function as u64));
    let (mut at, mut requests) = (0.0, Vec::new());
    loop {
        // Above 0, so that it has a logarithm.
        let part = (chance.below(MANY) + 1) as f64 / MANY as f64;
        at -= part.ln() / args.rate;
        if at >= f64::from(args.seconds) {
            return requests;
        }
        requests.push((micros(at), function));
    }
}

/// The simulator has whole microseconds.
fn micros(seconds: f64) -> Duration {
    Duration::from_micros(u64::try_from(Duration::from_secs_f64(seconds).as_micros()).unwrap_or(u64::MAX))
}
