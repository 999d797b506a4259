//! The requirement of a pod, read from its labels, annotations and resources (S-1, B-7).

use crate::bitstream::{BitstreamId, InvalidBitstreamId};
use crate::board_kind::BoardKind;
use crate::board_request::{BoardRequest, OtherResources};
use crate::names::{
    ACCELERATED_RESOURCE, ACCELERATOR_ALIAS, ACCELERATOR_HASH_ALIAS, ALIAS_PREFIX, BITSTREAMS_ANNOTATION,
    BOARD_ALIAS, BOARD_LABEL, LOADED_ALIAS, LOADED_ANNOTATION, MAX_UTILIZATION_ALIAS,
    MAX_UTILIZATION_ANNOTATION, PLATFORM_ALIAS, PLATFORM_ANNOTATION, SHELL_LABEL, SLOTS_ALIAS,
    SLOTS_ANNOTATION, VENDOR_ALIAS, VENDOR_LABEL,
};
use crate::utilization::{InvalidUtilization, Utilization};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of bitstreams that one annotation names.
pub const MAX_BITSTREAMS: usize = 64;
/// Maximum length of the name of a vendor, board, shell or platform, in bytes.
pub const MAX_KIND_BYTES: usize = 1024;

/// The requirement of a pod. Each of its boards must meet all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// Vendor of the board; any vendor if absent.
    pub vendor: Option<String>,
    /// Name of the board; any board if absent.
    pub board: Option<String>,
    /// Version of the shell; any version if absent.
    pub shell: Option<String>,
    /// OpenCL platform of the board (B-6); any platform if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Number of slots that each board must have in total, free or not (S-7).
    pub slots: u32,
    /// Number of different boards that a container needs, from 1: the most that any container of the pod asks for.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub boards: u32,
    /// Utilization above which a board is not considered; any utilization if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_utilization: Option<Utilization>,
    /// Bitstreams that the pod uses. A node that has them scores better; a node is rejected only if they are not valid
    /// on it.
    pub bitstreams: Vec<BitstreamId>,
    /// Bitstreams that must be in slots of the device already (B-6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaded: Vec<BitstreamId>,
    /// For each bitstream that is not valid on every board, the boards that the administrator's catalog lists for it.
    /// The device must be in every one of the lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub valid_on: Vec<Vec<BoardKind>>,
    /// Other identifiers of the bitstreams, by the library: for a name the digests of its variants, for a digest the
    /// names that it is a variant of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub synonyms: BTreeMap<BitstreamId, Vec<BitstreamId>>,
}

/// The parts of a pod that a requirement is read from. `L` and `A` iterate over pairs of key and value.
#[derive(Debug, Clone, Copy)]
pub struct PodText<'a, L, A> {
    /// Labels of the pod.
    pub labels: L,
    /// Annotations of the pod.
    pub annotations: A,
    /// What each container asks for, init containers included. The container that asks for most counts: containers may
    /// share boards.
    pub containers: &'a [BoardRequest<'a>],
}

/// The reason why a pod's requirement cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequirement {
    /// An identifier of a bitstream is invalid.
    #[error("annotation {annotation}: {source}")]
    Bitstream {
        /// Name of the annotation.
        annotation: &'static str,
        /// The fault of the identifier.
        #[source]
        source: InvalidBitstreamId,
    },
    /// The annotation names more than [`MAX_BITSTREAMS`] bitstreams.
    #[error("annotation {0}: it names more than {MAX_BITSTREAMS} bitstreams")]
    TooManyBitstreams(&'static str),
    /// The name is longer than [`MAX_KIND_BYTES`].
    #[error("the {0} has more than {MAX_KIND_BYTES} bytes")]
    TooLong(&'static str),
    /// The annotation's number of slots is not a whole number from 1 to `u32::MAX`.
    #[error(
        "annotation {SLOTS_ANNOTATION}: {0:?} is no number of slots; write a whole number from 1, for example \"2\""
    )]
    Slots(String),
    /// The quantity of the resource is not a whole number up to `u32::MAX`.
    #[error("resource {ACCELERATED_RESOURCE}: the quantity must be a whole number of boards, for example 1")]
    Quantity,
    /// The annotation is not a [`Utilization`].
    #[error("annotation {MAX_UTILIZATION_ANNOTATION}: {0}")]
    MaxUtilization(#[from] InvalidUtilization),
    /// A container asks for two of our resources.
    #[error(
        "a container asks for two resources of fpga-scheduling.io; write one of them, with the number of boards"
    )]
    TwoResources,
    /// Two vendors are asked for.
    #[error(
        "boards of {0:?} and of {1:?} are asked for; a pod gets boards of one vendor: write one resource, and no label \
         that contradicts it"
    )]
    TwoVendors(String, String),
}

impl Default for Requirement {
    /// One board of any kind with a slot.
    fn default() -> Self {
        Self {
            vendor: None,
            board: None,
            shell: None,
            platform: None,
            slots: 1,
            boards: 1,
            max_utilization: None,
            bitstreams: Vec::new(),
            loaded: Vec::new(),
            valid_on: Vec::new(),
            synonyms: BTreeMap::new(),
        }
    }
}

impl Requirement {
    /// The requirement of `pod`; `None` if it is not an FPGA pod. A pod that asks for zero boards is none, whatever its other
    /// labels and annotations are.
    ///
    /// Our own names take precedence over their aliases. An empty label accepts any value.
    ///
    /// # Errors
    /// [`InvalidRequirement`] for the first label, annotation or quantity that is invalid.
    pub fn of_pod<'p, L, A>(pod: PodText<'p, L, A>) -> Result<Option<Self>, InvalidRequirement>
    where
        L: IntoIterator<Item = (&'p str, &'p str)>,
        A: IntoIterator<Item = (&'p str, &'p str)>,
    {
        let mut found = Found::default();
        let containers: Vec<_> =
            pod.containers.iter().filter(|container| !container.is_zero()).copied().collect();
        let mut asks_for_none = !pod.containers.is_empty() && containers.is_empty();
        for (key, value) in pod.labels {
            match key {
                ACCELERATED_RESOURCE if value == "0" => asks_for_none |= containers.is_empty(),
                VENDOR_LABEL => found.vendor = Some(value),
                BOARD_LABEL => found.board = Some(value),
                SHELL_LABEL => found.shell = Some(value),
                _ => continue,
            }
            found.is_fpga_pod = true;
        }
        for (key, value) in pod.annotations {
            found.annotation(key, value);
        }
        if asks_for_none || (!found.is_fpga_pod && containers.is_empty()) {
            return Ok(None);
        }
        let given = |what, own: Option<&str>, alias: Option<&str>| {
            let value = own.or(alias).map(str::trim).filter(|value| !value.is_empty());
            match value {
                Some(value) if value.len() > MAX_KIND_BYTES => Err(InvalidRequirement::TooLong(what)),
                value => Ok(value.map(str::to_owned)),
            }
        };
        let vendor = given("vendor", found.vendor, found.vendor_alias)?;
        let slots = found.slots.or(found.slots_alias);
        let max_utilization = found.max_utilization.or(found.max_utilization_alias);
        Ok(Some(Self {
            vendor: vendor_with(vendor, &containers)?,
            board: given("board", found.board, found.board_alias)?,
            shell: given("shell version", found.shell, None)?,
            platform: given("platform", found.platform, found.platform_alias)?,
            slots: slots.map_or(Ok(1), slots_annotation)?,
            boards: boards(&containers)?,
            max_utilization: max_utilization.map(str::parse).transpose()?,
            bitstreams: found.wanted_bitstreams()?,
            loaded: bitstreams(LOADED_ANNOTATION, found.loaded.or(found.loaded_alias).unwrap_or_default())?,
            valid_on: Vec::new(),
            synonyms: BTreeMap::new(),
        }))
    }

    /// The bitstreams that an object with these annotations uses: a pod, or a Service of functions.
    ///
    /// # Errors
    /// As for [`Self::of_pod`].
    pub fn bitstreams_of<'p>(
        annotations: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> Result<Vec<BitstreamId>, InvalidRequirement> {
        let mut found = Found::default();
        annotations.into_iter().for_each(|(key, value)| found.annotation(key, value));
        found.wanted_bitstreams()
    }

    /// All bitstreams of the requirement: those that the pod uses, then those that must be loaded.
    pub fn all_bitstreams(&self) -> impl Iterator<Item = &BitstreamId> {
        self.bitstreams.iter().chain(&self.loaded)
    }

    /// The other identifiers of a bitstream.
    #[must_use]
    pub fn synonyms_of(&self, id: &BitstreamId) -> &[BitstreamId] {
        self.synonyms.get(id).map_or(&[], Vec::as_slice)
    }
}

#[derive(Default)]
struct Found<'p> {
    is_fpga_pod: bool,
    vendor: Option<&'p str>,
    board: Option<&'p str>,
    shell: Option<&'p str>,
    bitstreams: Option<&'p str>,
    loaded: Option<&'p str>,
    platform: Option<&'p str>,
    slots: Option<&'p str>,
    max_utilization: Option<&'p str>,
    slots_alias: Option<&'p str>,
    loaded_alias: Option<&'p str>,
    max_utilization_alias: Option<&'p str>,
    platform_alias: Option<&'p str>,
    vendor_alias: Option<&'p str>,
    board_alias: Option<&'p str>,
    accelerator: Option<&'p str>,
    accelerator_hash: Option<&'p str>,
}

impl<'p> Found<'p> {
    fn annotation(&mut self, key: &str, value: &'p str) {
        match key {
            BITSTREAMS_ANNOTATION => self.bitstreams = Some(value),
            LOADED_ANNOTATION => self.loaded = Some(value),
            PLATFORM_ANNOTATION => self.platform = Some(value),
            SLOTS_ANNOTATION => self.slots = Some(value),
            MAX_UTILIZATION_ANNOTATION => self.max_utilization = Some(value),
            PLATFORM_ALIAS => self.platform_alias = Some(value),
            SLOTS_ALIAS => self.slots_alias = Some(value),
            LOADED_ALIAS => self.loaded_alias = Some(value),
            MAX_UTILIZATION_ALIAS => self.max_utilization_alias = Some(value),
            VENDOR_ALIAS => self.vendor_alias = Some(value),
            BOARD_ALIAS => self.board_alias = Some(value),
            ACCELERATOR_ALIAS => self.accelerator = Some(value),
            ACCELERATOR_HASH_ALIAS => self.accelerator_hash = Some(value),
            _ if key.starts_with(ALIAS_PREFIX) => {}
            _ => return,
        }
        self.is_fpga_pod = true;
    }

    /// If the aliases give both a name and a digest, the digest is taken: it identifies the same bitstream everywhere.
    fn wanted_bitstreams(&self) -> Result<Vec<BitstreamId>, InvalidRequirement> {
        match (self.bitstreams, self.accelerator_hash, self.accelerator) {
            (Some(list), _, _) => bitstreams(BITSTREAMS_ANNOTATION, list),
            (None, Some(hash), _) if !hash.trim().is_empty() => {
                let hash = hash.trim();
                let text = if hash.contains(':') { hash.to_owned() } else { format!("sha256:{hash}") };
                bitstreams(ACCELERATOR_HASH_ALIAS, &text)
            }
            (None, _, Some(name)) => bitstreams(ACCELERATOR_ALIAS, name),
            (None, _, None) => Ok(Vec::new()),
        }
    }
}

fn bitstreams(annotation: &'static str, list: &str) -> Result<Vec<BitstreamId>, InvalidRequirement> {
    let mut wanted = Vec::new();
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let id = text.parse().map_err(|source| InvalidRequirement::Bitstream { annotation, source })?;
        if !wanted.contains(&id) {
            wanted.push(id);
        }
        if wanted.len() > MAX_BITSTREAMS {
            return Err(InvalidRequirement::TooManyBitstreams(annotation));
        }
    }
    Ok(wanted)
}

fn slots_annotation(text: &str) -> Result<u32, InvalidRequirement> {
    let slots = text.trim().parse().ok().filter(|slots| *slots > 0);
    slots.ok_or_else(|| InvalidRequirement::Slots(text.chars().take(40).collect()))
}

/// The most boards that a container asks for; a pod that asks by label or annotation only needs one.
fn boards(containers: &[BoardRequest<'_>]) -> Result<u32, InvalidRequirement> {
    let mut most = 1;
    for container in containers {
        if container.others == OtherResources::Some {
            return Err(InvalidRequirement::TwoResources);
        }
        let boards = container.quantity.parse::<u32>().map_err(|_| InvalidRequirement::Quantity)?;
        most = most.max(boards);
    }
    Ok(most)
}

/// The vendor of the label, or that of the containers' resources.
fn vendor_with(
    label: Option<String>,
    containers: &[BoardRequest<'_>],
) -> Result<Option<String>, InvalidRequirement> {
    let mut vendor = label;
    for of_resource in containers.iter().filter_map(|container| container.resource.vendor()) {
        match &vendor {
            Some(vendor) if vendor != of_resource => {
                return Err(InvalidRequirement::TwoVendors(vendor.clone(), of_resource.to_owned()));
            }
            Some(_) => {}
            None => vendor = Some(of_resource.to_owned()),
        }
    }
    Ok(vendor)
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn of(
        labels: Pairs<'_>,
        annotations: Pairs<'_>,
        containers: &[&str],
    ) -> Result<Option<Requirement>, String> {
        let pod = PodText {
            labels: labels.iter().copied(),
            annotations: annotations.iter().copied(),
            containers: &containers
                .iter()
                .map(|quantity| BoardRequest::of_any_vendor(quantity))
                .collect::<Vec<_>>(),
        };
        Requirement::of_pod(pod).map_err(|error| error.to_string())
    }

    fn nothing() -> Requirement {
        Requirement::default()
    }

    #[test]
    fn annotations_ask_for_a_platform_slots_and_loaded_bitstreams() {
        let annotations = [
            (PLATFORM_ANNOTATION, "Intel(R) FPGA SDK for OpenCL(TM)"),
            (SLOTS_ANNOTATION, " 2 "),
            (LOADED_ANNOTATION, "sobel, mm"),
            (PLATFORM_ALIAS, "other"),
        ];
        let asked = of(&[], &annotations, &["1", "4"]).unwrap().unwrap();
        assert_eq!(asked.platform.as_deref(), Some("Intel(R) FPGA SDK for OpenCL(TM)"));
        assert_eq!(asked.loaded, ["sobel".parse().unwrap(), "mm".parse().unwrap()]);
        assert_eq!(
            (asked.slots, asked.bitstreams),
            (2, Vec::new()),
            "the annotation says more than the resource"
        );
        let alias = of(&[], &[(PLATFORM_ALIAS, "Xilinx")], &[]).unwrap().unwrap();
        assert_eq!(alias.platform.as_deref(), Some("Xilinx"));
        for name in [PLATFORM_ANNOTATION, LOADED_ANNOTATION] {
            assert_eq!(of(&[], &[(name, "")], &[]), Ok(Some(nothing())), "{name}");
        }
        for slots in ["", "0", "-1", "two", "99999999999"] {
            let error = of(&[], &[(SLOTS_ANNOTATION, slots)], &[]).unwrap_err();
            assert!(
                error.contains("fpga-scheduling.io/slots") && error.contains("write a whole number"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_pod_without_our_names_is_no_fpga_pod() {
        assert_eq!(of(&[("app", "web")], &[("fpga-scheduling.io/bitstream", "x")], &[]), Ok(None));
    }

    #[test]
    fn each_of_our_names_makes_an_fpga_pod() {
        assert_eq!(of(&[], &[], &["1"]), Ok(Some(nothing())));
        assert_eq!(of(&[], &[("blastfunction.io/anything", "x")], &[]), Ok(Some(nothing())));
        assert_eq!(of(&[], &[(BITSTREAMS_ANNOTATION, "")], &[]), Ok(Some(nothing())));
        assert_eq!(of(&[(VENDOR_LABEL, "")], &[], &[]), Ok(Some(nothing())));
    }

    #[test]
    fn a_pod_that_asks_for_zero_boards_is_no_fpga_pod_whatever_else_it_says() {
        let labels = [(VENDOR_LABEL, "intel")];
        let annotations = [(BITSTREAMS_ANNOTATION, "sobel"), (SLOTS_ANNOTATION, "none")];
        for containers in [&["0"][..], &["0", "0"]] {
            assert_eq!(of(&[], &[], containers), Ok(None));
            assert_eq!(of(&labels, &annotations, containers), Ok(None));
        }
        let zero = [(VENDOR_LABEL, "intel"), (ACCELERATED_RESOURCE, "0")];
        assert_eq!(of(&zero, &annotations, &[]), Ok(None));
        assert!(of(&zero, &[], &["1"]).unwrap().is_some(), "a container's request counts before the label");
        assert!(of(&labels, &[], &["0", "1"]).unwrap().is_some());
    }

    #[test]
    fn labels_ask_for_a_board() {
        let labels = [(VENDOR_LABEL, "intel"), (BOARD_LABEL, "a10"), (SHELL_LABEL, "1.2")];
        let asked = of(&labels, &[], &["1"]).unwrap().unwrap();
        assert_eq!(
            (asked.vendor.as_deref(), asked.board.as_deref(), asked.shell.as_deref()),
            (Some("intel"), Some("a10"), Some("1.2"))
        );
    }

    #[test]
    fn aliases_count_where_our_own_names_are_absent() {
        let annotations = [(VENDOR_ALIAS, "xilinx"), (BOARD_ALIAS, "u250"), (ACCELERATOR_ALIAS, "sobel")];
        let asked = of(&[(VENDOR_LABEL, "intel")], &annotations, &[]).unwrap().unwrap();
        assert_eq!((asked.vendor.as_deref(), asked.board.as_deref()), (Some("intel"), Some("u250")));
        assert_eq!(asked.bitstreams, ["sobel".parse().unwrap()]);
    }

    #[test]
    fn an_alias_hash_wins_over_the_alias_name_with_or_without_its_prefix() {
        let digest = "0a".repeat(32);
        for hash in [digest.clone(), format!("sha256:{digest}")] {
            let asked = of(&[], &[(ACCELERATOR_ALIAS, "sobel"), (ACCELERATOR_HASH_ALIAS, &hash)], &[]);
            assert_eq!(asked.unwrap().unwrap().bitstreams, [format!("sha256:{digest}").parse().unwrap()]);
        }
    }

    #[test]
    fn a_list_of_bitstreams_is_read_with_spaces_and_without_repeats() {
        let asked = of(&[], &[(BITSTREAMS_ANNOTATION, " sobel, mm ,,sobel")], &[]).unwrap().unwrap();
        assert_eq!(asked.bitstreams, ["sobel".parse().unwrap(), "mm".parse().unwrap()]);
    }

    #[test]
    fn an_invalid_value_is_refused_with_the_name_of_its_annotation() {
        let error = of(&[], &[(BITSTREAMS_ANNOTATION, "so bel")], &[]).unwrap_err();
        assert!(error.starts_with("annotation fpga-scheduling.io/bitstreams: "), "{error}");
        let many: Vec<_> = (0..=MAX_BITSTREAMS).map(|i| format!("b{i}")).collect();
        assert!(
            of(&[], &[(BITSTREAMS_ANNOTATION, &many.join(","))], &[]).unwrap_err().contains("more than 64")
        );
        let long = "x".repeat(MAX_KIND_BYTES + 1);
        for kind in [VENDOR_ALIAS, BOARD_ALIAS, PLATFORM_ANNOTATION] {
            assert!(of(&[], &[(kind, &long)], &[]).unwrap_err().contains("more than 1024 bytes"), "{kind}");
        }
        for quantity in ["", "-1", "1.5", "1k", "99999999999"] {
            assert!(of(&[], &[], &[quantity]).unwrap_err().contains("whole number"), "{quantity}");
        }
    }

    #[test]
    fn the_quantity_is_the_number_of_boards_of_the_container_that_asks_for_most() {
        let boards = |containers: &[&str]| of(&[], &[], containers).unwrap().unwrap().boards;
        assert_eq!((boards(&["1"]), boards(&["1", "0"]), boards(&["1", "3", "2"])), (1, 1, 3));
        let slots = of(&[], &[(SLOTS_ANNOTATION, "2")], &["3"]).unwrap().unwrap();
        assert_eq!((slots.boards, slots.slots), (3, 2), "slots are those of each board");
    }

    #[test]
    fn a_resource_of_a_vendor_asks_for_boards_of_that_vendor() {
        let asks = |labels: Pairs<'_>, resources: &[&[&'static str]]| {
            let container =
                |names: &&[&'static str]| BoardRequest::among(names.iter().map(|name| (*name, "1")));
            let containers: Vec<_> = resources.iter().filter_map(container).collect();
            let pod = PodText { labels: labels.iter().copied(), annotations: [], containers: &containers };
            Requirement::of_pod(pod).map(|asked| asked.unwrap().vendor)
        };
        const INTEL: &str = "fpga-scheduling.io/intel";
        const XILINX: &str = "fpga-scheduling.io/xilinx";
        assert_eq!(asks(&[], &[&[INTEL]]), Ok(Some("intel".into())));
        assert_eq!(
            asks(&[(VENDOR_LABEL, "intel")], &[&[INTEL], &[ACCELERATED_RESOURCE]]),
            Ok(Some("intel".into()))
        );
        let two = Err(InvalidRequirement::TwoVendors("intel".into(), "xilinx".into()));
        assert_eq!(asks(&[(VENDOR_LABEL, "intel")], &[&[XILINX]]), two);
        assert_eq!(asks(&[], &[&[INTEL], &[XILINX]]), two);
        assert_eq!(asks(&[], &[&[INTEL, ACCELERATED_RESOURCE]]), Err(InvalidRequirement::TwoResources));
    }

    #[test]
    fn utilization_slots_and_loaded_bitstreams_have_aliases() {
        let annotations = [(MAX_UTILIZATION_ALIAS, "0.5"), (SLOTS_ALIAS, "2"), (LOADED_ALIAS, "mm")];
        let asked = of(&[], &annotations, &[]).unwrap().unwrap();
        assert_eq!(asked.max_utilization, Some("0.5".parse().unwrap()));
        assert_eq!((asked.slots, asked.loaded), (2, vec!["mm".parse().unwrap()]));
        let ours = of(&[], &[(MAX_UTILIZATION_ANNOTATION, "0.9"), (MAX_UTILIZATION_ALIAS, "0.5")], &[]);
        assert_eq!(ours.unwrap().unwrap().max_utilization, Some("0.9".parse().unwrap()));
        let error = of(&[], &[(MAX_UTILIZATION_ANNOTATION, "90%")], &[]).unwrap_err();
        assert!(error.contains("max-utilization") && error.contains("\"0.9\""), "{error}");
    }

    proptest! {
        #[test]
        fn no_annotation_makes_the_parser_panic(list in ".{0,100}", hash in ".{0,80}", quantity in ".{0,10}") {
            let _ = of(&[], &[(BITSTREAMS_ANNOTATION, &list)], &[&quantity]);
            let _ = of(&[], &[(ACCELERATOR_HASH_ALIAS, &hash)], &[]);
        }
    }
}
