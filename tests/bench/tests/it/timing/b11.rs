//! `fpga-bench b11`: five functions on three boards against a board each.

use super::{number, row, run};
use std::collections::BTreeSet;

const BRIEFLY: [&str; 6] = ["b11", "--seconds", "2", "--stage-seconds", "1", "--unjudged"];

#[test]
#[ignore = "measures the machine: make test-timing"]
fn functions_that_share_boards_process_more_than_functions_with_a_board_each() {
    let few = ["--use-cases", "sobel", "--loads", "high", "--arms", "shared,exclusive"];
    let text = run(&[&BRIEFLY[..], &few].concat());
    let processed = |arm: &str| {
        let row = row(&text, &["high", arm]);
        let (processed, mean) = (number(row[4]), number(row[6]));
        assert!(mean >= 14.5, "a request takes 14.53 ms of a board at least: {row:?}");
        processed
    };
    assert!(processed("shared, placed as in the paper") > processed("a board each"));
}

#[test]
#[ignore = "measures the machine: make test-timing"]
fn kube_scheduler_spreads_functions_that_come_one_after_the_other_over_the_boards() {
    let few = ["--use-cases", "alexnet", "--loads", "medium", "--arms", "scheduled"];
    let text = run(&[&BRIEFLY[..], &few].concat());
    let row = row(&text, &["medium"]);
    let boards: BTreeSet<char> = row[2].chars().collect();
    assert_eq!((row[2].len(), boards), (5, BTreeSet::from(['A', 'B', 'C'])));
}
