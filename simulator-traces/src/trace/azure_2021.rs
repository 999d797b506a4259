//! The Azure Functions Invocation Trace 2021: `app,func,end_timestamp,duration`, one row per invocation, times in
//! seconds from the start of the trace.

use super::bad_rows::BadRows;
use serde::Deserialize;
use std::io::Read;
use std::time::Duration;

/// Latest end and longest duration that are accepted, in seconds; the published trace lasts two weeks.
const LONGEST: f64 = 366.0 * 86_400.0;

/// The columns that a trace must have; it may have others.
const COLUMNS: &str = "app, func, end_timestamp, duration";
/// Most characters of an unexpected text that an error message shows.
const SHOWN: usize = 60;

/// One invocation.
#[derive(Debug, Clone, PartialEq)]
pub struct Invocation {
    /// The application (hashed name).
    pub app: String,
    /// The function (hashed name).
    pub function: String,
    /// Time of the start, from the start of the trace.
    pub start: Duration,
    /// Time from start to end.
    pub duration: Duration,
}

/// The reasons for which a trace can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file or folder can't be read.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file or folder.
        path: std::path::PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The first line lacks columns.
    #[error("the trace is not CSV with the columns {COLUMNS}: {}", first_line(.0))]
    Columns(String),
    /// There is no row that can be used.
    #[error("{}: no row can be used{}", path.display(), first_bad(.bad_rows))]
    Empty {
        /// The file or folder.
        path: std::path::PathBuf,
        /// The bad rows of the trace.
        bad_rows: BadRows,
    },
    /// The text isn't CSV with these columns; the message has the line.
    #[error("the trace is not CSV with the columns {COLUMNS}: {0}")]
    Csv(#[from] csv::Error),
    /// A number is out of range.
    #[error("line {line} of the trace: {column} is {value}; write seconds from 0 to {LONGEST}")]
    Range {
        /// The line, counted from 1, including the header.
        line: u64,
        /// The column.
        column: &'static str,
        /// The first characters of the value.
        value: String,
    },
}

/// The first [`SHOWN`] characters of `text`.
fn beginning(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

fn first_line(found: &str) -> String {
    if found.is_empty() { "it is empty".to_owned() } else { format!("its first line is {found:?}") }
}

fn first_bad(bad_rows: &BadRows) -> String {
    match bad_rows.first.first() {
        Some(row) => format!(" of {}; {row}", bad_rows.count),
        None => ": it has none but the header; write one row per invocation".to_owned(),
    }
}

#[derive(Deserialize)]
struct Row<'a> {
    app: &'a str,
    func: &'a str,
    end_timestamp: &'a str,
    duration: &'a str,
}

/// An iterator over the invocations of a trace, which reads one row at a time. Rows are in the order of their ends.
///
/// A bad row is an item too; the rows after it can still be read.
pub struct Invocations<R> {
    rows: csv::Reader<R>,
    columns: Option<csv::StringRecord>,
    row: csv::StringRecord,
    over: bool,
}

impl<R: Read> Invocations<R> {
    /// An iterator over the invocations of `csv`, which may be larger than memory.
    pub fn new(csv: R) -> Self {
        let rows = csv::Reader::from_reader(csv);
        Self { rows, columns: None, row: csv::StringRecord::new(), over: false }
    }

    fn read_row(&mut self) -> Result<Option<Invocation>, TraceError> {
        if self.over {
            return Ok(None);
        }
        let columns = match &self.columns {
            Some(columns) => columns,
            None => {
                let columns = self.rows.headers()?.clone();
                if !COLUMNS.split(", ").all(|column| columns.iter().any(|is| is == column)) {
                    // Stop after this error: a text without these columns has no rows of a trace.
                    self.over = true;
                    let found = columns.iter().collect::<Vec<_>>().join(",");
                    return Err(TraceError::Columns(beginning(&found)));
                }
                self.columns.insert(columns)
            }
        };
        if !self.rows.read_record(&mut self.row)? {
            return Ok(None);
        }
        let Row { app, func, end_timestamp, duration } = self.row.deserialize(Some(columns))?;
        let seconds = |column: &'static str, value: &str| {
            value.parse().ok().filter(|seconds| (0.0..=LONGEST).contains(seconds)).ok_or_else(|| {
                let line = self.row.position().map_or(0, csv::Position::line);
                TraceError::Range { line, column, value: beginning(value) }
            })
        };
        let (end_timestamp, duration) =
            (seconds("end_timestamp", end_timestamp)?, seconds("duration", duration)?);
        // An invocation that began before the trace starts at zero.
        let start = Duration::from_secs_f64((end_timestamp - duration).max(0.0));
        let duration = Duration::from_secs_f64(duration);
        Ok(Some(Invocation { app: app.to_owned(), function: func.to_owned(), start, duration }))
    }
}

impl<R: Read> Iterator for Invocations<R> {
    type Item = Result<Invocation, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_row().transpose()
    }
}

/// Reads a whole trace and sorts the invocations by their start.
///
/// # Errors
/// The first [`TraceError`]: a single bad row makes the whole trace fail.
pub fn read(csv: impl Read) -> Result<Vec<Invocation>, TraceError> {
    let mut invocations = Invocations::new(csv).collect::<Result<Vec<_>, _>>()?;
    invocations.sort_by_key(|invocation| invocation.start);
    Ok(invocations)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "app,func,end_timestamp,duration\n";

    #[test]
    fn the_shipped_sample_is_read_whole_and_in_order() {
        let sample = include_bytes!("../../traces/azure-functions-2021-sample-200.csv");
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
        assert!(error("").ends_with("it is empty"));
        for bad in ["-1", "NaN", "inf", "1e300", "x", ""] {
            let text = error(&format!("{HEADER}a,f,{bad},1\n"));
            assert!(text.contains("line 2") && text.contains("end_timestamp"), "{text}");
        }
    }

    #[test]
    fn a_stream_goes_on_after_a_bad_row() {
        let text = format!("{HEADER}a,f,2,1\na,f,-1,1\na,f\na,f,x,1\na,g,4,1\n");
        let items: Vec<_> = Invocations::new(text.as_bytes()).collect();
        let lines = ["line 3", "line: 4", "line 5"];
        for (item, line) in items[1..4].iter().zip(lines) {
            let error = item.as_ref().unwrap_err().to_string();
            assert!(error.contains(line), "{error}");
        }
        assert_eq!(items[0].as_ref().unwrap().start, Duration::from_secs(1));
        assert_eq!(items[4].as_ref().unwrap().function, "g");
        assert_eq!(items.len(), 5);
    }
}
