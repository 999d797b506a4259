//! Tables, JSON and colours.

use clap::ValueEnum;
use serde::Serialize;
use std::io::{IsTerminal as _, Write};

/// Format of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Table for people.
    #[default]
    Table,
    /// Table with more columns.
    Wide,
    /// JSON for programs.
    Json,
}

/// Style of a cell on a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Style {
    /// No style.
    #[default]
    Plain,
    /// A heading.
    Bold,
    /// A good value.
    Green,
    /// A value that needs attention.
    Yellow,
    /// A bad value.
    Red,
    /// An unimportant value.
    Dim,
}

/// Whether colours are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// Colours are written.
    On,
    /// No colours are written.
    Off,
}

/// A cell of a [`Table`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    style: Style,
}

/// A table whose columns are as wide as their widest cell.
#[derive(Debug, Clone, Default)]
pub struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Colours {
    /// On if standard output is a terminal and NO_COLOR is unset or empty.
    #[must_use]
    pub fn of_stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if wanted && std::io::stdout().is_terminal() { Self::On } else { Self::Off }
    }

    /// `text` with the escape sequences of `style`, or as it is if colours are off.
    #[must_use]
    pub fn paint(self, text: &str, style: Style) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            Style::Bold => "1",
            Style::Green => "32",
            Style::Yellow => "33",
            Style::Red => "31",
            Style::Dim => "2",
        };
        if self == Self::On { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

impl Cell {
    /// A cell with `text` in `style`. Control characters are replaced.
    #[must_use]
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: printable(&text.into()), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Style::Plain)
    }
}

impl Table {
    /// A table that has only `headings`.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|text| Cell::new(*text, Style::Bold)).collect()] }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// Whether the table has no row but the headings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    /// The table as text, one line per row.
    #[must_use]
    pub fn render(&self, colours: Colours) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let mut widths = vec![0; columns];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let mut out = String::new();
        for row in &self.rows {
            let last = row.len().saturating_sub(1);
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                out.push_str(&colours.paint(&cell.text, cell.style));
                if column < last {
                    let padding = width - cell.text.chars().count() + 2;
                    out.extend(std::iter::repeat_n(' ', padding));
                }
            }
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
        }
        out
    }
}

/// Writes to standard output. A closed pipe is not an error: the reader, such as `head`, has enough.
///
/// # Errors
/// Standard output can't be written to.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes `value` as JSON.
///
/// # Errors
/// Standard output can't be written to.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(print(&format!("{}\n", serde_json::to_string_pretty(value)?))?)
}

/// A duration in a unit that fits: `350ms`, `12s`, `7m`, `3h`.
#[must_use]
pub fn span(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..120_000 => format!("{}s", millis / 1_000),
        120_000..7_200_000 => format!("{}m", millis / 60_000),
        7_200_000..172_800_000 => format!("{}h", millis / 3_600_000),
        _ => format!("{}d", millis / 86_400_000),
    }
}

/// Replaces control characters: text from the cluster must not steer the terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["NODE", "USE"]);
        table.push(vec!["n-1".into(), Cell::new("9%", Style::Red)]);
        table.push(vec!["longer-ü".into(), "".into()]);
        assert_eq!(table.render(Colours::Off), "NODE      USE\nn-1       9%\nlonger-ü\n");
        assert!(table.render(Colours::On).contains("\x1b[31m9%\x1b[0m"));
    }

    #[test]
    fn what_others_wrote_does_not_steer_the_terminal() {
        let mut table = Table::new(&["A"]);
        table.push(vec!["\x1b[2Jx\n".into()]);
        assert!(!table.render(Colours::Off).contains('\x1b'));
        assert_eq!(table.render(Colours::Off).lines().count(), 2);
    }

    #[test]
    fn times_are_told_in_the_largest_unit_that_says_enough() {
        for (millis, text) in
            [(0, "0ms"), (999, "999ms"), (12_500, "12s"), (119_999, "119s"), (120_000, "2m")]
        {
            assert_eq!(span(millis), text);
        }
        assert_eq!((span(7_200_000), span(400 * 86_400_000)), ("2h".to_owned(), "400d".to_owned()));
    }
}
