//! Requests and answers of filter and prioritize, in both cache modes.

use super::limits::{MAX_NAME_BYTES, MAX_NODES};
use super::malformed::{Malformed, check_length};
use super::text::Few;
use super::{Encode, Pod, Text, Writer};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Upper bound of the bytes of an answer without the items of its lists.
const FRAME_BYTES: usize = 128;
/// Bytes of `"",` around a name.
const NAME_BYTES: usize = 3;
/// Bytes of `"":"",` around a name and its rejection.
const PAIR_BYTES: usize = 6;
/// Bytes of `{"Host":"","Score":10},` around a name, the score included.
const SCORED_BYTES: usize = 23;

/// Body of filter and prioritize. One of `NodeNames` and `Nodes` is `null`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderArgs<'a> {
    /// The pod to be placed.
    #[serde(borrow, default, alias = "pod")]
    pub pod: Option<Pod<'a>>,
    #[serde(borrow, default, alias = "nodes")]
    nodes: Option<NodeList<'a>>,
    #[serde(borrow, default, alias = "nodeNames", alias = "nodenames")]
    node_names: Option<Few<Text<'a>, MAX_NODES>>,
}

#[derive(Debug, Deserialize)]
struct NodeList<'a> {
    #[serde(borrow, default, alias = "Items")]
    items: Option<Few<&'a RawValue, MAX_NODES>>,
}

/// Form of the candidates in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `nodeCacheCapable: true`: names only.
    Names,
    /// `nodeCacheCapable: false`: whole nodes.
    Full,
}

/// The candidates of a request.
#[derive(Debug)]
pub enum Nodes<'a> {
    /// Names of the nodes.
    Names(Vec<Text<'a>>),
    /// Names and JSON of whole nodes. The answer must return the same bytes, since kube-scheduler replaces its own
    /// view by them.
    Full(Vec<(Text<'a>, &'a RawValue)>),
}

/// Answer to filter.
#[derive(Debug)]
pub struct FilterResult<'a> {
    /// The candidates.
    pub nodes: &'a Nodes<'a>,
    /// For each candidate, why it is rejected; `None` if it passes.
    pub rejections: &'a [Option<Rejected>],
}

/// Why a candidate is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejected {
    /// The reason, for people.
    pub reason: &'static str,
    /// Whether preemption helps.
    pub eviction: Eviction,
}

/// Whether the eviction of pods could let a rejected node pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// Pods of lower priority have the boards.
    Helps,
    /// Evicting pods makes no board appear.
    IsUseless,
}

/// Answer to prioritize: a JSON array without an object around it; scores are integers.
#[derive(Debug)]
pub struct HostPriorities<'a> {
    /// The candidates.
    pub nodes: &'a Nodes<'a>,
    /// The score of each candidate.
    pub scores: &'a [u32],
}

impl<'a> ExtenderArgs<'a> {
    /// Decodes `body`.
    ///
    /// # Errors
    /// [`Malformed::Utf8`] or [`Malformed::Json`] if the body is not such a request.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        // Checking the whole body once is cheaper than checking each string.
        Ok(serde_json::from_str(std::str::from_utf8(body)?)?)
    }

    /// The pod and the candidates.
    ///
    /// # Errors
    /// [`Malformed`] if there is no pod, a node has no name, or a name is too long.
    pub fn into_parts(self) -> Result<(Pod<'a>, Nodes<'a>), Malformed> {
        let pod = self.pod.ok_or(Malformed::NoPod)?;
        pod.check()?;
        let nodes = match (self.node_names, self.nodes) {
            (Some(Few(names)), _) => Nodes::Names(names),
            (None, None) => Nodes::Names(Vec::new()),
            (None, Some(list)) => {
                let items = list.items.map_or_else(Vec::new, |Few(items)| items).into_iter().enumerate();
                let named = items.map(|(index, item)| {
                    node_name(item).map(|name| (name, item)).ok_or(Malformed::NamelessNode(index))
                });
                Nodes::Full(named.collect::<Result<_, _>>()?)
            }
        };
        nodes.names().try_for_each(|name| check_length("node name", name, MAX_NAME_BYTES))?;
        Ok((pod, nodes))
    }
}

impl<'a> Nodes<'a> {
    /// The form of the candidates.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self {
            Self::Names(_) => Mode::Names,
            Self::Full(_) => Mode::Full,
        }
    }

    /// Number of candidates.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Names(names) => names.len(),
            Self::Full(nodes) => nodes.len(),
        }
    }

    /// Whether there are no candidates.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the candidates, in the order of the request.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.texts().map(Text::as_str)
    }

    fn texts(&self) -> impl Iterator<Item = &Text<'a>> + Clone {
        let (names, nodes) = match self {
            Self::Names(names) => (names.as_slice(), [].as_slice()),
            Self::Full(nodes) => ([].as_slice(), nodes.as_slice()),
        };
        names.iter().chain(nodes.iter().map(|(name, _)| name))
    }
}

impl Encode for FilterResult<'_> {
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), serde_json::Error> {
        let passes = |index: &usize| self.rejections.get(*index).is_some_and(Option::is_none);
        let rejected = self.nodes.texts().zip(self.rejections);
        let rejected = rejected.filter_map(|(name, rejection)| Some((name, (*rejection)?)));
        let end =
            rejected.clone().map(|(name, rejected)| name.as_str().len() + rejected.reason.len() + PAIR_BYTES);
        let end = FRAME_BYTES + end.sum::<usize>();
        match self.nodes {
            Nodes::Names(names) => {
                let out = out.text();
                let passed = names.iter().enumerate().filter(|(index, _)| passes(index));
                let names = passed.clone().map(|(_, name)| name.as_str().len() + NAME_BYTES);
                out.reserve(names.sum::<usize>() + end);
                out.extend_from_slice(br#"{"Nodes":null,"NodeNames":["#);
                list(out, passed, |out, (_, name)| name.encode(out))?;
                out.extend_from_slice(b"]");
            }
            Nodes::Full(nodes) => {
                out.text().extend_from_slice(br#"{"Nodes":{"metadata":{},"items":["#);
                let passed = nodes.iter().enumerate().filter(|(index, _)| passes(index));
                for (place, (_, (_, node))) in passed.enumerate() {
                    if place > 0 {
                        out.text().push(b',');
                    }
                    out.pass(node.get());
                }
                out.text().reserve(end);
                out.text().extend_from_slice(br#"]},"NodeNames":null"#);
            }
        }
        let out = out.text();
        out.extend_from_slice(br#","FailedNodes":{"#);
        let of = |eviction| rejected.clone().filter(move |(_, rejected)| rejected.eviction == eviction);
        reasons(out, of(Eviction::Helps))?;
        out.extend_from_slice(br#"},"FailedAndUnresolvableNodes":{"#);
        reasons(out, of(Eviction::IsUseless))?;
        out.extend_from_slice(br#"},"Error":""}"#);
        Ok(())
    }
}

impl Encode for HostPriorities<'_> {
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), serde_json::Error> {
        let out = out.text();
        let scored = self.nodes.names().map(|name| name.len() + SCORED_BYTES);
        out.reserve(FRAME_BYTES + scored.sum::<usize>());
        out.push(b'[');
        list(out, self.nodes.texts().zip(self.scores), |out, (host, score)| {
            out.extend_from_slice(br#"{"Host":"#);
            host.encode(out)?;
            out.extend_from_slice(br#","Score":"#);
            serde_json::to_writer(&mut *out, score)?;
            out.push(b'}');
            Ok(())
        })?;
        out.push(b']');
        Ok(())
    }
}

/// Writes the reasons of rejected nodes as the content of an object.
fn reasons<'n>(
    out: &mut Vec<u8>,
    rejected: impl Iterator<Item = (&'n Text<'n>, Rejected)>,
) -> Result<(), serde_json::Error> {
    list(out, rejected, |out, (name, rejected)| {
        name.encode(out)?;
        out.push(b':');
        serde_json::to_writer(out, rejected.reason)
    })
}

/// Writes `items`, separated by commas.
fn list<T>(
    out: &mut Vec<u8>,
    items: impl Iterator<Item = T>,
    mut encode: impl FnMut(&mut Vec<u8>, T) -> Result<(), serde_json::Error>,
) -> Result<(), serde_json::Error> {
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        encode(out, item)?;
    }
    Ok(())
}

/// The `metadata.name` of a node. Reading stops there; Go writes the name near the start of a node.
fn node_name(node: &RawValue) -> Option<Text<'_>> {
    let mut found = None;
    let mut json = serde_json::Deserializer::from_str(node.get());
    // Stopping early is an error to the deserializer, which does not matter if the name was found.
    let _ = Path { keys: &["metadata", "name"], found: &mut found }.deserialize(&mut json);
    found
}

/// Finds the string at the end of a path of keys.
struct Path<'f, 'a> {
    keys: &'static [&'static str],
    found: &'f mut Option<Text<'a>>,
}

impl<'a> DeserializeSeed<'a> for Path<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.keys.is_empty() {
            *self.found = Some(Text::deserialize(deserializer)?);
            Ok(())
        } else {
            deserializer.deserialize_map(self)
        }
    }
}

impl<'a> Visitor<'a> for Path<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let [next, rest @ ..] = self.keys else { return Ok(()) };
        while let Some(key) = map.next_key::<Text<'a>>()? {
            if key.as_str() == *next {
                return map.next_value_seed(Path { keys: rest, found: self.found });
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::body::Bytes;

    fn parts(body: &str) -> Result<(Pod<'_>, Nodes<'_>), Malformed> {
        ExtenderArgs::read(body.as_bytes())?.into_parts()
    }

    fn names(body: &str) -> Vec<String> {
        parts(body).unwrap().1.names().map(str::to_owned).collect()
    }

    fn rejected(reason: &'static str) -> Option<Rejected> {
        Some(Rejected { reason, eviction: Eviction::IsUseless })
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
        let full = Rejected { reason: "full", eviction: Eviction::Helps };
        let rejections = [None, None, rejected("no"), Some(full)];
        let result = FilterResult { nodes: &nodes, rejections: &rejections };
        let value: serde_json::Value = serde_json::from_str(&encoded(&result)).unwrap();
        assert_eq!(value["NodeNames"], serde_json::json!(["\"q\\", "p"]));
        assert_eq!(value["FailedAndUnresolvableNodes"], serde_json::json!({"\u{1}": "no"}));
        assert_eq!(value["FailedNodes"], serde_json::json!({"full": "full"}));
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
            format!(
                r#"{{"Pod":{{"metadata":{{"labels":{{{}}}}}}}}}"#,
                many(r#""blastfunction.io/":"""#, 256)
            ),
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
        let result = FilterResult { nodes: &nodes, rejections: &[rejected("no"), None] };
        assert_eq!(
            encoded(&result),
            format!(
                r#"{{"Nodes":{{"metadata":{{}},"items":[{kept}]}},"NodeNames":null,"FailedNodes":{{}},"FailedAndUnresolvableNodes":{{"a":"no"}},"Error":""}}"#
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
        let reason = "FPGA device has not loaded the bitstream that must be there";
        for (body, rejection, own) in [
            (&whole, None, 0),
            (&whole, Some(reason), NODES * (9 + reason.len() + PAIR_BYTES)),
            (&names, None, NODES * (9 + NAME_BYTES)),
            (&names, Some(reason), NODES * (9 + reason.len() + PAIR_BYTES)),
        ] {
            let request = Bytes::from(body.clone());
            let (_, nodes) = ExtenderArgs::read(&request).unwrap().into_parts().unwrap();
            let mut out = Writer::new(&request);
            let rejections = vec![rejection.and_then(rejected); NODES];
            FilterResult { nodes: &nodes, rejections: &rejections }.encode(&mut out).unwrap();
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

    proptest::proptest! {
        #[test]
        fn no_body_makes_it_panic(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = ExtenderArgs::read(&body).map(ExtenderArgs::into_parts);
        }
    }
}
