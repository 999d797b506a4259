//! `fpga-bench b11`, briefly: the command starts its clusters, gets right answers from all functions, and prints the tables.
//! What the figures are depends on the machine, and is not judged here.

use std::process::Command;

/// Runs `fpga-bench b11` and returns its output and the cells of its tables' rows.
fn tables(arguments: &[&str]) -> (String, Vec<Vec<String>>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpga-bench"));
    let output = command
        .arg("b11")
        .args(["--seconds", "2", "--stage-seconds", "1", "--unjudged"])
        .args(arguments)
        .output();
    let output = output.unwrap();
    let (text, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {text}{error}");
    let is_row = |line: &&str| ["| low ", "| medium ", "| high "].iter().any(|load| line.starts_with(load));
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
    let rows = text.lines().filter(is_row).map(cells).collect();
    (text, rows)
}

fn number(cell: &str) -> f64 {
    cell.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn functions_on_modelled_boards_are_measured_and_printed_beside_the_papers_figures() {
    let (text, rows) = tables(&["--use-cases", "sobel", "--loads", "low,high", "--arms", "shared,exclusive"]);
    assert!(text.contains("The boards are MODELLED"), "{text}");
    assert_eq!(rows.len(), 4, "{text}");
    for (row, [load, placement, sent, paper]) in rows.iter().zip([
        ["low", "BACAB", "55", "52.24"],
        ["high", "BACAB", "190", "152.27"],
        ["low", "ABC", "45", "43.98"],
        ["high", "ABC", "145", "112.77"],
    ]) {
        assert_eq!([&row[1], &row[3], &row[4], &row[10]], [load, placement, sent, paper], "{text}");
        let (processed, mean, p99, utilisation) =
            (number(&row[5]), number(&row[7]), number(&row[8]), number(&row[9]));
        // A request takes 14.53 ms of a board at least.
        assert!(processed > 0.0 && mean >= 14.5 && p99 >= 14.5 && utilisation > 0.0, "{text}");
    }
    assert!(
        text.contains("times the requests per second") && text.contains("The paper: 1.35 times"),
        "{text}"
    );
    assert!(text.contains("Goals, high load, shared, placed as in the paper"), "{text}");
}

#[test]
fn kube_scheduler_spreads_functions_that_come_one_after_the_other_over_the_boards() {
    let (text, rows) = tables(&["--use-cases", "alexnet", "--loads", "low,medium", "--arms", "scheduled"]);
    // The paper has no low load of AlexNet.
    assert_eq!(rows.len(), 1, "{text}");
    let mut boards: Vec<char> = rows[0][3].chars().collect();
    assert_eq!(boards.len(), 5, "{text}");
    boards.sort_unstable();
    boards.dedup();
    assert_eq!(boards, ['A', 'B', 'C'], "{text}");
    assert!(number(&rows[0][5]) > 0.0, "{text}");
}
