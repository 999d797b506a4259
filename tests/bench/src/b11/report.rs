//! The tables, with the paper's figures beside ours.

use super::Arm;
use super::paper::{Load, Published, UseCase};
use crate::modelled::Late;
use crate::report::Sorted;
use std::fmt;
use std::time::Duration;

/// Share of what the boards admit that is to be processed at high load, where boards are shared.
const GOAL_ADMITTED: f64 = 0.98;

/// A measured load.
#[derive(Debug)]
pub(super) struct Row {
    pub load: Load,
    pub arm: Arm,
    /// The board of each function.
    pub boards: Vec<usize>,
    /// Requests per second that were due.
    pub sent: f64,
    /// Requests per second that the boards can serve of these.
    pub admitted: f64,
    /// Requests per second that were answered.
    pub processed: f64,
    pub mean: Duration,
    pub times: Sorted,
    /// Utilisation of all boards in percent: 300 if all are in use all the time.
    pub utilisation: f64,
    pub late: Late,
}

/// The results of one accelerator.
#[derive(Debug)]
pub(super) struct Tables {
    pub use_case: UseCase,
    pub rows: Vec<Row>,
}

/// What is measured, and how.
pub(super) fn head(connections: u8) -> String {
    format!(
        "BlastFunction's test with several applications: five functions on three boards, against three with a board each.\n\
         The boards are MODELLED: there are none here. A device manager gives each kernel the time that the paper's board takes,\n\
         and the results are computed by this machine and checked. All else is real: pods, scheduler, HTTP, OpenCL calls. Both arms use\n\
         device managers and equal boards; the paper's second arm had none, and one slower board.\n\
         Connections to each function: {connections} (the paper: 1). Utilisation: 300 % is three boards in use all the time."
    )
}

impl Row {
    /// The boards of the functions, as letters.
    fn placement(&self) -> String {
        self.boards.iter().map(|board| ["A", "B", "C"].get(*board).copied().unwrap_or("?")).collect()
    }

    /// The share of what the boards admit that was processed.
    fn share(&self) -> f64 {
        self.processed / self.admitted
    }
}

impl Tables {
    fn at_high_load(&self, arm: Arm) -> Option<&Row> {
        self.rows.iter().find(|row| row.load == Load::High && row.arm == arm)
    }

    fn shared_at_high_load(&self) -> impl Iterator<Item = &Row> {
        [Arm::Shared, Arm::Scheduled].into_iter().filter_map(|arm| self.at_high_load(arm))
    }

    fn published(&self, arm: Arm) -> f64 {
        self.use_case.published(Load::High, arm).map_or(f64::NAN, |published| published.processed)
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let use_case = self.use_case;
        let board_ms = use_case.board_time().as_secs_f64() * 1e3;
        writeln!(
            f,
            "{use_case}: a request takes {board_ms:.2} ms of a modelled board: {}.\n",
            use_case.source()
        )?;
        let (side, published) = (use_case.side(), use_case.published_size().unwrap_or("not told"));
        writeln!(
            f,
            "| load | boards | of functions 1 to 5 | size computed | sent, rq/s | processed | of what boards admit | mean, ms | \
             p99, ms | utilisation | paper: size | processed | mean, ms | utilisation |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
        )?;
        for row in &self.rows {
            let millis = |time: Duration| time.as_secs_f64() * 1e3;
            write!(
                f,
                "| {} | {} | {} | {side} x {side} | {:.0} | {:.2} | {:.1} % | {:.2} | {:.2} | {:.1} % | {published} |",
                row.load,
                row.arm,
                row.placement(),
                row.sent,
                row.processed,
                100.0 * row.share(),
                millis(row.mean),
                millis(row.times.percentile(99)),
                row.utilisation
            )?;
            match use_case.published(row.load, row.arm) {
                Some(Published { processed, mean_ms, utilisation }) => {
                    writeln!(f, " {processed:.2} | {mean_ms:.2} | {utilisation:.1} % |")?;
                }
                None => writeln!(f, " | | |")?,
            }
        }
        writeln!(f)?;
        for row in self.rows.iter().filter(|row| row.late.is_void()) {
            writeln!(
                f,
                "VOID: {}, {} load: {}. This machine is too slow for it now.",
                row.arm, row.load, row.late
            )?;
        }
        self.ratios(f)?;
        self.goals(f)
    }
}

impl Tables {
    /// Shared against exclusive, ours and the paper's.
    fn ratios(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(exclusive) = self.at_high_load(Arm::Exclusive) else { return Ok(()) };
        for shared in self.shared_at_high_load() {
            writeln!(
                f,
                "High load, {}: {:.2} times the requests per second of {}, of {:.2} times as many sent. The paper: {:.2} times, \
                 where its {:.0} of {:.0} rq/s on a board each were the limit of that arm, not of the boards.",
                shared.arm,
                shared.processed / exclusive.processed,
                exclusive.arm,
                shared.sent / exclusive.sent,
                self.published(shared.arm) / self.published(Arm::Exclusive),
                self.published(Arm::Exclusive),
                exclusive.sent
            )?;
        }
        Ok(())
    }

    /// The goals of a row, and whether each is reached.
    fn goals_of(&self, row: &Row) -> [(String, bool); 2] {
        let published = self.published(row.arm);
        let (share, admitted) = (100.0 * GOAL_ADMITTED, row.admitted);
        [
            (format!("the paper's {published:.2} rq/s"), row.processed >= published),
            (format!("{share:.0} % of what boards admit ({admitted:.2} rq/s)"), row.share() >= GOAL_ADMITTED),
        ]
    }

    fn goals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.shared_at_high_load() {
            let told = self.goals_of(row).map(|(goal, is_reached)| {
                let reached = if is_reached { "reached" } else { "MISSED" };
                format!("{goal} {reached}")
            });
            writeln!(f, "Goals, high load, {}: {}.", row.arm, told.join("; "))?;
        }
        Ok(())
    }

    /// What stands against the results: the machine was too slow, or a goal is missed.
    pub fn faults(&self) -> Vec<String> {
        let use_case = self.use_case;
        let void = self.rows.iter().filter(|row| row.late.is_void());
        let void = void.map(|row| format!("VOID: {use_case}, {}, {} load", row.arm, row.load));
        let missed = self.shared_at_high_load().flat_map(|row| {
            let goals = self.goals_of(row).into_iter().filter(|(_, is_reached)| !is_reached);
            goals.map(|(goal, _)| format!("MISSED: {use_case}, {}: {goal}", row.arm))
        });
        void.chain(missed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row at high load, where all that the boards admit is processed.
    fn row(processed: f64) -> Row {
        Row {
            load: Load::High,
            arm: Arm::Shared,
            boards: vec![0, 1],
            sent: 190.0,
            admitted: 180.0,
            processed,
            mean: Duration::from_millis(20),
            times: Sorted::new(vec![Duration::from_millis(20)]),
            utilisation: 250.0,
            late: Late::default(),
        }
    }

    fn faults(rows: Vec<Row>) -> Vec<String> {
        let tables = Tables { use_case: UseCase::Sobel, rows };
        let (faults, text) = (tables.faults(), tables.to_string());
        assert_eq!(text.matches("MISSED").count() + text.matches("VOID").count(), faults.len(), "{text}");
        faults
    }

    #[test]
    fn missed_goals_and_machines_that_are_too_slow_stand_against_the_results() {
        assert_eq!(faults(vec![row(180.0)]), [""; 0]);
        let [share] = &faults(vec![row(160.0)])[..] else { panic!("the paper's requests are reached") };
        assert!(share.starts_with("MISSED: ") && share.contains("98 % of what boards admit"), "{share}");
        assert_eq!(faults(vec![row(150.0)]).len(), 2, "the paper has 152");
        let unknown = Late::default().with_unknown_kernel();
        let [void] = &faults(vec![Row { late: unknown, ..row(180.0) }])[..] else { panic!("it is void") };
        assert!(void.starts_with("VOID: "), "{void}");
        let low = Row { load: Load::Low, ..row(1.0) };
        assert_eq!(faults(vec![low]), [""; 0], "low loads have no goals");
    }
}
