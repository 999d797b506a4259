//! What a row of the table is: a program, the paths on which it runs, the fields of its output, and the goals.

use serde::{Deserialize, Serialize};

/// The path from a program to the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// The vendor's runtime in the program's own process.
    Native,
    /// A device manager behind a unix socket, with shared memory and the command ring.
    Unix,
    /// The same without the command ring: commands use gRPC.
    Grpc,
    /// A device manager behind TCP on loopback.
    Tcp,
    /// As [`Path::Unix`], to a process of the tenant's (`--isolate process`).
    Process,
    /// As [`Path::Grpc`], to a process of the tenant's.
    ProcessGrpc,
    /// As [`Path::Tcp`], to a process of the tenant's.
    ProcessTcp,
}

/// What a goal bounds: one of the figures of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Judged {
    /// Our median divided by native's.
    Ratio,
    /// Our median less native's, in the row's unit.
    Added,
    /// Our median alone.
    Ours,
}

/// The bound of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// What a row should reach on one path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    pub of: Judged,
    pub bound: Bound,
}

/// Runs of one program, which give the figures of one row or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Name of the program in tests/opencl-programs.
    pub program: &'static str,
    /// Arguments of the program.
    pub args: &'static [&'static str],
    /// The measured paths; the first is [`Path::Native`].
    pub paths: &'static [Path],
    /// Greatest number of rounds in which the program runs.
    pub most_rounds: u32,
    /// MiB of free memory without which these runs are left out.
    pub needs_mib: u64,
}

/// The fields of a program's line of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// Name of the field with the median of a run.
    pub p50: &'static str,
    /// Name of the field with the 99th percentile; `None` if the program prints none.
    pub p99: Option<&'static str>,
    /// Unit of both fields.
    pub unit: &'static str,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Name by which `--rows` chooses this row alone.
    pub name: &'static str,
    /// Name by which `--rows` chooses this row with others like it.
    pub group: &'static str,
    /// Title of the row in the tables.
    pub title: &'static str,
    pub run: Run,
    pub figure: Figure,
    /// The goals, by path.
    pub goals: &'static [(Path, Goal)],
}

impl Path {
    /// Short name of the path in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Unix => "unix",
            Self::Grpc => "grpc",
            Self::Tcp => "tcp",
            Self::Process => "process",
            Self::ProcessGrpc => "process grpc",
            Self::ProcessTcp => "process tcp",
        }
    }
}

impl Goal {
    /// Our median is at most so many times native's.
    pub const fn ratio(times: f64) -> Self {
        Self { of: Judged::Ratio, bound: Bound::AtMost(times) }
    }

    /// Our median is greater than native's by this at most.
    pub const fn added(more: f64) -> Self {
        Self { of: Judged::Added, bound: Bound::AtMost(more) }
    }

    /// Our median is at most this.
    pub const fn at_most(most: f64) -> Self {
        Self { of: Judged::Ours, bound: Bound::AtMost(most) }
    }

    /// Our median is at least this.
    pub const fn at_least(least: f64) -> Self {
        Self { of: Judged::Ours, bound: Bound::AtLeast(least) }
    }

    /// The goal as text: `≤ 1.1×`, `≤ +30 µs`, `≥ 97 %`.
    pub fn told(self, unit: &str) -> String {
        let (sign, limit) = match self.bound {
            Bound::AtMost(limit) => ('≤', limit),
            Bound::AtLeast(limit) => ('≥', limit),
        };
        match self.of {
            Judged::Ratio => format!("{sign} {limit}×"),
            Judged::Added => format!("{sign} +{limit} {unit}"),
            Judged::Ours => format!("{sign} {limit} {unit}").trim_end().to_owned(),
        }
    }
}

impl Run {
    /// Runs on `paths`, in as many rounds as the caller asks for.
    pub const fn on(paths: &'static [Path], program: &'static str, args: &'static [&'static str]) -> Self {
        Self { program, args, paths, most_rounds: 100, needs_mib: 0 }
    }

    /// The program and its arguments.
    pub fn told(&self) -> String {
        [&[self.program], self.args].concat().join(" ")
    }

    /// The paths in the order of a round, which begins with each end in turn.
    pub fn order(&self, round: u32) -> impl Iterator<Item = Path> {
        let (there, back) = if round % 2 == 1 { (self.paths, &[][..]) } else { (&[][..], self.paths) };
        there.iter().chain(back.iter().rev()).copied()
    }
}

impl Row {
    /// The goal on `path`.
    pub fn goal(&self, path: Path) -> Option<Goal> {
        self.goals.iter().find(|(of, _)| *of == path).map(|(_, goal)| *goal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_begins_every_other_round() {
        let run = Run::on(&[Path::Native, Path::Unix, Path::Tcp], "null_kernel", &[]);
        let order = |round| run.order(round).collect::<Vec<_>>();
        assert_eq!(order(1), [Path::Native, Path::Unix, Path::Tcp]);
        assert_eq!(order(2), [Path::Tcp, Path::Unix, Path::Native]);
    }

    #[test]
    fn goals_read_as_in_the_table() {
        assert_eq!(Goal::ratio(1.1).told("µs"), "≤ 1.1×");
        assert_eq!(Goal::added(30.0).told("µs"), "≤ +30 µs");
        assert_eq!(Goal::at_least(97.0).told("%"), "≥ 97 %");
        assert_eq!(Goal::at_most(0.0).told(""), "≤ 0");
    }
}
