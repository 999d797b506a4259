//! `fpga-bench moves`, briefly: three functions take turns on two slots, so that each call starts cold; the registry moves
//! one, by what real device managers and collectors measured, and then no call does.

use std::process::Command;

#[test]
fn a_function_that_is_moved_leaves_all_calls_to_start_warm() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpga-bench"));
    command.args(["moves", "--nodes", "2", "--functions", "3", "--arrivals", "in-turn", "--rate", "4"]);
    let output = command.args(["--seconds", "24", "--interval", "3", "--unjudged"]).output().unwrap();
    let (text, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{error}");
    let row = |moves: &str| -> Vec<f64> {
        let begin = format!("| {moves} |");
        let line = text.lines().find(|line| line.starts_with(&begin)).unwrap();
        line.split('|').skip(2).take(4).map(|cell| cell.trim().parse().unwrap()).collect()
    };
    let (off, on) = (row("off"), row("on"));
    // Twelve calls a second, of which a board with two slots for three functions in turns starts a third cold at least,
    // whichever it evicts.
    let least = 12.0 * 3_600.0 / 3.0;
    assert!(off[0] >= least && off[1] == 0.0, "{text}{error}");
    assert!(off[2] >= least, "the simulator's: {text}");
    assert_eq!(on, [0.0, 1.0, 0.0, 1.0], "{text}{error}");
}
