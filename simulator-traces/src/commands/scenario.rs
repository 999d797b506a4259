//! `fpga-sim scenario`: prints a scenario file with all options, as a template.

use crate::output::print;
use clap::{Args, ValueEnum};

/// Prints a scenario with all options, their meanings and their defaults.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  fpga-sim scenario placement > scenario.toml\n  fpga-sim run --scenario scenario.toml"
)]
pub struct Scenario {
    /// The kind of scenario.
    #[arg(value_enum)]
    kind: Kind,
}

/// The kinds of scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Functions placed on nodes with boards.
    Placement,
    /// One pool of slots for the jobs of all nodes.
    Pool,
    /// Devices allocated by deadlines and throughputs.
    Qos,
}

impl Scenario {
    /// Runs the command.
    ///
    /// # Errors
    /// Standard output can't be written to.
    pub fn run(&self) -> anyhow::Result<()> {
        Ok(print(self.kind.text())?)
    }
}

impl Kind {
    fn text(self) -> &'static str {
        match self {
            Self::Placement => include_str!("../../scenarios/placement/all-options.toml"),
            Self::Pool => include_str!("../../scenarios/pool/all-options.toml"),
            Self::Qos => include_str!("../../scenarios/qos/all-options.toml"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario as Parsed;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The names of the `pub` fields in source files.
    fn fields(sources: &[&str]) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut names = BTreeSet::new();
        for source in sources {
            let path = folder.join(source);
            let files = match path.is_dir() {
                true => std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect(),
                false => vec![path],
            };
            for file in files {
                let text = std::fs::read_to_string(file).unwrap();
                let lines = text.lines().filter_map(|line| line.trim().strip_prefix("pub "));
                let names_of = lines.filter_map(|line| line.split_once(": ")).map(|(name, _)| name);
                // The text of a function before its first colon has spaces.
                names.extend(names_of.filter(|name| !name.contains(' ')).map(str::to_owned));
            }
        }
        names
    }

    fn assert_told(kind: Kind, fields: &BTreeSet<String>) {
        assert!(fields.len() > 10, "{fields:?}");
        let is_told = |name: &String| {
            kind.text().lines().any(|line| {
                let line = line.trim_start_matches(['#', ' ']);
                line.starts_with(&format!("{name} ="))
                    || line.contains(&format!("[{name}]"))
                    || line.contains(&format!("{name} = "))
            })
        };
        let missing: Vec<&String> = fields.iter().filter(|name| !is_told(name)).collect();
        assert!(missing.is_empty(), "{kind:?}: {missing:?} are options that nobody is told of");
    }

    #[test]
    fn every_option_is_told() {
        assert_told(Kind::Placement, &fields(&["placement/options.rs", "placement/options"]));
        assert_told(Kind::Pool, &fields(&["pool.rs", "pool/options.rs"]));
        assert_told(Kind::Qos, &fields(&["qos.rs", "qos/options.rs"]));
    }

    #[test]
    fn what_is_told_holds_without_being_said() {
        let Parsed::Placement(told) = Parsed::parse(Kind::Placement.text()).unwrap() else {
            panic!("its kind")
        };
        let Parsed::Placement(default) = Parsed::parse("kind = \"placement\"").unwrap() else {
            panic!("its kind")
        };
        assert_eq!(format!("{told:?}"), format!("{default:?}"));
        let Parsed::Pool(told) = Parsed::parse(Kind::Pool.text()).unwrap() else { panic!("its kind") };
        let Parsed::Pool(default) = Parsed::parse("kind = \"pool\"").unwrap() else { panic!("its kind") };
        assert_eq!(format!("{told:?}"), format!("{default:?}"));
        let Parsed::Qos(told) = Parsed::parse(Kind::Qos.text()).unwrap() else { panic!("its kind") };
        let jobs = "kind = \"qos\"\n[[jobs]]\nactions = 3000\ndeadline_s = 120.0";
        let Parsed::Qos(default) = Parsed::parse(jobs).unwrap() else { panic!("its kind") };
        assert_eq!(format!("{:?}", told.devices), format!("{:?}", default.devices));
        assert_eq!(format!("{:?}", told.control), format!("{:?}", default.control));
    }
}
