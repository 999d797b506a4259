//! `fpga-bench pool live-model`: the jobs of three nodes, one of them without a board.

use super::{number, row, run};

/// A job whose result is wrong fails the run.
#[test]
#[ignore = "measures the machine: make test-timing"]
fn jobs_of_the_live_pool_on_modelled_boards_take_as_long_as_in_the_simulator() {
    let pool = ["pool", "live-model", "--boards", "2", "--bare", "1", "--jobs", "4", "--seeds", "1"];
    let text =
        run(&[&pool[..], &["--policies", "fifo,wra", "--smaller", "1000", "--slower", "1000"]].concat());
    for policy in ["FIFO", "WRA"] {
        let row = row(&text, &[policy]);
        let (live, simulated) = (number(row[1]), number(row[2]));
        assert!((0.9..1.5).contains(&(live / simulated)), "{policy}: {live} s, simulated {simulated} s");
    }
}
