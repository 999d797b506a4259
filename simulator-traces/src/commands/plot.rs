//! `fpga-sim plot`: draws the papers' figures from the files that `run --series` and `sweep --csv` write.

mod columns;

use crate::figure::{Figure, Plot as Shown};
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use columns::{Condition, Quantity, Source};
use std::path::PathBuf;

/// Draws a figure from comma-separated values, as SVG and PNG.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fpga-sim run --scenario placement.toml --series out\n  \
                  fpga-sim plot cdf --csv out/samples.csv --value usage_median_s --output usage.svg\n  \
                  fpga-sim plot bars --csv 0-0-0=a/nodes.csv --csv 1-2-2=b/nodes.csv --x node --value cold_starts --output nodes.png\n  \
                  fpga-sim sweep --scenario placement.toml --vary workload.p=0.25,0.5 --vary workload.r=0.25,0.75 --csv sweep.csv\n  \
                  fpga-sim plot heat-map --csv sweep.csv --x workload.r --y workload.p --value cold_share_of_all --output heat.svg\n  \
                  fpga-sim run --scenario pool.toml --series out\n  \
                  fpga-sim plot lines --csv out/runs.csv --x load --value act_gain --by policy --output pool.svg\n  \
                  fpga-sim run --scenario qos.toml --series out\n  \
                  fpga-sim plot lines --csv out/jobs.csv --only policy=throughput --x at_s --value devices --by job --output qos.svg")]
pub struct Plot {
    /// What to draw.
    #[arg(value_enum)]
    kind: Kind,
    /// A file with the numbers; may be given again. `NAME=FILE` gives the file a name for the legend.
    #[arg(long, env = "FPGA_SIM_CSV", value_name = "FILE", value_delimiter = ';', required = true)]
    csv: Vec<Source>,
    /// The column with the values.
    #[arg(long, env = "FPGA_SIM_VALUE", value_name = "COLUMN")]
    value: String,
    /// The column for the horizontal axis of lines, bars and heat maps.
    #[arg(long, env = "FPGA_SIM_X", value_name = "COLUMN")]
    x: Option<String>,
    /// The column for the vertical axis of heat maps.
    #[arg(long, env = "FPGA_SIM_Y", value_name = "COLUMN")]
    y: Option<String>,
    /// A column whose values get different colours.
    #[arg(long, env = "FPGA_SIM_BY", value_name = "COLUMN")]
    by: Option<String>,
    /// Only rows with this value in that column; may be given again.
    #[arg(long, env = "FPGA_SIM_ONLY", value_name = "COLUMN=VALUE", value_delimiter = ';')]
    only: Vec<Condition>,
    /// Title of the figure; the name of the value's column if not given.
    #[arg(long, env = "FPGA_SIM_TITLE", default_value = "")]
    title: String,
    /// Label of the horizontal axis; made of the column's name if not given.
    #[arg(long, env = "FPGA_SIM_X_LABEL", value_name = "TEXT")]
    x_label: Option<String>,
    /// Label of the vertical axis; made of the column's name if not given.
    #[arg(long, env = "FPGA_SIM_Y_LABEL", value_name = "TEXT")]
    y_label: Option<String>,
    /// File for the figure, `.svg` or `.png`; may be given again.
    #[arg(long, env = "FPGA_SIM_OUTPUT", value_name = "FILE", value_delimiter = ';', required = true)]
    output: Vec<PathBuf>,
}

/// The kinds of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Cumulative distributions.
    Cdf,
    /// Lines through the means at each number.
    Lines,
    /// Bars side by side; means where several rows have the same label, and a cross where no row has a number.
    Bars,
    /// A coloured cell for each pair of parameters; means where several rows have the same pair.
    HeatMap,
}

/// The part of a file's row that the figure needs.
struct Row {
    series: String,
    x: String,
    y: String,
    /// `None` if the run lacks the metric.
    value: Option<f64>,
}

/// A figure, and the names that are not in it since none of their rows has a number.
struct Made {
    figure: Figure,
    left_out: Vec<String>,
}

impl Plot {
    /// Runs the command.
    ///
    /// # Errors
    /// If a file can't be read or written, or lacks a column.
    pub fn run(&self) -> anyhow::Result<()> {
        let Made { figure, left_out } = self.figure()?;
        if !left_out.is_empty() {
            eprintln!("not drawn, since no row has a number in {}: {}", self.value, left_out.join(", "));
        }
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

    fn figure(&self) -> anyhow::Result<Made> {
        let mut rows: Vec<Row> = Vec::new();
        for source in &self.csv {
            self.read(source, &mut rows).with_context(|| source.path.display().to_string())?;
        }
        let value = Quantity::of(&self.value);
        for number in rows.iter_mut().filter_map(|row| row.value.as_mut()) {
            *number *= value.factor;
        }
        // Bars have crosses for missing numbers.
        let names = |of: &dyn Fn(&Row) -> &String| {
            let is_drawn = |row: &&Row| self.kind == Kind::Bars || row.value.is_some();
            let drawn = distinct(rows.iter().filter(is_drawn).map(of));
            let left_out = distinct(rows.iter().map(of)).into_iter().filter(|name| !drawn.contains(name));
            (left_out.collect::<Vec<_>>(), drawn)
        };
        let (left_out_series, series) = names(&|row| &row.series);
        let ((left_out_x, x), (left_out_y, y)) = (names(&|row| &row.x), names(&|row| &row.y));
        let left_out = [left_out_series, left_out_x, left_out_y].concat();
        let mean = |wanted: &dyn Fn(&Row) -> bool| {
            let values: Vec<f64> =
                rows.iter().filter(|row| wanted(row)).filter_map(|row| row.value).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let plot = match self.kind {
            Kind::Cdf => {
                let of = |name: &String| {
                    rows.iter().filter(|row| row.series == *name).filter_map(|row| row.value).collect()
                };
                Shown::Distributions(series.iter().map(|name| (name.clone(), of(name))).collect())
            }
            Kind::Lines => {
                let mut at = Vec::new();
                for label in &x {
                    let number: f64 = label.parse().with_context(|| {
                        format!(
                            "{label:?} is no number: lines go over numbers; write another --x, or draw bars"
                        )
                    })?;
                    at.push((number, label));
                }
                at.sort_by(|(a, _), (b, _)| a.total_cmp(b));
                let line = |name: &String| -> Vec<(f64, f64)> {
                    let point = |(x, label): &(f64, &String)| {
                        Some((*x, mean(&|row| row.series == *name && row.x == **label)?))
                    };
                    at.iter().filter_map(point).collect()
                };
                Shown::Lines(series.iter().map(|name| (name.clone(), line(name))).collect())
            }
            Kind::Bars => {
                let bar = |name: &String, label: &String| mean(&|row| row.series == *name && row.x == *label);
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
        let label = |column: &Option<String>| {
            column.as_deref().map_or(String::new(), |name| Quantity::of(name).label)
        };
        let (x, y) = match self.kind {
            Kind::Cdf => (value.label.clone(), "share of all values".to_owned()),
            Kind::Lines | Kind::Bars => (label(&self.x), value.label.clone()),
            Kind::HeatMap => (label(&self.x), label(&self.y)),
        };
        let title = if self.title.is_empty() { value.label } else { self.title.clone() };
        let (x, y) = (self.x_label.clone().unwrap_or(x), self.y_label.clone().unwrap_or(y));
        Ok(Made { figure: Figure { title, x, y, plot }, left_out })
    }

    fn read(&self, source: &Source, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        let mut reader = csv::Reader::from_path(&source.path)?;
        let heads = reader.headers()?.clone();
        if heads.is_empty() {
            bail!("it is empty; the first line must name the columns");
        }
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
        let only = self.only.iter().map(|only| Ok((find(&only.column)?, &only.value)));
        let only = only.collect::<anyhow::Result<Vec<_>>>()?;
        let before = rows.len();
        for record in reader.records() {
            let record = record?;
            let text = |index: Option<usize>| index.and_then(|index| record.get(index)).unwrap_or_default();
            if only.iter().any(|(index, value)| text(Some(*index)) != value.as_str()) {
                continue;
            }
            let number = text(Some(value));
            // An empty cell means that the run lacks the metric.
            let value = match number {
                "" => None,
                number => Some(
                    number.parse().with_context(|| format!("{number:?} in {} is no number", self.value))?,
                ),
            };
            let file = source.name.clone().or_else(|| {
                (self.csv.len() > 1).then(|| source.path.with_extension("").display().to_string())
            });
            // Put the column's name before a number in the legend.
            let named = self.by.as_ref().map(|name| match text(by) {
                number if number.parse::<f64>().is_ok() => format!("{name} {number}"),
                word => word.to_owned(),
            });
            let name = [file, named].into_iter().flatten().collect::<Vec<_>>().join(" ");
            let series = if name.is_empty() { self.value.clone() } else { name };
            rows.push(Row { series, x: text(x).to_owned(), y: text(y).to_owned(), value });
        }
        if rows[before..].iter().all(|row| row.value.is_none()) {
            bail!("no row has a number in {:?} and fits --only", self.value);
        }
        Ok(())
    }
}

/// The distinct names in the order of appearance.
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
        make(args, csv).map(|made| made.figure)
    }

    fn make(args: &str, csv: &str) -> anyhow::Result<Made> {
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
        assert_eq!(
            bars,
            Shown::Bars { labels, series: vec![("cold".to_owned(), vec![Some(5.0), Some(8.0)])] }
        );
    }

    #[test]
    fn a_missing_bar_is_a_gap_with_a_cross_and_no_bar_of_zero() {
        let drawn = |row: &str| {
            let csv = format!("p,r,cold\n0.2,a,4\n0.4,a,6\n0.4,b,8\n{row}");
            plot("bars --value cold --x p --by r", &csv).unwrap().svg().unwrap()
        };
        let (missing, zero) = (drawn("0.2,b,\n"), drawn("0.2,b,0\n"));
        let count = |svg: &str, element: &str| svg.matches(element).count();
        assert_eq!(count(&missing, "<rect") + 1, count(&zero, "<rect"), "{missing}");
        assert_eq!(count(&missing, "<line"), count(&zero, "<line") + 2, "{missing}");
    }

    #[test]
    fn a_name_without_any_number_is_told_or_has_crosses() {
        for args in ["lines --value cold --x p --by r", "heat-map --value cold --x p --y r"] {
            let left_out = make(args, SWEEP).unwrap().left_out;
            assert!(matches!(&left_out[..], [name] if name.ends_with("0.7")), "{left_out:?}");
        }
        let bars = make("bars --value cold --x r", SWEEP).unwrap();
        let labels = vec!["0.5".to_owned(), "0.7".to_owned()];
        let series = vec![("cold".to_owned(), vec![Some(6.0), None])];
        assert_eq!(bars.figure.plot, Shown::Bars { labels, series });
        assert!(bars.left_out.is_empty());
    }

    #[test]
    fn lines_go_over_numbers_and_only_through_rows_that_are_wanted() {
        let lines = plot("lines --value cold --x p --by r --only seed=1", SWEEP).unwrap().plot;
        assert_eq!(lines, Shown::Lines(vec![("r 0.5".to_owned(), vec![(0.2, 4.0), (0.4, 8.0)])]));
        let error = plot("lines --value v --x name", "name,v\na,1\n").unwrap_err();
        assert!(error.to_string().contains("write another --x"), "{error}");
    }

    #[test]
    fn what_is_missing_is_told() {
        for (args, hint) in [
            ("cdf --value colt", "write one of p, r, seed, cold"),
            ("bars --value cold", "--x COLUMN"),
            ("heat-map --value cold --x p", "--y COLUMN"),
            ("cdf --value cold --only seed=7", "no row"),
        ] {
            let error = format!("{:#}", plot(args, SWEEP).unwrap_err());
            assert!(error.contains(hint), "{error}");
        }
        assert!(plot("cdf --value p", "p\nx\n").is_err());
        assert!(format!("{:#}", plot("cdf --value p", "").unwrap_err()).contains("it is empty"));
    }
}
