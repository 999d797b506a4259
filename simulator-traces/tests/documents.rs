//! Repeats commands that the documents name, and compares the tables with the documents'.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of these tests fail by panicking, as the tests do"
)]

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
fn static_splits_end_when_the_document_says() {
    check("qos.md", "qos/splits.toml");
}

#[test]
fn deadlines_are_met_as_the_document_says() {
    check("qos.md", "qos/deadlines.toml");
}

#[test]
fn all_deadlines_are_met_with_a_margin_as_the_document_says() {
    check("qos.md", "qos/deadlines-margin.toml");
}

/// With one tenant and without a rule against starvation the pool's figures are those of before it had tenants. The
/// whole table takes minutes, so the test repeats one load.
#[test]
fn the_pool_of_one_tenant_gains_over_fifo_what_the_document_says() {
    let (mut command, tables) = written("pool.md", "pool/exponential.toml");
    command.extend(["--set", "vary=[]", "--set", "jobs.load=1.2"].map(str::to_owned));
    let columns = ["policy", "ACT: FIFO is × of it"].map(str::to_owned);
    let gains = made(&command).iter().find_map(|table| table.columns(&columns)).unwrap();
    let expected = tables[0].rows.iter().find(|row| row[0] == "1.2").unwrap();
    assert_eq!(gains.rows.len() + 1, expected.len());
    for row in &gains.rows {
        let place = tables[0].headings.iter().position(|heading| *heading == row[0]).unwrap();
        assert_eq!(row[1], expected[place], "{}", row[0]);
    }
}

/// The whole table takes minutes, so the test repeats one load.
#[test]
fn two_tenants_of_the_pool_get_what_the_document_says() {
    let (mut command, tables) = written("pool.md", "pool/tenants.toml");
    command.extend(["--set", "vary=[]", "--set", "jobs.load=1.2"].map(str::to_owned));
    let columns = &tables[0].headings[1..];
    let got = made(&command).iter().find_map(|table| table.columns(columns)).unwrap();
    let expected = tables[0].rows.iter().filter(|row| row[0] == "1.2").map(|row| row[1..].to_vec());
    assert_eq!(got.rows, expected.collect::<Vec<_>>());
}

#[test]
fn boards_of_two_sizes_do_what_the_document_says() {
    check("policies.md", "placement/uneven-boards.toml");
}

/// These tables take minutes, so the test repeats one policy at one number of nodes.
#[test]
fn the_shipped_policy_does_on_the_tuning_week_what_the_document_says() {
    let (mut command, tables) = written("policies-tuning.md", "compare --week first");
    let output = command.iter().position(|argument| argument == "--output").unwrap();
    command.drain(output..output + 2);
    command.extend(["--nodes", "10", "--only", "(shipped)"].map(str::to_owned));
    let made = made(&command);
    let rows: Vec<_> = made.iter().flat_map(|table| &table.rows).collect();
    assert!(rows.iter().any(|row| row[0].ends_with("(shipped)")), "{rows:?}");
    let written: Vec<_> = tables.iter().flat_map(|table| &table.rows).collect();
    for row in rows {
        assert!(
            written.contains(&row),
            "policies-tuning.md has no row {row:?}; make it anew and say what changed"
        );
    }
}
