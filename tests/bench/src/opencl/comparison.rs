//! One row on one path, compared with the native runtime round by round.

use super::plan::{Bound, Goal, Judged, Path, Row};
use super::rows::P99_AT_MOST;
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// The result of one run of a program, for one row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Median within the run.
    pub p50: f64,
    /// 99th percentile within the run, where the program prints one.
    pub p99: Option<f64>,
}

/// A figure of the medians of all rounds, and its extremes over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub figure: f64,
    pub least: f64,
    pub most: f64,
}

/// Whether a goal is reached. A figure is judged as it is printed: ratios with two digits after the point, other
/// figures with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Reached,
    Missed,
}

/// A goal and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    pub goal: Goal,
    pub verdict: Verdict,
}

/// A row on one path beside native.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the row.
    pub row: String,
    pub title: String,
    pub unit: String,
    pub path: Path,
    /// Medians over the rounds.
    pub native: Sample,
    pub ours: Sample,
    /// Our median divided by native's; `None` where native's is 0.
    pub ratio: Option<Spread>,
    /// Our median less native's, in `unit`.
    pub added: Spread,
    /// Our 99th percentile divided by native's.
    pub p99_ratio: Option<Spread>,
    pub judgement: Option<Judgement>,
    /// The verdict on the 99th percentile, where the row has a goal.
    pub p99_verdict: Option<Verdict>,
    /// Native's sample and ours of each round.
    pub rounds: Vec<(Sample, Sample)>,
}

/// The median of `figures`; NaN if there are none.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    super::super::report::median(figures.into_iter().collect())
}

fn rounded(figure: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (figure * factor).round() / factor
}

fn verdict(figure: f64, bound: Bound, digits: i32) -> Verdict {
    let figure = rounded(figure, digits);
    let reached = match bound {
        Bound::AtMost(limit) => figure <= limit,
        Bound::AtLeast(limit) => figure >= limit,
    };
    if reached { Verdict::Reached } else { Verdict::Missed }
}

impl Sample {
    /// Reads the last line of a program's output.
    ///
    /// # Errors
    /// The line isn't JSON, or lacks a field of the row.
    pub fn parse(row: &Row, output: &str) -> Result<Self> {
        let line = output.lines().last().context("the program printed nothing")?;
        let value: serde_json::Value =
            serde_json::from_str(line).with_context(|| format!("the program printed no JSON: {line}"))?;
        let field = |name: &str| {
            value[name].as_f64().with_context(|| format!("the field {name} is missing in: {line}"))
        };
        Ok(Self { p50: field(row.figure.p50)?, p99: row.figure.p99.map(field).transpose()? })
    }

    /// The medians of both figures.
    fn median(samples: impl Iterator<Item = Self> + Clone) -> Self {
        let p99: Option<Vec<f64>> = samples.clone().map(|sample| sample.p99).collect();
        Self { p50: median(samples.map(|sample| sample.p50)), p99: p99.map(median) }
    }
}

impl Spread {
    /// A figure of two medians, and of the two figures of each round.
    fn of(medians: (f64, f64), rounds: &[(f64, f64)], figure: fn(f64, f64) -> f64) -> Self {
        let each = rounds.iter().map(|(native, ours)| figure(*native, *ours));
        Self {
            figure: figure(medians.0, medians.1),
            least: each.clone().fold(f64::INFINITY, f64::min),
            most: each.fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// Ours divided by native's; `None` where a figure of native's is not positive.
    fn ratio(medians: (f64, f64), rounds: &[(f64, f64)]) -> Option<Self> {
        let positive = rounds.iter().all(|(native, _)| *native > 0.0);
        positive.then(|| Self::of(medians, rounds, |native, ours| ours / native))
    }
}

impl Verdict {
    /// The word in the printed table.
    pub const fn told(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Missed => "MISSED",
        }
    }
}

impl Comparison {
    /// Compares native's samples with those on `path`, which belong together in pairs.
    ///
    /// # Errors
    /// There is no pair.
    pub fn new(row: &Row, path: Path, rounds: Vec<(Sample, Sample)>) -> Result<Self> {
        ensure!(!rounds.is_empty(), "{} has no round", row.name);
        let native = Sample::median(rounds.iter().map(|(native, _)| *native));
        let ours = Sample::median(rounds.iter().map(|(_, ours)| *ours));
        let p50: Vec<_> = rounds.iter().map(|(native, ours)| (native.p50, ours.p50)).collect();
        let p99: Option<Vec<_>> = rounds.iter().map(|(native, ours)| native.p99.zip(ours.p99)).collect();
        let medians = (native.p50, ours.p50);
        let ratio = Spread::ratio(medians, &p50);
        let added = Spread::of(medians, &p50, |native, ours| ours - native);
        let p99_ratio = native.p99.zip(ours.p99).zip(p99).and_then(|(of, p99)| Spread::ratio(of, &p99));
        let goal = row.goal(path);
        let judgement = goal.and_then(|goal| {
            let (figure, digits) = match goal.of {
                Judged::Ratio => (ratio?.figure, 2),
                Judged::Added => (added.figure, 1),
                Judged::Ours => (ours.p50, 1),
            };
            Some(Judgement { goal, verdict: verdict(figure, goal.bound, digits) })
        });
        let p99_verdict =
            goal.and(p99_ratio).map(|ratio| verdict(ratio.figure, Bound::AtMost(P99_AT_MOST), 1));
        Ok(Self {
            row: row.name.to_owned(),
            title: row.title.to_owned(),
            unit: row.figure.unit.to_owned(),
            path,
            native,
            ours,
            ratio,
            added,
            p99_ratio,
            judgement,
            p99_verdict,
            rounds,
        })
    }

    /// The head of the printed table.
    pub fn header() -> String {
        format!(
            "{:<36} {:<5} {:>10} {:>10} {:>23} {:>26} {:<22} {:>9} {:>9}  {:<20}",
            "row (p50)",
            "path",
            "native",
            "ours",
            "ratio (rounds)",
            "ours − native (rounds)",
            "goal",
            "p99",
            "ours",
            "ratio, goal ≤ 2×"
        )
        .trim_end()
        .to_owned()
    }

    /// The line of the printed table.
    pub fn line(&self) -> String {
        let ratio = self.ratio.map_or_else(
            || "-".to_owned(),
            |ratio| format!("{:.2}× ({:.2} to {:.2})", ratio.figure, ratio.least, ratio.most),
        );
        let Spread { figure, least, most } = self.added;
        let goal = self.judgement.map_or_else(
            || "-".to_owned(),
            |judged| format!("{} {}", judged.goal.told(&self.unit), judged.verdict.told()),
        );
        let figure_of = |value: f64| format!("{} {}", told(value), self.unit).trim_end().to_owned();
        let p99 = |sample: Sample| sample.p99.map_or_else(|| "-".to_owned(), told);
        let p99_ratio = self.p99_ratio.map_or_else(
            || "-".to_owned(),
            |ratio| {
                let verdict = self.p99_verdict.map_or("", Verdict::told);
                format!("{:.1}× {verdict}", ratio.figure).trim_end().to_owned()
            },
        );
        format!(
            "{:<36} {:<5} {:>10} {:>10} {:>23} {:>26} {:<22} {:>9} {:>9}  {}",
            self.title,
            self.path.name(),
            figure_of(self.native.p50),
            figure_of(self.ours.p50),
            ratio,
            format!("{} ({} to {})", signed(figure), signed(least), signed(most)),
            goal,
            p99(self.native),
            p99(self.ours),
            p99_ratio
        )
    }
}

/// A figure with three digits that count, or all before the point.
pub fn told(figure: f64) -> String {
    let digits = match figure.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{figure:.digits$}")
}

/// A difference as text, with its sign.
pub fn signed(difference: f64) -> String {
    let sign = if difference > 0.0 { "+" } else { "" };
    format!("{sign}{}", told(difference))
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    fn row(name: &str) -> &'static Row {
        ROWS.iter().find(|row| row.name == name).unwrap()
    }

    fn pairs(p50: &[(f64, f64)], p99: (f64, f64)) -> Vec<(Sample, Sample)> {
        p50.iter()
            .map(|(native, ours)| {
                (Sample { p50: *native, p99: Some(p99.0) }, Sample { p50: *ours, p99: Some(p99.1) })
            })
            .collect()
    }

    #[test]
    fn the_last_line_of_a_program_is_its_measurement() {
        let output = "warming up\n{\"p50_us\": 41.5, \"p99_us\": 170.0}\n";
        let sample = Sample::parse(row("null"), output).unwrap();
        assert_eq!(sample, Sample { p50: 41.5, p99: Some(170.0) });
        assert!(Sample::parse(row("null"), "{\"p50_us\": 1}").is_err());
    }

    #[test]
    fn medians_are_compared_and_the_rounds_give_the_spread() {
        let rounds = pairs(&[(10.0, 30.0), (20.0, 40.0), (900.0, 1000.0)], (100.0, 250.0));
        let compared = Comparison::new(row("null"), Path::Unix, rounds).unwrap();
        let ratio = compared.ratio.unwrap();
        assert!((ratio.figure - 2.0).abs() < 1e-9 && (ratio.most - 3.0).abs() < 1e-9, "{ratio:?}");
        assert_eq!(compared.added, Spread { figure: 20.0, least: 20.0, most: 100.0 });
        assert_eq!(compared.judgement.unwrap().verdict, Verdict::Reached);
        assert_eq!(compared.p99_verdict, Some(Verdict::Missed));
        let line = compared.line();
        assert!(
            line.contains("2.00×") && line.contains("≤ +30 µs reached") && line.contains("2.5× MISSED"),
            "{line}"
        );
    }

    #[test]
    fn a_ratio_is_judged_as_it_is_printed() {
        for (ours, verdict) in [(100.4, Verdict::Reached), (100.6, Verdict::Missed)] {
            let rounds = pairs(&[(100.0, ours)], (1.0, 1.0));
            let compared = Comparison::new(row("write-read-4k"), Path::Unix, rounds).unwrap();
            assert_eq!(compared.judgement.unwrap().verdict, verdict, "{ours}");
        }
    }

    #[test]
    fn only_a_path_with_a_goal_is_judged() {
        let rounds = pairs(&[(10.0, 50.0)], (10.0, 90.0));
        let compared = Comparison::new(row("null"), Path::Tcp, rounds).unwrap();
        assert_eq!((compared.judgement, compared.p99_verdict), (None, None));
    }

    #[test]
    fn nothing_is_divided_by_zero_and_zero_wake_ups_can_be_reached() {
        let zero = Sample { p50: 0.0, p99: None };
        let compared = Comparison::new(row("idle-wake-ups"), Path::Unix, vec![(zero, zero)]).unwrap();
        assert_eq!(compared.ratio, None);
        assert_eq!(compared.judgement.unwrap().verdict, Verdict::Reached);
        assert!(Comparison::new(row("idle-wake-ups"), Path::Unix, Vec::new()).is_err());
    }
}
