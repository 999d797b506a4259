//! `fpga-sim generate`: writes the synthetic trace to a file, and shows the statistics of any trace.

use crate::outcome::Format;
use crate::output::print;
use crate::trace::statistics::Statistics;
use crate::trace::{Origin, Request, Trace};
use anyhow::Context as _;
use clap::Args;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;
use std::path::PathBuf;

/// Prints the statistics of a trace that S-9 reports, and writes the synthetic trace in the schema of 2021 if asked
/// to.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fpga-sim generate --seed 1 --output trace.csv\n  \
                  fpga-sim generate --of AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt")]
pub struct Generate {
    /// Seed of the synthetic trace.
    #[arg(long, env = "FPGA_SIM_TRACE_SEED", default_value_t = 1)]
    seed: u64,
    /// Approximate number of requests of the synthetic trace.
    #[arg(long, env = "FPGA_SIM_REQUESTS", default_value_t = 1_980_000,
          value_parser = clap::value_parser!(u64).range(10_000..=1_000_000_000))]
    requests: u64,
    /// File for the synthetic trace; rows are in the order of ends, as in the published trace.
    #[arg(long, env = "FPGA_SIM_OUTPUT", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Prints the statistics of this file in the schema of 2021, and generates no trace.
    #[arg(long, env = "FPGA_SIM_OF", value_name = "FILE", conflicts_with_all = ["output", "seed", "requests"])]
    of: Option<PathBuf>,
}

impl Generate {
    /// Runs the command.
    ///
    /// # Errors
    /// If a file can't be read or written.
    pub fn run(&self) -> anyhow::Result<()> {
        let origin = match &self.of {
            Some(path) => Origin::Azure2021(path.clone()),
            None => Origin::Synthetic { seed: self.seed, requests: self.requests },
        };
        let mut trace = Trace::open(&origin)?;
        let mut statistics = Statistics::default();
        match &self.output {
            None => trace.by_ref().for_each(|request| statistics.add(&request)),
            Some(path) => {
                let file = std::fs::File::create(path).with_context(|| path.display().to_string())?;
                let mut file = std::io::BufWriter::new(file);
                write_csv(trace.by_ref().inspect(|request| statistics.add(request)), &mut file)?;
                file.flush()?;
            }
        }
        let mut outcome = statistics.outcome();
        outcome.remarks = trace.remarks();
        Ok(print(&outcome.render(Format::Markdown)?)?)
    }
}

/// Writes requests in the order of their ends.
fn write_csv(requests: impl Iterator<Item = Request>, file: &mut impl Write) -> std::io::Result<()> {
    writeln!(file, "app,func,end_timestamp,duration")?;
    let mut running = BinaryHeap::new();
    let row = |file: &mut dyn Write, (end, duration, function, app): (u64, u64, u32, u32)| {
        let seconds = |micros: u64| format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        writeln!(file, "app{app:03},func{function:03},{},{}", seconds(end), seconds(duration))
    };
    for request in requests {
        while let Some(Reverse(first)) = running.peek().copied() {
            let (end, ..): (u64, u64, u32, u32) = first;
            if end > request.at.0 {
                break;
            }
            running.pop();
            row(file, first)?;
        }
        let end = (request.at + request.duration).0;
        running.push(Reverse((end, request.duration.0, request.function, request.app)));
    }
    while let Some(Reverse(last)) = running.pop() {
        row(file, last)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_trace_reads_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        let origin = Origin::Synthetic { seed: 5, requests: 20_000 };
        let requests: Vec<Request> = Trace::open(&origin).unwrap().collect();
        write_csv(requests.iter().copied(), &mut std::fs::File::create(&path).unwrap()).unwrap();
        let back: Vec<Request> = Trace::open(&Origin::Azure2021(path)).unwrap().collect();
        assert_eq!(back.len(), requests.len());
        for (back, request) in back.iter().zip(&requests) {
            assert_eq!(back.at, request.at);
        }
        let durations = |requests: &[Request]| requests.iter().map(|request| request.duration.0).sum::<u64>();
        assert_eq!(durations(&back), durations(&requests));
    }
}
