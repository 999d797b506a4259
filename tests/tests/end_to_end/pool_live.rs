//! `fpga-bench pool live-model`, briefly: the jobs of three nodes, one of them without a board.

use std::process::Command;

#[test]
fn jobs_of_the_live_pool_on_modelled_boards_are_right_and_compared_with_the_simulator() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpga-bench"));
    command.args(["pool", "live-model", "--boards", "2", "--bare", "1", "--jobs", "4", "--seeds", "1"]);
    command.args(["--policies", "fifo,wra", "--smaller", "1000", "--slower", "1000"]);
    let output = command.output().unwrap();
    let (text, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    // A job whose result is wrong fails the run. How exact the times are depends on the machine's other load.
    assert!(output.status.success(), "{text}{error}");
    for policy in ["FIFO", "WRA"] {
        let begin = format!("| {policy} |");
        let row = text.lines().find(|line| line.starts_with(&begin)).unwrap();
        let live: f64 = row.split('|').nth(2).unwrap().trim().parse().unwrap();
        assert!(live > 0.0, "{text}{error}");
    }
}
