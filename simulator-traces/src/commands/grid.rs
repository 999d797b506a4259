//! Runs of one scenario with different values.

use crate::outcome::Outcome;
use crate::parallel::in_parallel;
use crate::scenario::Scenario;

/// Runs the scenario once for each entry of `runs`, which is a list of changes `PATH=VALUE`.
///
/// # Errors
/// The first error in the order of the list.
pub(super) fn run_all(
    base: &str,
    runs: &[Vec<String>],
    threads: Option<usize>,
) -> anyhow::Result<Vec<Outcome>> {
    run_each(base, runs, threads, &|_, _| Ok(()))
}

/// Like [`run_all`]; calls `done` with each outcome when it is ready, in any order.
///
/// # Errors
/// The first error in the order of the list, including errors of `done`.
pub(super) fn run_each(
    base: &str,
    runs: &[Vec<String>],
    threads: Option<usize>,
    done: &(dyn Fn(usize, &Outcome) -> anyhow::Result<()> + Sync),
) -> anyhow::Result<Vec<Outcome>> {
    // Parse all scenarios first, so that a mistake in the last one is reported before the first one runs.
    let scenarios =
        runs.iter().map(|changes| Scenario::parse_changed(base, changes)).collect::<Result<Vec<_>, _>>()?;
    in_parallel(scenarios.len(), threads, |index| {
        // Series are long, and only used for figures of single runs.
        let outcome = Outcome { series: Vec::new(), ..scenarios[index].run()? };
        done(index, &outcome)?;
        Ok(outcome)
    })
}

/// All combinations of the parameters' values; the last parameter changes fastest.
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

/// The mean and half of its 95 % confidence interval (Student's t), which is NaN for fewer than two values.
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
        let base = "kind = \"placement\"\n[trace]\nrequests = 30000\nto_day = 0.05\n";
        let runs = combinations(&[("cluster.nodes".to_owned(), vec!["2".into(), "3".into(), "5".into()])]);
        let one = run_all(base, &runs, Some(1)).unwrap();
        assert_eq!(one, run_all(base, &runs, Some(3)).unwrap());
        assert_ne!(one[0], one[1]);
        for wrong in ["cluster.nodes=0", "cluster.nodes=x"] {
            let runs = [vec!["cluster.nodes=2".to_owned()], vec![wrong.to_owned()]];
            assert!(run_all(base, &runs, None).is_err());
        }
    }

    #[test]
    fn an_interval_has_its_width() {
        let (mean, half) = mean_and_half(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((mean - 3.0).abs() < 1e-12 && (half - 2.776 * (2.5_f64 / 5.0).sqrt()).abs() < 1e-9);
    }
}
