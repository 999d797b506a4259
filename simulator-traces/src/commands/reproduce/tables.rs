//! The tables of the document, which compare our figures with the paper's.

use super::paper::{AT_TEN, BY_NODES, BY_SIZE, BY_WEIGHTS, GRID, Pair, SHARES};
use super::readings::{Detail, READINGS, Reading};
use super::runs::{Change, Runs, Values};
use crate::outcome::Table;
use std::fmt::Write as _;

const COLD: &str = "cold_share_of_all";
const LOADS: &str = "reconfigurations_per_node_median";
/// Greatest relative difference at which our figure counts as equal in size to the paper's.
const SIZE: f64 = 0.25;

/// All tables with their explanations.
pub(super) fn all(runs: &Runs) -> String {
    let mut text = String::new();
    for section in [meanings, agreement, cold_starts, reconfigurations, at_ten_nodes, weights, sizes, grid] {
        section(runs, &mut text);
    }
    text
}

fn meanings(_: &Runs, text: &mut String) {
    text.push_str("## What each reading means\n\n");
    let rows = READINGS.iter().map(|reading| vec![reading.name.to_owned(), reading.means.to_owned()]);
    text.push_str(&table(&["reading", "what it means"], rows.collect()));
}

/// The paper's figure with 0-0-0 and 1-2-2, and ours.
struct Compared {
    ours: (Values, Values),
    paper: Pair,
}

impl Compared {
    fn new(runs: &Runs, reading: &Reading, nodes: u32, metric: &str, paper: Pair) -> Self {
        let factor = if metric == COLD { 100.0 } else { 1.0 };
        let of = |weights: &str| runs.values(&reading.with(nodes, weights), metric, factor);
        Self { ours: (of("0-0-0"), of("1-2-2")), paper }
    }

    fn change(&self) -> Change {
        self.ours.0.change_to(&self.ours.1)
    }

    fn goes_like_the_papers(&self) -> Option<bool> {
        self.change().goes_like(self.paper.1 - self.paper.0)
    }

    fn is_of_its_size(&self) -> bool {
        let near = |ours: &Values, paper: f64| (ours.mean() / paper - 1.0).abs() <= SIZE;
        near(&self.ours.0, self.paper.0) && near(&self.ours.1, self.paper.1)
    }

    fn cell(&self, digits: usize) -> String {
        let (before, after) = (self.ours.0.mean(), self.ours.1.mean());
        if !(before.is_finite() && after.is_finite()) {
            return "–".to_owned();
        }
        format!("{before:.digits$} → {after:.digits$} ({})", self.change())
    }
}

/// The verdict on our figures in one or two words.
fn verdict(compared: &[Compared]) -> String {
    let directions: Vec<Option<bool>> = compared.iter().map(Compared::goes_like_the_papers).collect();
    let direction = match () {
        () if directions.iter().all(|goes| *goes == Some(true)) => "direction",
        () if directions.contains(&Some(false)) => "opposite",
        () => "",
    };
    let size = if compared.iter().all(Compared::is_of_its_size) { "size" } else { "" };
    let said: Vec<&str> = [direction, size].into_iter().filter(|word| !word.is_empty()).collect();
    let one_seed = compared.iter().any(|compared| !compared.change().half.is_finite());
    match said.join(", ") {
        nothing if nothing.is_empty() => "–".to_owned(),
        said if one_seed => format!("({said})"),
        said => said,
    }
}

fn agreement(runs: &Runs, text: &mut String) {
    text.push_str("\n## Which readings agree with the paper, figure by figure\n\n");
    text.push_str(
        "\"direction\": going from 0-0-0 to 1-2-2 changes the figure as in the paper, by more than the 95 % interval over \
         seeds (for figures with three numbers of nodes, at all of them); \"opposite\": it changes the other way by more than \
         that, somewhere; \"size\": our figures under 0-0-0 and under 1-2-2 are within a quarter of the paper's; –: none of \
         these; in parentheses: by one seed only, without an interval.\n\n",
    );
    let mut columns = vec!["reading", "cold starts", "grow with nodes", "reconfigurations per node"];
    columns.extend(AT_TEN.iter().map(|(name, ..)| *name));
    let rows = READINGS.iter().map(|reading| {
        let cold = BY_NODES.map(|(nodes, _, paper)| Compared::new(runs, reading, nodes, COLD, paper));
        let loads = BY_NODES.map(|(nodes, paper, _)| Compared::new(runs, reading, nodes, LOADS, paper));
        let of_nodes: Vec<&Values> = cold.iter().map(|compared| &compared.ours.0).collect();
        let grows = of_nodes.windows(2).all(|pair| pair[0].change_to(pair[1]).goes_like(1.0) == Some(true));
        let grows = if grows { "yes" } else { "no" }.to_owned();
        let others = AT_TEN
            .iter()
            .map(|(_, metric, paper)| verdict(&[Compared::new(runs, reading, 10, metric, *paper)]));
        let first = [reading.name.to_owned(), verdict(&cold), grows, verdict(&loads)];
        first.into_iter().chain(others).collect()
    });
    text.push_str(&table(&columns, rows.collect()));
}

fn cold_starts(runs: &Runs, text: &mut String) {
    text.push_str("\n## Cold starts, share of all requests (Table 6.2)\n\n");
    text.push_str(
        "0-0-0 → 1-2-2 in per cent, and the change of the mean with its 95 % interval over seeds.\n\n",
    );
    by_nodes(runs, text, COLD, 2, |(_, _, cold)| cold);
}

fn reconfigurations(runs: &Runs, text: &mut String) {
    text.push_str("\n## Reconfigurations per node (Table 6.2)\n\n0-0-0 → 1-2-2, median over nodes.\n\n");
    by_nodes(runs, text, LOADS, 0, |(_, loads, _)| loads);
}

fn by_nodes(
    runs: &Runs,
    text: &mut String,
    metric: &str,
    digits: usize,
    of_paper: fn((u32, Pair, Pair)) -> Pair,
) {
    let paper = BY_NODES.map(|row| paper_cell(of_paper(row), digits));
    let mut rows = vec![row("**paper**", paper)];
    rows.extend(READINGS.iter().map(|reading| {
        let cells = BY_NODES
            .map(|figures| Compared::new(runs, reading, figures.0, metric, of_paper(figures)).cell(digits));
        row(reading.name, cells)
    }));
    text.push_str(&table(&["reading", "10 nodes", "20 nodes", "40 nodes"], rows));
}

fn at_ten_nodes(runs: &Runs, text: &mut String) {
    text.push_str("\n## Usage and balance at 10 nodes (Tables 6.1 and 6.3)\n\n");
    text.push_str(
        "0-0-0 → 1-2-2. Usage: distribution over time of the median over nodes of the 5-minute window. Variation: \
         coefficient over nodes, mean over time.\n\n",
    );
    let columns: Vec<&str> =
        std::iter::once("reading").chain(AT_TEN.iter().map(|(name, ..)| *name)).collect();
    let mut rows = vec![row("**paper**", AT_TEN.map(|(_, _, paper)| paper_cell(paper, 2)))];
    rows.extend(READINGS.iter().map(|reading| {
        row(
            reading.name,
            AT_TEN.map(|(_, metric, paper)| Compared::new(runs, reading, 10, metric, paper).cell(2)),
        )
    }));
    text.push_str(&table(&columns, rows));
}

fn weights(runs: &Runs, text: &mut String) {
    text.push_str("\n## Weights at 10 nodes (Figure 6.7)\n\n");
    text.push_str("Median usage in seconds; cold starts in per cent of all requests.\n\n");
    let columns: Vec<&str> =
        std::iter::once("reading").chain(BY_WEIGHTS.iter().map(|(weights, ..)| *weights)).collect();
    let mut rows =
        vec![row("**paper**", BY_WEIGHTS.map(|(_, usage, cold)| format!("{usage:.2}; {cold:.2}")))];
    rows.extend(in_detail().map(|reading| {
        row(reading.name, BY_WEIGHTS.map(|(weights, ..)| usage_and_cold(runs, reading, 10, weights)))
    }));
    text.push_str(&table(&columns, rows));
}

fn sizes(runs: &Runs, text: &mut String) {
    text.push_str("\n## Number of nodes under 1-1-1 (Figure 6.6) and 8-1-1 (Figure 10.2)\n\n");
    text.push_str(
        "Median usage in seconds; cold starts in per cent of all requests. The paper's text has few of the figures' numbers; \
         for 8-1-1 it says \"steadily\" 19.41 %.\n\n",
    );
    let heads = BY_SIZE.map(|(nodes, weights, ..)| format!("{weights}, {nodes} nodes"));
    let columns: Vec<&str> = std::iter::once("reading").chain(heads.iter().map(String::as_str)).collect();
    let number = |value: Option<f64>| value.map_or("?".to_owned(), |value| format!("{value:.2}"));
    let paper = BY_SIZE.map(|(_, _, usage, cold)| format!("{}; {}", number(usage), number(cold)));
    let mut rows = vec![row("**paper**", paper)];
    rows.extend(in_detail().map(|reading| {
        row(reading.name, BY_SIZE.map(|(nodes, weights, ..)| usage_and_cold(runs, reading, nodes, weights)))
    }));
    text.push_str(&table(&columns, rows));
}

fn in_detail() -> impl Iterator<Item = &'static Reading> {
    READINGS.iter().filter(|reading| reading.detail == Detail::All)
}

fn usage_and_cold(runs: &Runs, reading: &Reading, nodes: u32, weights: &str) -> String {
    let changes = reading.with(nodes, weights);
    let usage = runs.values(&changes, "usage_median_s", 1.0).mean();
    if !usage.is_finite() {
        return "–".to_owned();
    }
    format!("{usage:.2}; {:.2}", runs.values(&changes, COLD, 100.0).mean())
}

fn grid(runs: &Runs, text: &mut String) {
    text.push_str("\n## FPGA minus CPU utilisation by p and r (Figures 6.3 and 6.4)\n\n");
    text.push_str(
        "Seconds: the paper's / our mean over time of the median over nodes of the board's usage in the window, less the same \
         of the processor's / our median of the board's usage alone. Central reading, baseline, 10 nodes, first seed. \"Steps\": of the 24 \
         steps from a cell to the one at its right or below it, those in which ours grows or falls as the paper's does.\n",
    );
    for (m, paper) in GRID {
        let of = |p: &str, r: &str, metric: &str| {
            let mut changes = READINGS[0].with(10, "0-0-0");
            changes.extend([
                format!("workload.m_ms={m}"),
                format!("workload.p={p}"),
                format!("workload.r={r}"),
            ]);
            runs.values(&changes, metric, 1.0).first()
        };
        let difference = SHARES.map(|p| SHARES.map(|r| of(p, r, "fpga_minus_cpu_mean_s")));
        let usage = SHARES.map(|p| SHARES.map(|r| of(p, r, "usage_median_s")));
        let rows = (0..SHARES.len()).map(|p| {
            let cells = (0..SHARES.len())
                .map(|r| format!("{:.2} / {:.2} / {:.2}", paper[p][r], difference[p][r], usage[p][r]));
            std::iter::once(format!("p = {}", SHARES[p])).chain(cells).collect()
        });
        let _ = writeln!(text, "\nm = {m} ms:\n");
        text.push_str(&table(&["", "r = 0.25", "r = 0.5", "r = 0.75", "r = 1"], rows.collect()));
        let (difference, usage) = (steps_alike(&paper, &difference), steps_alike(&paper, &usage));
        let _ = writeln!(
            text,
            "\nSteps: {difference} of 24 for the difference, {usage} of 24 for the usage alone."
        );
    }
}

/// The number of steps to the right or down in which both tables change in the same direction.
fn steps_alike(paper: &[[f64; 4]; 4], ours: &[[f64; 4]; 4]) -> usize {
    let steps = |cells: &[[f64; 4]; 4]| -> Vec<f64> {
        let right = cells.iter().flat_map(|row| row.windows(2).map(|pair| pair[1] - pair[0]));
        let down = cells.windows(2).flat_map(|rows| rows[0].iter().zip(&rows[1]).map(|(a, b)| b - a));
        right.chain(down).collect()
    };
    steps(paper).iter().zip(steps(ours)).filter(|(paper, ours)| *paper * ours > 0.0).count()
}

fn paper_cell((before, after): Pair, digits: usize) -> String {
    format!("{before:.digits$} → {after:.digits$} ({:+.1} %)", (after / before - 1.0) * 100.0)
}

fn row(name: &str, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(cells).collect()
}

fn table(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    Table { title: String::new(), columns, rows }.markdown()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(ours: (f64, f64), paper: Pair) -> Compared {
        let values = |value: f64| Values(vec![value, value * 1.001]);
        Compared { ours: (values(ours.0), values(ours.1)), paper }
    }

    #[test]
    fn a_verdict_needs_all_numbers_of_nodes() {
        let alike = || compared((25.0, 20.0), (25.51, 20.69));
        assert_eq!(verdict(&[alike(), alike()]), "direction, size");
        assert_eq!(verdict(&[alike(), compared((5.0, 4.0), (25.51, 20.69))]), "direction");
        assert_eq!(verdict(&[alike(), compared((21.0, 22.0), (25.51, 20.69))]), "opposite, size");
        assert_eq!(verdict(&[compared((2.0, 2.0), (25.51, 20.69))]), "–");
    }

    #[test]
    fn steps_are_counted_both_ways() {
        let grows = [[1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0, 5.0], [3.0, 4.0, 5.0, 6.0], [4.0, 5.0, 6.0, 7.0]];
        assert_eq!(steps_alike(&grows, &grows), 24);
        let falls = grows.map(|row| row.map(|cell: f64| -cell));
        assert_eq!(steps_alike(&grows, &falls), 0);
    }
}
