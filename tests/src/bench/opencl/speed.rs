//! `fpga-bench speed`: writes the tables of remote-opencl/docs/speed.md from the results of `fpga-bench opencl`.

use super::comparison::{Comparison, Verdict, told};
use super::plan::{Judged, Path};
use super::results::{Floor, Results, Runtime};
use super::rows::ROWS;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::path::PathBuf;

/// The lines of the document between which the tables are.
const BEGIN: &str = "<!-- The tables are written by `fpga-bench speed`: begin -->";
const END: &str = "<!-- The tables are written by `fpga-bench speed`: end -->";

/// The rows that are shown for gRPC and TCP, too.
const OTHER_PATHS: &[&str] =
    &["null", "pipelined", "write-kernel-read", "write-read-4k", "write-read-64m", "sobel-1080p"];

/// Writes the tables of remote-opencl/docs/speed.md from the results of `fpga-bench opencl`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench speed --from build/bench/opencl.json")]
pub struct Args {
    /// The results, separated by commas; later ones replace rows of earlier ones.
    #[arg(long, default_value = super::RESULTS, value_delimiter = ',')]
    from: Vec<PathBuf>,
    /// The document, in which the lines between the two comments are replaced.
    #[arg(long, default_value = "remote-opencl/docs/speed.md")]
    into: PathBuf,
}

impl Args {
    /// Writes the document.
    ///
    /// # Errors
    /// A file can't be read or written, or the document lacks the comments.
    pub fn run(self) -> Result<()> {
        let mut all = self.from.iter().map(|file| Results::load(file));
        let mut results = all.next().context("name a file with results: --from FILE")??;
        for newer in all {
            results.merge(newer?)?;
        }
        let into = self.into.display();
        let document = std::fs::read_to_string(&self.into).with_context(|| format!("can't read {into}"))?;
        let document = replaced(&document, &tables(&results))
            .with_context(|| format!("{into} lacks the line {BEGIN:?} or {END:?}"))?;
        std::fs::write(&self.into, document).with_context(|| format!("can't write {into}"))
    }
}

/// The document with other tables; `None` if it lacks one of the two comments.
fn replaced(document: &str, tables: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{tables}{END}{after}"))
}

/// All that is generated.
fn tables(results: &Results) -> String {
    let runtimes = &results.runtimes;
    let machine = &results.machine;
    let mut text = format!(
        "{}: {} processors ({}), {:.0} GiB, Linux {}, {} build, medians of {} rounds. {}\n\n",
        results.day,
        machine.processors,
        machine.model,
        machine.memory_mib as f64 / 1024.0,
        machine.kernel,
        results.build,
        results.rounds,
        reached(runtimes)
    );
    let head = |text: &mut String, first: &str| {
        let names: Vec<&str> = runtimes.iter().map(|runtime| title(&runtime.name)).collect();
        let _ = writeln!(text, "| {first} | {} |", names.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(first.matches('|').count() + names.len()));
    };
    head(&mut text, "on one node | goal");
    for row in ROWS {
        let Some(goal) = row.goal(Path::Unix) else { continue };
        let first = format!("{} | {}", row.title, goal.told(row.figure.unit));
        line(&mut text, &first, runtimes, |runtime| find(runtime, row.name, Path::Unix).map(cell));
    }
    text.push('\n');
    head(&mut text, "without the ring / TCP");
    for row in ROWS.iter().filter(|row| OTHER_PATHS.contains(&row.name)) {
        line(&mut text, row.title, runtimes, |runtime| {
            let [grpc, tcp] = [Path::Grpc, Path::Tcp].map(|path| find(runtime, row.name, path));
            let unit = grpc.or(tcp)?.unit.clone();
            let [grpc, tcp] = [grpc, tcp].map(|compared| compared.map_or_else(|| "–".to_owned(), brief));
            Some(format!("{grpc} / {tcp} {unit}"))
        });
    }
    let floors: Vec<String> =
        floors(runtimes).iter().map(|(name, range)| format!("{name} {range}")).collect();
    let _ = writeln!(text, "\nIn the same run, p50: {}.", floors.join("; "));
    for runtime in runtimes {
        for left_out in &runtime.left_out {
            let rows = left_out.rows.join(", ");
            let why = left_out.why.lines().next().unwrap_or_default();
            let _ = writeln!(text, "Not measured over {}: {rows}: {why}.", title(&runtime.name));
        }
    }
    text
}

/// A runtime's name in the tables.
fn title(runtime: &str) -> &str {
    match runtime {
        "pocl" => "PoCL",
        "intel-cpu" => "Intel CPU",
        "intel-fpga" => "Intel FPGA emulator",
        other => other,
    }
}

fn find<'a>(runtime: &'a Runtime, row: &str, path: Path) -> Option<&'a Comparison> {
    runtime.rows.iter().find(|compared| compared.row == row && compared.path == path)
}

/// A line of a table, unless no runtime has a figure for it.
fn line(text: &mut String, first: &str, runtimes: &[Runtime], cell: impl Fn(&Runtime) -> Option<String>) {
    let cells: Vec<Option<String>> = runtimes.iter().map(cell).collect();
    if cells.iter().any(Option::is_some) {
        let cells: Vec<String> =
            cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_owned())).collect();
        let _ = writeln!(text, "| {first} | {} |", cells.join(" | "));
    }
}

/// Our median and what the goal is about, as in `45 µs +11 ✓`, and the 99th percentile where its goal is missed.
fn cell(compared: &Comparison) -> String {
    let ours = format!("{} {}", told(compared.ours.p50), compared.unit);
    let figure = match (compared.judgement.map(|judged| judged.goal.of), compared.ratio) {
        (Some(Judged::Ratio) | None, Some(ratio)) => format!(" {:.2}×", ratio.figure),
        (Some(Judged::Added), _) => {
            format!(" {}{}", plus(compared.added.figure), told(compared.added.figure))
        }
        (Some(Judged::Ours | Judged::Ratio) | None, _) => String::new(),
    };
    let mark = compared.judgement.map_or("", |judged| mark(judged.verdict));
    let p99 = match (compared.p99_verdict, compared.p99_ratio) {
        (Some(Verdict::Missed), Some(ratio)) => format!(", p99 {:.1}×", ratio.figure),
        _ => String::new(),
    };
    format!("{}{figure}{mark}{p99}", ours.trim_end())
}

fn plus(figure: f64) -> &'static str {
    if figure > 0.0 { "+" } else { "" }
}

/// Our median, and the verdict if there is a goal.
fn brief(compared: &Comparison) -> String {
    let mark = compared.judgement.map_or("", |judged| mark(judged.verdict));
    format!("{}{mark}", told(compared.ours.p50))
}

const fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reached => " ✓",
        Verdict::Missed => " ✗",
    }
}

/// How many goals are reached, as a sentence.
fn reached(runtimes: &[Runtime]) -> String {
    let rows = || runtimes.iter().flat_map(|runtime| &runtime.rows);
    let count = |verdicts: Vec<Verdict>| {
        let reached = verdicts.iter().filter(|verdict| **verdict == Verdict::Reached).count();
        format!("{reached} of {}", verdicts.len())
    };
    let p50 = rows().filter_map(|row| Some(row.judgement?.verdict)).collect();
    let p99 = rows().filter_map(|row| row.p99_verdict).collect();
    format!("Goals reached: {}; for p99 {}.", count(p50), count(p99))
}

/// The least and the greatest median of each floor over all runtimes.
fn floors(runtimes: &[Runtime]) -> Vec<(&str, String)> {
    let Some(first) = runtimes.first() else { return Vec::new() };
    let each = first.floors.iter().map(|Floor { name, .. }| {
        let same = runtimes.iter().flat_map(|runtime| &runtime.floors).filter(|floor| floor.name == *name);
        let medians = same.flat_map(|floor| &floor.p50_us).copied();
        let (least, most) = (medians.clone().fold(f64::MAX, f64::min), medians.fold(0.0, f64::max));
        (name.as_str(), format!("{} to {} µs", told(least), told(most)))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::recorded;
    use super::*;
    use crate::testbed::programs::repository;

    #[test]
    fn the_tables_are_written_from_recorded_results() {
        let text = tables(&recorded());
        let row = |begin: &str| {
            text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin}: {text}"))
        };
        assert!(text.contains("| on one node | goal | PoCL |"), "{text}");
        for begin in [
            "| null kernel + finish | ≤ +30 µs |",
            "| write + read 4 KiB | ≤ 1× |",
            "| idle for 5 s: wake-ups | ≤ 0 |",
        ] {
            let line = row(begin);
            assert!(line.contains(" ✓ |") || line.contains(" ✗"), "{line}");
            assert_eq!(line.matches('|').count(), 4, "{line}");
        }
        assert!(row("In the same run").contains("bare tonic round trip, unix"), "{text}");
    }

    #[test]
    fn the_document_has_a_place_for_the_tables_and_keeps_its_prose() {
        let document = std::fs::read_to_string(repository().join("remote-opencl/docs/speed.md")).unwrap();
        let once = replaced(&document, "new tables\n").unwrap();
        assert!(once.contains("new tables"));
        let (before, rest) = document.split_once(BEGIN).unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        assert!(once.starts_with(before) && once.ends_with(after) && before.len() + after.len() > 1000);
        assert_eq!(replaced(&once, "new tables\n").unwrap(), once);
        assert_eq!(replaced("no comments", "tables"), None);
    }

    #[test]
    fn the_rows_of_the_second_table_are_rows() {
        assert!(OTHER_PATHS.iter().all(|name| ROWS.iter().any(|row| row.name == *name)));
    }
}
