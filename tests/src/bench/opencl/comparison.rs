//! Converts lines of JSON to rows of the table.

use super::plan::{Measure, Path};
use anyhow::{Context as _, Result};

/// The result of one run of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Median within the run.
    pub median: f64,
    /// 99th percentile within the run, where the program prints one.
    pub p99: Option<f64>,
}

/// The samples of one measure: one per round for each path.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    per_path: [Vec<Sample>; 4],
}

impl Sample {
    /// Reads the last line of a program's output.
    ///
    /// # Errors
    /// The line isn't JSON, or lacks a field of the measure.
    pub fn parse(measure: &Measure, output: &str) -> Result<Self> {
        let line = output.lines().last().context("the program printed nothing")?;
        let value: serde_json::Value =
            serde_json::from_str(line).with_context(|| format!("the program printed no JSON: {line}"))?;
        let field = |name: &str| {
            value[name].as_f64().with_context(|| format!("the field {name} is missing in: {line}"))
        };
        Ok(Self { median: field(measure.median)?, p99: measure.p99.map(field).transpose()? })
    }
}

impl Samples {
    /// Adds the result of a run on `path`.
    pub fn push(&mut self, path: Path, sample: Sample) {
        self.per_path[path as usize].push(sample);
    }

    /// The median over the rounds on a path.
    pub fn median(&self, path: Path) -> f64 {
        middle(self.per_path[path as usize].iter().map(|sample| sample.median))
    }

    fn p99(&self, path: Path) -> Option<f64> {
        let values: Option<Vec<f64>> = self.per_path[path as usize].iter().map(|sample| sample.p99).collect();
        values.map(|values| middle(values.into_iter()))
    }
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The head of the table.
#[must_use]
pub fn header() -> String {
    format!(
        "{:<29} {:<5} {:>12} {:>12} {:>12} {:>12} {:>8} {:>14}",
        "measure", "path", "native p50", "native p99", "ours p50", "ours p99", "ratio", "ours − native"
    )
}

/// A row, which compares `path` with the native path.
#[must_use]
pub fn row(measure: &Measure, path: Path, samples: &Samples) -> String {
    let unit = measure.unit;
    let figure = |value: f64| format!("{value:.1} {unit}");
    let p99 = |path| samples.p99(path).map_or_else(|| "-".to_owned(), figure);
    let (native, ours) = (samples.median(Path::Native), samples.median(path));
    format!(
        "{:<29} {:<5} {:>12} {:>12} {:>12} {:>12} {:>7.2}× {:>14}",
        measure.title,
        path.name(),
        figure(native),
        p99(Path::Native),
        figure(ours),
        p99(path),
        ours / native,
        figure(ours - native),
    )
}

#[cfg(test)]
mod tests {
    use super::super::plan::MEASURES;
    use super::*;

    #[test]
    fn the_last_line_of_a_program_is_its_measurement() {
        let output = "warming up\n{\"p50_us\": 41.5, \"p99_us\": 170.0}\n";
        let sample = Sample::parse(&MEASURES[0], output).unwrap();
        assert_eq!(sample, Sample { median: 41.5, p99: Some(170.0) });
        assert!(Sample::parse(&MEASURES[0], "{\"p50_us\": 1}").is_err());
    }

    #[test]
    fn a_row_compares_the_medians_of_the_rounds() {
        let mut samples = Samples::default();
        for (native, unix) in [(10.0, 30.0), (20.0, 40.0), (900.0, 9000.0)] {
            samples.push(Path::Native, Sample { median: native, p99: None });
            samples.push(Path::Unix, Sample { median: unix, p99: None });
        }
        let row = row(&MEASURES[3], Path::Unix, &samples);
        assert!(row.contains("2.00×") && row.contains("20.0 ms"), "{row}");
    }
}
