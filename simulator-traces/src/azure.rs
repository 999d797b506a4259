//! The Azure Functions Invocation Trace 2021: `app,func,end_timestamp,duration`, one row per invocation, times in seconds
//! from the start of the trace.

use serde::Deserialize;
use std::io::Read;
use std::time::Duration;

/// Longest trace that is taken: the published one has two weeks.
const LONGEST: f64 = 366.0 * 86_400.0;

/// One invocation.
#[derive(Debug, Clone, PartialEq)]
pub struct Invocation {
    /// The application (hashed name).
    pub app: String,
    /// The function (hashed name).
    pub function: String,
    /// When it began, from the start of the trace.
    pub start: Duration,
    /// How long it ran.
    pub duration: Duration,
}

/// Why a trace can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It isn't CSV with these columns; the message has the line.
    #[error("the trace is not CSV with the columns app, func, end_timestamp, duration: {0}")]
    Csv(#[from] csv::Error),
    /// A number makes no sense.
    #[error("row {row} of the trace: {column} is {value}; write seconds from 0 to {LONGEST}")]
    Range {
        /// The row, counted from 1, without the header.
        row: usize,
        /// The column.
        column: &'static str,
        /// Its value.
        value: f64,
    },
}

#[derive(Deserialize)]
struct Row {
    app: String,
    func: String,
    end_timestamp: f64,
    duration: f64,
}

/// Reads a trace; the invocations are in the order of their start.
///
/// # Errors
/// [`TraceError`]; nothing is skipped.
pub fn read(csv: impl Read) -> Result<Vec<Invocation>, TraceError> {
    let mut invocations = Vec::new();
    for (index, row) in csv::Reader::from_reader(csv).into_deserialize::<Row>().enumerate() {
        let Row { app, func: function, end_timestamp, duration } = row?;
        for (column, value) in [("end_timestamp", end_timestamp), ("duration", duration)] {
            if !(0.0..=LONGEST).contains(&value) {
                return Err(TraceError::Range { row: index + 1, column, value });
            }
        }
        // What began before the trace did, begins with it.
        let start = Duration::from_secs_f64((end_timestamp - duration).max(0.0));
        invocations.push(Invocation { app, function, start, duration: Duration::from_secs_f64(duration) });
    }
    invocations.sort_by_key(|invocation| invocation.start);
    Ok(invocations)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "app,func,end_timestamp,duration\n";

    #[test]
    fn the_shipped_sample_is_read_whole_and_in_order() {
        let sample = include_bytes!("../traces/azure-functions-2021-sample-200.csv");
        let invocations = read(sample.as_slice()).unwrap();
        assert_eq!(invocations.len(), 199);
        assert!(invocations.is_sorted_by_key(|invocation| invocation.start));
        assert_eq!(invocations[0].duration, Duration::from_millis(78));
    }

    #[test]
    fn an_invocation_starts_its_duration_before_its_end() {
        let invocations = read(format!("{HEADER}a,f,10.5,0.5\na,g,1,2\n").as_bytes()).unwrap();
        assert_eq!(invocations[0].function, "g");
        assert_eq!(invocations[0].start, Duration::ZERO);
        assert_eq!(invocations[1].start, Duration::from_secs(10));
    }

    #[test]
    fn what_is_no_trace_says_why() {
        let error = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
        assert!(error("a,b\n1,2\n").contains("columns app, func, end_timestamp, duration"));
        assert!(error(&format!("{HEADER}a,f,x,1\n")).contains("line: 2"));
        for bad in ["-1", "NaN", "inf", "1e300"] {
            let text = error(&format!("{HEADER}a,f,{bad},1\n"));
            assert!(text.contains("row 1") && text.contains("end_timestamp"), "{text}");
        }
    }
}
