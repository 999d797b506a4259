use super::*;
use fpga_core::node_state::{FIELD_MANAGER, controller};
use fpga_core::node_terms::{Intake, NodeTerms};
use fpga_core::units::{MonotonicTime, WallTime};
use k8s_openapi::api::core::v1::NodeSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time};
use k8s_openapi::jiff::Timestamp;

const WALL: u64 = 1_760_000_100_000;

fn at(now: u64) -> Moment {
    Moment { now: MonotonicTime(now), wall: WallTime(WALL) }
}

fn annotation(boot: u64, seq: u64) -> String {
    format!(
        r#"{{"v":1,"boot":{boot},"seq":{seq},"heartbeatMs":60000,"measuredAtMs":5,"windowMs":300000,"usageMs":0,"reconfigurationMs":0,"window":{{"bucketMs":10000}}}}"#
    )
}

fn mk_node(text: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some("n".into()),
        uid: Some("uid-1".into()),
        labels: Some([("fpga-scheduling.io/fpga-vendor".to_owned(), "intel".to_owned())].into()),
        annotations: text.map(|text| [(ANNOTATION.to_owned(), text.to_owned())].into()),
        ..ObjectMeta::default()
    }
}

fn dated_by(manager: &str, age_ms: u64, mut node: ObjectMeta) -> ObjectMeta {
    let time = i64::try_from(WALL - age_ms).unwrap();
    let owned = serde_json::json!({"f:metadata": {"f:annotations": {format!("f:{ANNOTATION}"): {}}}});
    node.managed_fields.get_or_insert_default().push(ManagedFieldsEntry {
        manager: Some(manager.into()),
        time: Some(Time(Timestamp::from_millisecond(time).unwrap())),
        fields_v1: Some(FieldsV1(owned)),
        ..ManagedFieldsEntry::default()
    });
    node
}

fn known(index: &NodeIndex) -> (Source, Option<(u64, u64)>) {
    let nodes = index.read();
    let node = &nodes.get("n").unwrap();
    let Knowledge::Known(received) = &node.facts.knowledge else { return (node.source, None) };
    (node.source, Some((received.state().seq, received.age(MonotonicTime(1_000)).0)))
}

#[test]
fn at_first_sight_a_state_is_as_old_as_the_api_server_says() {
    let index = NodeIndex::default();
    let node = dated_by(FIELD_MANAGER, 30_000, dated_by("kubelet", 1_000, mk_node(Some(&annotation(1, 1)))));
    index.apply(node, Shown::Listed, at(1_000));
    assert_eq!(known(&index), (Source::FirstSight, Some((1, 30_000))));
}

#[test]
fn a_state_written_by_another_hand_is_dated_by_who_owns_the_annotation() {
    let index = NodeIndex::default();
    index.apply(
        dated_by("kubectl-annotate", 7_000, mk_node(Some(&annotation(1, 1)))),
        Shown::Listed,
        at(1_000),
    );
    assert_eq!(known(&index), (Source::FirstSight, Some((1, 7_000))));
}

#[test]
fn a_state_without_a_date_is_stale_until_the_next_one() {
    let index = NodeIndex::default();
    index.apply(mk_node(Some(&annotation(1, 1))), Shown::Changed, at(1_000));
    assert_eq!(known(&index), (Source::Undated, Some((1, 180_001))));
    index.apply(mk_node(Some(&annotation(1, 2))), Shown::Changed, at(1_000));
    assert_eq!(known(&index), (Source::Watched, Some((2, 0))));
}

#[test]
fn a_change_that_is_watched_is_as_old_as_its_receipt_and_a_listed_one_is_not() {
    let index = NodeIndex::default();
    index.apply(mk_node(None), Shown::Listed, at(0));
    index.apply(dated_by(FIELD_MANAGER, 9_000, mk_node(Some(&annotation(1, 1)))), Shown::Changed, at(400));
    assert_eq!(known(&index), (Source::Watched, Some((1, 600))));
    index.apply(dated_by(FIELD_MANAGER, 9_000, mk_node(Some(&annotation(1, 2)))), Shown::Listed, at(400));
    assert_eq!(known(&index), (Source::FirstSight, Some((2, 9_600))));
}

#[test]
fn the_same_annotation_again_makes_nothing_younger() {
    let index = NodeIndex::default();
    index.apply(mk_node(None), Shown::Listed, at(0));
    let mut node = mk_node(Some(&annotation(1, 1)));
    index.apply(node.clone(), Shown::Changed, at(100));
    node.labels.as_mut().unwrap().insert("fpga-scheduling.io/board".into(), "a10".into());
    index.apply(node, Shown::Changed, at(900));
    assert_eq!(known(&index), (Source::Watched, Some((1, 900))));
    assert_eq!(index.read().get("n").unwrap().facts.labels.board.as_deref(), Some("a10"));
}

#[test]
fn an_older_state_is_ignored_until_the_newer_one_is_stale() {
    let index = NodeIndex::default();
    index.apply(mk_node(None), Shown::Listed, at(0));
    let change = |boot, seq, now| index.apply(mk_node(Some(&annotation(boot, seq))), Shown::Changed, at(now));
    assert_eq!(change(2, 5, 0), Noted::Taken);
    assert_eq!(change(1, 9, 1), Noted::Outdated);
    assert_eq!(known(&index).1, Some((5, 1_000)));
    assert_eq!(change(3, 1, 2), Noted::Taken, "a later boot counts from one again");
    assert_eq!(known(&index).1, Some((1, 998)));
    assert_eq!(change(1, 10, 180_003), Noted::Taken, "it has been silent for three heartbeats");
}

#[test]
fn another_node_of_the_same_name_starts_afresh() {
    let index = NodeIndex::default();
    index.apply(mk_node(None), Shown::Listed, at(0));
    index.apply(mk_node(Some(&annotation(9, 9))), Shown::Changed, at(0));
    let mut other = dated_by(FIELD_MANAGER, 0, mk_node(Some(&annotation(1, 1))));
    other.uid = Some("uid-2".into());
    assert_eq!(index.apply(other, Shown::Changed, at(1_000)), Noted::Taken);
    assert_eq!(known(&index), (Source::FirstSight, Some((1, 0))));
}

#[test]
fn garbage_is_unreadable_and_once_counted() {
    let index = NodeIndex::default();
    let garbage = mk_node(Some("{]"));
    assert!(matches!(index.apply(garbage.clone(), Shown::Changed, at(0)), Noted::Unreadable(_)));
    assert_eq!(index.read().get("n").unwrap().facts.knowledge, Knowledge::Unreadable);
    assert!(index.read().get("n").unwrap().problem.is_some());
    assert_eq!(index.apply(garbage, Shown::Changed, at(0)), Noted::Fine);
    index.apply(mk_node(None), Shown::Changed, at(0));
    assert_eq!(index.read().get("n").unwrap().facts.knowledge, Knowledge::Absent);
}

#[test]
fn it_is_synced_after_the_first_list_which_also_says_who_is_gone() {
    let index = NodeIndex::default();
    index.apply(mk_node(None), Shown::Listed, at(0));
    assert!(!index.is_synced());
    index.listed(&HashSet::from(["n".to_owned()]));
    assert!(index.is_synced() && index.read().contains_key("n"));
    index.listed(&HashSet::new());
    assert!(index.read().is_empty());
    index.apply(mk_node(None), Shown::Changed, at(0));
    index.delete("n");
    assert!(index.read().is_empty());
}

fn state(boot: u64, seq: u64) -> NodeState {
    decode(&annotation(boot, seq)).unwrap()
}

#[test]
fn a_streamed_state_is_as_old_as_its_receipt_and_only_for_the_node_object_that_it_names() {
    let index = NodeIndex::default();
    let stream = |uid, seq, now| index.stream("n", uid, state(1, seq), at(now));
    assert_eq!(stream("uid-1", 1, 0), Err(UnknownNode::Name));
    index.apply(mk_node(None), Shown::Listed, at(0));
    assert_eq!(stream("uid-2", 1, 0), Err(UnknownNode::Uid));
    assert_eq!(known(&index).1, None);
    assert_eq!(stream("uid-1", 2, 400), Ok(Taken::Yes));
    assert_eq!(known(&index), (Source::Stream, Some((2, 600))));
    assert_eq!(stream("uid-1", 2, 900), Ok(Taken::Outdated), "a repeat makes nothing younger");
    assert_eq!(stream("uid-1", 1, 900), Ok(Taken::Outdated));
    assert_eq!(known(&index), (Source::Stream, Some((2, 600))));
    assert_eq!(index.census(), Census { annotation: 0, stream: 1 });
    index.delete("n");
    assert_eq!(stream("uid-1", 3, 900), Err(UnknownNode::Name));
}

#[test]
fn stream_and_annotation_are_one_sequence() {
    let index = NodeIndex::default();
    index.apply(mk_node(Some(&annotation(1, 1))), Shown::Listed, at(0));
    let change = |boot, seq, now| index.apply(mk_node(Some(&annotation(boot, seq))), Shown::Changed, at(now));
    let stream = |boot, seq, now| index.stream("n", "uid-1", state(boot, seq), at(now));
    assert_eq!(stream(1, 5, 100), Ok(Taken::Yes));
    assert_eq!(change(1, 4, 200), Noted::Fine, "overtaken by the stream, as may be");
    assert_eq!(known(&index), (Source::Stream, Some((5, 900))));
    assert_eq!(change(1, 6, 300), Noted::Taken);
    assert_eq!(known(&index), (Source::Watched, Some((6, 700))));
    assert_eq!(stream(1, 5, 400), Ok(Taken::Outdated));
    assert_eq!(stream(2, 1, 500), Ok(Taken::Yes), "the collector was started again");
    assert_eq!(known(&index), (Source::Stream, Some((1, 500))));
}

#[test]
fn what_is_streamed_outlives_the_annotation_and_garbage_in_it() {
    let index = NodeIndex::default();
    index.apply(mk_node(Some(&annotation(1, 1))), Shown::Listed, at(0));
    assert_eq!(index.stream("n", "uid-1", state(1, 2), at(0)), Ok(Taken::Yes));
    assert!(matches!(index.apply(mk_node(Some("{]")), Shown::Changed, at(0)), Noted::Unreadable(_)));
    assert_eq!(known(&index), (Source::Stream, Some((2, 1_000))));
    assert!(index.read().get("n").unwrap().problem.is_some());
    index.apply(mk_node(None), Shown::Changed, at(0));
    assert_eq!(known(&index), (Source::Stream, Some((2, 1_000))));
    // The streamed state has become stale, so it no longer counts.
    index.apply(mk_node(Some("{]")), Shown::Changed, at(180_001));
    assert_eq!(index.read().get("n").unwrap().facts.knowledge, Knowledge::Unreadable);
}

#[test]
fn a_node_that_was_made_anew_has_nothing_of_what_its_predecessor_streamed() {
    let index = NodeIndex::default();
    index.apply(mk_node(None), Shown::Listed, at(0));
    assert_eq!(index.stream("n", "uid-1", state(9, 9), at(0)), Ok(Taken::Yes));
    let mut other = mk_node(None);
    other.uid = Some("uid-2".into());
    index.apply(other, Shown::Changed, at(1));
    assert_eq!(known(&index), (Source::None, None));
    assert_eq!(index.stream("n", "uid-2", state(1, 1), at(2)), Ok(Taken::Yes));
}

#[test]
fn workloads_that_were_moved_off_are_learnt_from_the_annotation_and_forgotten_with_it() {
    let index = NodeIndex::default();
    let has = |now: u64| {
        index.read().get("n").unwrap().facts.moved_off.has(&controller("shop", "rs"), MonotonicTime(now))
    };
    let with_mark = |until: u64| {
        let mut node = mk_node(Some(&annotation(1, 1)));
        let mark = format!(r#"{{"shop/rs":{until}}}"#);
        node.annotations.get_or_insert_default().insert(MOVED_OFF_ANNOTATION.to_owned(), mark);
        node
    };
    index.apply(mk_node(Some(&annotation(1, 1))), Shown::Listed, at(1_000));
    assert!(!has(1_000));
    index.apply(with_mark(WALL + 500), Shown::Changed, at(1_000));
    assert!(has(1_499) && !has(1_500));
    assert_eq!(known(&index).1.map(|(seq, _)| seq), Some(1), "the state stays");
    // The same annotation again, after the wall clock has stepped back.
    let stepped = Moment { wall: WallTime(WALL - 10_000), ..at(1_200) };
    index.apply(with_mark(WALL + 500), Shown::Changed, stepped);
    assert!(has(1_499) && !has(1_500));
    let streamed = decode(&annotation(1, 2)).unwrap();
    index.stream("n", "uid-1", streamed, at(1_300)).unwrap();
    assert!(has(1_499), "a streamed state says nothing of moves");
    index.apply(mk_node(Some(&annotation(1, 1))), Shown::Changed, at(1_400));
    assert!(!has(1_400));
}

#[test]
fn cordons_and_taints_are_seen_and_labels_are_kept_of_nodes_with_boards_alone() {
    let index = NodeIndex::default();
    let seen = |text: Option<&str>, intake| {
        let spec = NodeSpec { unschedulable: Some(intake == Intake::Closed), ..NodeSpec::default() };
        let node = KubeNode { metadata: mk_node(text), spec: Some(spec), status: None };
        index.apply(node, Shown::Changed, at(0));
        NodeTerms::clone(&index.read().get("n").unwrap().terms)
    };
    let without = seen(None, Intake::Open);
    assert_eq!((without.intake, without.labels.len()), (Intake::Open, 0));
    assert_eq!(seen(None, Intake::Closed).intake, Intake::Closed);
    let text = annotation(1, 1);
    assert_eq!(seen(Some(&text), Intake::Closed).labels.len(), 1);
    let version = index.since(None).version;
    assert_eq!(seen(Some(&text), Intake::Open).intake, Intake::Open);
    assert_eq!(index.since(Some(version)).nodes.len(), 1, "nothing but the cordon has changed");
}
