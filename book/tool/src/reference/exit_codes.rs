//! Exit codes, as the programs' help says.

use super::markdown::{cell, code, header, row};
use super::programs;
use clap::Command;

/// What begins the paragraph of a program's help with its exit codes.
const MARK: &str = "Exit codes:";

/// The chapter of exit codes.
pub fn page() -> String {
    let mut page = format!(
        "# Exit codes\n\nEvery program ends with 0 when it did what it was told, with 1 after an error, which it prints, and with 2 when \
         the command line is wrong. A service that is told to end by SIGTERM ends with 0. More codes have:\n\n{}",
        header(&["command", "exit codes"])
    );
    for program in programs::all() {
        for (name, command) in programs::with_subcommands(&program) {
            if let Some(codes) = of(command) {
                page.push_str(&row(&[code(&name), cell(&codes)]));
            }
        }
    }
    page
}

/// The paragraph on exit codes in a command's help.
fn of(command: &Command) -> Option<String> {
    let help = command.get_after_help().or_else(|| command.get_after_long_help())?.to_string();
    let paragraph = help.split_once(MARK)?.1.split("\n\n").next()?;
    Some(paragraph.trim().to_owned())
}
