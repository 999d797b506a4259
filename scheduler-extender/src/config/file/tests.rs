use super::*;
use fpga_core::bitstream::BitstreamId;
use proptest::prelude::*;

fn weights(text: &str) -> String {
    parse(text).unwrap().policy().unwrap().rules.weights.to_string()
}

#[test]
fn everything_can_be_said() {
    let text = "# The weights of the night shift.
weights:
  locality: 1
  usage: 2.5
  reconfiguration: 0
  freeSlots: 1
  queue: 0.5
  loaded: 3
maxScore: 100
staleNodes:
  usage: neutral
  queue: exclude
unlabelledNodes: pass
antiHerd: off
schedulerWeight: 5
";
    let settings = parse(text).unwrap();
    let policy = settings.policy().unwrap();
    assert_eq!(policy.rules.weights.to_string(), "1-2.5-0-1-0.5-3");
    assert_eq!((policy.rules.max_score.get(), policy.scheduler_weight.get()), (100, 5));
    assert_eq!(
        (policy.rules.stale.usage, policy.rules.stale.queue),
        (StalePolicy::Neutral, StalePolicy::Exclude)
    );
    assert_eq!((policy.rules.stale.loaded, settings.stale.loaded), (StalePolicy::Penalise, None));
    assert_eq!((policy.rules.unlabelled, policy.rules.anti_herd), (UnlabelledNodes::Pass, AntiHerd::Off));
}

#[test]
fn weights_come_in_short_form_or_by_name() {
    for (text, are) in [
        ("{}", "1-2-2"),
        ("weights:", "1-2-2"),
        ("weights: 4-1-1", "4-1-1"),
        ("weights: '0-0-0'", "0-0-0"),
        ("weights: 1-2-2-0-1-0", "1-2-2-0-1-0"),
        ("weights: {usage: 7}", "1-7-2"),
        ("weights: {usage: \"7\", locality: }", "1-7-2"),
        ("{\"weights\": {\"queue\": 1}}", "1-2-2-0-1-0"),
    ] {
        assert_eq!(weights(text), are, "{text}");
    }
    let open = parse("weights: 4-1-1").unwrap().weights;
    assert_eq!((open.locality, open.queue), (Some(4.0), None), "three leave the further ones open");
}

#[test]
fn bitstreams_are_listed_with_the_boards_that_they_are_valid_for() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let text = format!(
        "bitstreams:
  unlisted: reject
  valid:
    - name: sobel
      boards:
        - {{vendor: intel, board: a10, shell: \"1.2\"}}
        - {{vendor: intel, board: s10}}
    - digest: {digest}
      boards: [{{vendor: xilinx}}]
"
    );
    let catalog = parse(&text).unwrap().bitstreams.unwrap();
    let bitstreams: Vec<BitstreamId> = ["sobel", &digest, "mm"].map(|text| text.parse().unwrap()).to_vec();
    let kind = |vendor: &str, board: Option<&str>, shell: Option<&str>| BoardKind {
        vendor: Some(vendor.to_owned()),
        board: board.map(str::to_owned),
        shell: shell.map(str::to_owned),
    };
    let sobel = vec![kind("intel", Some("a10"), Some("1.2")), kind("intel", Some("s10"), None)];
    assert_eq!(catalog.valid_boards(&bitstreams), [sobel, vec![kind("xilinx", None, None)], Vec::new()]);
    assert!(parse("bitstreams:").unwrap().bitstreams.is_none());
}

#[test]
fn the_file_that_the_manifests_bring_and_the_one_in_the_help_say_the_defaults_but_for_the_weights_that_did_best()
 {
    let shipped = include_str!("../../../../manifests/chart/extender.yaml");
    let mut shipped = parse(shipped).unwrap().policy().unwrap();
    assert_eq!(shipped.rules.weights.to_string(), "0.5-2-2-1-0-0");
    shipped.rules.weights = Weights::default();
    assert_eq!(shipped, Settings::default().policy().unwrap());
    let help = crate::rules_args::PRECEDENCE;
    let (_, example) = help.split_once("all optional:\n").unwrap();
    let policy = parse(example).unwrap().policy().unwrap();
    assert_eq!(policy.rules, Settings::default().policy().unwrap().rules);
}

#[test]
fn one_policy_may_be_for_all_signals() {
    let stale = parse("staleNodes: exclude").unwrap().policy().unwrap().rules.stale;
    assert_eq!(stale.into_array(), [StalePolicy::Exclude; 6]);
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_what_to_write() {
    for (text, place, hint) in [
        ("weights:\n  usage: 1\n  locality: -1\n", (3, 13), "-1 is not a weight; write a number from 0"),
        ("weights:\n  usage: many\n", (2, 10), "\"many\" is not a weight; write a number"),
        ("weights:\n  usage: .inf\n", (2, 10), "write a number"),
        ("maxScore: 10\nweights: 1-2\n", (2, 10), "`1-2-2`"),
        ("weights: [1, 2, 2]\n", (1, 1), "`1-2-2`"),
        ("weights: 1-2-2\nweigths: 1-2-2\n", (2, 1), "expected one of weights"),
        ("weights:\n  usages: 1\n", (2, 3), "expected one of locality, usage"),
        ("\nmaxScore: 0\n", (2, 11), "whole number from 1 to"),
        ("maxScore: 1.5\n", (1, 11), "whole number from 1 to"),
        ("staleNodes: ignore\n", (1, 13), "write `neutral`, `penalise` or `exclude`"),
        ("staleNodes:\n  usage: ignore\n", (2, 10), "write `neutral`, `penalise` or `exclude`"),
        ("unlabelledNodes: maybe\n", (1, 18), "write `reject` or `pass`"),
        ("antiHerd: true\n", (1, 11), "write `on` or `off`"),
        ("bitstreams:\n  unlisted: no\n", (2, 13), "write `accept` or `reject`"),
        ("bitstreams:\n  valid:\n    - name: sobel\n", (3, 7), "write `boards: ["),
        ("bitstreams:\n  valid:\n    - name: sobel\n      digest: 0a\n", (4, 15), "64 hexadecimal digits"),
        (
            "bitstreams:\n  valid:\n    - name: sobel\n      boards: [{bord: a10}]\n",
            (4, 17),
            "expected one of vendor",
        ),
        ("schedulerWeight: 0\n", (1, 18), "whole number from 1 to"),
    ] {
        let problem = parse(text).unwrap_err();
        assert_eq!((problem.line, problem.column), (Some(place.0), Some(place.1)), "{text:?}: {problem:?}");
        assert!(problem.message.contains(hint), "{text:?}: {problem:?}");
        assert!(!problem.message.contains("line"), "the place is told once: {problem:?}");
    }
}

#[test]
fn what_is_no_such_yaml_is_refused_with_its_line() {
    for (text, line) in [
        ("weights: 1-2-2\nweights: 1-1-1\n", 2),
        ("weights: {usage: 1\n", 1),
        ("a: b: c\n", 1),
        ("- weights\n", 1),
        ("weights: 1-2-2\n\tmaxScore: 10\n", 1),
    ] {
        let problem = parse(text).unwrap_err();
        assert!(problem.line.is_some_and(|is| is >= line), "{text:?}: {problem:?}");
    }
}

#[test]
fn nobody_gets_the_defaults_by_an_empty_file() {
    for text in ["", "\n\n", "# nothing yet\n   # here\n"] {
        assert!(parse(text).unwrap_err().message.contains("write `{}`"), "{text:?}");
    }
    assert!(parse(&" ".repeat(MAX_BYTES + 1)).unwrap_err().message.contains("longer than"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic_or_is_taken_with_weights_that_are_none(text in "(weights|maxScore|usage|[ -~\n:{}\\[\\]&*])*") {
        if let Ok(settings) = parse(&text) {
            prop_assert!(settings.policy().is_ok());
        }
    }
}
