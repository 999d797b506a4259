//! Converts a trace to the calls of the demo. Pure except for reading the file.

use crate::functions::Function;
use anyhow::{Context as _, Result};
use fpga_sim::trace::azure_2021;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

const SAMPLE: &[u8] = include_bytes!("../../../simulator-traces/traces/azure-functions-2021-sample-200.csv");
/// An invocation of the trace becomes a burst of calls: one call for each such part of its compressed duration.
const PIECE: Duration = Duration::from_millis(250);
/// Most calls of a burst; some invocations of the trace run for minutes.
const LONGEST_BURST: u32 = 12;

/// The calls of the demo and their times.
#[derive(Debug)]
pub(super) struct Plan {
    /// The invocations in the order of their start.
    pub invocations: Vec<Planned>,
    /// Number of functions in the trace.
    pub trace_functions: usize,
    /// The time that the trace covers.
    pub span: Duration,
    /// Description of the trace's source.
    pub source: String,
    scale: f64,
}

/// One invocation of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    /// Time of the start, from the start of the demo.
    pub at: Duration,
    /// The called function.
    pub function: Function,
    /// Number of calls, one after the other.
    pub calls: u32,
}

impl Plan {
    /// Reads a trace, or the shipped sample, and compresses it into `time`.
    pub fn read(trace: Option<&Path>, time: Duration) -> Result<Self> {
        let (invocations, source) = match trace {
            Some(path) => {
                let file =
                    std::fs::File::open(path).with_context(|| format!("can't open {}", path.display()))?;
                (azure_2021::read(std::io::BufReader::new(file))?, path.display().to_string())
            }
            None => (azure_2021::read(SAMPLE)?, "a sample of the Azure Functions 2021 trace".to_owned()),
        };
        Ok(Self::compress(&invocations, time, source))
    }

    /// Compressed time divided by the trace's time: 0.05 is twenty times as fast as the trace.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    fn compress(invocations: &[azure_2021::Invocation], time: Duration, source: String) -> Self {
        let span = invocations.iter().map(|invocation| invocation.start).max().unwrap_or_default();
        let scale = if span.is_zero() { 1.0 } else { time.as_secs_f64() / span.as_secs_f64() };
        let stand_ins = stand_ins(invocations);
        let planned = invocations.iter().filter_map(|invocation| {
            let function = *stand_ins.get(invocation.function.as_str())?;
            let pieces = (invocation.duration.mul_f64(scale).as_secs_f64() / PIECE.as_secs_f64()).ceil();
            let calls = (1..LONGEST_BURST).find(|calls| f64::from(*calls) >= pieces).unwrap_or(LONGEST_BURST);
            Some(Planned { at: invocation.start.mul_f64(scale), function, calls })
        });
        Self { invocations: planned.collect(), trace_functions: stand_ins.len(), span, source, scale }
    }
}

/// The demo's function for each function of the trace. The trace's functions are assigned in turn, by descending
/// number of invocations, so that each of ours gets a similar load.
fn stand_ins(invocations: &[azure_2021::Invocation]) -> HashMap<&str, Function> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for invocation in invocations {
        *counts.entry(&invocation.function).or_default() += 1;
    }
    let mut names: Vec<_> = counts.into_iter().collect();
    names.sort_by(|(a, more), (b, less)| less.cmp(more).then(a.cmp(b)));
    names.into_iter().map(|(name, _)| name).zip(Function::WITH_ONE_KERNEL.into_iter().cycle()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_fits_into_the_time_and_uses_every_function() {
        let plan = Plan::read(None, Duration::from_secs(60)).unwrap();
        assert_eq!(plan.invocations.len(), 199);
        assert!(plan.invocations.iter().all(|planned| planned.at <= Duration::from_secs(60)));
        assert!(plan.invocations.iter().all(|planned| (1..=LONGEST_BURST).contains(&planned.calls)));
        for function in Function::WITH_ONE_KERNEL {
            assert!(plan.invocations.iter().filter(|planned| planned.function == function).count() >= 20);
        }
    }

    #[test]
    fn an_empty_trace_is_an_empty_plan() {
        let plan = Plan::compress(&[], Duration::from_secs(60), String::new());
        assert!(plan.invocations.is_empty());
    }
}
