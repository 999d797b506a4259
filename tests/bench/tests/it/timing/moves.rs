//! `fpga-bench moves`: three functions take turns on two slots, so that each call starts cold; the registry moves one
//! function, by what real device managers and collectors measured, and then no call starts cold.

use super::{number, row, run};

#[test]
#[ignore = "measures the machine: make test-timing"]
fn a_function_that_is_moved_leaves_all_calls_to_start_warm() {
    let cluster = ["moves", "--nodes", "2", "--functions", "3", "--arrivals", "in-turn", "--rate", "4"];
    let text = run(&[&cluster[..], &["--seconds", "24", "--interval", "3", "--unjudged"]].concat());
    let counts = |moves: &str| row(&text, &[moves])[1..5].iter().map(|cell| number(cell)).collect::<Vec<_>>();
    let (off, on) = (counts("off"), counts("on"));
    // Twelve calls a second, of which a board with two slots for three functions in turns starts a third cold at least,
    // whichever it evicts.
    let least = 12.0 * 3_600.0 / 3.0;
    assert!(off[0] >= least && off[1] == 0.0, "{off:?}");
    assert!(off[2] >= least, "the simulator's: {off:?}");
    assert_eq!(on, [0.0, 1.0, 0.0, 1.0]);
}
