//! The pod of a request: its identity and its requirement. All other fields are skipped.

use super::limits::{MAX_NAME_BYTES, MAX_UID_BYTES};
use super::malformed::{Malformed, check_length};
use super::text::{Few, OurPairs, Text};
use fpga_core::board_request::BoardRequest;
use fpga_core::requirement::{InvalidRequirement, PodText, Requirement};
use serde::Deserialize;

/// Most containers, and most owners, of a pod.
const MOST: usize = 1024;

/// The fields of a pod that the extender uses.
#[derive(Debug, Default, Deserialize)]
pub struct Pod<'a> {
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow, default)]
    spec: Option<Spec<'a>>,
    #[serde(borrow, default)]
    status: Option<Status<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct Status<'a> {
    #[serde(borrow, default, rename = "nominatedNodeName")]
    nominated_node: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    namespace: Option<Text<'a>>,
    #[serde(borrow, default)]
    uid: Option<Text<'a>>,
    #[serde(borrow, default)]
    labels: Option<OurPairs<'a>>,
    #[serde(borrow, default)]
    annotations: Option<OurPairs<'a>>,
    #[serde(borrow, default, rename = "ownerReferences")]
    owners: Option<Few<Owner<'a>, MOST>>,
}

#[derive(Debug, Deserialize)]
struct Owner<'a> {
    #[serde(borrow, default)]
    uid: Option<Text<'a>>,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(default)]
    priority: Option<i32>,
    #[serde(borrow, default)]
    containers: Option<Few<Container<'a>, MOST>>,
    #[serde(borrow, default)]
    init_containers: Option<Few<Container<'a>, MOST>>,
}

#[derive(Debug, Deserialize)]
struct Container<'a> {
    #[serde(borrow, default)]
    resources: Option<Resources<'a>>,
}

#[derive(Debug, Deserialize)]
struct Resources<'a> {
    #[serde(borrow, default)]
    limits: Option<OurPairs<'a>>,
    #[serde(borrow, default)]
    requests: Option<OurPairs<'a>>,
}

impl Pod<'_> {
    /// Checks the lengths of the pod's names.
    ///
    /// # Errors
    /// [`Malformed::LongName`] if the API server would not accept one of them.
    pub fn check(&self) -> Result<(), Malformed> {
        check_length("namespace", self.namespace(), MAX_NAME_BYTES)?;
        check_length("pod name", self.name(), MAX_NAME_BYTES)?;
        check_length("pod UID", self.uid(), MAX_UID_BYTES)?;
        check_length("nominated node's name", self.nominated_node().unwrap_or_default(), MAX_NAME_BYTES)?;
        check_length("owner's UID", self.owner().unwrap_or_default(), MAX_UID_BYTES)
    }

    /// The pod's name; empty if it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text(|metadata| metadata.name.as_ref())
    }

    /// The pod's namespace; empty if it has none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.text(|metadata| metadata.namespace.as_ref())
    }

    /// The pod's UID; empty if it has none.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.text(|metadata| metadata.uid.as_ref())
    }

    /// Priority of the pod.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default()
    }

    /// The node on which kube-scheduler has evicted pods for this one.
    #[must_use]
    pub fn nominated_node(&self) -> Option<&str> {
        self.status.as_ref()?.nominated_node.as_ref().map(Text::as_str).filter(|node| !node.is_empty())
    }

    /// UID of the pod's controller, if it has one.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        let mut owners = self.metadata.as_ref()?.owners.iter().flat_map(|Few(owners)| owners);
        owners.find(|owner| owner.controller == Some(true))?.uid.as_ref().map(Text::as_str)
    }

    /// The pod's requirement; `None` if it is not an FPGA pod.
    ///
    /// # Errors
    /// [`InvalidRequirement`] if the requirement can't be understood.
    pub fn requirement(&self) -> Result<Option<Requirement>, InvalidRequirement> {
        let metadata = self.metadata.as_ref();
        let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
        let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
        let spec = self.spec.as_ref();
        let lists = spec.into_iter().flat_map(|spec| [&spec.containers, &spec.init_containers]);
        let all = lists.flatten().flat_map(|Few(containers)| containers);
        Requirement::of_pod(PodText {
            labels: labels.into_iter().flat_map(OurPairs::iter),
            annotations: annotations.into_iter().flat_map(OurPairs::iter),
            containers: &all.filter_map(Container::boards).collect::<Vec<_>>(),
        })
    }

    fn text<'s>(&'s self, of: impl FnOnce(&'s Metadata<'_>) -> Option<&'s Text<'s>>) -> &'s str {
        self.metadata.as_ref().and_then(of).map_or("", Text::as_str)
    }
}

impl Container<'_> {
    /// The boards that the container asks for.
    fn boards(&self) -> Option<BoardRequest<'_>> {
        let resources = self.resources.as_ref()?;
        let pairs = [resources.limits.as_ref(), resources.requests.as_ref()];
        BoardRequest::among(pairs.into_iter().flatten().flat_map(OurPairs::iter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pod: &str) -> Option<Requirement> {
        serde_json::from_str::<Pod<'_>>(pod).unwrap().requirement().unwrap()
    }

    #[test]
    fn nulls_anywhere_are_nothing() {
        for pod in [
            "{}",
            r#"{"metadata":null,"spec":null,"status":null}"#,
            r#"{"metadata":{"labels":null,"annotations":null},"spec":{"containers":null,"initContainers":null}}"#,
            r#"{"spec":{"containers":[{"resources":null},{"resources":{"limits":null,"requests":null}},{}]}}"#,
        ] {
            assert_eq!(asked(pod), None, "{pod}");
        }
    }

    #[test]
    fn who_it_is_and_what_it_asks_is_read_and_the_rest_is_skipped() {
        let text = r#"{"metadata":{"name":"p","namespace":"n","uid":"u","ownerReferences":[{"uid":"x","kind":"Foo"},{"uid":"rs","controller":true}],"labels":{"a":"b","fpga-scheduling.io/board":"a10"},
            "annotations":{"x":"\"","fpga-scheduling.io/bitstreams":"sob\u0065l"}},
            "status":{"phase":"Pending","nominatedNodeName":"n1"},
            "spec":{"priority":7,"initContainers":[{"resources":{"requests":{"fpga-scheduling.io/accelerated":"3"}}}],
            "containers":[{"name":"c","resources":{"limits":{"cpu":1,"fpga-scheduling.io/accelerated":"2"},"requests":{"fpga-scheduling.io/accelerated":"2"}}}]}}"#;
        let pod: Pod<'_> = serde_json::from_str(text).unwrap();
        assert_eq!((pod.namespace(), pod.name(), pod.uid(), pod.owner()), ("n", "p", "u", Some("rs")));
        assert_eq!((pod.priority(), pod.nominated_node()), (7, Some("n1")));
        let asked = pod.requirement().unwrap().unwrap();
        assert_eq!((asked.board.as_deref(), asked.boards, asked.slots), (Some("a10"), 3, 1));
        assert_eq!(asked.bitstreams, ["sobel".parse().unwrap()]);
    }

    #[test]
    fn a_resource_of_a_vendor_asks_for_its_boards() {
        let pod = r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"1","fpga-scheduling.io/intel":"2"}}},{}]}}"#;
        let asked = asked(pod).unwrap();
        assert_eq!((asked.vendor.as_deref(), asked.boards), (Some("intel"), 2));
    }
}
