use super::*;
use crate::wire::{MAX_NAME_BYTES, MAX_NODES, Malformed, Pod, read_args};
use hyper::body::Bytes;
use proptest::prelude::*;

fn parts(body: &str) -> Result<(Pod<'_>, Nodes<'_>), Malformed> {
    read_args(body.as_bytes())
}

fn names(body: &str) -> Vec<String> {
    parts(body).unwrap().1.names().map(str::to_owned).collect()
}

fn rejected(reason: Rejection) -> Rejected {
    Rejected { reason, eviction: Eviction::IsUseless }
}

fn encoded(answer: &impl Encode) -> String {
    let request = Bytes::new();
    let mut out = Writer::new(&request);
    answer.encode(&mut out).unwrap();
    // Pieces outside the request are copied.
    String::from_utf8(std::mem::take(out.text())).unwrap()
}

#[test]
fn names_that_need_escapes_get_them() {
    let (_, nodes) = parts(r#"{"Pod":{},"NodeNames":["\"q\\","p","\u0001","full"]}"#).unwrap();
    let full = Rejected { reason: Rejection::NoInstance, eviction: Eviction::Helps };
    let rejected = [(2, rejected(Rejection::Board)), (3, full)];
    let result = FilterResult { nodes: &nodes, rejected: &rejected };
    let value: serde_json::Value = serde_json::from_str(&encoded(&result)).unwrap();
    assert_eq!(value["NodeNames"], serde_json::json!(["\"q\\", "p"]));
    assert_eq!(value["FailedAndUnresolvableNodes"], serde_json::json!({"\u{1}": Rejection::Board.text()}));
    assert_eq!(value["FailedNodes"], serde_json::json!({"full": Rejection::NoInstance.text()}));
    assert_eq!(value["Error"], "");
}

#[test]
fn both_cache_modes_are_read_with_null_or_nothing_for_the_other() {
    for (body, mode) in [
        (r#"{"Pod":{},"Nodes":null,"NodeNames":["a","b"]}"#, Mode::Names),
        (r#"{"pod":{},"nodenames":["a","b"]}"#, Mode::Names),
        (
            r#"{"Pod":{},"NodeNames":null,"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}}"#,
            Mode::Full,
        ),
        (
            r#"{"pod":{},"nodes":{"items":[{"kind":"Node","metadata":{"x":{"name":"c"},"name":"a"}},{"spec":{},"metadata":{"name":"b","uid":"1"}}]}}"#,
            Mode::Full,
        ),
    ] {
        assert_eq!(parts(body).unwrap().1.mode(), mode);
        assert_eq!(names(body), ["a", "b"]);
    }
}

#[test]
fn no_nodes_at_all_are_an_empty_list_of_names() {
    for body in
        [r#"{"Pod":{}}"#, r#"{"Pod":{},"Nodes":null,"NodeNames":null}"#, r#"{"Pod":{},"NodeNames":[]}"#]
    {
        assert!(names(body).is_empty());
    }
    assert!(names(r#"{"Pod":{},"Nodes":{"items":null}}"#).is_empty());
}

#[test]
fn names_with_escapes_are_read() {
    assert_eq!(names(r#"{"Pod":{},"NodeNames":["\u0061\n"]}"#), ["a\n"]);
    assert_eq!(names(r#"{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"\u0061"}}]}}"#), ["a"]);
}

#[test]
fn what_is_missing_is_named() {
    assert!(matches!(parts(r#"{"NodeNames":[]}"#), Err(Malformed::NoPod)));
    assert!(matches!(parts(r#"{"Pod":null}"#), Err(Malformed::NoPod)));
    let nameless = r#"{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}},{"metadata":{"uid":"1"}}]}}"#;
    assert!(matches!(parts(nameless), Err(Malformed::NamelessNode(1))));
    for body in ["", "{", r#"{"Pod":{},"NodeNames":[1]}"#, r#"{"Pod":{}} x"#] {
        assert!(matches!(parts(body), Err(Malformed::Json(_))), "{body}");
    }
}

#[test]
fn lists_and_names_are_bounded_whatever_the_body_may_hold() {
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    for pod in ["name", "namespace", "uid"] {
        let body = format!(r#"{{"Pod":{{"metadata":{{"{pod}":"{long}"}}}},"NodeNames":[]}}"#);
        assert!(matches!(parts(&body), Err(Malformed::LongName(_))), "{pod}");
    }
    for nodes in [
        format!(r#""NodeNames":["{long}"]"#),
        format!(r#""Nodes":{{"items":[{{"metadata":{{"name":"{long}"}}}}]}}"#),
    ] {
        assert!(matches!(parts(&format!(r#"{{"Pod":{{}},{nodes}}}"#)), Err(Malformed::LongName(_))));
    }
    let many = |item: &str, most: usize| vec![item; most + 1].join(",");
    for body in [
        format!(r#"{{"Pod":{{}},"NodeNames":[{}]}}"#, many("\"\"", MAX_NODES)),
        format!(r#"{{"Pod":{{}},"Nodes":{{"items":[{}]}}}}"#, many("{}", MAX_NODES)),
        format!(r#"{{"Pod":{{"spec":{{"containers":[{}]}}}}}}"#, many("{}", 1024)),
        format!(r#"{{"Pod":{{"metadata":{{"ownerReferences":[{}]}}}}}}"#, many("{}", 1024)),
        format!(r#"{{"Pod":{{"metadata":{{"labels":{{{}}}}}}}}}"#, many(r#""blastfunction.io/":"""#, 256)),
    ] {
        let error = parts(&body).unwrap_err().to_string();
        assert!(error.contains("more than"), "{error}");
    }
    let most = format!(r#"{{"Pod":{{}},"NodeNames":[{}]}}"#, vec![r#""n""#; MAX_NODES].join(","));
    assert_eq!(parts(&most).unwrap().1.len(), MAX_NODES);
}

#[test]
fn nodes_go_back_byte_for_byte() {
    let kept = r#"{ "metadata" : {"name":"b", "n": 1.50}, "Odd":"\u0041" }"#;
    let body = format!(r#"{{"Pod":{{}},"Nodes":{{"items":[{{"metadata":{{"name":"a"}}}}, {kept} ]}}}}"#);
    let (_, nodes) = parts(&body).unwrap();
    let result = FilterResult { nodes: &nodes, rejected: &[(0, rejected(Rejection::Board))] };
    assert_eq!(
        encoded(&result),
        format!(
            r#"{{"Nodes":{{"metadata":{{}},"items":[{kept}]}},"NodeNames":null,"FailedNodes":{{}},"FailedAndUnresolvableNodes":{{"a":"{}"}},"Error":""}}"#,
            Rejection::Board.text()
        )
    );
}

#[test]
fn an_answer_takes_the_room_of_what_is_its_own_and_never_grows() {
    const NODES: usize = 1000;
    let item = |index| format!(r#"{{"metadata":{{"name":"node-{index:04}"}}}}"#);
    let items = (0..NODES).map(item).collect::<Vec<_>>().join(",");
    let names = (0..NODES).map(|index| format!(r#""node-{index:04}""#)).collect::<Vec<_>>().join(",");
    let whole = format!(r#"{{"Pod":{{}},"Nodes":{{"items":[{items}]}}}}"#);
    let names = format!(r#"{{"Pod":{{}},"NodeNames":[{names}]}}"#);
    let (reason, text) = (Rejection::NotLoaded, Rejection::NotLoaded.text());
    for (body, rejection, own) in [
        (&whole, None, 0),
        (&whole, Some(reason), NODES * (9 + text.len() + PAIR_BYTES)),
        (&names, None, 0),
        (&names, Some(reason), NODES * (9 + text.len() + PAIR_BYTES)),
    ] {
        let request = Bytes::from(body.clone());
        let (_, nodes) = read_args(&request).unwrap();
        let mut out = Writer::new(&request);
        let rejected: Vec<_> = (0..NODES).filter_map(|place| Some((place, rejected(rejection?)))).collect();
        FilterResult { nodes: &nodes, rejected: &rejected }.encode(&mut out).unwrap();
        let capacity = out.finish().own_capacity(&request);
        assert!((own..=own + 2 * FRAME_BYTES).contains(&capacity), "{rejection:?} {own} {capacity}");
        let mut out = Writer::new(&request);
        HostPriorities { nodes: &nodes, scores: &[10; NODES] }.encode(&mut out).unwrap();
        let capacity = out.finish().own_capacity(&request);
        assert_eq!(capacity, NODES * (9 + SCORED_BYTES) + FRAME_BYTES);
    }
}

#[test]
fn priorities_are_a_bare_array_of_integers() {
    let (_, nodes) = parts(r#"{"Pod":{},"NodeNames":["a","b"]}"#).unwrap();
    let priorities = HostPriorities { nodes: &nodes, scores: &[7, 0] };
    assert_eq!(encoded(&priorities), r#"[{"Host":"a","Score":7},{"Host":"b","Score":0}]"#);
}

/// Names that need escapes or not, and an answer for each.
fn any_candidates() -> impl Strategy<Value = Vec<(String, Option<Rejected>)>> {
    let rejection = prop::sample::select(Rejection::ALL.to_vec());
    let eviction = prop::sample::select(vec![Eviction::Helps, Eviction::IsUseless]);
    let rejected = (rejection, eviction).prop_map(|(reason, eviction)| Rejected { reason, eviction });
    let name = prop_oneof![9 => "[a-z0-9.-]{0,300}", 1 => "[a\"\\\\ü\u{1}]{0,4}"];
    let many = prop::collection::vec((name, prop::option::weighted(0.3, rejected)), 0..40);
    many.prop_filter("names of that length are refused", |all| {
        all.iter().all(|(name, _)| name.len() <= MAX_NAME_BYTES)
    })
}

fn as_whole(name: &String) -> serde_json::Value {
    serde_json::json!({"metadata": {"name": name}, "spec": {"x": [1, 2]}})
}

proptest! {
    #[test]
    fn answers_say_of_each_candidate_what_was_decided(candidates in any_candidates(), scores in prop::collection::vec(0..12_u32, 40)) {
        let names: Vec<&String> = candidates.iter().map(|(name, _)| name).collect();
        let rejected: Vec<(usize, Rejected)> =
            candidates.iter().enumerate().filter_map(|(place, (_, rejection))| Some((place, (*rejection)?))).collect();
        let items: Vec<_> = names.iter().copied().map(as_whole).collect();
        for body in [
            serde_json::json!({"Pod": {}, "Nodes": null, "NodeNames": names}).to_string(),
            serde_json::to_string_pretty(&serde_json::json!({"Pod": {}, "NodeNames": names})).unwrap(),
            serde_json::json!({"Pod": {}, "Nodes": {"items": items}}).to_string(),
        ] {
            let request = Bytes::from(body);
            let (_, nodes) = read_args(&request).unwrap();
            prop_assert!(nodes.names().eq(names.iter().map(|name| name.as_str())));
            let value = |answer: &dyn Fn(&mut Writer<'_>)| {
                let mut out = Writer::new(&request);
                answer(&mut out);
                serde_json::from_slice::<serde_json::Value>(&Vec::from(out.finish())).unwrap()
            };
            let filtered = value(&|out| FilterResult { nodes: &nodes, rejected: &rejected }.encode(out).unwrap());
            let passed = candidates.iter().filter(|(_, rejection)| rejection.is_none()).map(|(name, _)| name);
            let (mode, passed): (_, Vec<_>) = match nodes.mode() {
                Mode::Names => (&filtered["NodeNames"], passed.map(|name| serde_json::json!(name)).collect()),
                Mode::Full => (&filtered["Nodes"]["items"], passed.map(as_whole).collect()),
            };
            prop_assert_eq!(mode, &serde_json::json!(passed));
            for (key, by) in [("FailedNodes", Eviction::Helps), ("FailedAndUnresolvableNodes", Eviction::IsUseless)] {
                let of = |(name, rejected): &(String, Option<Rejected>)| {
                    rejected.filter(|rejected| rejected.eviction == by).map(|rejected| (name.clone(), rejected.reason.text().into()))
                };
                let expected: serde_json::Map<String, serde_json::Value> = candidates.iter().filter_map(of).collect();
                prop_assert_eq!(&filtered[key], &serde_json::Value::Object(expected));
            }
            let scores = &scores[..names.len()];
            let scored = value(&|out| HostPriorities { nodes: &nodes, scores }.encode(out).unwrap());
            let expected: Vec<_> = names.iter().zip(scores).map(|(host, score)| serde_json::json!({"Host": host, "Score": score})).collect();
            prop_assert_eq!(scored, serde_json::Value::Array(expected));
        }
    }

    #[test]
    fn no_body_makes_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_args(&body);
    }
}
