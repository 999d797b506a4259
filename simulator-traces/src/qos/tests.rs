use crate::error::ScenarioError;
use crate::outcome::Outcome;
use crate::scenario::Scenario;

fn run(text: &str) -> Result<Outcome, ScenarioError> {
    Scenario::parse(&format!("kind = \"qos\"\n{text}")).unwrap().run()
}

#[test]
fn goals_are_reported_for_every_policy_and_job() {
    let text = "[[jobs]]\nactions = 100\ndeadline_s = 20\n[[jobs]]\nactions = 100\ndeadline_s = 40\n";
    let outcome = run(text).unwrap();
    assert_eq!(outcome.tables.len(), 3);
    assert_eq!(outcome.tables[0].rows.len(), 4);
    assert_eq!(
        (outcome.metric("edf_met_share"), outcome.metric("throughput_met_share")),
        (Some(1.0), Some(1.0))
    );
    assert_eq!(outcome, run(text).unwrap());
}

#[test]
fn every_split_is_compared() {
    let jobs = "[[jobs]]\nactions = 300\ndeadline_s = 1\n".repeat(3);
    let outcome = run(&format!("show = \"splits\"\n{jobs}")).unwrap();
    assert_eq!(outcome.tables[0].rows.len(), 5);
    // EDF uses devices that a job has released, so no split ends before it.
    let [edf, fixed] =
        ["edf", "static"].map(|name| outcome.metric(&format!("{name}_least_last_end_s")).unwrap());
    assert!(edf <= fixed * 1.01, "{edf} {fixed}");
}

#[test]
fn what_makes_no_sense_is_told() {
    let job = "[[jobs]]\nactions = 10\nper_second = 5.0\n";
    for (wrong, hint) in [
        (format!("policies = [\"edf\"]\n{job}"), "deadline_s"),
        (format!("policies = [\"static\"]\n{job}"), "fixed"),
        ("jobs = []".to_owned(), "[[jobs]]"),
        ("[[jobs]]\nactions = 10\n".to_owned(), "a goal"),
        (format!("[devices]\ncount = 0\n{job}"), "count of 1"),
        (format!("policies = [\"throughput\"]\n[control]\nalpha = 2.0\n{job}"), "smoothing"),
        (format!("{job}least = 3\nmost = 2\n"), "the most must be"),
    ] {
        let error = run(&wrong).unwrap_err().to_string();
        assert!(error.contains(hint), "{wrong}: {error}");
    }
}
