//! The outcome of a run: named numbers, tables and remarks. All kinds of scenarios have the same type of outcome, so
//! that sweeps and documents don't depend on the kind.

use clap::ValueEnum;
use std::fmt::Write as _;

/// The outcome of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Named numbers in the order in which they are shown. Names end with the unit (`_s`, `_share`).
    pub metrics: Vec<(String, f64)>,
    /// Tables that are shown.
    pub tables: Vec<Table>,
    /// Tables with too many rows to be shown. They are written as CSV files, named by their titles, for figures.
    pub series: Vec<Table>,
    /// Remarks needed to interpret the numbers; the first one names the trace.
    pub remarks: Vec<String>,
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// Title of the table.
    pub title: String,
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// Rows, each with its cells in the order of the columns.
    pub rows: Vec<Vec<String>>,
}

/// The formats in which an outcome is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Markdown,
    /// For programs.
    Json,
}

impl Outcome {
    /// The value of the metric `name`.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(is, _)| is == name).map(|(_, value)| *value)
    }

    /// Appends a metric.
    pub fn push(&mut self, name: &str, value: f64) {
        self.metrics.push((name.to_owned(), value));
    }

    /// The outcome as text.
    ///
    /// # Errors
    /// If it can't be serialized as JSON.
    pub fn render(&self, format: Format) -> Result<String, serde_json::Error> {
        match format {
            Format::Markdown => Ok(self.markdown()),
            Format::Json => self.json(),
        }
    }

    fn markdown(&self) -> String {
        let mut text = String::new();
        for remark in &self.remarks {
            let _ = writeln!(text, "{remark}\n");
        }
        let rows = self.metrics.iter().map(|(name, value)| vec![name.clone(), number(*value)]).collect();
        let columns = vec!["metric".to_owned(), "value".to_owned()];
        text.push_str(&Table { title: String::new(), columns, rows }.markdown());
        for table in &self.tables {
            text.push('\n');
            text.push_str(&table.markdown());
        }
        text
    }

    fn json(&self) -> Result<String, serde_json::Error> {
        let metrics: serde_json::Map<String, serde_json::Value> =
            self.metrics.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
        let tables: Vec<_> = self
            .tables
            .iter()
            .map(|table| {
                serde_json::json!({ "title": table.title, "columns": table.columns, "rows": table.rows })
            })
            .collect();
        let all = serde_json::json!({ "remarks": self.remarks, "metrics": metrics, "tables": tables });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }
}

impl Table {
    /// A table for [`Outcome::series`].
    #[must_use]
    pub fn series(title: &str, columns: &[&str], rows: Vec<Vec<String>>) -> Self {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        Self { title: title.to_owned(), columns, rows }
    }

    /// The table in Markdown, below its title.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        if !self.title.is_empty() {
            let _ = writeln!(text, "**{}**\n", self.title);
        }
        let _ = writeln!(text, "| {} |", self.columns.join(" | "));
        let _ = writeln!(text, "|{}", "---|".repeat(self.columns.len()));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text
    }

    /// The table as comma-separated values.
    ///
    /// # Errors
    /// If a row has another number of cells than the head.
    pub fn csv(&self) -> Result<String, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&self.columns)?;
        for row in &self.rows {
            writer.write_record(row)?;
        }
        let bytes = writer.into_inner().map_err(|error| error.into_error())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The shortest text of a value, without trailing zeros.
#[must_use]
pub fn number_short(value: f64) -> String {
    let text = number(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The text of a number: none, one, three or five decimals, depending on its size; `-` if it isn't finite.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let size = value.abs();
    if value == value.trunc() && size < 1e15 {
        format!("{value:.0}")
    } else if size >= 1000.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.5}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_printed_for_people_and_for_programs() {
        let mut outcome = Outcome { remarks: vec!["trace: synthetic".into()], ..Outcome::default() };
        outcome.push("cold_share", 0.25);
        outcome.tables.push(Table {
            title: "t".into(),
            columns: vec!["a".into()],
            rows: vec![vec!["1".into()]],
        });
        let text = outcome.render(Format::Markdown).unwrap();
        assert!(text.contains("trace: synthetic") && text.contains("| cold_share | 0.25000 |"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&outcome.render(Format::Json).unwrap()).unwrap();
        assert_eq!(json["metrics"]["cold_share"], 0.25);
        assert_eq!(outcome.tables[0].csv().unwrap(), "a\n1\n");
    }
}
