//! Many runs of one scenario with different values, on all cores. Which thread does what changes nothing: each run is
//! alone, and results are kept in the order of the list.

use crate::outcome::Outcome;
use crate::scenario::{Scenario, ScenarioError};
use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The outcome of each entry of `runs`, which are changes of the form `PATH=VALUE`.
///
/// # Errors
/// The first error in the order of the list.
pub(super) fn run_all(
    base: &str,
    runs: &[Vec<String>],
    threads: Option<usize>,
) -> Result<Vec<Outcome>, ScenarioError> {
    run_each(base, runs, threads, &|_, _| {})
}

/// The same; `done` is told of every outcome as soon as it is there, in any order.
///
/// # Errors
/// The first error in the order of the list.
pub(super) fn run_each(
    base: &str,
    runs: &[Vec<String>],
    threads: Option<usize>,
    done: &(dyn Fn(usize, &Outcome) + Sync),
) -> Result<Vec<Outcome>, ScenarioError> {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = threads.unwrap_or_else(cores).clamp(1, runs.len().max(1));
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<Outcome, ScenarioError>>>> =
        Mutex::new(runs.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, changes)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    runs.get(index).map(|changes| (index, changes))
                } {
                    // Series are for figures of single runs, and long.
                    let result = Scenario::parse_changed(base, changes)
                        .and_then(|scenario| scenario.run())
                        .map(|outcome| Outcome { series: Vec::new(), ..outcome });
                    if let Ok(outcome) = &result {
                        done(index, outcome);
                    }
                    let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    results[index] = Some(result);
                    if stderr().is_terminal() {
                        let done = results.iter().filter(|result| result.is_some()).count();
                        // A terminal that is gone needs no progress.
                        let _ = write!(stderr(), "\rruns: {done} of {} ", runs.len());
                    }
                }
            });
        }
    });
    if stderr().is_terminal() {
        let _ = writeln!(stderr());
    }
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Each index was taken by one thread, and every thread has ended.
    results.into_iter().flatten().collect()
}

/// All combinations of the values of each parameter, the last one changing fastest.
pub(super) fn combinations(parameters: &[(String, Vec<String>)]) -> Vec<Vec<String>> {
    parameters.iter().fold(vec![Vec::new()], |combinations, (path, values)| {
        let with = |before: &Vec<String>, value: &String| {
            let mut changes = before.clone();
            changes.push(format!("{path}={value}"));
            changes
        };
        combinations.iter().flat_map(|before| values.iter().map(move |value| with(before, value))).collect()
    })
}

/// Mean, and half the width of its 95 % confidence interval (Student's t); no width from fewer than two values.
pub(super) fn mean_and_half(values: &[f64]) -> (f64, f64) {
    const T: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let count = values.len() as f64;
    if values.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return (mean, f64::NAN);
    }
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (count - 1.0);
    let t = T.get(values.len() - 2).copied().unwrap_or(1.96);
    (mean, t * libm::sqrt(variance / count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_are_made_in_order() {
        let parameters = [
            ("a".to_owned(), vec!["1".to_owned(), "2".to_owned()]),
            ("b".to_owned(), vec!["x".to_owned(), "y".to_owned()]),
        ];
        let all = combinations(&parameters);
        assert_eq!(all, [["a=1", "b=x"], ["a=1", "b=y"], ["a=2", "b=x"], ["a=2", "b=y"]]);
    }

    #[test]
    fn threads_change_nothing() {
        let base = "kind = \"placement\"\n[trace]\nrequests = 30000\nto_day = 1\n";
        let runs = combinations(&[("cluster.nodes".to_owned(), vec!["2".into(), "3".into(), "5".into()])]);
        let one = run_all(base, &runs, Some(1)).unwrap();
        assert_eq!(one, run_all(base, &runs, Some(3)).unwrap());
        assert_ne!(one[0], one[1]);
        let wrong = vec![vec!["cluster.nodes=0".to_owned()]];
        assert!(run_all(base, &wrong, None).is_err());
    }

    #[test]
    fn an_interval_has_its_width() {
        let (mean, half) = mean_and_half(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((mean - 3.0).abs() < 1e-12 && (half - 2.776 * (2.5_f64 / 5.0).sqrt()).abs() < 1e-9);
    }
}
