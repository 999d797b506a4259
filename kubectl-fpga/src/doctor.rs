//! `kubectl fpga doctor`: checks for all known faults, and tells how to mend them.
//!
//! First the facts are gathered, read-only; the checks are pure functions of the facts. A fact that can't be gathered
//! becomes a finding, and the other checks go on.

pub mod checks;
pub mod facts;
pub mod finding;
mod gather;
pub mod scheduler_config;

use crate::connection::ConnectArgs;
use crate::output::{Colours, Format, Style, print, print_json};
use anyhow::Result;
use finding::{Finding, Severity};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga doctor
  kubectl fpga doctor --scheduler-config /etc/kubernetes/kube-scheduler.yaml
  kubectl fpga doctor --quiet || echo 'something is wrong'   # 0: no problem, 1: at least one
  kubectl fpga doctor -o json | jq '.[] | select(.severity == \"problem\") | .mend'
Exit codes: 0 without problems (with --strict, without problems and warnings); 1 with one, or after an error.

It only reads: nodes, pods, kube-scheduler's pod and ConfigMaps in kube-system, the extender's replicas, and reviews of
the service accounts' rights.";

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// kube-scheduler's configuration file; by default it is looked for in the cluster.
    #[arg(long, env = "FPGA_SCHEDULER_CONFIG", value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// Exit with 1 on warnings, too.
    #[arg(long, env = "FPGA_STRICT")]
    strict: bool,
    /// Print warnings, problems and checks that failed to look only.
    #[arg(short, long, env = "FPGA_QUIET")]
    quiet: bool,
    /// Format of the output.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl DoctorArgs {
    /// Runs all checks and prints the findings. The exit code is 1 if there is a problem, or with `--strict` a
    /// warning.
    ///
    /// # Errors
    /// The API server can't be reached or rejects the credentials, or the file of `--scheduler-config` can't be read.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        let cluster = connect.cluster().await?;
        let facts = gather::facts(connect, &cluster, self.scheduler_config.as_deref()).await?;
        let mut findings = checks::run(&facts);
        if self.quiet {
            findings.retain(|finding| !matches!(finding.severity, Severity::Ok | Severity::Note));
        }
        match self.output {
            Format::Json => print_json(&findings)?,
            Format::Table | Format::Wide => print(&text(&findings, Colours::of_stdout()))?,
        }
        let bad = if self.strict { Severity::Warning } else { Severity::Problem };
        let is_bad = findings.iter().any(|finding| finding.severity >= bad);
        Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn text(findings: &[Finding], colours: Colours) -> String {
    let mut out = String::new();
    for Finding { check, severity, what, why, mend } in findings {
        let (word, style) = match severity {
            Severity::Ok => ("ok", Style::Green),
            Severity::Note => ("note", Style::Dim),
            Severity::Unknown => ("unknown", Style::Yellow),
            Severity::Warning => ("WARNING", Style::Yellow),
            Severity::Problem => ("PROBLEM", Style::Red),
        };
        let mut tell = |text: &str| {
            // Writing to a String can't fail.
            let _ = writeln!(out, "{text}");
        };
        tell(&format!("{}{}  {}: {what}", colours.paint(word, style), " ".repeat(7 - word.len()), check));
        for (label, more) in [("", why), ("→ ", mend)] {
            if !more.is_empty() {
                for (number, line) in wrapped(more, 110).into_iter().enumerate() {
                    tell(&format!("           {}{line}", if number == 0 { label } else { "" }));
                }
            }
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    // Writing to a String can't fail.
    let _ = writeln!(
        out,
        "{} problems, {} warnings, {} could not be checked.",
        count(Severity::Problem),
        count(Severity::Warning),
        count(Severity::Unknown)
    );
    out
}

/// `text` in lines of at most `width` characters, broken between words. A longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_told_with_what_why_and_how_to_mend() {
        let findings = [
            Finding::ok("dns", "fine"),
            Finding::problem("weight", "too low", "outvoted", "Set it to 10."),
            Finding::unknown("tls", "no file", "Give it."),
        ];
        let text = text(&findings, Colours::Off);
        for line in [
            "ok       dns: fine",
            "PROBLEM  weight: too low",
            "           outvoted",
            "           → Set it to 10.",
            "unknown  tls: could not be checked",
            "1 problems, 0 warnings, 1 could not be checked.",
        ] {
            assert!(text.lines().any(|there| there == line), "{text}\nhas no {line}");
        }
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrapped("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrapped("a-very-long-word x\ny", 5), ["a-very-long-word", "x", "y"]);
    }
}
