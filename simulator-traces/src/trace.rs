//! Requests in the order in which they arrive, from wherever they come: one at a time, in memory that doesn't grow with
//! the length of the trace.

pub mod azure_2019;
pub mod file;
pub mod statistics;
pub mod synthetic;

use crate::azure::TraceError;
use crate::time::{Micros, SimTime};
use std::path::PathBuf;

/// Most bad rows that are told one by one; all are counted.
pub const TOLD_BAD_ROWS: usize = 20;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When it arrives.
    pub at: SimTime,
    /// How long it runs if it waits for nothing.
    pub duration: Micros,
    /// Its function: a number from 0, in the order of first sight.
    pub function: u32,
    /// The function's application, numbered in the same way.
    pub app: u32,
}

/// Where requests come from, all that is needed to open it (again).
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// Made up by [`synthetic`].
    Synthetic {
        /// Of all that is random in it.
        seed: u64,
        /// How many.
        requests: u64,
    },
    /// A file with the schema of the Azure Functions Invocation Trace 2021.
    Azure2021(PathBuf),
    /// A folder with files of the Azure Functions Dataset 2019.
    Azure2019 {
        /// The folder.
        folder: PathBuf,
        /// Of the moments within a minute and the durations, which the dataset doesn't have.
        seed: u64,
    },
}

/// An open trace.
pub struct Trace {
    requests: Box<dyn Iterator<Item = Result<Request, BadRow>> + Send>,
    /// Which it is, for people.
    pub name: String,
    /// Nothing begins after this; only for those who want to know how far they are.
    pub end: SimTime,
    /// The rows that could not be used.
    pub bad_rows: BadRows,
}

/// A row that can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// The line, from 1; the header counts.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

/// All rows that could not be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BadRows {
    /// How many.
    pub count: u64,
    /// The first [`TOLD_BAD_ROWS`].
    pub first: Vec<BadRow>,
}

impl Trace {
    /// Opens it.
    ///
    /// # Errors
    /// [`TraceError`] if there is nothing to read.
    pub fn open(origin: &Origin) -> Result<Self, TraceError> {
        type Requests = Box<dyn Iterator<Item = Result<Request, BadRow>> + Send>;
        let (requests, name, end): (Requests, String, SimTime) = match origin {
            Origin::Synthetic { seed, requests } => (
                Box::new(synthetic::Synthetic::new(*seed, *requests).map(Ok)),
                format!("synthetic, seed {seed}, {requests} requests in two weeks (statistics of S-9)"),
                SimTime::from_secs(synthetic::DAYS * 86_400.0),
            ),
            Origin::Azure2021(path) => {
                let ordered = file::Ordered::open(path)?;
                let end = ordered.end();
                (Box::new(ordered), format!("Azure 2021 schema, {}", file::shown(path)), end)
            }
            Origin::Azure2019 { folder, seed } => {
                let requests = azure_2019::Requests::open(folder, *seed)?;
                let end = requests.end();
                (Box::new(requests), format!("Azure 2019 schema, {}", file::shown(folder)), end)
            }
        };
        Ok(Self { requests, name, end, bad_rows: BadRows::default() })
    }

    /// These requests, which must be in the order of their arrivals.
    #[must_use]
    pub fn of(name: &str, requests: impl Iterator<Item = Request> + Send + 'static) -> Self {
        let bad_rows = BadRows::default();
        Self { requests: Box::new(requests.map(Ok)), name: name.to_owned(), end: SimTime::END, bad_rows }
    }

    /// What to remark about it wherever its numbers are shown.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = vec![format!("Trace: {}.", self.name)];
        if self.bad_rows.count > 0 {
            let told: Vec<String> = self.bad_rows.first.iter().map(BadRow::to_string).collect();
            let more = if self.bad_rows.count > told.len() as u64 { "; …" } else { "" };
            remarks.push(format!("Bad rows, left out: {} ({}{more}).", self.bad_rows.count, told.join("; ")));
        }
        remarks
    }
}

impl Iterator for Trace {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        loop {
            match self.requests.next()? {
                Ok(request) => return Some(request),
                Err(bad) => self.bad_rows.add(bad),
            }
        }
    }
}

impl BadRows {
    /// One more.
    pub fn add(&mut self, row: BadRow) {
        self.count += 1;
        if self.first.len() < TOLD_BAD_ROWS {
            self.first.push(row);
        }
    }
}

impl std::fmt::Display for BadRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}
