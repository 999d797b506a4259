//! The Azure Functions Dataset 2019: for each day, the number of calls of each function in each minute, and quantiles
//! of its durations. The second within the minute and the duration of a request are drawn at random.
//!
//! One day at a time is kept in memory.

use super::azure_2021::TraceError;
use super::bad_rows::{BadRow, BadRows};
use super::file::Names;
use super::request::Request;
use crate::random::Random;
use crate::time::{Micros, SimTime};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const MINUTES: usize = 1440;
const MINUTE: f64 = 60.0;
/// The quantiles in the dataset: share, and end of the column's name.
const QUANTILES: [(f64, &str); 7] = [
    (0.0, "percentile_Average_0"),
    (0.01, "percentile_Average_1"),
    (0.25, "percentile_Average_25"),
    (0.5, "percentile_Average_50"),
    (0.75, "percentile_Average_75"),
    (0.99, "percentile_Average_99"),
    (1.0, "percentile_Average_100"),
];
/// Duration of functions without quantiles, in seconds; about the median over all functions.
const UNKNOWN_DURATION: f64 = 0.1;
/// Most requests of one function in one minute; greater counts are errors.
const MOST_PER_MINUTE: u64 = 10_000_000;

/// The requests of a dataset.
pub struct Requests {
    days: std::vec::IntoIter<(PathBuf, PathBuf)>,
    day: Option<Day>,
    days_before: u64,
    minute: Vec<Request>,
    /// The bad rows that were not returned yet.
    bad: BadRows,
    names: Names,
    random: Random,
}

struct Day {
    /// For each minute the functions that are called: function, application, number of calls.
    calls: Vec<Vec<(u32, u32, u32)>>,
    /// For each function its durations in seconds at [`QUANTILES`].
    durations: HashMap<u32, [f64; 7]>,
    minute: usize,
}

impl Requests {
    /// Opens the days in a folder. A day is a pair of files, `invocations_per_function*.dNN.csv` and
    /// `function_durations*.dNN.csv`.
    ///
    /// # Errors
    /// [`TraceError::Open`] if the folder can't be read or has no such pair.
    pub fn open(folder: &Path, seed: u64) -> Result<Self, TraceError> {
        let open = |source| TraceError::Open { path: folder.to_owned(), source };
        let mut invocations = Vec::new();
        let mut durations = HashMap::new();
        for entry in std::fs::read_dir(folder).map_err(open)? {
            let path = entry.map_err(open)?.path();
            let name = super::file::shown(&path);
            let Some(day) = day_of(&name) else { continue };
            if name.starts_with("invocations_per_function") {
                invocations.push((day, path));
            } else if name.starts_with("function_durations") {
                durations.insert(day, path);
            }
        }
        invocations.sort();
        let days: Vec<_> =
            invocations.into_iter().filter_map(|(day, path)| Some((path, durations.remove(&day)?))).collect();
        if days.is_empty() {
            return Err(open(std::io::Error::other(
                "it has no invocations_per_function*.dNN.csv with its function_durations*.dNN.csv",
            )));
        }
        Ok(Self {
            days: days.into_iter(),
            day: None,
            days_before: 0,
            minute: Vec::new(),
            bad: BadRows::default(),
            names: Names::default(),
            random: Random::new(seed, 0),
        })
    }

    /// The end of the last day.
    #[must_use]
    pub fn end(&self) -> SimTime {
        SimTime(Micros::DAY.0 * (self.days_before + self.days.len() as u64))
    }

    /// Draws the requests of the next minute, the latest first; `None` after the last day.
    fn next_minute(&mut self) -> Option<()> {
        if self.day.as_ref().is_none_or(|day| day.minute == MINUTES) {
            if self.day.is_some() {
                self.days_before += 1;
            }
            let (calls, durations) = self.days.next()?;
            self.day = Some(self.read_day(&calls, &durations));
        }
        let day = self.day.as_mut()?;
        let begin = self.days_before as f64 * 86_400.0 + day.minute as f64 * MINUTE;
        for (function, app, count) in std::mem::take(&mut day.calls[day.minute]) {
            for _ in 0..count {
                let at = SimTime::from_secs(begin + MINUTE * self.random.unit());
                let duration = match day.durations.get(&function) {
                    Some(quantiles) => between(quantiles, self.random.unit()),
                    None => UNKNOWN_DURATION,
                };
                self.minute.push(Request { at, duration: Micros::from_secs(duration), function, app });
            }
        }
        self.minute.sort_by_key(|request| (std::cmp::Reverse(request.at), request.function));
        day.minute += 1;
        Some(())
    }

    fn read_day(&mut self, calls_path: &Path, durations_path: &Path) -> Day {
        let mut day = Day { calls: vec![Vec::new(); MINUTES], durations: HashMap::new(), minute: 0 };
        self.read(durations_path, |names, row, column| {
            let mut quantiles = [0.0; 7];
            for ((_, name), quantile) in QUANTILES.iter().zip(&mut quantiles) {
                let text = column(row, name)?;
                let millis: f64 = text.parse().map_err(|_| format!("{name} is {text:?}, no milliseconds"))?;
                if !(0.0..=1e10).contains(&millis) {
                    return Err(format!("{name} is {millis}, no milliseconds"));
                }
                *quantile = millis / 1e3;
            }
            let app = names.app(column(row, "HashApp")?);
            let function = names.function(app, column(row, "HashFunction")?);
            day.durations.insert(function, quantiles);
            Ok(())
        });
        self.read(calls_path, |names, row, column| {
            let app = names.app(column(row, "HashApp")?);
            let function = names.function(app, column(row, "HashFunction")?);
            let mut counts = Vec::new();
            for minute in 0..MINUTES {
                let text = column(row, &(minute + 1).to_string())?;
                let count: u64 = text.parse().map_err(|_| format!("minute {}: {text:?}", minute + 1))?;
                if count > MOST_PER_MINUTE {
                    return Err(format!("minute {}: {count} calls", minute + 1));
                }
                if let (1.., Ok(count)) = (count, u32::try_from(count)) {
                    counts.push((minute, count));
                }
            }
            for (minute, count) in counts {
                day.calls[minute].push((function, app, count));
            }
            Ok(())
        });
        day
    }

    /// Calls `take` for each row of a file, and collects the bad rows.
    fn read(
        &mut self,
        path: &Path,
        mut take: impl FnMut(
            &mut Names,
            &csv::StringRecord,
            &dyn for<'r> Fn(&'r csv::StringRecord, &str) -> Result<&'r str, String>,
        ) -> Result<(), String>,
    ) {
        let file = super::file::shown(path);
        let mut bad = |line, why| self.bad.add(BadRow { line, why: format!("{file}: {why}") });
        let mut rows = match csv::Reader::from_path(path) {
            Ok(rows) => rows,
            Err(error) => return bad(0, error.to_string()),
        };
        let columns: HashMap<String, usize> = match rows.headers() {
            Ok(headers) => headers.iter().map(str::to_owned).zip(0..).collect(),
            Err(error) => return bad(1, error.to_string()),
        };
        fn cell<'r>(
            columns: &HashMap<String, usize>,
            row: &'r csv::StringRecord,
            name: &str,
        ) -> Result<&'r str, String> {
            let found = columns.get(name).and_then(|index| row.get(*index));
            found.ok_or_else(|| format!("no column {name}"))
        }
        for row in rows.records() {
            match row {
                Err(error) => bad(error.position().map_or(0, csv::Position::line), error.to_string()),
                Ok(row) => {
                    if let Err(why) = take(&mut self.names, &row, &|row, name| cell(&columns, row, name)) {
                        bad(row.position().map_or(0, csv::Position::line), why);
                    }
                }
            }
        }
    }
}

impl Iterator for Requests {
    type Item = Result<Request, BadRows>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.bad.count > 0 {
                return Some(Err(std::mem::take(&mut self.bad)));
            }
            if let Some(request) = self.minute.pop() {
                return Some(Ok(request));
            }
            if self.next_minute().is_none() && self.bad.count == 0 {
                return None;
            }
        }
    }
}

/// The number in the `dNN` of a file's name.
fn day_of(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(".csv")?;
    stem.rsplit('.').next()?.strip_prefix('d')?.parse().ok()
}

fn between(quantiles: &[f64; 7], share: f64) -> f64 {
    let above = QUANTILES.iter().position(|(at, _)| *at > share).unwrap_or(6).max(1);
    let (low, high) = (QUANTILES[above - 1].0, QUANTILES[above].0);
    let (from, to) = (quantiles[above - 1], quantiles[above]);
    from + (to - from) * (share - low) / (high - low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Origin, TOLD_BAD_ROWS, Trace};
    use std::fmt::Write as _;

    fn write_day(folder: &Path, day: u32, second_row: &str) {
        let minutes: Vec<String> = (1..=MINUTES).map(|minute| minute.to_string()).collect();
        let mut calls = format!("HashOwner,HashApp,HashFunction,Trigger,{}\n", minutes.join(","));
        let counts: Vec<&str> = (0..MINUTES).map(|minute| if minute == 2 { "3" } else { "0" }).collect();
        let _ = writeln!(calls, "o,a,f,timer,{}", counts.join(","));
        calls.push_str(second_row);
        std::fs::write(folder.join(format!("invocations_per_function_md.anon.d{day:02}.csv")), calls)
            .unwrap();
        let names: Vec<&str> = QUANTILES.iter().map(|(_, name)| *name).collect();
        let durations = format!(
            "HashOwner,HashApp,HashFunction,Average,Count,Minimum,Maximum,{}\no,a,f,5,3,1,9,1,2,3,5,7,8,9\n",
            names.join(",")
        );
        std::fs::write(folder.join(format!("function_durations_percentiles.anon.d{day:02}.csv")), durations)
            .unwrap();
    }

    #[test]
    fn counts_per_minute_become_requests_with_durations_from_the_quantiles() {
        let folder = tempfile::tempdir().unwrap();
        write_day(folder.path(), 1, "");
        write_day(folder.path(), 2, "o,a,g,http,x\n");
        let mut trace =
            Trace::open(&Origin::Azure2019 { folder: folder.path().to_owned(), seed: 1 }).unwrap();
        let requests: Vec<Request> = trace.by_ref().collect();
        assert_eq!(requests.len(), 6);
        for (request, day) in requests.iter().zip([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]) {
            let minute = (request.at.secs() - day * 86_400.0) / 60.0;
            assert!((2.0..3.0).contains(&minute), "{minute}");
            assert!((0.001..=0.009).contains(&request.duration.secs()));
        }
        assert!(requests.is_sorted_by_key(|request| request.at));
        assert_eq!(trace.end, SimTime(2 * Micros::DAY.0));
        assert_eq!(trace.bad_rows.count, 1);
        assert_eq!(trace.bad_rows.first[0].line, 3, "{:?}", trace.bad_rows);
    }

    #[test]
    fn the_first_bad_rows_of_a_day_are_kept_and_all_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let bad = "o,a,g,http,x\n".repeat(TOLD_BAD_ROWS + 10);
        write_day(folder.path(), 1, &bad);
        write_day(folder.path(), 2, "o,a,g,http,x\n");
        let mut trace =
            Trace::open(&Origin::Azure2019 { folder: folder.path().to_owned(), seed: 1 }).unwrap();
        assert_eq!(trace.by_ref().count(), 6);
        let lines: Vec<u64> = trace.bad_rows.first.iter().map(|row| row.line).collect();
        assert_eq!(lines, (3..3 + TOLD_BAD_ROWS as u64).collect::<Vec<_>>());
        assert_eq!(trace.bad_rows.count, TOLD_BAD_ROWS as u64 + 11);
        let remarks = trace.remarks();
        assert!(remarks[1].starts_with("Bad rows, left out: 31 ("), "{remarks:?}");
        assert!(remarks[1].ends_with("; and 11 more)."), "{remarks:?}");
    }

    #[test]
    fn a_folder_without_days_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Requests::open(folder.path(), 1).is_err());
    }
}
