//! Repeats commands that the documents name, and compares the tables with the documents'.
use std::path::Path;
use std::process::Command;

/// A table's headings and rows.
#[derive(Debug, PartialEq, Eq)]
struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// All tables of a Markdown text.
fn tables(text: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            is_inside = false;
            continue;
        };
        let cells: Vec<String> = cells.split('|').map(|cell| cell.trim().to_owned()).collect();
        if !is_inside {
            tables.push(Table { headings: cells, rows: Vec::new() });
            is_inside = true;
        } else if !cells.iter().all(|cell| cell.chars().all(|c| c == '-')) {
            tables.last_mut().unwrap().rows.push(cells);
        }
    }
    tables
}

impl Table {
    /// The table with only these columns, if it has all of them.
    fn columns(&self, headings: &[String]) -> Option<Self> {
        let place = |heading: &String| self.headings.iter().position(|other| other == heading);
        let places: Vec<usize> = headings.iter().map(place).collect::<Option<_>>()?;
        let row = |row: &Vec<String>| places.iter().map(|place| row[*place].clone()).collect();
        Some(Self { headings: headings.to_vec(), rows: self.rows.iter().map(row).collect() })
    }
}

/// The command in `document` that contains `mark`, and the tables after it.
fn written(document: &str, mark: &str) -> (Vec<String>, Vec<Table>) {
    let path = root().join("simulator-traces/docs").join(document);
    let text = std::fs::read_to_string(&path).unwrap();
    let at = text.find(mark).unwrap_or_else(|| panic!("{document} has no command with {mark}"));
    let begin = text[..at].rfind("`fpga-sim ").unwrap() + "`fpga-sim ".len();
    let end = begin + text[begin..].find('`').unwrap();
    (text[begin..end].split_whitespace().map(str::to_owned).collect(), tables(&text[end..]))
}

/// The tables that the program prints with these arguments.
fn made(arguments: &[String]) -> Vec<Table> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpga-sim"));
    let output = command.current_dir(root()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    tables(std::str::from_utf8(&output.stdout).unwrap())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Repeats the command in `document` that contains `mark`, and compares the first table after it.
fn check(document: &str, mark: &str) {
    let (command, tables) = written(document, mark);
    let written = tables.into_iter().next().unwrap();
    let made = made(&command);
    let made = made.iter().find_map(|table| table.columns(&written.headings));
    let made = made.unwrap_or_else(|| panic!("{command:?} makes no table with {:?}", written.headings));
    assert!(!written.rows.is_empty(), "{document} has no table after {mark}");
    assert_eq!(
        made, written,
        "{document}: {command:?} says otherwise; make the table anew and say what changed"
    );
}

#[test]
fn deadlines_are_met_as_the_document_says() {
    check("qos.md", "qos/deadlines.toml");
}

mod timing {
    use super::*;

    #[test]
    #[ignore = "takes half a minute on a busy machine: make test-timing"]
    fn other_tables_are_made_as_the_documents_say() {
        check("qos.md", "qos/splits.toml");
        check("qos.md", "qos/deadlines-margin.toml");
        check("policies.md", "placement/uneven-boards.toml");
    }
}
