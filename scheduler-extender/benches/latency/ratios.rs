//! The ratios of an earlier run, to which those of this run are compared.

use std::collections::BTreeMap;
use std::path::Path;

/// Part by which a ratio may exceed the earlier one. Less is within what two runs on one machine differ by.
const TOLERANCE: f64 = 0.1;

/// The ratio of each row.
#[derive(Debug, Default)]
pub struct Ratios(BTreeMap<String, f64>);

impl Ratios {
    pub fn put(&mut self, row: &str, ratio: f64) {
        self.0.insert(row.to_owned(), ratio);
    }

    /// Names the rows that have become worse.
    pub fn compare(&self) {
        let text = std::fs::read_to_string(file()).unwrap();
        let earlier: BTreeMap<String, f64> = serde_json::from_str(&text).unwrap();
        let mut worse = false;
        for (row, ratio) in &self.0 {
            match earlier.get(row) {
                Some(earlier) if *ratio > earlier * (1.0 + TOLERANCE) => {
                    worse = true;
                    println!("WORSE: {row} has the ratio {ratio:.2}; it was {earlier:.2}");
                }
                Some(_) => {}
                None => println!("{row} is not in ratios.json yet; write it with --save"),
            }
        }
        if !worse {
            println!("no row is more than {:.0} % worse than in ratios.json", TOLERANCE * 100.0);
        }
    }

    /// Writes the ratios of this run into the file.
    pub fn save(&self) {
        let rounded: BTreeMap<_, _> =
            self.0.iter().map(|(row, ratio)| (row, (ratio * 100.0).round() / 100.0)).collect();
        std::fs::write(file(), serde_json::to_string_pretty(&rounded).unwrap() + "\n").unwrap();
    }
}

fn file() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/latency/ratios.json")
}
