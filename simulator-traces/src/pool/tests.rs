use crate::scenario::Scenario;

fn run(text: &str) -> Result<crate::outcome::Outcome, crate::error::ScenarioError> {
    Scenario::parse(text).unwrap().run()
}

const SMALL: &str = r#"
kind = "pool"
seeds = 2
policies = ["sjf", "ra", "wra"]
[cluster]
nodes = 10
boards = 5
[jobs]
per_node = 10
load = 0.9
[queues]
count = 5
first_of_mean = 0.3
growth = 1.41
linear_from = 2
linear_to = 3
[[vary]]
parameter = "load"
values = [0.3, 1.2]
"#;

#[test]
fn a_scenario_gives_a_row_for_every_value_and_policy_and_the_same_every_time() {
    let outcome = run(SMALL).unwrap();
    let rows = &outcome.tables[0].rows;
    // The baseline comes first, before the three policies.
    assert_eq!(rows.len(), 2 * 4);
    assert_eq!((rows[0][0].as_str(), rows[0][1].as_str()), ("0.3", "FIFO"));
    assert_eq!(rows[0][6], "1.00 ± 0.00");
    assert!(outcome.metric("wra_act_gain_most").unwrap() > 1.0);
    assert_eq!(outcome, run(SMALL).unwrap());
}

#[test]
fn what_makes_no_sense_is_told() {
    for (wrong, hint) in [
        ("[cluster]\nboards = 101", "boards <= nodes"),
        ("[jobs]\nload = 0.0", "above 0"),
        ("[jobs]\nmin_mb = 500.0", "mean above it"),
        ("[rules]\ncontention = 0", "at least 1"),
        ("[queues]\nlinear_from = 3", "both"),
        ("[queues]\ngrowth = 0.5\nlinear_from = 1\nlinear_to = 1", "1.41"),
        ("[[vary]]\nparameter = \"slots\"\nvalues = [1.5]", "whole number"),
        ("policies = []", "name one"),
    ] {
        let error = run(&format!("kind = \"pool\"\nseeds = 1\n{wrong}\n")).unwrap_err().to_string();
        assert!(error.contains(hint), "{wrong}: {error}");
    }
}

#[test]
fn the_model_is_shown_for_both_formulas() {
    let text = "kind = \"pool\"\nshow = \"thresholds\"\n[queues]\ncount = 7\n[cluster]\n[jobs]\nload = 0.7\n";
    let outcome = run(text).unwrap();
    assert_eq!(outcome.tables[0].rows.len(), 10);
    assert!(outcome.metric("paper_over_best_percent_most").unwrap() >= 0.0);
}

#[test]
fn the_papers_scenarios_are_understood() {
    for folder in ["pool", "qos"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(folder);
        let mut count = 0;
        for entry in std::fs::read_dir(path).unwrap() {
            Scenario::read(&entry.unwrap().path(), &[]).unwrap();
            count += 1;
        }
        assert!(count > 3, "{folder}: {count}");
    }
}
