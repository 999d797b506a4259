//! Rows of a trace that are not valid requests: they are counted, and the first ones are kept for the report.

/// Number of bad rows that are kept; all are counted.
pub const TOLD_BAD_ROWS: usize = 20;

/// A row that is not a valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Line of the row, counted from 1, including the header.
    pub line: u64,
    /// Description of the error.
    pub why: String,
}

/// The bad rows of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BadRows {
    /// Number of bad rows.
    pub count: u64,
    /// The first [`TOLD_BAD_ROWS`] bad rows.
    pub first: Vec<BadRow>,
}

impl BadRows {
    /// Counts a bad row.
    pub fn add(&mut self, row: BadRow) {
        self.count += 1;
        if self.first.len() < TOLD_BAD_ROWS {
            self.first.push(row);
        }
    }

    /// Counts the bad rows of `later`, which come after these.
    pub fn append(&mut self, later: Self) {
        self.count += later.count;
        self.first.extend(later.first);
        self.first.truncate(TOLD_BAD_ROWS);
    }
}

impl From<BadRow> for BadRows {
    fn from(row: BadRow) -> Self {
        Self { count: 1, first: vec![row] }
    }
}

impl std::fmt::Display for BadRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}
