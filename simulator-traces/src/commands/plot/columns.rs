//! The files, columns and conditions of the command line, and labels for columns.

use std::path::PathBuf;
use std::str::FromStr;

/// A file and its name in the legend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) name: Option<String>,
    pub(super) path: PathBuf,
}

/// A condition on rows: the value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) column: String,
    pub(super) value: String,
}

/// The text is not a [`Condition`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no condition; write COLUMN=VALUE, for example policy=WRA")]
pub(super) struct InvalidCondition(String);

/// The quantity in a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Quantity {
    /// Label with the unit.
    pub(super) label: String,
    /// Factor from the column's numbers to the ones that are shown.
    pub(super) factor: f64,
}

impl Quantity {
    /// The quantity of a column whose name ends with its unit, as names of metrics do.
    pub(super) fn of(column: &str) -> Self {
        if column.contains("share") {
            return Self { label: format!("{}, %", words(column)), factor: 100.0 };
        }
        let units = [("_per_s", "1/s"), ("_ms", "ms"), ("_s", "s"), ("_percent", "%"), ("_mb", "MB")];
        let found = units.iter().find_map(|(end, unit)| Some((column.strip_suffix(end)?, *unit)));
        let label = found.map_or_else(|| words(column), |(name, unit)| format!("{}, {unit}", words(name)));
        Self { label, factor: 1.0 }
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once('=') {
            Some((name, path)) if !PathBuf::from(text).exists() => {
                Self { name: Some(name.to_owned()), path: path.into() }
            }
            _ => Self { name: None, path: text.into() },
        })
    }
}

impl FromStr for Condition {
    type Err = InvalidCondition;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (column, value) = text.split_once('=').ok_or_else(|| InvalidCondition(text.to_owned()))?;
        Ok(Self { column: column.to_owned(), value: value.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_called_by_words_with_its_unit() {
        for (column, label, factor) in [
            ("usage_median_s", "usage median, s", 1.0),
            ("cold_share_of_all", "cold share of all, %", 100.0),
            ("wait_p99_ms", "wait p99, ms", 1.0),
            ("throughput_per_s", "throughput, 1/s", 1.0),
            ("workload.p", "workload.p", 1.0),
        ] {
            assert_eq!(Quantity::of(column), Quantity { label: label.to_owned(), factor });
        }
    }

    #[test]
    fn a_file_may_have_a_name() {
        let named: Source = "0-0-0=out/nodes.csv".parse().unwrap();
        assert_eq!((named.name.as_deref(), named.path.to_str()), (Some("0-0-0"), Some("out/nodes.csv")));
        assert_eq!("nodes.csv".parse::<Source>().unwrap().name, None);
        assert!("policy".parse::<Condition>().unwrap_err().to_string().contains("write COLUMN=VALUE"));
    }
}
