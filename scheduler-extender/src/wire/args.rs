//! Requests for filter and prioritize, in both cache modes.

use super::limits::{MAX_NAME_BYTES, MAX_NODES};
use super::malformed::Malformed;
use super::nodes::Nodes;
use super::text::Few;
use super::{Pod, Text, compact};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Body of filter and prioritize. One of `NodeNames` and `Nodes` is `null`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ExtenderArgs<'a> {
    #[serde(borrow, default, alias = "pod")]
    pod: Option<Pod<'a>>,
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

/// The pod and the candidates of a request for filter or prioritize.
///
/// # Errors
/// [`Malformed`] if the body is not such a request, a node has no name, or a name is too long.
pub fn read_args(body: &[u8]) -> Result<(Pod<'_>, Nodes<'_>), Malformed> {
    // Checking the whole body once is cheaper than checking each string.
    let request = std::str::from_utf8(body)?;
    let (pod, nodes) = match compact::read(request) {
        Some(parts) => parts,
        None => serde_json::from_str::<ExtenderArgs<'_>>(request)?.into_parts(request)?,
    };
    pod.check()?;
    if !nodes.names_are_within(MAX_NAME_BYTES) {
        return Err(Malformed::LongName("node name"));
    }
    Ok((pod, nodes))
}

impl<'a> ExtenderArgs<'a> {
    fn into_parts(self, request: &'a str) -> Result<(Pod<'a>, Nodes<'a>), Malformed> {
        let pod = self.pod.ok_or(Malformed::NoPod)?;
        let items = match (self.node_names, self.nodes) {
            (Some(Few(names)), _) => {
                let names = names.iter().map(Text::as_str).collect();
                return Ok((pod, Nodes::in_request(request, names, None)));
            }
            (None, None) => None,
            (None, Some(list)) => Some(list.items.map_or_else(Vec::new, |Few(items)| items)),
        };
        let all = items.iter().flatten().enumerate();
        let name =
            |(index, node): (usize, &&'a RawValue)| node_name(node).ok_or(Malformed::NamelessNode(index));
        let names = all.map(name).collect::<Result<Vec<Text<'_>>, _>>()?;
        let names = names.iter().map(Text::as_str).collect();
        let place = |node: &RawValue| {
            let from = node.get().as_ptr() as usize - request.as_ptr() as usize;
            from..from + node.get().len()
        };
        let whole = items.map(|items| items.into_iter().map(place).collect());
        Ok((pod, Nodes::in_request(request, names, whole)))
    }
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
