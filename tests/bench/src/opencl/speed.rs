//! `fpga-bench speed`: writes the tables of remote-opencl/docs/speed.md from the results of `fpga-bench opencl`.

use super::comparison::{Comparison, Verdict, signed, told};
use super::plan::{Judged, Path};
use super::results::{Floor, Results, Runtime};
use super::rows::ROWS;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::path::PathBuf;

/// The lines of the document between which the tables are.
const BEGIN: &str = "<!-- The tables are written by `fpga-bench speed`: begin -->";
const END: &str = "<!-- The tables are written by `fpga-bench speed`: end -->";

/// A line of the first table: rows with the same goal, whose extremes are shown where they are several.
struct Line {
    title: &'static str,
    rows: &'static [&'static str],
}

/// The lines of the first table. `make bench` prints each row.
const LINES: &[Line] = &[
    Line { title: "null kernel + finish", rows: &["null"] },
    Line { title: "pipelined launch, each", rows: &["pipelined"] },
    Line { title: "write 4 B, kernel, read 4 B", rows: &["write-kernel-read"] },
    Line {
        title: "write + read, 64 B to 32 KiB",
        rows: &["write-read-64b", "write-read-1k", "write-read-4k", "write-read-16k", "write-read-32k"],
    },
    Line {
        title: "write + read, 64 KiB to 1 GiB",
        rows: &["write-read-64k", "write-read-1m", "write-read-4m", "write-read-64m", "write-read-1g"],
    },
    Line { title: "write + read a 1080p rectangle, pitched", rows: &["rect-1080p"] },
    Line { title: "map, touch, unmap 64 MiB", rows: &["map-64m"] },
    Line {
        title: "product 64 to 256, Sobel 512",
        rows: &["product-64", "product-128", "product-256", "sobel-512"],
    },
    Line {
        title: "the same, kernel + finish",
        rows: &["product-64-launch", "product-128-launch", "product-256-launch", "sobel-512-launch"],
    },
    Line { title: "Sobel 1080p, product 512", rows: &["sobel-1080p", "product-512"] },
    Line { title: "the same, 8 clients of one's rate", rows: &["sobel-8-of-one", "product-8-of-one"] },
    Line { title: "wake-ups in 5 s without work", rows: &["idle-wake-ups"] },
];

/// The rows of the second table.
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
        std::fs::write(&self.into, document).with_context(|| format!("can't write {into}"))?;
        println!("{into} has the tables of {}", results.day);
        Ok(())
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
    for Line { title, rows } in LINES {
        let rows = || ROWS.iter().filter(|row| rows.contains(&row.name));
        let Some((goal, unit)) = rows().find_map(|row| Some((row.goal(Path::Unix)?, row.figure.unit))) else {
            continue;
        };
        line(&mut text, &format!("{title} | {}", goal.told(unit)), runtimes, |runtime| {
            let compared: Vec<_> = rows().filter_map(|row| find(runtime, row.name, Path::Unix)).collect();
            cell(&compared)
        });
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

/// What the goal is about, and whether it is reached: `45.0 µs +11.2 ✓` of one row, `0.59–1.39×, 2 of 3 ✓` of several;
/// and the greatest 99th percentile that misses its goal.
fn cell(rows: &[&Comparison]) -> Option<String> {
    let goal = rows.iter().find_map(|row| row.judgement)?.goal;
    let figures: Vec<f64> = rows
        .iter()
        .filter_map(|row| match goal.of {
            Judged::Ratio => row.ratio.map(|ratio| ratio.figure),
            Judged::Added => Some(row.added.figure),
            Judged::Ours => Some(row.ours.p50),
        })
        .collect();
    let figure = match (rows, figures.as_slice()) {
        ([row], [figure]) => {
            let ours = format!("{} {}", told(row.ours.p50), row.unit);
            let compared = match goal.of {
                Judged::Ratio => format!(" {figure:.2}×"),
                Judged::Added => format!(" {}", signed(*figure)),
                Judged::Ours => String::new(),
            };
            format!("{}{compared}", ours.trim_end())
        }
        (_, figures) => {
            let (least, most) = extremes(figures.iter().copied());
            match goal.of {
                Judged::Ratio => format!("{least:.2}–{most:.2}×"),
                Judged::Added => format!("{}–{} {}", signed(least), signed(most), rows[0].unit),
                Judged::Ours => format!("{}–{} {}", told(least), told(most), rows[0].unit),
            }
        }
    };
    let verdicts: Vec<Verdict> = rows.iter().filter_map(|row| Some(row.judgement?.verdict)).collect();
    let reached = verdicts.iter().filter(|verdict| **verdict == Verdict::Reached).count();
    let mark = match reached {
        0 => " ✗".to_owned(),
        all if all == verdicts.len() => " ✓".to_owned(),
        some => format!(", {some} of {} ✓", verdicts.len()),
    };
    let missed = rows.iter().filter(|row| row.p99_verdict == Some(Verdict::Missed));
    let p99 = missed
        .filter_map(|row| Some(row.p99_ratio?.figure))
        .fold(None, |most: Option<f64>, ratio| Some(most.map_or(ratio, |most| most.max(ratio))));
    let p99 = p99.map_or_else(String::new, |ratio| format!(", p99 {ratio:.1}×"));
    Some(format!("{figure}{mark}{p99}"))
}

/// The least and the greatest figure.
fn extremes(figures: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    (figures.clone().fold(f64::INFINITY, f64::min), figures.fold(f64::NEG_INFINITY, f64::max))
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
        let (least, most) = extremes(medians);
        let (unit, factor) = if most < 10_000.0 { ("µs", 1.0) } else { ("ms", 1e-3) };
        (name.as_str(), format!("{}–{} {unit}", told(least * factor), told(most * factor)))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::super::comparison::{Judgement, Spread};
    use super::super::results::tests::recorded;
    use super::*;
    use fpga_tests::testbed::programs::repository;

    #[test]
    fn the_tables_are_written_from_recorded_results() {
        let text = tables(&recorded());
        let row = |begin: &str| {
            text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin}: {text}"))
        };
        assert!(text.contains("| on one node | goal | PoCL |"), "{text}");
        for begin in [
            "| null kernel + finish | ≤ +30 µs |",
            "| write + read, 64 B to 32 KiB | ≤ 1× |",
            "| wake-ups in 5 s without work | ≤ 0 |",
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
    fn several_rows_show_their_extremes() {
        let mut fast =
            recorded().runtimes[0].rows.iter().find(|row| row.row == "write-read-4k").unwrap().clone();
        let mut slow = fast.clone();
        fast.ratio = Some(Spread { figure: 0.5, least: 0.4, most: 0.6 });
        slow.ratio = Some(Spread { figure: 1.25, least: 1.2, most: 1.3 });
        slow.judgement = slow.judgement.map(|judged| Judgement { verdict: Verdict::Missed, ..judged });
        (slow.p99_ratio, slow.p99_verdict) =
            (slow.ratio.map(|ratio| Spread { figure: 3.0, ..ratio }), Some(Verdict::Missed));
        assert_eq!(cell(&[&fast, &slow]).unwrap(), "0.50–1.25×, 1 of 2 ✓, p99 3.0×");
        assert_eq!(cell(&[&fast, &fast]).unwrap(), "0.50–0.50× ✓");
        assert_eq!(cell(&[]), None);
    }

    #[test]
    fn every_row_with_a_goal_is_in_one_line_with_others_of_the_same_goal() {
        let mut shown: Vec<&str> = Vec::new();
        for Line { title, rows } in LINES {
            let goals: Vec<_> = rows
                .iter()
                .map(|name| ROWS.iter().find(|row| row.name == *name).unwrap().goal(Path::Unix))
                .collect();
            assert!(goals[0].is_some() && goals.iter().all(|goal| *goal == goals[0]), "{title}");
            shown.extend(*rows);
        }
        let with_goals: Vec<_> =
            ROWS.iter().filter(|row| row.goal(Path::Unix).is_some()).map(|row| row.name).collect();
        assert_eq!(shown, with_goals);
        assert!(OTHER_PATHS.iter().all(|name| ROWS.iter().any(|row| row.name == *name)));
    }
}
