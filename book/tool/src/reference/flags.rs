//! Flags and environment variables of all programs.

use super::markdown::{cell, code, header, row};
use super::programs;
use clap::{Arg, Command};

/// The chapter of flags.
pub fn page() -> String {
    let mut page = String::from(
        "# Flags\n\nEach flag can be set by its variable, too; the flag wins. `PROGRAM --help` says the same. Durations \
         are written as `500ms`, `10s` or `5m`, sizes as `512MiB` or `2GiB`.\n",
    );
    for program in programs::all() {
        for (name, command) in programs::with_subcommands(&program) {
            let depth = if command.get_name() == program.get_name() { "##" } else { "###" };
            page.push_str(&format!("\n{depth} {name}\n"));
            if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
                page.push_str(&format!("{}\n", cell(&about.to_string())));
            }
            let is_root = depth == "##";
            page.push_str(&table(command, is_root));
            if let Some(examples) = command.get_after_help().map(ToString::to_string) {
                page.push_str(&format!("\n```text\n{}\n```\n", examples.trim_end()));
            }
        }
    }
    page
}

/// The flags of a command; those that it has from the command above it are listed there.
fn table(command: &Command, is_root: bool) -> String {
    let own = |arg: &&Arg| {
        !arg.is_hide_set()
            && !["help", "version"].contains(&arg.get_id().as_str())
            && (is_root || !arg.is_global_set())
    };
    let rows: String = command.get_arguments().filter(own).map(flag).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}{rows}", header(&["flag", "variable", "default", "what"]))
}

fn flag(arg: &Arg) -> String {
    let value = if arg.get_action().takes_values() {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().map(|name| name.to_string()).collect::<Vec<_>>().join(" ")
    } else {
        String::new()
    };
    let name = match (arg.get_long(), arg.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long} {value}"),
        (Some(long), None) => format!("--{long} {value}"),
        (None, Some(short)) => format!("-{short} {value}"),
        (None, None) => value,
    };
    let variable = arg.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // A switch is off without its flag.
    let defaults = if arg.get_action().takes_values() { arg.get_default_values() } else { &[] };
    let default = defaults.iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",");
    let mut help =
        arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && arg.get_action().takes_values())
        .map(|value| match value.get_help() {
            Some(about) => format!("`{}` ({about})", value.get_name()),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !values.is_empty() {
        if !help.is_empty() && !help.ends_with(['.', ':']) {
            help.push('.');
        }
        help.push_str(&format!(" One of: {}.", values.join(", ")));
    }
    row(&[code(name.trim_end()), code(&variable), code(&default), cell(&help)])
}
