use super::*;
use crate::decide::{AntiHerd, Candidate, DecisionRules, Ranking, filter_among, prioritize_expecting};
use crate::device::{Health, ReconfiguredPart};
use crate::expected_load::Expected;
use crate::fixtures::{mk_asked, mk_bitstream, mk_busy, mk_device};
use crate::matching::UnlabelledNodes;
use crate::moved_off::{MovedOff, MovedOffAnnotation};
use crate::node_facts::NodeFacts;
use crate::node_labels::NodeLabels;
use crate::node_state::{DigestPrefix, NodeState, RecentBitstream, controller};
use crate::redistribution::FreeTime;
use crate::requirement::Requirement;
use crate::score::{MaxScore, Weights};
use crate::staleness::{Knowledge, Received, StalePolicies, StalePolicy};
use crate::units::{Millis, Moment, MonotonicTime, WallTime};
use proptest::prelude::*;
use std::rc::Rc;

/// A node of the tests, identified by its address in memory.
#[derive(Debug, Clone)]
struct Kept(Rc<NodeFacts>);

impl NodeSnapshot for Kept {
    fn facts(&self) -> &NodeFacts {
        &self.0
    }

    fn source(&self) -> &'static str {
        "stream"
    }

    fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// A cluster that changes, decides and records its decisions.
struct Recorder {
    encoder: RecordingEncoder<Kept>,
    text: Vec<u8>,
}

impl Recorder {
    fn new() -> Self {
        let mut text = Vec::new();
        let encoder = RecordingEncoder::begin("test 1", WallTime(7), &mut text).unwrap();
        Self { encoder, text }
    }

    fn decide(&mut self, verb: Verb, case: &Case, nodes: &[(&str, Option<Kept>)]) -> RecordedAnswer {
        let candidates: Vec<Candidate<'_>> =
            nodes.iter().map(|(_, node)| node.as_ref().map(|node| node.0.known())).collect();
        let mut free_time = None;
        let answer = match verb {
            Verb::Filter | Verb::Preempt => {
                let all = || FreeTime::of(&case.others);
                let owner = Some(controller("default", "rs"));
                let owner = owner.as_deref();
                let decision =
                    filter_among(owner, &case.requirement, &candidates, all, &case.rules, case.now);
                free_time = decision.free_time;
                RecordedAnswer::of_verdicts(&decision.verdicts)
            }
            Verb::Prioritize => {
                let (asked, rules) = (&case.requirement, &case.rules);
                let scored = prioritize_expecting(asked, &candidates, &case.expected, rules, case.now);
                RecordedAnswer::Scores(scored.scores().to_vec())
            }
        };
        let asked = Asked {
            verb,
            at: WallTime(1_760_000_000_000),
            now: case.now,
            namespace: "default".into(),
            pod: "p".into(),
            uid: "u".into(),
            owner: Some("rs".into()),
            requirement: case.requirement.clone(),
        };
        let names: Vec<&str> = nodes.iter().map(|(name, _)| *name).collect();
        let nodes: Vec<Option<Kept>> = nodes.iter().map(|(_, node)| node.clone()).collect();
        let (rules, expected) = (&case.rules, case.expected.as_slice());
        let (free_time, answer) = (free_time.as_ref(), answer);
        let input = DecisionInput {
            asked: &asked,
            rules,
            names: &names,
            nodes: &nodes,
            expected,
            free_time,
            answer: &answer,
        };
        self.encoder.decision(&input, &mut self.text).unwrap();
        answer
    }

    fn lines(&self) -> Vec<&str> {
        std::str::from_utf8(&self.text).unwrap().lines().collect()
    }

    /// For each decision the recorded and the replayed answer.
    fn replay(&self) -> Vec<(RecordedAnswer, RecordedAnswer)> {
        let mut decoder = RecordingDecoder::default();
        let mut answers = Vec::new();
        for line in self.lines() {
            if let Some(recorded) = decoder.read(line).unwrap() {
                answers.push((recorded.answer.clone(), recorded.decide(recorded.rules).answer()));
            }
        }
        answers
    }
}

#[derive(Debug, Clone)]
struct Case {
    requirement: Requirement,
    rules: DecisionRules,
    expected: Vec<Expected>,
    /// Nodes that are known and no candidates.
    others: Vec<NodeState>,
    now: MonotonicTime,
}

fn mk_case() -> Case {
    let requirement = Requirement::default();
    Case {
        requirement,
        rules: DecisionRules::default(),
        expected: Vec::new(),
        others: Vec::new(),
        now: MonotonicTime(1_000),
    }
}

fn kept(state: NodeState) -> Kept {
    let received = Received::new(state, MonotonicTime(10), Millis(3));
    let labels = NodeLabels { vendor: Some("intel".into()), board: None, shell: None };
    Kept(Rc::new(NodeFacts {
        labels,
        knowledge: Knowledge::Known(Box::new(received)),
        ..NodeFacts::default()
    }))
}

fn kinds(lines: &[&str]) -> Vec<String> {
    let kind = |line: &&str| line[2..].split('"').next().unwrap_or_default().to_owned();
    lines.iter().map(kind).collect()
}

#[test]
fn a_state_and_the_rules_are_written_once_and_again_when_they_change() {
    let mut recorder = Recorder::new();
    let (busy, idle) = (kept(mk_busy(9, 0)), kept(mk_busy(0, 0)));
    let nodes = [("a", Some(busy.clone())), ("b", Some(idle)), ("stranger", None)];
    recorder.decide(Verb::Filter, &mk_case(), &nodes);
    recorder.decide(Verb::Prioritize, &mk_case(), &nodes[..2]);
    let other_rules = DecisionRules { weights: "4-1-1".parse().unwrap(), ..DecisionRules::default() };
    let case = Case { rules: other_rules, ..mk_case() };
    recorder.decide(Verb::Prioritize, &case, &[("b", Some(kept(mk_busy(5, 5)))), ("a", Some(busy))]);
    let lines = recorder.lines();
    let expected = ["header", "rules", "node", "node", "decision", "decision", "rules", "node", "decision"];
    assert_eq!(kinds(&lines), expected, "{lines:#?}");
    assert!(lines.last().unwrap().contains(r#""candidates":[1,0]"#), "{lines:#?}");
    assert!(lines[4].contains(r#""candidates":[0,1,"stranger"]"#), "{lines:#?}");
    assert!(recorder.replay().iter().all(|(then, now)| then == now));
}

#[test]
fn other_rules_decide_otherwise() {
    let mut recorder = Recorder::new();
    let mut loaded = mk_busy(100_000, 0);
    loaded.bitstreams = vec![mk_bitstream("sobel", 0)];
    let mut case = mk_case();
    case.requirement.bitstreams = vec!["sobel".parse().unwrap()];
    let nodes = [("loaded", Some(kept(loaded))), ("idle", Some(kept(mk_busy(0, 0))))];
    assert_eq!(recorder.decide(Verb::Prioritize, &case, &nodes), RecordedAnswer::Scores(vec![8, 8]));
    let mut decoder = RecordingDecoder::default();
    let lines = recorder.lines();
    let (last, first) = lines.split_last().unwrap();
    assert!(first.iter().all(|line| decoder.read(line).unwrap().is_none()));
    let recorded = decoder.read(last).unwrap().unwrap();
    let rules = DecisionRules { weights: "4-1-1".parse().unwrap(), ..*recorded.rules };
    assert_eq!(recorded.decide(&rules).answer(), RecordedAnswer::Scores(vec![9, 3]));
}

#[test]
fn expectations_count_only_where_the_rules_want_them() {
    let mut recorder = Recorder::new();
    let expected = vec![
        Expected { usage: Millis(90_000), unknown: 0.1, shown: Millis(1), pods: 1.0 / 3.0 },
        Expected::default(),
    ];
    let case = Case { expected, ..mk_case() };
    let nodes = [("a", Some(kept(mk_busy(0, 0)))), ("b", Some(kept(mk_busy(1, 0))))];
    let with = recorder.decide(Verb::Prioritize, &case, &nodes);
    let mut decoder = RecordingDecoder::default();
    let lines = recorder.lines();
    let (last, first) = lines.split_last().unwrap();
    assert!(first.iter().all(|line| decoder.read(line).unwrap().is_none()));
    let recorded = decoder.read(last).unwrap().unwrap();
    assert_eq!(recorded.expected, case.expected, "to the last bit");
    assert_eq!(recorded.decide(recorded.rules).answer(), with);
    let off = DecisionRules { anti_herd: AntiHerd::Off, ..*recorded.rules };
    assert_ne!(recorded.decide(&off).answer(), with);
}

#[test]
fn an_error_names_the_fault_of_the_line() {
    let header = r#"{"header":{"format":"kube-fpga-record","version":1,"program":"x","startedAtMs":0}}"#;
    let rules = r#"{"rules":{}}"#;
    let decision = |more: &str| {
        format!(
            r#"{{"decision":{{"verb":"prioritize","atMs":0,"nowMs":0,"namespace":"d","pod":"p","requirement":{{"slots":1,"bitstreams":[]}},{more}}}}}"#
        )
    };
    let node = |number: u32| format!(r#"{{"node":{{"number":{number},"name":"n"}}}}"#);
    let after_header = |lines: &[&str]| {
        let mut decoder = RecordingDecoder::default();
        decoder.read(header).unwrap();
        lines.iter().find_map(|line| decoder.read(line).err()).map(|error| error.to_string())
    };
    assert!(matches!(RecordingDecoder::default().read(rules), Err(ReadError::NoHeader)));
    for (lines, message) in [
        (vec![r#"{"header":{"format":"tar","version":1,"program":"","startedAtMs":0}}"#], "\"tar\""),
        (
            vec![r#"{"header":{"format":"kube-fpga-record","version":3,"program":"","startedAtMs":0}}"#],
            "version 3",
        ),
        (vec!["{}"], "no line of a recording"),
        (vec![&decision(r#""candidates":[],"answer":{"scores":[]}"#)], "no rules"),
        (vec![&node(1)], "node number 1 is out of order"),
        (vec![rules, &decision(r#""candidates":[0],"answer":{"scores":[1]}"#)], "node number 0"),
        (vec![rules, &decision(r#""candidates":["n"],"answer":{"scores":[]}"#)], "prioritize over 1"),
        (vec![rules, &decision(r#""candidates":[],"answer":{"rejected":{}}"#)], "prioritize over 0"),
        (
            vec![
                rules,
                &decision(
                    r#""candidates":["n"],"answer":{"scores":[1]},"expected":[{"candidate":1,"usageMs":0,"unknown":"0","shownMs":0,"pods":"1"}]"#,
                ),
            ],
            "candidate 1, and there are 1",
        ),
    ] {
        let error = after_header(&lines).unwrap();
        assert!(error.contains(message), "{error} has no {message}");
    }
}

#[test]
fn a_recording_of_version_1_is_decided_again_by_the_rule_that_made_it() {
    let mut ten_boards = mk_busy(100_000, 0);
    ten_boards.devices = vec![ten_boards.devices[0].clone(); 10];
    let mut recorder = Recorder::new();
    let case = Case {
        rules: DecisionRules { weights: "0-1-0".parse().unwrap(), ..DecisionRules::default() },
        ..mk_case()
    };
    let nodes = [("ten", Some(kept(ten_boards))), ("one", Some(kept(mk_busy(30_000, 0))))];
    assert_eq!(
        recorder.decide(Verb::Prioritize, &case, &nodes),
        RecordedAnswer::Scores(vec![10, 5]),
        "by slot"
    );
    let by_version = |version: &str| {
        let mut decoder = RecordingDecoder::default();
        let mut decided = None;
        for line in recorder.lines() {
            let line = line.replace(r#""version":2"#, version);
            if let Some(recorded) = decoder.read(&line).unwrap() {
                decided = Some((recorded.ranking, recorded.decide(recorded.rules).answer()));
            }
        }
        decided.unwrap()
    };
    assert_eq!(by_version(r#""version":2"#), (Ranking::PerSlot, RecordedAnswer::Scores(vec![10, 5])));
    assert_eq!(by_version(r#""version":1"#), (Ranking::WholeNode, RecordedAnswer::Scores(vec![5, 10])));
}

fn any_policy() -> impl Strategy<Value = StalePolicy> {
    prop_oneof![Just(StalePolicy::Neutral), Just(StalePolicy::Penalise), Just(StalePolicy::Exclude)]
}

prop_compose! {
    fn any_rules()(
        weights in prop::array::uniform3(0_u32..50_000),
        max_score in 1_u32..1_000,
        (locality, usage, reconfiguration) in (any_policy(), any_policy(), any_policy()),
        (pass, off) in any::<(bool, bool)>(),
    ) -> DecisionRules {
        let [a, b, c] = weights.map(|weight| f64::from(weight) / 1e4);
        DecisionRules {
            weights: Weights::new(a, b, c).unwrap(),
            max_score: MaxScore::try_from(max_score).unwrap(),
            stale: StalePolicies { locality, usage, reconfiguration, ..StalePolicies::default() },
            unlabelled: if pass { UnlabelledNodes::Pass } else { UnlabelledNodes::Reject },
            anti_herd: if off { AntiHerd::Off } else { AntiHerd::On },
        }
    }
}

prop_compose! {
    fn any_node()(
        known in 0_u8..8, vendor in prop::sample::select(vec!["intel", "xilinx", ""]), healthy in any::<bool>(),
        usage in prop::collection::vec(0_u64..20_000, 0..4), reconfiguration in prop::collection::vec(0_u64..9_000, 0..4),
        (slots, loaded, ago) in (0_u32..5, any::<bool>(), 0_u64..400_000),
        (at, age, labelled) in (0_u64..400_000, 0_u64..400_000, any::<bool>()),
    ) -> Option<Kept> {
        let mut state = mk_busy(0, 0);
        state.buckets.usage = usage.into_iter().map(Millis).collect();
        state.buckets.reconfiguration = reconfiguration.into_iter().map(Millis).collect();
        let mut device = mk_device(vendor, "a10", "1");
        device.slots = slots;
        device.health = if healthy { Health::Healthy } else { Health::Unhealthy };
        state.bitstreams = vec![mk_bitstream("sobel", ago), mk_bitstream("mm", 1)];
        device.loaded = if loaded { vec![0] } else { Vec::new() };
        state.devices = vec![device];
        let knowledge = match known {
            0 => return None,
            1 => Knowledge::Absent,
            2 => Knowledge::Unreadable,
            _ => Knowledge::Known(Box::new(Received::new(state, MonotonicTime(at), Millis(age)))),
        };
        let labels = NodeLabels { vendor: labelled.then(|| "intel".into()), ..NodeLabels::default() };
        let moved_off = match labelled {
            true => MovedOffAnnotation::parse(r#"{"default/rs":100000}"#)
                .at(Moment { now: MonotonicTime(at), wall: WallTime(0) }),
            false => MovedOff::default(),
        };
        Some(Kept(Rc::new(NodeFacts { labels, knowledge, moved_off })))
    }
}

prop_compose! {
    fn any_case()(
        rules in any_rules(),
        vendor in prop::option::of(prop::sample::select(vec!["intel", "xilinx"])),
        slots in 0_u32..4,
        bitstreams in prop::sample::subsequence(vec!["sobel", "mm", "ünknown"], 0..3),
        expected in prop::collection::vec((0_u64..50_000, 0.0..4.0_f64, 0_u64..5_000, 0.0..9.0_f64), 0..6),
        now in 0_u64..800_000,
    ) -> Case {
        let bitstreams = bitstreams.into_iter().filter_map(|name| name.parse().ok()).collect();
        let requirement =
            Requirement { vendor: vendor.map(str::to_owned), slots, bitstreams, ..Requirement::default() };
        let expected = expected.into_iter().map(|(usage, unknown, shown, pods)| Expected {
            usage: Millis(usage), unknown, shown: Millis(shown), pods,
        });
        Case { requirement, rules, expected: expected.collect(), others: Vec::new(), now: MonotonicTime(now) }
    }
}

#[test]
fn what_other_nodes_had_free_is_recorded_where_a_decision_asked_for_it() {
    let mut busy = mk_busy(90_000, 0);
    busy.bitstreams =
        vec![RecentBitstream { digest: Some(DigestPrefix::from_bytes([1; 16])), ..mk_bitstream("mm", 0) }];
    busy.devices[0].loaded = vec![0];
    (busy.devices[0].slots, busy.devices[0].reconfigured_part) = (1, ReconfiguredPart::Board);
    busy.devices[0].usage = busy.usage;
    let case = |others: &[&NodeState]| Case {
        requirement: mk_asked(&["sobel"]),
        others: others.iter().map(|state| (*state).clone()).collect(),
        ..mk_case()
    };
    let mut recorder = Recorder::new();
    let nodes = [("a", Some(kept(busy.clone())))];
    let alone = recorder.decide(Verb::Filter, &case(&[&busy]), &nodes);
    let with_others = recorder.decide(Verb::Filter, &case(&[&busy, &busy, &busy]), &nodes);
    assert_ne!(alone, with_others);
    assert!(recorder.replay().iter().all(|(then, now)| then == now));
}

proptest! {
    #[test]
    fn a_recorded_decision_is_replayed_bit_for_bit(
        steps in prop::collection::vec((any_case(), prop::collection::vec((0_usize..6, any_node()), 0..6), 0_u8..3), 1..12),
    ) {
        let names = ["a", "b", "c\"\n", "d", "ü", ""];
        let mut now: Vec<Option<Kept>> = vec![None; names.len()];
        let mut recorder = Recorder::new();
        let mut answers = Vec::new();
        for (mut case, changes, verb) in steps {
            for (place, node) in changes {
                now[place] = node;
            }
            case.expected.resize(if case.expected.is_empty() { 0 } else { names.len() }, Expected::default());
            // The extender passes no expectations where anti-herd is off.
            if case.rules.anti_herd == AntiHerd::Off {
                case.expected.clear();
            }
            let verb = [Verb::Filter, Verb::Prioritize, Verb::Preempt][usize::from(verb)];
            let nodes: Vec<_> = names.into_iter().zip(now.iter().cloned()).collect();
            answers.push(recorder.decide(verb, &case, &nodes));
        }
        let replayed = recorder.replay();
        prop_assert_eq!(replayed.iter().map(|(then, _)| then.clone()).collect::<Vec<_>>(), answers);
        for (then, now) in replayed {
            prop_assert_eq!(then, now);
        }
    }

    #[test]
    fn rules_survive_a_round_trip_through_json(rules in any_rules()) {
        let text = serde_json::to_string(&rules).unwrap();
        prop_assert_eq!(serde_json::from_str::<DecisionRules>(&text).unwrap(), rules);
    }

    #[test]
    fn no_line_makes_the_decoder_panic(lines in prop::collection::vec(".{0,80}", 0..5)) {
        let mut decoder = RecordingDecoder::default();
        for line in lines {
            let _ = decoder.read(&line);
        }
    }
}
