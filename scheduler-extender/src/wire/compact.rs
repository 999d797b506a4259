//! Reads requests of the form in which kube-scheduler writes them: no space between tokens, each key at most once, names
//! without escapes, and the name first in each whole node. Then a search for a few bytes tells where the names are, which
//! is several times as fast as a parser of any JSON.
//!
//! Whole nodes are not parsed: the answer returns their bytes as they came.

use super::limits::MAX_NODES;
use super::names::NodeNames;
use super::nodes::Nodes;
use super::pod::Pod;
use memchr::{memchr, memchr_iter, memchr2, memchr2_iter, memmem};
use std::ops::Range;

/// The beginning of a node, up to its name.
const NODE: &str = r#"{"metadata":{"name":""#;

/// The places of names, and of the nodes that have them.
type Places = (Vec<Range<u32>>, Vec<Range<usize>>);

/// The pod and the candidates of the request `text`; `None` if it has another form, valid or not.
pub(super) fn read(text: &str) -> Option<(Pod<'_>, Nodes<'_>)> {
    u32::try_from(text.len()).ok()?;
    let mut cursor = Cursor { text, at: 0 };
    let (mut pod, mut names, mut whole) = (None, None, None);
    let (mut has_names, mut has_nodes) = (false, false);
    cursor.expect("{")?;
    loop {
        if pod.is_none() && cursor.expect(r#""Pod":"#).is_some() {
            pod = Some(cursor.pod()?);
        } else if !has_names && cursor.expect(r#""NodeNames":["#).is_some() {
            (names, has_names) = (Some(cursor.names()?), true);
        } else if !has_names && cursor.expect(r#""NodeNames":null"#).is_some() {
            has_names = true;
        } else if !has_nodes && cursor.expect(r#""Nodes":null"#).is_some() {
            has_nodes = true;
        } else if !has_nodes && cursor.expect(r#""Nodes":{"metadata":{},"items":["#).is_some() {
            (whole, has_nodes) = (Some(cursor.whole()?), true);
        } else {
            return None;
        }
        if cursor.expect(",").is_none() {
            break;
        }
    }
    cursor.expect("}")?;
    let is_whole = cursor.rest().bytes().all(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t'));
    let (places, whole) = match (names, whole) {
        (Some(places), None) => (places, None),
        (None, Some((places, whole))) => (places, Some(whole)),
        (None, None) | (Some(_), Some(_)) => return None,
    };
    is_whole.then_some((pod?, Nodes::in_request(text, NodeNames::in_request(text, places), whole)))
}

/// How the end of a name is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guess {
    /// Most names are as long as the one before, which is checked before a name is searched for its end.
    Length,
    /// Each name is searched.
    Nothing,
}

/// A place in the request.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Passes `token`, if it comes next.
    fn expect(&mut self, token: &str) -> Option<()> {
        self.rest().starts_with(token).then(|| self.at += token.len())
    }

    fn pod(&mut self) -> Option<Pod<'a>> {
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter();
        let pod = values.next()?.ok()?;
        self.at += values.byte_offset();
        Some(pod)
    }

    /// The places of the names of a list whose first bracket has passed.
    fn names(&mut self) -> Option<Vec<Range<u32>>> {
        let first = self.at;
        self.names_after(Guess::Length).or_else(|| {
            self.at = first;
            self.names_after(Guess::Nothing)
        })
    }

    fn names_after(&mut self, guess: Guess) -> Option<Vec<Range<u32>>> {
        let (bytes, first) = (self.text.as_bytes(), self.at);
        let mut places = Vec::with_capacity(self.rest().len().div_ceil(LIKELY_NAME).min(MAX_NODES));
        let mut length = 0;
        while bytes.get(self.at) == Some(&b'"') && places.len() < MAX_NODES {
            let from = self.at + 1;
            let likely = from + length;
            let is_end =
                guess == Guess::Length && matches!(bytes.get(likely..likely + 2), Some([b'"', b',' | b']']));
            let end = if is_end { likely } else { from + memchr(b'"', bytes.get(from..)?)? };
            length = end - from;
            // The length of the request fits.
            places.push(u32::try_from(from).ok()?..u32::try_from(end).ok()?);
            self.at = end + 1;
            match bytes.get(self.at)? {
                b',' => self.at += 1,
                _ => break,
            }
        }
        let is_list = bytes.get(self.at) == Some(&b']') && bytes.get(self.at - 1) != Some(&b',');
        let list = bytes.get(first..self.at)?;
        // A string may not have control characters unescaped. No early end: so the compiler makes vector instructions of it.
        let is_plain = !list.iter().fold(false, |any, byte| any | (*byte < b' ') | (*byte == b'\\'));
        // With other quotes than those around the names, a name was taken for longer than it is.
        let has_no_other = memchr_iter(b'"', list).count() == 2 * places.len();
        self.at += 1;
        (is_list && is_plain && has_no_other).then_some(places)
    }
}

impl Cursor<'_> {
    /// The places of the names and of the nodes of a list of whole nodes whose first bracket has passed. The list must be
    /// the last thing of the request but for `NodeNames`.
    fn whole(&mut self) -> Option<Places> {
        const END: &str = r#"]},"NodeNames":null}"#;
        let list = self.rest().trim_end().strip_suffix(END)?;
        let first = self.at;
        let between = memmem::Finder::new(r#"},{"metadata":{"name":""#);
        // Each node ends with the first byte of what is found.
        let mut ends = between.find_iter(list.as_bytes()).map(|at| at + 1).chain([list.len()]);
        let (mut names, mut nodes, mut from) = (Vec::new(), Vec::new(), 0);
        while !list.is_empty() && names.len() < MAX_NODES {
            let Some(end) = ends.next() else { break };
            names.push(name_in(list.get(from..end)?, first + from)?);
            nodes.push(first + from..first + end);
            from = end + 1;
        }
        self.at = first + list.len() + "]}".len();
        (list.is_empty() || ends.next().is_none()).then_some((names, nodes))
    }
}

/// The place of the name in the request, if `node` begins with its name and is one object; `at` is the place of the node.
fn name_in(node: &str, at: usize) -> Option<Range<u32>> {
    let name = node.strip_prefix(NODE)?;
    let end = memchr2(b'"', b'\\', name.as_bytes())?;
    let is_plain = name.as_bytes().get(end) == Some(&b'"') && !name.bytes().take(end).any(|byte| byte < b' ');
    let from = at + NODE.len();
    (is_plain && is_one_object(node.as_bytes()))
        .then_some(u32::try_from(from).ok()?..u32::try_from(from + end).ok()?)
}

/// Whether the last brace of `node` is the first that closes as many as are open: then `node` is neither a part of an object
/// nor several objects. Braces in strings count, too: a node with single ones is left to the parser. Only a list that
/// kube-scheduler does not write, of nodes with such strings, could be taken for other nodes.
fn is_one_object(node: &[u8]) -> bool {
    let mut open = 0_usize;
    for at in memchr2_iter(b'{', b'}', node) {
        if node.get(at) == Some(&b'{') {
            open += 1;
        } else if open <= 1 {
            return open == 1 && at + 1 == node.len();
        } else {
            open -= 1;
        }
    }
    false
}

/// Bytes of a name with its quotes and its comma, for reserving memory.
const LIKELY_NAME: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> Option<Vec<String>> {
        read(text).map(|(_, nodes)| nodes.names().map(str::to_owned).collect())
    }

    #[test]
    fn the_form_of_kube_scheduler_is_read_in_any_order_of_its_keys() {
        for text in [
            "{\"Pod\":{\"spec\":{}},\"Nodes\":null,\"NodeNames\":[\"a\",\"\",\"node-ü\"]}\n",
            r#"{"NodeNames":["a","","node-ü"],"Nodes":null,"Pod":{}}"#,
            r#"{"NodeNames":["a","","node-ü"],"Pod":{}}"#,
        ] {
            assert_eq!(names(text).unwrap(), ["a", "", "node-ü"], "{text}");
        }
        for taken_for_one in [["12345", "b", "c"], ["1234567", "b", "cde"]] {
            let text = serde_json::json!({"Pod": {}, "NodeNames": taken_for_one}).to_string();
            assert_eq!(names(&text).unwrap(), taken_for_one, "as long as the first: {text}");
        }
        for text in [
            r#"{"Pod":{},"NodeNames":[]}"#,
            r#"{"Pod":{},"Nodes":{"metadata":{},"items":[]},"NodeNames":null}"#,
        ] {
            assert_eq!(names(text).unwrap(), [""; 0], "{text}");
        }
    }

    #[test]
    fn any_other_form_is_left_to_the_parser() {
        for text in [
            r#"{"Pod":{},"NodeNames":["a"]"#,
            r#"{"Pod":{},"NodeNames":["a",]}"#,
            r#"{"Pod":{},"NodeNames":["a"],}"#,
            r#"{"Pod":{},"NodeNames":["a" "b"]}"#,
            r#"{"Pod":{},"NodeNames":["a\"","b"]}"#,
            r#"{"Pod":{},"NodeNames":["a"]} x"#,
            r#"{"Pod":{},"NodeNames":["a"],"NodeNames":["b"]}"#,
            r#"{"Pod":{},"Pod":{},"NodeNames":["a"]}"#,
            r#"{"Pod":{},"NodeNames":["a"],"More":1}"#,
            r#"{"Pod":null,"NodeNames":["a"]}"#,
            r#"{"Pod":{},"NodeNames":null}"#,
            r#"{"Pod":{}"NodeNames":["a"]}"#,
            r#"{"NodeNames":["a"]}"#,
            r#"{"Pod":{},"NodeNames":[1]}"#,
            "{\"Pod\":{},\"NodeNames\":[\"a\n\"]}",
            r#"{"Pod":{},"NodeNames":["a"],"Nodes":{"metadata":{},"items":[]}}"#,
            r#"{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a"}}]}}"#,
            r#"{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a"}},]},"NodeNames":null}"#,
            r#"{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a\n"}}]},"NodeNames":null}"#,
            r#"{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a"},"x":"{"}]},"NodeNames":null}"#,
            r#"{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"uid":"1","name":"a"}}]},"NodeNames":null}"#,
            r#"{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a"}}, {"metadata":{"name":"b"}}]},"NodeNames":null}"#,
            r#"{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a"}},{"kind":"Node"}]},"NodeNames":null}"#,
            r#"{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a"},"of":[{},{"metadata":{"name":"b"}}]}]},"NodeNames":null}"#,
            "",
        ] {
            assert_eq!(names(text), None, "{text}");
        }
        let many = |item: &str| vec![item; MAX_NODES + 1].join(",");
        let (many_names, many_nodes) = (many(r#""n""#), many(r#"{"metadata":{"name":"n"}}"#));
        assert_eq!(names(&format!(r#"{{"Pod":{{}},"NodeNames":[{many_names}]}}"#)), None);
        let nodes = format!(r#""Nodes":{{"metadata":{{}},"items":[{many_nodes}]}}"#);
        assert_eq!(names(&format!(r#"{{"Pod":{{}},{nodes},"NodeNames":null}}"#)), None);
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_the_parser_reads(
            written in prop::collection::vec("[a-c\"\\\\ü\u{1}]{0,4}", 0..5), cut in 0_usize..80, put in "[]\",{}:\\\\ a]{0,2}",
        ) {
            let pod = serde_json::json!({"metadata": {"name": "p\"", "uid": "u"}});
            let whole = serde_json::json!({"NodeNames": written, "Nodes": null, "Pod": pod}).to_string();
            let cut = (0..=cut.min(whole.len())).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or(0);
            let changed = format!("{}{put}{}", &whole[..cut], &whole[cut..]);
            for text in [&whole, &changed] {
                let Some((pod, nodes)) = read(text) else { continue };
                let parsed: serde_json::Value = serde_json::from_str(text).unwrap();
                let names: Vec<&str> = nodes.names().collect();
                prop_assert_eq!(&parsed["NodeNames"], &serde_json::json!(names));
                prop_assert_eq!(parsed["Pod"]["metadata"]["name"].as_str().unwrap_or_default(), pod.name());
            }
        }

        #[test]
        fn whole_nodes_are_what_the_parser_reads(
            written in prop::collection::vec(("[a-c]{0,4}", "[a{}\",:\\\\]{0,3}"), 0..5), cut in 0_usize..400, put in "[]\",{}:\\\\ a]{0,2}",
        ) {
            let node = |(name, text): &(String, String)| {
                let text = serde_json::json!(text);
                format!(r#"{{"metadata":{{"name":"{name}","labels":{{"x":{text}}}}},"status":{{"images":[{{"names":[{text}]}},{{}}]}}}}"#)
            };
            let items = written.iter().map(node).collect::<Vec<_>>().join(",");
            let whole = format!("{{\"Pod\":{{}},\"Nodes\":{{\"metadata\":{{}},\"items\":[{items}]}},\"NodeNames\":null}}\n");
            let cut = cut.min(whole.len());
            let changed = format!("{}{put}{}", &whole[..cut], &whole[cut..]);
            // In another form, braces in strings may hide where a node ends.
            let has_braces = written.iter().any(|(_, text)| text.contains(['{', '}']));
            for text in [&whole, &changed].into_iter().take(if has_braces { 1 } else { 2 }) {
                // The insides of nodes are not parsed.
                let (Some((_, nodes)), Ok(parsed)) = (read(text), serde_json::from_str::<serde_json::Value>(text)) else { continue };
                let items = parsed["Nodes"]["items"].as_array().unwrap();
                let names = items.iter().map(|item| item["metadata"]["name"].as_str().unwrap());
                prop_assert!(nodes.names().eq(names));
                for (index, item) in items.iter().enumerate() {
                    let piece: serde_json::Value = serde_json::from_str(nodes.run(index..index + 1).unwrap()).unwrap();
                    prop_assert_eq!(&piece, item);
                }
            }
        }
    }
}
