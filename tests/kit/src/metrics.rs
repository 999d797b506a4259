//! Metrics in Prometheus' text format.

/// The values of all lines that begin with `prefix`, by line without the value.
pub fn values<'t>(text: &'t str, prefix: &'t str) -> impl Iterator<Item = (&'t str, f64)> + use<'t> {
    text.lines().filter(move |line| line.starts_with(prefix)).map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no metric: {line}"));
        (series, value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
    })
}

/// The sum of all lines that begin with `prefix`.
#[must_use]
pub fn sum(text: &str, prefix: &str) -> f64 {
    values(text, prefix).map(|(_, value)| value).sum()
}

/// The value of a series, written as in the text: `name` or `name{label="value"}`.
#[must_use]
pub fn value(text: &str, series: &str) -> Option<f64> {
    values(text, series).find(|(it, _)| *it == series).map(|(_, value)| value)
}
