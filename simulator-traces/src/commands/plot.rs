//! `fpga-sim plot`: the papers' figures from the files that `run --series` and `sweep --csv` write.

use crate::figure::{Figure, Plot as Shown};
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// Draws a figure from comma-separated values, as SVG and PNG.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fpga-sim run --scenario scenario.toml --series out\n  \
                  fpga-sim plot cdf --csv out/samples.csv --value usage_median_s --output usage.svg\n  \
                  fpga-sim plot bars --csv out/nodes.csv --x node --value cold_starts --output nodes.png\n  \
                  fpga-sim sweep --scenario scenario.toml --vary workload.p=0.25,0.5 --vary workload.r=0.25,0.75 --csv sweep.csv\n  \
                  fpga-sim plot heat-map --csv sweep.csv --x workload.p --y workload.r --value cold_share_of_all --output heat.svg")]
pub struct Plot {
    /// What to draw.
    #[arg(value_enum)]
    kind: Kind,
    /// Where the numbers are; several files are told apart by their paths.
    #[arg(long, env = "FPGA_SIM_CSV", value_name = "FILE", value_delimiter = ';', required = true)]
    csv: Vec<PathBuf>,
    /// The column that is shown.
    #[arg(long, env = "FPGA_SIM_VALUE", value_name = "COLUMN")]
    value: String,
    /// The column of the labels below: of bars and heat maps.
    #[arg(long, env = "FPGA_SIM_X", value_name = "COLUMN")]
    x: Option<String>,
    /// The column of the labels at the side: of heat maps.
    #[arg(long, env = "FPGA_SIM_Y", value_name = "COLUMN")]
    y: Option<String>,
    /// A column whose values are told apart by colour.
    #[arg(long, env = "FPGA_SIM_BY", value_name = "COLUMN")]
    by: Option<String>,
    /// What stands above the figure.
    #[arg(long, env = "FPGA_SIM_TITLE", default_value = "")]
    title: String,
    /// Where to write it, `.svg` or `.png`; may be given again.
    #[arg(long, env = "FPGA_SIM_OUTPUT", value_name = "FILE", value_delimiter = ';', required = true)]
    output: Vec<PathBuf>,
}

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Cumulative distributions.
    Cdf,
    /// Bars side by side.
    Bars,
    /// A coloured cell for each pair of parameters; means where there are several rows for it.
    HeatMap,
}

/// One row of a file, as far as it is wanted.
struct Row {
    series: String,
    x: String,
    y: String,
    value: f64,
}

impl Plot {
    /// Does it.
    ///
    /// # Errors
    /// If a file can't be read or written, or has no such column.
    pub fn run(&self) -> anyhow::Result<()> {
        let figure = self.figure()?;
        for path in &self.output {
            let bytes = match path.extension().and_then(|extension| extension.to_str()) {
                Some("svg") => figure.svg()?.into_bytes(),
                Some("png") => figure.png()?,
                _ => bail!("{}: write a name that ends in .svg or .png", path.display()),
            };
            std::fs::write(path, bytes).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn figure(&self) -> anyhow::Result<Figure> {
        let mut rows = Vec::new();
        for path in &self.csv {
            self.read(path, &mut rows).with_context(|| path.display().to_string())?;
        }
        let series = distinct(rows.iter().map(|row| &row.series));
        let (x, y) = (distinct(rows.iter().map(|row| &row.x)), distinct(rows.iter().map(|row| &row.y)));
        let mean = |wanted: &dyn Fn(&Row) -> bool| {
            let values: Vec<f64> = rows.iter().filter(|row| wanted(row)).map(|row| row.value).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let plot = match self.kind {
            Kind::Cdf => {
                let of = |name: &String| {
                    rows.iter().filter(|row| row.series == *name).map(|row| row.value).collect()
                };
                Shown::Distributions(series.iter().map(|name| (name.clone(), of(name))).collect())
            }
            Kind::Bars => {
                let bar = |name: &String, label: &String| {
                    mean(&|row| row.series == *name && row.x == *label).unwrap_or(0.0)
                };
                let of = |name: &String| x.iter().map(|label| bar(name, label)).collect();
                let series = series.iter().map(|name| (name.clone(), of(name))).collect();
                Shown::Bars { labels: x, series }
            }
            Kind::HeatMap => {
                let cell = |row: &String, column: &String| mean(&|is| is.y == *row && is.x == *column);
                let cells = y.iter().map(|row| x.iter().map(|column| cell(row, column)).collect()).collect();
                Shown::HeatMap { columns: x, rows: y, cells }
            }
        };
        let (x, y) = match self.kind {
            Kind::Cdf => (self.value.clone(), "share".to_owned()),
            Kind::Bars => (self.x.clone().unwrap_or_default(), self.value.clone()),
            Kind::HeatMap => (self.x.clone().unwrap_or_default(), self.y.clone().unwrap_or_default()),
        };
        let title = if self.title.is_empty() { self.value.clone() } else { self.title.clone() };
        Ok(Figure { title, x, y, plot })
    }

    fn read(&self, path: &Path, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        let mut reader = csv::Reader::from_path(path)?;
        let heads = reader.headers()?.clone();
        let find = |name: &str| {
            heads.iter().position(|head| head == name).with_context(|| {
                format!(
                    "there is no column {name:?}; write one of {}",
                    heads.iter().collect::<Vec<_>>().join(", ")
                )
            })
        };
        let value = find(&self.value)?;
        let wanted = |flag: &str, column: &Option<String>, is_wanted: bool| match column {
            Some(column) => find(column).map(Some),
            None if is_wanted => bail!("say with {flag} COLUMN what the labels are"),
            None => Ok(None),
        };
        let x = wanted("--x", &self.x, self.kind != Kind::Cdf)?;
        let y = wanted("--y", &self.y, self.kind == Kind::HeatMap)?;
        let by = wanted("--by", &self.by, false)?;
        for record in reader.records() {
            let record = record?;
            let text = |index: Option<usize>| index.and_then(|index| record.get(index)).unwrap_or_default();
            let number = text(Some(value));
            // An empty cell: this run had no such number.
            if number.is_empty() {
                continue;
            }
            let value =
                number.parse().with_context(|| format!("{number:?} in {} is no number", self.value))?;
            let file = (self.csv.len() > 1).then(|| path.with_extension("").display().to_string());
            let name = [file, self.by.as_ref().map(|by_name| format!("{by_name} {}", text(by)))];
            let name = name.into_iter().flatten().collect::<Vec<_>>().join(" ");
            let series = if name.is_empty() { self.value.clone() } else { name };
            rows.push(Row { series, x: text(x).to_owned(), y: text(y).to_owned(), value });
        }
        Ok(())
    }
}

/// Each once, in order of appearance.
fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        plot: Plot,
    }

    fn plot(args: &str, csv: &str) -> anyhow::Result<Figure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        std::fs::write(&path, csv).unwrap();
        let args = format!("plot {args} --output a.svg --csv {}", path.display());
        Line::parse_from(args.split(' ')).plot.figure()
    }

    const SWEEP: &str = "p,r,seed,cold\n0.2,0.5,1,4\n0.2,0.5,2,6\n0.4,0.5,1,8\n0.4,0.7,1,\n";

    #[test]
    fn a_heat_map_has_a_cell_for_each_pair_and_means_of_several_rows() {
        let figure = plot("heat-map --x p --y r --value cold", SWEEP).unwrap();
        let cells = vec![vec![Some(5.0), Some(8.0)]];
        let (columns, rows) = (vec!["0.2".to_owned(), "0.4".to_owned()], vec!["0.5".to_owned()]);
        assert_eq!(figure.plot, Shown::HeatMap { columns, rows, cells });
        assert_eq!((figure.x.as_str(), figure.y.as_str()), ("p", "r"));
    }

    #[test]
    fn distributions_and_bars_are_told_apart_by_a_column() {
        let cdf = plot("cdf --value cold --by p", SWEEP).unwrap().plot;
        let curves = vec![("p 0.2".to_owned(), vec![4.0, 6.0]), ("p 0.4".to_owned(), vec![8.0])];
        assert_eq!(cdf, Shown::Distributions(curves));
        let bars = plot("bars --value cold --x p", SWEEP).unwrap().plot;
        let labels = vec!["0.2".to_owned(), "0.4".to_owned()];
        assert_eq!(bars, Shown::Bars { labels, series: vec![("cold".to_owned(), vec![5.0, 8.0])] });
    }

    #[test]
    fn what_is_missing_is_told() {
        for (args, hint) in [
            ("cdf --value colt", "write one of p, r, seed, cold"),
            ("bars --value cold", "--x COLUMN"),
            ("heat-map --value cold --x p", "--y COLUMN"),
        ] {
            let error = format!("{:#}", plot(args, SWEEP).unwrap_err());
            assert!(error.contains(hint), "{error}");
        }
        assert!(plot("cdf --value p", "p\nx\n").is_err());
    }
}
