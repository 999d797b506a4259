//! What depends on the machine's speed: `make test-timing` runs it alone.

mod b11;
mod moves;
mod pool_live;

use std::process::Command;

/// Runs `fpga-bench` and returns the printed text.
fn run(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fpga-bench")).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}{error}");
    println!("{text}{error}");
    text
}

/// The cells of the row of a table that begins with these cells.
fn row<'t>(text: &'t str, first: &[&str]) -> Vec<&'t str> {
    let begin = format!("| {} |", first.join(" | "));
    let line = text.lines().find(|line| line.starts_with(&begin));
    let line = line.unwrap_or_else(|| panic!("no row {begin}"));
    line.trim_matches('|').split('|').map(str::trim).collect()
}

fn number(cell: &str) -> f64 {
    cell.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("no number: {cell}"))
}
