//! Scenarios: TOML files whose `kind` selects the model. The module of each kind has its own `Scenario` type, so that
//! an error for a wrong key or value has its line.

use crate::error::ScenarioError;
use crate::outcome::Outcome;
use crate::{placement, pool, qos};
use serde::Deserialize;
use std::path::Path;

/// One scenario of any kind.
#[derive(Debug, Clone)]
pub enum Scenario {
    /// Functions that are placed on nodes with boards (S).
    Placement(Box<placement::Scenario>),
    /// One pool of slots for the jobs of all nodes (P).
    Pool(Box<pool::Scenario>),
    /// Devices that are allocated by goals (Q).
    Qos(Box<qos::Scenario>),
}

/// The key that is read before the kind is known.
#[derive(Deserialize)]
struct Head {
    kind: Kind,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Placement,
    Pool,
    Qos,
}

impl Scenario {
    /// Reads the scenario in a file and applies changes of the form `PATH=VALUE`.
    ///
    /// # Errors
    /// [`ScenarioError`] if the file can't be read or understood, or a change can't be applied.
    pub fn read(path: &Path, changes: &[String]) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        // Parse the unchanged file first, so that errors have its line numbers.
        let unchanged = Self::parse(&text)?;
        if changes.is_empty() { Ok(unchanged) } else { Self::parse_changed(&text, changes) }
    }

    /// Parses a scenario.
    ///
    /// # Errors
    /// [`ScenarioError::Toml`] with line and column.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let Head { kind } = toml::from_str(text)?;
        Ok(match kind {
            Kind::Placement => Self::Placement(toml::from_str(text)?),
            Kind::Pool => Self::Pool(toml::from_str(text)?),
            Kind::Qos => Self::Qos(toml::from_str(text)?),
        })
    }

    /// Parses a scenario after applying `changes`, each `PATH=VALUE`.
    ///
    /// # Errors
    /// [`ScenarioError::Change`] if a change has no valid path; [`ScenarioError::Toml`] if the result is no scenario.
    pub fn parse_changed(text: &str, changes: &[String]) -> Result<Self, ScenarioError> {
        let mut table: toml::Table = toml::from_str(text)?;
        for change in changes {
            let invalid = || ScenarioError::Change(change.clone());
            let (path, value) = change.split_once('=').ok_or_else(invalid)?;
            set(&mut table, path.trim(), value_of(value.trim())).ok_or_else(invalid)?;
        }
        Self::parse(&table.to_string())
    }

    /// Simulates the scenario.
    ///
    /// # Errors
    /// [`ScenarioError`] if the scenario is invalid, its trace can't be used, or an invariant was broken.
    pub fn run(&self) -> Result<Outcome, ScenarioError> {
        match self {
            Self::Placement(scenario) => placement::run(scenario),
            Self::Pool(scenario) => pool::run(scenario),
            Self::Qos(scenario) => qos::run(scenario),
        }
    }
}

/// Parses a TOML value; a text that is none becomes a string.
fn value_of(text: &str) -> toml::Value {
    let line = format!("value = {text}");
    let parsed = toml::from_str::<toml::Table>(&line).ok().and_then(|mut table| table.remove("value"));
    parsed.unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

fn set(table: &mut toml::Table, path: &str, value: toml::Value) -> Option<()> {
    let (last, parents) = {
        let mut names: Vec<&str> = path.split('.').collect();
        (names.pop()?, names)
    };
    let mut table = table;
    for name in parents {
        let entry = table.entry(name).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        table = entry.as_table_mut()?;
    }
    if last.is_empty() {
        return None;
    }
    table.insert(last.to_owned(), value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_told_with_its_line() {
        let error = |text: &str| Scenario::parse(text).unwrap_err().to_string();
        assert!(error("\nkind = \"weather\"\n").contains("line 2"), "{}", error("\nkind = \"weather\"\n"));
        let text = "kind = \"placement\"\n[cluster]\nnodes = 10\nsluts = 4\n";
        assert!(error(text).contains("line 4") && error(text).contains("sluts"), "{}", error(text));
    }

    #[test]
    fn any_value_can_be_changed_by_its_path() {
        let text = "kind = \"placement\"\n[cluster]\nnodes = 10\n";
        let changes = ["cluster.nodes=20".to_owned(), "placement.weights=0-0-0".to_owned()];
        let Scenario::Placement(changed) = Scenario::parse_changed(text, &changes).unwrap() else {
            panic!("its kind")
        };
        assert_eq!(changed.cluster.nodes, 20);
        for wrong in ["cluster.nodes", "cluster.nodes.deep=1", "=3"] {
            let error = Scenario::parse_changed(text, &[wrong.to_owned()]).unwrap_err();
            assert!(error.to_string().contains("write PATH=VALUE"), "{error}");
        }
    }
}
