//! Converts a trace to the calls of the demo. Pure except for reading the file.

use crate::functions::Function;
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

const SAMPLE: &str = include_str!("../../../simulator-traces/traces/azure-functions-2021-sample-200.csv");
/// The first line of a trace; times are in seconds.
const HEADER: &str = "app,func,end_timestamp,duration";
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

/// One invocation of the trace.
#[derive(Debug)]
struct Invocation {
    function: String,
    /// Time of the start, from the start of the trace.
    start: Duration,
    duration: Duration,
}

impl Plan {
    /// Reads a trace, or the shipped sample, and compresses it into `time`.
    pub fn read(trace: Option<&Path>, time: Duration) -> Result<Self> {
        let (invocations, source) = match trace {
            Some(path) => {
                let csv = std::fs::read_to_string(path)
                    .with_context(|| format!("can't read {}", path.display()))?;
                (invocations(&csv)?, path.display().to_string())
            }
            None => (invocations(SAMPLE)?, "a sample of the Azure Functions 2021 trace".to_owned()),
        };
        Ok(Self::compress(&invocations, time, source))
    }

    /// Compressed time divided by the trace's time: 0.05 is twenty times as fast as the trace.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    fn compress(invocations: &[Invocation], time: Duration, source: String) -> Self {
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

/// The invocations of an Azure Functions Invocation Trace 2021 in the order of their start.
///
/// The simulator has a reader for whole traces, but the demo would need minutes more to build with the simulator.
fn invocations(csv: &str) -> Result<Vec<Invocation>> {
    let mut rows = csv.lines();
    let header = rows.next().unwrap_or_default();
    ensure!(header == HEADER, "the trace's first line is {header:?}; it must be {HEADER}");
    let seconds =
        |text: &str| text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let invocation = |(index, row): (usize, &str)| {
        let cells: Vec<&str> = row.split(',').collect();
        let [_, function, end, duration] = cells[..] else { bail!("line {} is not {HEADER}", index + 2) };
        let (Some(end), Some(duration)) = (seconds(end), seconds(duration)) else {
            bail!("line {}: a time is no number of seconds", index + 2)
        };
        // An invocation that began before the trace starts at zero.
        Ok(Invocation { function: function.to_owned(), start: end.saturating_sub(duration), duration })
    };
    let mut invocations = rows.enumerate().map(invocation).collect::<Result<Vec<_>>>()?;
    invocations.sort_by_key(|invocation| invocation.start);
    Ok(invocations)
}

/// The demo's function for each function of the trace. The trace's functions are assigned in turn, by descending
/// number of invocations, so that each of ours gets a similar load.
fn stand_ins(invocations: &[Invocation]) -> HashMap<&str, Function> {
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
    fn an_invocation_starts_its_duration_before_its_end_and_a_bad_row_is_told_by_its_line() {
        let read = invocations(&format!("{HEADER}\na,f,10.5,0.5\na,g,1,2\n")).unwrap();
        assert_eq!((read[0].function.as_str(), read[0].start), ("g", Duration::ZERO));
        assert_eq!((read[1].function.as_str(), read[1].start), ("f", Duration::from_secs(10)));
        for row in ["a,f,-1,1", "a,f,1,NaN", "a,f"] {
            let error = invocations(&format!("{HEADER}\n{row}\n")).unwrap_err().to_string();
            assert!(error.starts_with("line 2"), "{error}");
        }
    }

    #[test]
    fn an_empty_trace_is_an_empty_plan() {
        let plan = Plan::compress(&[], Duration::from_secs(60), String::new());
        assert!(plan.invocations.is_empty());
    }
}
